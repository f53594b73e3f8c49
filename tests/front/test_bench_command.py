"""``seawall bench``: its flags, its progress bar, and what it refuses."""

from __future__ import annotations

import asyncio
import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from service import cli
from service.bench.client import Address
from service.bench.command import bench
from service.bench.options import BadOption, Rate, parse
from service.bench.progress import Progress
from tests.front.bench_stub import SHORT, Page, serving

# ---------------------------------------------------------------- flags


def test_defaults() -> None:
    """Without flags: the ladder in multiples of C, thirty seconds each, on this machine."""
    options = parse([])
    assert [rate.label for rate in options.rates] == ["0.5x", "1x", "2x", "5x", "10x"]
    assert (options.seconds, options.address.authority) == (30, "127.0.0.1:8000")
    assert options.metrics_address == options.address
    assert Rate(2.0, of_capacity=True).rps(40.0) == 80
    assert Rate(2.0, of_capacity=False).rps(40.0) == 2
    assert parse(["--rates", "0.5x, 120"]).rates[1].label == "120/s"


@pytest.mark.parametrize(
    "flags, says",
    [
        (["--rates", "0x"], "--rates"),
        (["--rates", "fast"], "0.5x,2x or 100,500"),
        (["--rates", "nanx"], "--rates"),
        (["--seconds", "0"], "from 0.5 to 86400"),
        (["--seconds", "nan"], "from 0.5 to 86400"),
        (["--connections", "1.5"], "from 1 to 10000"),
        (["--seconds", "5", "--warmup-s", "3"], "half of --seconds"),
        (["--words-min", "9", "--words-max", "8"], "--words-max"),
        (["--arrivals", "steady"], "--arrivals"),
        (["--plot", "report.pdf"], ".png or .svg"),
        (["--second", "3"], "--second"),
        (["ftp://127.0.0.1"], "http://127.0.0.1:8000"),
        (["a", "b"], "unrecognized"),
        (["http://192.0.2.1:8000"], "192.0.2.1 is not on this machine"),
        (["http://db.internal"], "--allow-remote"),
        (["http://127.0.0.1", "--metrics-url", "http://192.0.2.1"], "--allow-remote"),
        (["--json", "no/such/folder/x.json"], "--json: the file cannot be written"),
    ],
)
def test_bad_flags(flags: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A flag that cannot be used is one line and code 2, before anything is sent anywhere."""
    assert cli.main(["bench", *flags]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    [line] = output.err.splitlines()
    assert line.startswith("seawall: ")
    assert says in line


@pytest.mark.parametrize(
    "url", ["http://localhost:1", "http://127.8.9.1:1", "http://[::1]:1", "unix:some/path"]
)
def test_loopback_needs_no_permission(url: str) -> None:
    """What cannot leave the machine is loaded without further ado; the rest only when allowed."""
    assert parse([url]).address == Address.parse(url)
    assert parse(["http://192.0.2.1", "--allow-remote"]).address.host == "192.0.2.1"
    with pytest.raises(BadOption):
        parse(["http://192.0.2.1"])


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    """``--help`` explains the flags and warns."""
    assert cli.main(["bench", "--help"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "--allow-remote" in out
    assert "floods the server" in out


def test_plot_without_the_library(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A plot without the drawing library is refused before the load, and says what to install."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert bench(["--plot", str(tmp_path / "x.png")]) == 2
    assert "pip install 'seawall[bench]'" in capsys.readouterr().err


# ---------------------------------------------------------------- servers that cannot be loaded


@pytest.mark.parametrize(
    "values, says",
    [
        ({"readyz": (503, {"ready": False, "reason": "loading"})}, "not ready: loading"),
        ({"readyz": (503, {"reason": "a\x1b[31m"})}, r"not ready: 'a\x1b[31m'"),
        ({"root": (200, {"name": "other"})}, "not seawall"),
        ({"root": (200, [1])}, "not seawall"),
        ({"predict": (401, {"code": "unauthorized"})}, "not answered: unauthorized"),
        (
            {"root": (200, {"name": "seawall", "task": "fill-mask"}), "status": (401, {})},
            "/status, where the mask token stands, cannot be read: it needs an API key",
        ),
    ],
)
def test_servers_that_cannot_be_loaded(
    values: dict[str, Page], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A server that is not ready, something else, or closed to us is one line and code 1."""
    with serving(**values) as (url, here):
        assert bench([url, *SHORT]) == 1
        assert sum(asked.method == "POST" for asked in here.asked) <= 1
    output = capsys.readouterr()
    assert output.out == ""
    [line] = output.err.splitlines()
    assert line.startswith("seawall: ")
    assert says in line


def test_nobody_there(capsys: pytest.CaptureFixture[str]) -> None:
    """A server that cannot be reached is one line and code 1."""
    assert bench(["http://127.0.0.1:9", *SHORT]) == 1
    said = capsys.readouterr().err
    assert said == "seawall: nothing answers there; is the server running?\n"


def test_capacity_of_a_server_that_only_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    """C of a server that answers nothing is not made up: one line says how requests ended."""
    first = [(200, {"tokens": 1})]  # a single prediction goes through, no more

    def said() -> tuple[int, Any]:
        return first.pop() if first else (503, {"code": "draining", "retryable": True})

    with serving(predict=said) as (url, _):
        assert bench([url, "--rates", "1x", "--capacity-s", "0.5"]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert "requests ended with draining" in output.err


def test_api_key(tmp_path: Path) -> None:
    """The key of a file goes with every request, and stands in no report."""
    keys, report = tmp_path / "keys", tmp_path / "r.json"
    keys.write_text("hunter2-hunter2\n")
    with serving() as (url, here):
        assert bench([url, *SHORT, "--api-key-file", str(keys), "--json", str(report)]) == 0
        sent = {asked.headers.get("authorization") for asked in here.asked}
    assert sent == {"Bearer hunter2-hunter2"}
    assert "hunter2" not in report.read_text()
    assert bench([*SHORT, "--api-key-file", str(tmp_path / "none")]) == 1


# ---------------------------------------------------------------- the bar


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("make, bar", [(Terminal, True), (io.StringIO, False)])
def test_progress(make: Callable[[], io.StringIO], bar: bool) -> None:
    """A terminal sees a bar that is wiped in the end; anything else one line for each phase."""
    stream = make()

    async def main() -> None:
        async with Progress(stream).phase("2x", 1.0) as tally:
            tally.sent = 3
            tally.count(200)
            tally.count(503)
            tally.count(0)
            await asyncio.sleep(0)  # the bar is drawn at once, by a task of its own

    asyncio.run(main())
    text = stream.getvalue()
    assert ("[" in text and "\r" in text) == bar
    last = text.rpartition("\r\033[K")[2]
    assert last.startswith("2x: 3 sent, 1 ok, 1 refused, 1 failed in ")
    assert last.endswith(" s\n")
