"""Draws the dashboard from a Prometheus, in Grafana's own components and a real browser.

``panels/`` is a small project of node: it takes the dashboard's JSON as Grafana would, and hands
each panel to the component that Grafana draws it with (npm's ``@grafana/ui``). Grafana's server is
not in it, and neither is what only its server has: the state timeline, vertical marks, exemplars,
headings and the bar at the top are drawn by the project itself, and the picture says so.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, Route

from tests.contract.grafana_board import BOARD
from tests.e2e.browser import LONG_MS, chromium

PROJECT = Path(__file__).parent / "panels"
MODULES = PROJECT / "node_modules"
BUNDLE = PROJECT / "dist"

HERE = "http://127.0.0.1:9"
"""Where the page seems to come from; nobody is asked, every file of it is handed over."""

PLACES = {
    "/public/build/img/icons/": MODULES / "@grafana/ui/dist/public/img/icons",
    "/public/fonts/inter/": MODULES / "inter-ui/web",
    "/dist/": BUNDLE,
}
"""Where the files lie that the page asks for."""

PAGE = """<!doctype html><html><head><meta charset="utf-8"><title>Seawall</title>
<link rel="stylesheet" href="/dist/panels.css">
<script>window.__grafana_public_path__ = "/public/"</script></head>
<body style="margin:0"><div id="root"></div><script src="/dist/panels.js"></script></body></html>"""

TWICE = "requestAnimationFrame(() => requestAnimationFrame(go))"
"""Every graph has its canvas once the browser has drawn twice."""

WIDTH = 1480
"""Of the picture in pixels: three panels side by side can still be read."""


class CannotDraw(Exception):
    """Something is missing, or a panel cannot be drawn; the message says what."""


def build() -> None:
    """Install what the project names, unless it is there, and bundle it."""
    lock = MODULES / ".package-lock.json"
    if not lock.exists() or lock.stat().st_mtime < (PROJECT / "package-lock.json").stat().st_mtime:
        _run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
    _run(
        str(MODULES / ".bin/esbuild"), "src/main.jsx", "--bundle", "--outfile=dist/panels.js",
        "--jsx=automatic", "--loader:.ttf=empty", "--loader:.svg=dataurl",
        "--define:global=window", '--define:process.env.NODE_ENV="production"',
        "--log-level=warning",
    )  # fmt: skip


def _run(*command: str) -> None:
    try:
        subprocess.run(command, cwd=PROJECT, check=True)
    except FileNotFoundError as error:
        raise CannotDraw(f"{command[0]} is not installed") from error
    except subprocess.CalledProcessError as error:
        raise CannotDraw(f"{command[0]} failed") from error


def _answer(route: Route, source: str) -> None:
    path = route.request.url.removeprefix(HERE)
    if path.startswith("/api/"):
        route.fulfill(response=route.fetch(url=source + path))
        return
    if path == "/":
        route.fulfill(body=PAGE, content_type="text/html")
        return
    for start, folder in PLACES.items():
        file = folder / path.removeprefix(start)
        if path.startswith(start) and file.is_file():
            route.fulfill(path=file)
            return
    route.fulfill(status=404, body="")


def draw(source: str, *, start: float, end: float, scrape_s: float, to: Path) -> dict[str, str]:
    """Draw all of it; returns ``data`` or ``empty`` by the title of each panel.

    Args:
        source: a Prometheus' address.
        start: of the time shown, in seconds since the epoch.
        end: of the time shown.
        scrape_s: how often it scrapes.
        to: the picture's file.

    Raises:
        CannotDraw: the page complained, or what it needs is missing.
    """
    build()
    of_ui = json.loads((MODULES / "@grafana/ui/package.json").read_text())
    order = {
        "board": BOARD,
        "job": "seawall",
        "from": round(start * 1000),
        "to": round(end * 1000),
        "scrapeMs": round(scrape_s * 1000),
        "width": WIDTH,
        "mode": "dark",
        "note": (
            f"dashboards/seawall.json over a real Prometheus, in the components of Grafana's own "
            f"@grafana/ui {of_ui['version']}. Not among them, and drawn alike: the state "
            "timeline, vertical marks, exemplars, headings and the bar at the top."
        ),
    }
    faults: list[str] = []
    with chromium() as browser:
        page = browser.new_page(viewport={"width": WIDTH, "height": 1000})
        page.set_default_timeout(LONG_MS)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.route(f"{HERE}/**", lambda route: _answer(route, source))
        page.goto(f"{HERE}/")
        found: dict[str, str] = _draw(page, order)
        page.wait_for_load_state("networkidle")
        # All of it in sight: the browser leaves out what is not, the table of Grafana's does too.
        height = page.locator("#board").evaluate("(board) => board.offsetHeight")
        page.set_viewport_size({"width": WIDTH, "height": height})
        page.wait_for_selector("[role=gridcell]")
        page.wait_for_load_state("networkidle")
        page.locator("#board").screenshot(path=to)
    if faults:
        raise CannotDraw("; ".join(faults))
    return found


def _draw(page: Page, order: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = page.evaluate("(order) => window.draw(order)", order)
    page.evaluate(f"() => new Promise((go) => {TWICE})")
    return found
