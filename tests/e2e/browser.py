"""A real browser for tests: headless Chromium that reaches this machine and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright

from tests.tools import require_tool

NOWHERE = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
"""No other name or address leads anywhere, as on a machine without a network."""

LONG_MS = 120_000
"""Generous: the machine may be busy."""

ANSWERED = "Failed to load resource: the server responded with a status of "
"""What Chromium itself writes for every answer that is an error: refusals are what we came for."""


@contextmanager
def chromium() -> Iterator[Browser]:
    """Debian's Chromium; without it the test is skipped, with ``CI=true`` it fails."""
    program = require_tool("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=[NOWHERE], timeout=LONG_MS
        )
        yield browser
        browser.close()


@dataclass
class Visit:
    """A page that somebody looks at, and what happened behind it.

    Attributes:
        page: the page.
        requests: every address that it asked for, in order.
        sent: the same as what they were.
        faults: what the browser complained of, but for answers that are errors.
    """

    page: Page
    requests: list[str] = field(default_factory=list)
    sent: list[Request] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.set_default_timeout(LONG_MS)
        self.page.on("request", self._request)
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))

    def _request(self, request: Request) -> None:
        self.requests.append(request.url)
        self.sent.append(request)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"} and not message.text.startswith(ANSWERED):
            self.faults.append(message.text)

    @property
    def hosts(self) -> set[str]:
        """Everybody who was asked for anything."""
        return {urlsplit(address).netloc for address in self.requests}

    def text(self, name: str) -> str:
        """What an element says, by its id."""
        return self.page.locator(f"#{name}").inner_text()

    def until(self, condition: str, argument: Any = None) -> None:
        """Wait until an expression of the page's language is true."""
        self.page.wait_for_function(condition, arg=argument)

    def says(self, name: str, *words: str) -> None:
        """Wait until an element says all of these words."""
        self.until(
            "([name, words]) => words.every("
            "(word) => document.getElementById(name).innerText.includes(word))",
            [name, list(words)],
        )


@contextmanager
def visit(browser: Browser, url: str, **how: Any) -> Iterator[Visit]:
    """A visitor of his own: no cookies, nothing cached, nothing remembered."""
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **how})
    try:
        seen = Visit(context.new_page())
        seen.page.goto(f"{url}/")
        yield seen
    finally:
        context.close()
