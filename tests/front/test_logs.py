"""The one pipe of the logs: what goes in, what comes out, and what never does."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import fcntl
import json
import logging
import os
import re
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from service import logs
from service.logs import EVENTS, LineWriter, error_fields, get_log
from service.logs.setup import MOST_CHARS
from service.logs.writer import MOST_LINES
from service.traces import MOST_FRAMES, MOST_IN_ALL, place

ROOT = Path(__file__).resolve().parents[2]
SECRET = "SECRET-7731"
EVENT_NAME = re.compile(r"[a-z]+\.[a-z_]+")
LIMIT_S = 60.0


@dataclass
class Pipe:
    """A log that goes to a pipe; ``lines`` shuts it down and reads everything."""

    reader: int
    writer: int
    dropped: list[int]

    def configure(self, level: str = "info", form: str = "json") -> None:
        settings = SimpleNamespace(log_level=level, log_format=form)
        logs.configure(settings, self.dropped.append, fd=self.writer)

    def text(self) -> str:
        logs.shutdown()
        os.set_blocking(self.reader, False)
        found = b""
        while True:
            try:
                chunk = os.read(self.reader, 1 << 20)
            except BlockingIOError:
                break
            found += chunk
        return found.decode()

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text().splitlines()]


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end waits for queued lines as long as a busy machine takes for them."""
    monkeypatch.setattr(LineWriter.close, "__defaults__", (LIMIT_S,))


