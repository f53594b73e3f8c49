"""Run an image as it is meant to run, and hold it to what is said of it.

Usage: ``python deploy/image_check.py [--engine podman|docker] [IMAGE]``

It starts three containers of IMAGE (``seawall``) one after another, prints a line for each law with
what was seen, and removes them again; the exit code is 1 if a law does not hold. It takes half a
minute. Which storage and runtime an engine uses is said by its own files and variables
(``CONTAINERS_STORAGE_CONF``, ``DOCKER_HOST``, ...), not here.

Laws
- An image that was only built is a claim: everything below is asked of a running container.
- The options are those of the Dockerfile's head and the limits those of the manifests, without any
  network on top: whoever runs it so gets what is shown here.
- A request inside is answered before the container ends, and its log line outlives it: no client
  has to be quick enough to see its answer.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any

HARDENED = (
    "--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL",  # noqa: S108 - the container's own
    "--security-opt", "no-new-privileges", "--memory", "2g", "--stop-timeout", "45",
)  # fmt: skip
"""As in the Dockerfile's head."""

OFFLINE = ("--network", "none")
MEMORY_BYTES = 2 << 30
USER = 10001

START_S = 120.0
"""Longest until the model is loaded: generous, for a slow disk reads its wheels cold."""

LOOK_S = 0.5
SLOW_MS = 3000
"""How long the request takes that is inside when the container is told to stop."""

KILLED = 137
"""128 + SIGKILL: what a container ends with that was killed for its memory."""

TEXT = "Paris is the [MASK] of France."
ANSWER = "capital"

ASK = """
import sys
from urllib.request import Request, urlopen
path, body, *headers = sys.argv[1:]
named = dict(header.split("=", 1) for header in headers)
asked = Request("http://127.0.0.1:8000" + path, body.encode() or None, named)
print(urlopen(asked, timeout=60).read().decode())
"""

LOOK = """
import json, os
status = dict(line.split(":\\t", 1) for line in open("/proc/1/status") if ":\\t" in line)
def writes(folder):
    try:
        open(folder + "/written", "w").close()
    except OSError as error:
        return os.strerror(error.errno)
    return "written"
print(json.dumps({
    "command": open("/proc/1/cmdline").read().split("\\0")[:-1],
    "status": {name: value.split() for name, value in status.items()},
    "interfaces": sorted(os.listdir("/sys/class/net")),
    "writes": {folder: writes(folder) for folder in ("/", "/etc", "/seawall", "/tmp")},
}))
"""
"""What a process inside sees of process 1 and of the file system."""


class Failed(Exception):
    """A container could not be started or asked; the message says which and how."""


class Engine:
    """An engine's command line.

    Args:
        program: podman, docker, or what understands the same words.
        folder: where it runs; Podman's monitor leaves a file there when memory ran out.
    """

    def __init__(self, program: str, folder: str) -> None:
        self._program, self._folder = program, folder

    def say(self, *words: str, fails: bool = False, timeout_s: float = 90.0) -> str:
        """Run one command; what it printed on standard output.

        Raises:
            Failed: it did not end with 0, and ``fails`` is not set.
        """
        done = subprocess.run(
            [self._program, *words],
            capture_output=True, text=True, check=False, timeout=timeout_s, cwd=self._folder,
        )  # fmt: skip
        if done.returncode and not fails:
            raise Failed(f"{' '.join(words[:2])}: {done.stderr.strip()}")
        return done.stdout.strip()

    @contextmanager
    def container(self, image: str, *options: str) -> Iterator[Container]:
        """A started container, removed at the end whatever it does."""
        name = self.say("run", "--detach", *OFFLINE, *HARDENED, *options, image).splitlines()[-1]
        try:
            yield Container(self, name)
        finally:
            self.say("rm", "--force", name, fails=True)

    def ends_with(self, image: str, *options: str, code: str) -> int:
        """Run Python code instead of the server, to its end; the exit code."""
        words = ["run", "--rm", *OFFLINE, *options, "--entrypoint", "python", image, "-c", code]
        return subprocess.run(
            [self._program, *words],
            capture_output=True, check=False, timeout=90, cwd=self._folder,
        ).returncode  # fmt: skip


class Container:
    """One container that runs.

    Args:
        engine: whose it is.
        name: its id.
    """

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine, self.name = engine, name

    def python(self, code: str, *arguments: str, fails: bool = False, detach: bool = False) -> str:
        """Run Python code inside, beside the server; what it printed."""
        flag = ["--detach"] if detach else []
        words = ["exec", *flag, self.name, "python", "-c", code, *arguments]
        return self._engine.say(*words, fails=fails)

    def ask(self, path: str, body: str = "", *headers: str, fails: bool = False) -> str:
        """The answer of the server to a client inside; empty for one that is no 200."""
        return self.python(ASK, path, body, *headers, fails=fails)

    def wait_for(self, path: str, what: str) -> None:
        """Wait until a page holds these words.

        Raises:
            Failed: it took longer than a start may take.
        """
        until = time.monotonic() + START_S
        while what not in self.ask(path, fails=True):
            if time.monotonic() > until:
                raise Failed(f"{path} never said {what}")
            time.sleep(LOOK_S)

    def end(self, *words: str) -> int:
        """Tell it to end, wait for that, and say with which exit code it did."""
        self._engine.say(*words, self.name)
        return int(self._engine.say("wait", self.name))

    def logged(self) -> list[dict[str, Any]]:
        """The lines of its log."""
        lines = self._engine.say("logs", self.name).splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]


