"""Fuzzing guided by coverage, for as long as you like.

``pip install atheris``, then ``python -m tests.fuzz body -max_total_time=600`` (the flags are
libFuzzer's). An input that breaks a law is written to ``crash-…``: put it into ``found``, from
where every test run tries it again.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

DICTIONARY = Path(__file__).parent / "http.dict"


def main() -> int:
    """Run one target."""
    try:
        atheris: Any = importlib.import_module("atheris")
    except ImportError:
        sys.stderr.write("this needs atheris: pip install atheris\n")
        return 2
    with atheris.instrument_imports(include=["service", "json", "uvicorn"]):
        from tests.fuzz.found import FOUND
        from tests.fuzz.targets import TARGETS
    if len(sys.argv) < 2 or sys.argv[1] not in TARGETS:
        sys.stderr.write(f"usage: python -m tests.fuzz {{{','.join(TARGETS)}}} [libFuzzer flags]\n")
        return 2
    name = sys.argv.pop(1)
    with TemporaryDirectory() as folder:
        for number, data in enumerate(FOUND[name].values()):
            (Path(folder) / str(number)).write_bytes(data)
        atheris.Setup([sys.argv[0], f"-dict={DICTIONARY}", *sys.argv[1:], folder], TARGETS[name])
        atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
