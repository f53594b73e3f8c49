"""``seawall bench``: flags in, report out, exit code.

======  ==========================================================
 code    when
======  ==========================================================
 0       the report is there, whatever it says
 1       the server cannot be reached, is not ready or ended
 2       a flag cannot be used, or a file cannot be written
======  ==========================================================
"""

from __future__ import annotations

import asyncio
import resource
import sys
from collections.abc import Sequence
from pathlib import Path

import uvloop

from service import NAME
from service.bench.options import BadOption, Options, help_text, parse
from service.bench.plot import NoPlot, draw, require_plotting
from service.bench.progress import Progress
from service.bench.report import to_json
from service.bench.run import run
from service.bench.table import show
from service.bench.target import BenchError

OK, FAILED, BAD_FLAGS = 0, 1, 2


def bench(args: Sequence[str]) -> int:
    """Run one benchmark; the report goes to stdout, everything else to stderr.

    Returns:
        The exit code.
    """
    if not {"--help", "-h"}.isdisjoint(args):
        print(help_text(), end="")
        return OK
    try:
        options = parse(args)
        _check_files(options)
    except (BadOption, NoPlot) as refusal:
        return _end(str(refusal), BAD_FLAGS)
    raise_file_limit()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            report = runner.run(run(options, Progress(sys.stderr)))
    except BenchError as error:
        return _end(str(error), FAILED)
    print(show(report), end="")
    try:
        if options.json is not None:
            options.json.write_bytes(to_json(report))
        if options.plot is not None:
            draw(report, options.plot)
    except OSError:
        return _end("a file could not be written", BAD_FLAGS)
    return OK


def raise_file_limit() -> None:
    """Let this process open as many connections as it is allowed to."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _check_files(options: Options) -> None:
    """Find out before the load what could not be written after it."""
    if options.plot is not None:
        require_plotting()
    for flag, path in (("--json", options.json), ("--plot", options.plot)):
        if path is not None and not _can_write(path):
            raise BadOption(f"{flag}: the file cannot be written there")


def _can_write(path: Path) -> bool:
    try:
        with path.open("ab"):
            return True
    except OSError:
        return False


def _end(line: str, code: int) -> int:
    print(f"{NAME}: {line}", file=sys.stderr)
    return code
