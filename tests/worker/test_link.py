"""The worker's end of the socket keeps frames whole and knows when it is over."""

from __future__ import annotations

import socket
import threading

import pytest

from service.worker.framing import WireError
from service.worker.link import EXIT_BROKEN_WIRE, EXIT_ENDED, Link
from service.worker.wire import (
    Probe,
    Probed,
    Result,
    ToWorker,
    encode,
)
from tests.worker.line import Line


def test_frames_of_many_threads_stay_whole() -> None:
    """Frames larger than the socket's buffer, sent from three threads at once, arrive whole."""
    ours, theirs = socket.socketpair()
    ended: list[int] = []
    with ours, theirs:
        link = Link(theirs, ended.append)

        def send(number: int) -> None:
            for _ in range(10):
                link.send(Result(number, [bytes([number]) * 500_000], 0.1, 1, 1))

        threads = [threading.Thread(target=send, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        line = Line(ours)
        found = [line.next() for _ in range(30)]
        for thread in threads:
            thread.join()
    for frame in found:
        assert isinstance(frame, Result)
        assert frame.outputs == [bytes([frame.batch]) * 500_000]
    assert sorted(frame.batch for frame in found if isinstance(frame, Result)) == [
        *[0] * 10, *[1] * 10, *[2] * 10,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "data,code",
    [(b"", EXIT_ENDED), (b"\x00\x00", EXIT_ENDED), (b"\xff" * 4, EXIT_BROKEN_WIRE)],
    ids=["closed", "torn", "broken"],
)
def test_the_end_is_told_once(data: bytes, code: int) -> None:
    """Frames before the end are handed on, then the end is told with its exit code."""
    ours, theirs = socket.socketpair()
    taken: list[ToWorker] = []
    codes: list[int] = []
    with theirs:
        ours.sendall(encode(Probe(1)) + encode(Probe(2)) + data)
        ours.close()
        Link(theirs, codes.append).read(taken.append)
    assert taken == [Probe(1), Probe(2)]
    assert codes == [code]


def test_nobody_listens() -> None:
    """Sending to a front that is gone is the end, not an error."""
    ours, theirs = socket.socketpair()
    codes: list[int] = []
    with theirs:
        ours.close()
        Link(theirs, codes.append).send(Probed(1, ok=True))
    assert codes == [EXIT_ENDED]


def test_too_large_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frame over the limit raises and leaves the stream as it was."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        link = Link(theirs, list[int]().append)
        monkeypatch.setattr("service.worker.framing.MAX_FRAME", 100)
        with pytest.raises(WireError):
            link.send(Result(1, [b"x" * 200], 0.1, 1, 1))
        link.send(Probed(2, ok=True))
        assert Line(ours).next() == Probed(2, ok=True)
