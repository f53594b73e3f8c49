"""The picture of the status page: the packaged model, asked by a few clients, overloaded twice.

The second overload still goes on when the picture is taken, so that the bars show it and the last
two minutes tell the first one from it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page

from tests.e2e.browser import LONG_MS, chromium
from tests.e2e.load import Call, crowd
from tests.e2e.server import Server

WIDTH = 1280
CLIENTS = 3
PAUSE_S = 0.25

BEFORE_S, BETWEEN_S = 30.0, 40.0
SEEN_S = 8.0
"""Into an overload of 15 seconds: rates are over some seconds."""

WAIT = "document.getElementById('wait-text').innerText.split(' ')"
FULL = f"((wait) => wait[0] > 0.8 * wait[2])({WAIT})"
"""The wait ahead, as in "0.45 of 0.50 s", is near its cap."""

ANSWERED = "document.getElementById('answer').innerText.includes('%')"

TEXT = "Paris is the [MASK] of France."


def draw(to: Path, say: Callable[[str], None]) -> None:
    """Make it; takes about two minutes."""
    usual = [Call(TEXT), Call("A week has seven [MASK].")]
    with Server() as server, chromium() as browser:
        page = browser.new_page(viewport={"width": WIDTH, "height": 900})
        page.set_default_timeout(LONG_MS)
        page.goto(f"{server.url}/")
        with crowd(server.port, usual, clients=CLIENTS, pause_s=PAUSE_S):
            say("a few clients")
            time.sleep(BEFORE_S)
            _overload(page)
            say("the first overload")
            time.sleep(BETWEEN_S)
            page.locator("#text").fill(TEXT)
            page.locator("#send").click()
            page.wait_for_function(f"() => {ANSWERED}")
            _overload(page)
            say("the second overload")
            time.sleep(SEEN_S)
            page.wait_for_function(f"() => {FULL}")
            page.screenshot(path=to, full_page=True)


def _overload(page: Page) -> None:
    page.locator("#alone").check()
    page.locator("#overload").click()
