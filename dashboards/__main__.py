"""``python -m dashboards``: write the dashboard and its table, or check that they are fresh."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from dashboards import grafana, readme
from dashboards.schemas import faults
from dashboards.seawall import LEFT_OUT, SEAWALL

HERE = Path(__file__).parent


def written(folder: Path = HERE) -> dict[Path, str]:
    """Every generated file with its text."""
    paper = folder / "README.md"
    return {
        folder / "seawall.json": grafana.text(SEAWALL),
        paper: readme.filled(paper.read_text(), SEAWALL, LEFT_OUT),
    }


def main(argv: Sequence[str] | None = None, folder: Path = HERE) -> int:
    """Run it; the exit code is 1 for a stale file or a fault."""
    parser = argparse.ArgumentParser(prog="python -m dashboards", description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing, fail if stale")
    parser.add_argument(
        "--schemas", type=Path, metavar="FOLDER",
        help="check against Grafana's JSON schemas in this folder (needs jsonschema)",
    )  # fmt: skip
    args = parser.parse_args(argv)
    if args.schemas:
        try:
            found = faults(grafana.build(SEAWALL), args.schemas)
        except ModuleNotFoundError:
            parser.error("the package jsonschema is missing: pip install jsonschema")
        except FileNotFoundError as error:
            parser.error(f"no such schema: {error.filename}")
        print("\n".join(found) or "Grafana's schemas take it")
        return int(bool(found))
    stale = [path for path, text in written(folder).items() if not _is(path, text)]
    for path in stale:
        print(f"{path.name} is stale: python -m dashboards" if args.check else f"wrote {path.name}")
    if args.check:
        return int(bool(stale))
    for path, text in written(folder).items():
        path.write_text(text)
    return 0


def _is(path: Path, text: str) -> bool:
    return path.exists() and path.read_text() == text


if __name__ == "__main__":
    sys.exit(main())