PATIENT = f"LineWriter.close.__defaults__ = ({LIMIT_S},)"
"""The same in a process of its own."""


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    """A pipe with room for everything, and logs that are let go of at the end."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 1 << 20)  # room for all that a test writes
    made = Pipe(reader, writer, [])
    try:
        yield made
    finally:
        logs.shutdown()
        os.close(reader)
        os.close(writer)


def run_script(script: str, *args: str) -> subprocess.CompletedProcess[bytes]:
    """A process of its own, since loggers, hooks and warnings belong to a process."""
    head = f"""
        import asyncio, logging, sys, threading, warnings
        from types import SimpleNamespace
        from service import logs
        from service.logs import LineWriter
        {PATIENT}
        lost = []
        logs.configure(SimpleNamespace(log_level="debug", log_format="json"), lost.append)
        log = logs.get_log()
    """
    code = textwrap.dedent(head) + textwrap.dedent(script)
    return subprocess.run(
        [sys.executable, "-X", "dev", "-c", code, *args],
        cwd=ROOT,
        capture_output=True,
        timeout=LIMIT_S,
        check=False,
    )


def json_lines(output: bytes) -> list[dict[str, Any]]:
    """Every line as an object; anything else fails."""
    found = [json.loads(line) for line in output.decode().splitlines()]
    assert all(isinstance(line, dict) for line in found)
    return found


# ---------------------------------------------------------------- a line


def test_an_event_is_one_json_object(pipe: Pipe) -> None:
    """A line has time, level and name first, then the fields."""
    pipe.configure()
    get_log().info("request.done", request_id="abc", items=2, total_ms=1.5, ok=True, none=None)
    (line,) = pipe.lines()
    assert list(line)[:3] == ["timestamp", "level", "event"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", line.pop("timestamp"))
    assert line == {
        "level": "info",
        "event": "request.done",
        "request_id": "abc",
        "items": 2,
        "total_ms": 1.5,
        "ok": True,
        "none": None,
    }
    assert pipe.dropped == []


@pytest.mark.parametrize(
    "level, expected",
    [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)],
)
def test_level(pipe: Pipe, level: str, expected: int) -> None:
    """Events below the level leave no line."""
    pipe.configure(level)
    for name in ("debug", "info", "warning", "error"):
        getattr(get_log(), name)("server.started")
    assert len(pipe.lines()) == expected


@pytest.mark.parametrize(
    "evil",
    [
        'a"\n{"level":"critical"}',
        "a\r\nb",
        "\x1b[31mred",
        "a\x00b\x7f",
        "next\x85line\u2028and\u2029para",
        "\ud800 alone",
        "\u202egnp.exe",
        'a" ,"level":"critical',
    ],
)
@pytest.mark.parametrize("form", ["json", "console"])
def test_a_value_cannot_forge(pipe: Pipe, form: str, evil: str) -> None:
    """Whatever a value holds, it is one line without control characters, under our keys."""
    pipe.configure(form=form)
    get_log().info("request.done", request_id=evil, nested={"list": [evil]})
    get_log().info("server.stopped")
    text = pipe.text()
    assert text.count("\n") == 2
    assert len(text.splitlines()) == 2
    assert all(char.isprintable() for line in text.splitlines() for char in line)
    if form == "json":
        line = json.loads(text.splitlines()[0])
        assert set(line) == {"timestamp", "level", "event", "request_id", "nested"}
        assert line["level"] == "info"


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,9}_", fullmatch=True), st.text(), max_size=4))
def test_any_text_is_one_line(fields: dict[str, str]) -> None:
    """For all texts: one line, valid JSON, no control character even after decoding."""
    reader, writer = os.pipe()
    try:
        pipe = Pipe(reader, writer, [])
        pipe.configure()
        get_log().info("request.done", **fields)
        (line,) = pipe.lines()
    finally:
        os.close(reader)
        os.close(writer)
    assert set(line) == {"timestamp", "level", "event", *fields}
    for key, text in fields.items():
        assert line[key].isprintable() or not line[key]
        assert len(line[key]) == min(len(text), MOST_CHARS)


def test_values_are_plain_and_bounded(pipe: Pipe) -> None:
    """No repr of an object, no endless text, no number that is no JSON."""

    class Loud:
        def __repr__(self) -> str:
            return SECRET

    pipe.configure()
    deep: Any = SECRET
    for _ in range(50):
        deep = [deep]
    get_log().info(
        "request.done",
        loud=Loud(),
        raw=SECRET.encode(),
        nan=float("nan"),
        inf=float("-inf"),
        long="x" * 100_000,
        many=list(range(10_000)),
        mapping={Loud: {1: 2.0}},
        deep=deep,
    )
    text = pipe.text()
    line = json.loads(text)
    assert SECRET not in text
    assert line["loud"] == "Loud"
    assert line["raw"] == "bytes"
    assert line["nan"] is line["inf"] is None
    assert len(line["long"]) == MOST_CHARS
    assert len(line["many"]) == 100
    assert len(text) < 5000


def test_nothing_is_remembered_between_events(pipe: Pipe) -> None:
    """A field of one request, or of a context variable, never appears in another's line."""
    pipe.configure()
    structlog.contextvars.bind_contextvars(request_id="one")
    try:
        get_log().info("request.done", request_id="two", trace_id="t")
        get_log().info("request.done")
    finally:
        structlog.contextvars.clear_contextvars()
    first, second = pipe.lines()
    assert first["request_id"] == "two"
    assert set(second) == {"timestamp", "level", "event"}


@pytest.mark.parametrize("form", ["auto", "json"])
def test_json_unless_on_a_terminal(pipe: Pipe, form: str) -> None:
    """A pipe gets JSON by itself."""
    pipe.configure(form=form)
    get_log().info("server.started")
    assert pipe.text().startswith('{"timestamp"')


def test_a_terminal_gets_the_console_form() -> None:
    """On a terminal, ``auto`` is a line for people."""
    leader, terminal = os.openpty()
    pipe = Pipe(leader, terminal, [])
    try:
        pipe.configure(form="auto")
        get_log().info("server.started", port=1)
        logs.shutdown()
        text = os.read(leader, 1 << 16).decode()
    finally:
        os.close(leader)
        os.close(terminal)
    assert "server.started" in text
    assert not text.startswith("{")


# ---------------------------------------------------------------- exceptions


