"""Make the pictures of the papers: ``python -m tests.pictures WHICH``.

dashboard: docs/dashboard.png, ten minutes of a real incident (``scene``) in Grafana's own
components (``drawing``). Needs node with npm, Chromium and Prometheus; npm installs some 460 MB
below tests/pictures/panels, once. With --prometheus it draws the last minutes that one of yours
has seen.

status-page: docs/status-page.png, two minutes of the packaged model. Needs Chromium.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.pictures import drawing, scene, status_page
from tests.tools import ROOT

NEEDS = {"dashboard": ("npm", "chromium", "prometheus"), "status-page": ("chromium",)}


def main(arguments: Sequence[str]) -> int:
    """Make one; the exit code is 1 if it cannot be made, or a panel shows nothing."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.pictures",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("which", choices=NEEDS)
    parser.add_argument("--to", type=Path, help="in the place of the paper's own picture")
    parser.add_argument("--prometheus", metavar="URL", help="draw what this one has seen")
    parser.add_argument("--minutes", type=float, default=60.0, help="of it (60)")
    parser.add_argument("--scrape-s", type=float, default=15.0, help="how often it scrapes (15)")
    given = parser.parse_args(arguments)
    missing = [one for one in NEEDS[given.which] if not shutil.which(one)]
    if missing and not (missing == ["prometheus"] and given.prometheus):
        parser.error(f"not installed: {', '.join(missing)}")
    to = given.to or ROOT / "docs" / f"{given.which}.png"
    if given.which == "status-page":
        status_page.draw(to, say)
        return 0
    try:
        found = _dashboard(given, to)
    except drawing.CannotDraw as error:
        say(str(error))
        return 1
    empty = [title for title, state in found.items() if state != "data"]
    say(f"wrote {to}" + (f"; nothing to show: {', '.join(empty)}" if empty else ""))
    return int(bool(empty))


def _dashboard(given: argparse.Namespace, to: Path) -> dict[str, str]:
    if given.prometheus:
        end = time.time()
        start = end - 60 * given.minutes
        return drawing.draw(
            given.prometheus.rstrip("/"), start=start, end=end, scrape_s=given.scrape_s, to=to
        )
    drawing.build()  # what cannot be drawn is known before ten minutes are spent
    with tempfile.TemporaryDirectory() as folder, scene.played(Path(folder), say) as found:
        return drawing.draw(
            found.address, start=found.start, end=time.time(), scrape_s=scene.SCRAPE_S, to=to
        )


def say(text: str) -> None:
    """Tell whoever waits."""
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