Seen = Iterator[tuple[str, object, bool]]
"""What is to hold, what was seen, and whether that is it."""


def as_it_will_run(engine: Engine, image: str) -> Seen:
    """A container with nothing but the options: rights, files, limits, an answer, a stop."""
    with engine.container(image) as one:
        one.wait_for("/readyz", '"ready":true')
        yield "ready without a network", one.ask("/readyz"), True
        inside = json.loads(one.python(LOOK))
        yield "no interface but loopback", inside["interfaces"], inside["interfaces"] == ["lo"]
        status, command = inside["status"], inside["command"]
        yield "process 1 is the server", command, command[-2:] == ["/seawall/bin/seawall", "serve"]
        ids = {*status["Uid"], *status["Gid"]}
        yield "user and group", sorted(ids), ids == {str(USER)}
        caps = {name: status[name][0] for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb")}
        yield "no capability", caps, not any(int(value, 16) for value in caps.values())
        yield "no new privileges", status["NoNewPrivs"], status["NoNewPrivs"] == ["1"]
        yield "system calls filtered", status["Seccomp"], status["Seccomp"] == ["2"]
        places = inside["writes"]
        kept = {place for place, said in places.items() if said != "written"}
        yield "files are read only but for /tmp", places, kept == {"/", "/etc", "/seawall"}
        [limit] = [
            float(line.split()[1])
            for line in one.ask("/metrics").splitlines()
            if line.startswith("seawall_memory_limit_bytes ")
        ]
        yield "the server knows its memory limit", int(limit), limit == MEMORY_BYTES
        first = json.loads(one.ask("/", TEXT))[0]
        seen = {name: first[name] for name in ("token_str", "score")}
        yield f"an answer to {TEXT!r}", seen, first["token_str"].strip() == ANSWER
        code = one.end("stop")
        yield "stopped when idle, exit code", code, code == 0


def with_work_inside(engine: Engine, image: str) -> Seen:
    """SIGTERM while a request runs: it is answered, then the container ends by itself."""
    variables = ("SEAWALL_BIND=127.0.0.1:8000", "SEAWALL_REHEARSAL=true")
    options = [word for pair in variables for word in ("--env", pair)]
    with engine.container(image, *options) as one:
        one.wait_for("/readyz", '"ready":true')
        slow, patient = f"X-Rehearse-Fault=slow={SLOW_MS}", "X-Request-Timeout-Ms=60000"
        one.python(ASK, "/", TEXT, slow, patient, detach=True)
        one.wait_for("/metrics", 'seawall_requests_in_flight{stage="running"} 1')
        code = one.end("kill", "--signal", "TERM")
        events = [line.get("outcome", line["event"]) for line in one.logged()]
        last = [one for one in events if one in {"server.draining", "ok", "server.stopped"}]
        in_order = last == ["server.draining", "ok", "server.stopped"]
        yield "SIGTERM with a request inside", last, in_order
        yield "and then the exit code", code, code == 0


def over_its_limit(engine: Engine, image: str) -> Seen:
    """The limit is the kernel's: who takes more is killed."""
    limit = ("--memory", "64m", "--memory-swap", "64m")
    code = engine.ends_with(image, *limit, code="b'x' * (256 << 20)")
    yield "256 MiB under a limit of 64: exit code", code, code == KILLED


def main(argv: Sequence[str] | None = None) -> int:
    """Run it; the exit code is 1 if a law does not hold, or a container cannot be asked."""
    parser = argparse.ArgumentParser(prog="python deploy/image_check.py")
    parser.add_argument("--engine", default="podman" if shutil.which("podman") else "docker")
    parser.add_argument("image", nargs="?", default="seawall", metavar="IMAGE")
    args = parser.parse_args(argv)
    with TemporaryDirectory() as folder:
        engine, broken = Engine(args.engine, folder), 0
        try:
            for story in (as_it_will_run, with_work_inside, over_its_limit):
                for law, seen, holds in story(engine, args.image):
                    print(f"{'ok    ' if holds else 'BROKEN'} {law}: {seen}", flush=True)
                    broken += not holds
        except (Failed, OSError, subprocess.TimeoutExpired) as error:
            print(f"image_check: {error}", file=sys.stderr)
            return 1
    return int(bool(broken))


if __name__ == "__main__":
    raise SystemExit(main())