def raised(make: Callable[[], BaseException]) -> BaseException:
    """An exception with frames, a cause, a context and members that all hold the secret."""
    local = SECRET  # a local that a traceback with locals would show
    try:
        try:
            try:
                raise KeyError(local)  # noqa: TRY301 - the chain is the point
            except KeyError as inner:
                raise ValueError(f"/srv/app/{local}") from inner
        except ValueError:
            raise make()  # noqa: B904 - the context is the point
    except BaseException as error:  # noqa: BLE001
        error.add_note(SECRET)
        return error


def group() -> BaseException:
    """A group of an error with a path and another group."""
    members = [OSError(2, SECRET, f"/srv/{SECRET}"), ExceptionGroup(SECRET, [KeyError(SECRET)])]
    return ExceptionGroup(SECRET, members)


@pytest.mark.parametrize(
    "make",
    [lambda: RuntimeError(SECRET), group, lambda: SystemExit(SECRET)],
    ids=["plain", "group", "exit"],
)
def test_an_exception_is_class_and_frames(make: Callable[[], BaseException]) -> None:
    """Class, file, line and function; no message, note, argument or local, causes included."""
    fields = error_fields(raised(make))
    assert SECRET not in json.dumps(fields)
    assert "/srv" not in json.dumps(fields)
    assert fields["error"] == type(make()).__name__
    assert re.fullmatch(r"tests/front/test_logs\.py:\d+ raised", fields["frames"][-1])
    assert fields["caused_by"]["error"] == "ValueError"
    assert fields["caused_by"]["caused_by"]["error"] == "KeyError"


def test_members_of_a_group_are_shown() -> None:
    """Each member of a group, and of groups inside it, has its class."""
    fields = error_fields(raised(group))
    assert [member["error"] for member in fields["members"]] == [
        "FileNotFoundError",
        "ExceptionGroup",
    ]
    assert fields["members"][1]["members"][0]["error"] == "KeyError"


def test_an_exception_of_a_library_is_named_with_its_module() -> None:
    """A class that is not built in has its module's name before it."""
    assert error_fields(json.JSONDecodeError(SECRET, SECRET, 0)) == {
        "error": "json.decoder.JSONDecodeError",
        "frames": [],
    }


def test_endless_exceptions_end() -> None:
    """Recursion, circles of causes and huge groups give a bounded description."""

    def dive(depth: int) -> None:
        if depth == 0:
            raise ValueError
        dive(depth - 1)

    with pytest.raises(ValueError) as caught:  # noqa: PT011 - it has no message
        dive(200)
    assert len(error_fields(caught.value)["frames"]) == MOST_FRAMES
    one, other = ValueError(), KeyError()
    one.__cause__, other.__cause__ = other, one
    assert error_fields(one)["caused_by"] == {"error": "KeyError", "frames": []}
    huge: Exception = ValueError()
    for _ in range(4):
        huge = ExceptionGroup("", [huge, *(ValueError() for _ in range(500))])
    assert json.dumps(error_fields(huge)).count('"error"') <= MOST_IN_ALL


@pytest.mark.parametrize(
    "filename, shown",
    [
        (str(ROOT / "service/http/api.py"), "service/http/api.py"),
        ("/opt/venv/lib/python3.11/site-packages/starlette/routing.py", "starlette/routing.py"),
        ("/usr/lib/python3/dist-packages/yaml/nodes.py", "yaml/nodes.py"),
        (asyncio.__file__, "asyncio/__init__.py"),
        ("/srv/somebody/secret/model.py", "model.py"),
        ("<frozen runpy>", "<frozen runpy>"),
        (f"<{SECRET}>", "<code>"),
    ],
)
def test_a_file_is_named_without_the_machine(filename: str, shown: str) -> None:
    """Files are named from the package on; where it is installed is nobody's business."""
    assert place(filename) == shown


def test_exc_info_is_described_the_same_way(pipe: Pipe) -> None:
    """``log.exception`` and ``exc_info`` cannot bring a message in."""
    pipe.configure()
    error = raised(group)
    try:
        raise error
    except BaseExceptionGroup:
        get_log().exception("internal.error")
    get_log().error("internal.error", exc_info=error)
    get_log().error("internal.error", exc_info=(type(error), error, None), stack_info=True)
    get_log().error("internal.error", exc_info=True)
    text = pipe.text()
    assert SECRET not in text
    *described, bare = [json.loads(line) for line in text.splitlines()]
    assert len(described) == 3
    assert all(line["error"] == "ExceptionGroup" for line in described)
    assert "error" not in bare


# ---------------------------------------------------------------- everything else that logs

ELSEWHERE = f"""
    SECRET = {SECRET!r}
    for name in ("uvicorn.error", "uvicorn.access", "asyncio", "httptools", "starlette", "x" * 9):
        logger = logging.getLogger(name)
        for level in (5, 10, 20, 25, 30, 35, 40, 50, 99):
            logger.log(level, "%s said %s", SECRET, SECRET)
    logging.getLogger("uvicorn.error").error("%d", SECRET)  # a record that cannot be formatted
    warnings.warn(SECRET, RuntimeWarning)
    try:
        raise ExceptionGroup(SECRET, [ValueError(SECRET)])
    except ExceptionGroup:
        logging.getLogger("uvicorn.error").exception(SECRET)

    async def main():
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(logs.loop_exception_handler)
        loop.call_soon(lambda secret: 1 / 0, SECRET)
        async def fails(secret): raise KeyError(secret)
        task = asyncio.create_task(fails(SECRET), name=SECRET)
        await asyncio.wait([task])
        del task
        loop.call_exception_handler({{"message": SECRET}})
        reset = ConnectionResetError(SECRET)
        loop.call_exception_handler({{"message": SECRET, "exception": reset}})
    asyncio.run(main())

    def dies(secret): raise OSError(secret)
    thread = threading.Thread(target=dies, args=(SECRET,), name=SECRET)
    thread.start(); thread.join()
    class Bad:
        def __del__(self): raise ValueError(SECRET)
    Bad()
    log.info("server.stopped")
    raise RuntimeError(SECRET)
"""


def test_everything_goes_through_the_pipe_without_its_text() -> None:
    """Loggers, warnings, asyncio, threads and an uncaught exception: JSON lines, no message."""
    done = run_script(ELSEWHERE)
    assert done.returncode == 1
    assert done.stderr == b""
    lines = json_lines(done.stdout)
    assert SECRET.encode() not in done.stdout
    assert {line["event"] for line in lines} == {
        "library.message",
        "internal.error",
        "server.stopped",
    }
    library = [line for line in lines if line["event"] == "library.message"]
    for line in library:
        assert set(line) <= {
            *("timestamp", "level", "event", "logger", "place", "error", "frames"),
            *("members", "caused_by"),
        }
    loggers = {line["logger"] for line in library}
    assert loggers == {
        *("uvicorn.error", "asyncio", "httptools", "starlette", "x" * 9, "py.warnings"),
    }
    assert {line["where"] for line in lines if line["event"] == "internal.error"} == {
        *("loop", "thread", "destructor", "main"),
    }
    levels = [line["level"] for line in library if line["logger"] == "starlette"]
    assert levels == ["warning", "warning", "error", "error", "error"]


def test_a_clients_reset_is_no_error() -> None:
    """A connection that a client cut is logged for debugging only."""
    done = run_script(
        """
        logs.configure(SimpleNamespace(log_level="info", log_format="json"), lost.append)
        async def main():
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(logs.loop_exception_handler)
            loop.call_exception_handler({"message": "", "exception": BrokenPipeError()})
        asyncio.run(main())
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_uvicorn_says_nothing_in_its_own_words() -> None:
    """A real server that starts, fails inside an application and stops leaves our lines only."""
    done = run_script(
        """
        import http.client, uvicorn
        async def app(scope, receive, send):
            raise RuntimeError("SECRET-7731")
        config = uvicorn.Config(app, port=0, log_config=None, access_log=False, lifespan="off")
        server = uvicorn.Server(config)
        def ask():
            port = server.servers[0].sockets[0].getsockname()[1]
            client = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            client.request("GET", "/SECRET-7731")
            log.info("request.done", status=client.getresponse().status)
            client.close()
            server.should_exit = True
        async def main():
            serving = asyncio.create_task(server.serve())
            while not server.started:
                await asyncio.sleep(0.01)
            await asyncio.to_thread(ask)
            await serving
        asyncio.run(main())
        """
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert SECRET.encode() not in done.stdout
    lines = json_lines(done.stdout)
    assert sorted(line["event"] for line in lines) == ["library.message", "request.done"]
    (error,) = (line for line in lines if line["event"] == "library.message")
    assert (error["logger"], error["level"], error["error"]) == (
        *("uvicorn.error", "error", "RuntimeError"),
    )


def test_shutdown_gives_back_what_was_taken(pipe: Pipe) -> None:
    """Loggers, hooks and warnings of the process are as they were before."""
    root = logging.getLogger()

    def present() -> tuple[object, ...]:
        hooks = (sys.excepthook, threading.excepthook, sys.unraisablehook)
        return (*hooks, *root.handlers, root.level, logging.raiseExceptions)

    before = present()
    pipe.configure()
    assert present() != before
    pipe.configure("debug")
    logs.shutdown()
    logs.shutdown()
    assert present() == before


# ---------------------------------------------------------------- the writer


def test_an_unread_pipe_never_blocks_and_the_lost_are_counted() -> None:
    """With nobody reading, logging goes on; later lines flow again; none is lost uncounted."""
    script = """
        import time
        def count():
            return sum(lost)
        for number in range(30_000):
            log.info("request.done", number=number)
        print(count(), file=sys.stderr, flush=True)
        sys.stdin.readline()
        late = 0
        while True:
            before = count()
            late += 1
            log.info("server.stopped", late=late)
            if count() == before:
                break
            time.sleep(0.01)
        logs.shutdown()
        print(count(), late, file=sys.stderr, flush=True)
    """
    head = f"""
        import sys
        from types import SimpleNamespace
        from service import logs
        from service.logs import LineWriter
        {PATIENT}
        lost = []
        logs.configure(SimpleNamespace(log_level="info", log_format="json"), lost.append)
        log = logs.get_log()
    """
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(head) + textwrap.dedent(script)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    watchdog = threading.Timer(LIMIT_S, child.kill)
    watchdog.start()
    try:
        assert child.stdin
        assert child.stdout
        assert child.stderr
        lost_unread = int(child.stderr.readline())
        assert lost_unread > 30_000 - 3 * MOST_LINES
        output: list[bytes] = []
        stdout = child.stdout
        reading = threading.Thread(target=lambda: output.append(stdout.read()))
        reading.start()
        child.stdin.write(b"\n")
        child.stdin.flush()
        lost_in_all, late = map(int, child.stderr.readline().split())
        reading.join(LIMIT_S)
        assert child.wait(LIMIT_S) == 0
    finally:
        watchdog.cancel()
        child.kill()
        child.communicate()
    lines = json_lines(output[0])
    assert len(lines) + lost_in_all == 30_000 + late
    assert lines[-1]["event"] == "server.stopped"
    numbers = [line["number"] for line in lines if "number" in line]
    assert numbers == sorted(set(numbers))


def test_an_unread_pipe_does_not_keep_the_process_alive() -> None:
    """A process whose log nobody reads ends by itself, with its own exit code."""
    reader, writer = os.pipe()
    try:
        code = textwrap.dedent(
            """
            import sys
            from types import SimpleNamespace
            from service import logs
            logs.configure(SimpleNamespace(log_level="info", log_format="json"), lambda n: None)
            for number in range(20_000):
                logs.get_log().info("request.done", number=number)
            sys.exit(7)
            """
        )
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            stdout=writer,
            stderr=subprocess.PIPE,
            timeout=LIMIT_S,
            check=False,
        )
    finally:
        os.close(reader)
        os.close(writer)
    assert (done.returncode, done.stderr) == (7, b"")


@pytest.fixture
def ends() -> Iterator[tuple[int, int]]:
    """The reading and the writing end of a pipe."""
    reader, writer = os.pipe()
    yield reader, writer
    for fd in (reader, writer):
        with contextlib.suppress(OSError):  # the test closed it
            os.close(fd)


def test_a_reader_that_left_costs_lines_only(ends: tuple[int, int]) -> None:
    """After the reader is gone lines are lost and counted, and the writer lives on."""
    reader, writer = ends
    lost = threading.Semaphore(0)
    lines = LineWriter(writer, lost.release)
    os.close(reader)
    for _ in range(3):
        lines.put(b"line\n")
        assert lost.acquire(timeout=LIMIT_S)
    assert lines.close(LIMIT_S)


def test_a_non_blocking_descriptor_loses_nothing(ends: tuple[int, int]) -> None:
    """Somebody else made the pipe non-blocking: the writer waits for room."""
    reader, writer = ends
    os.set_blocking(writer, False)
    lost: list[int] = []
    lines = LineWriter(writer, lost.append)
    sent = [b"%06d" % number + b"x" * 500 + b"\n" for number in range(1000)]
    for line in sent:
        lines.put(line)
    found = b""
    while len(found) < sum(map(len, sent)):
        found += os.read(reader, 1 << 16)
    assert lines.close(LIMIT_S)
    assert found == b"".join(sent)
    assert lost == []


def test_the_end_writes_what_is_queued(ends: tuple[int, int]) -> None:
    """Closing writes all lines that a reader takes; later ones are lost and counted."""
    reader, writer = ends
    lost: list[int] = []
    lines = LineWriter(writer, lost.append)
    for number in range(100):
        lines.put(b"%d\n" % number)
    assert lines.close(LIMIT_S)
    assert os.read(reader, 1 << 16).split() == [b"%d" % number for number in range(100)]
    lines.put(b"late\n")
    assert lost == [1]


def test_the_queue_is_bounded_in_bytes(ends: tuple[int, int]) -> None:
    """A few huge lines fill the queue as many small ones do."""
    _, writer = ends
    lost: list[int] = []
    lines = LineWriter(writer, lost.append)
    huge = b"x" * (1 << 20) + b"\n"
    for _ in range(20):
        lines.put(huge)
    assert 14 <= sum(lost) <= 17  # the pipe and the writer's hand hold one or two
    assert not lines.close(0.01)
    os.close(ends[0])  # nobody will read: the writer's thread ends
    assert lines.close(LIMIT_S)


# ---------------------------------------------------------------- the events' names


NO_EVENTS = {"http.disconnect", "model.safetensors"}
"""Words of other vocabularies that look like events."""


def test_code_and_list_of_events_agree() -> None:
    """Every event name in the code has a row in the list, and every row is used."""
    nouns = "|".join(sorted({name.partition(".")[0] for name in EVENTS}))
    looks_like_one = re.compile(rf"(?:{nouns})\.[a-z_]+")
    found = {
        node.value
        for path in (ROOT / "service").rglob("*.py")
        if path.name != "events.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and looks_like_one.fullmatch(node.value)
    }
    assert found - NO_EVENTS == set(EVENTS)


def first_arguments() -> Iterator[tuple[str, str]]:
    """File and literal first argument of every call of a log in the package."""
    levels = {"debug", "info", "warning", "error", "critical", "exception"}
    for path in sorted((ROOT / "service").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in levels
                and node.args
                and isinstance(node.args[0], ast.Constant)
            ):
                yield str(path.relative_to(ROOT)), str(node.args[0].value)


def test_whatever_is_logged_is_an_event() -> None:
    """No call of a log says a sentence: its first argument is a dotted name of the list."""
    assert [(path, name) for path, name in first_arguments() if name not in EVENTS] == []
    assert all(EVENT_NAME.fullmatch(event) for event in EVENTS)


def test_nobody_else_logs_or_prints_in_the_front() -> None:
    """Rooms of the front log through the pipe: no module asks ``logging`` for a logger."""
    allowed = {"service/logs/library.py", "service/logs/setup.py"}
    found = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "service").rglob("*.py")
        if "worker" not in path.parts and "logging.getLogger" in path.read_text()
    }
    assert found <= allowed
