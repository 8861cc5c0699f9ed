"""Pages in a real browser: the system's Chromium, without a window, through Playwright.

No browser is downloaded: where none is installed the tests that need one are skipped, but fail
where ``CI`` is ``true``.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import cast

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
LOCAL = ("file:", "data:", "blob:", "about:", "http://127.0.0.1:")
# As root there is no sandbox; and whatever a page asks for, nothing leaves this machine.
ARGUMENTS = ("--no-sandbox", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")


class WatchedPage(Page):
    """What :func:`open_page` returns: a page that keeps what went wrong on it, in order."""

    errors: list[str]


# Of a module, not of the session: Playwright leaves an event loop in the thread and processes
# beside it, which tests of notebooks and of what stays running must not see.
@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Start Chromium once a module."""
    found = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if found is None:
        said = f"no browser on this machine: looked for {', '.join(PROGRAMS)}"
        if os.environ.get("CI") == "true":
            pytest.fail(f"{said}; install Debian's package `chromium`")
        pytest.skip(said)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=list(ARGUMENTS))
        yield browser
        browser.close()


def open_page(browser: Browser, url: str, width: int = 1280, height: int = 900) -> WatchedPage:
    """Open a page in a context of its own, with nothing kept from others.

    Its list `errors` gets errors of the console and of scripts, requests that go outside and
    requests that fail, as long as the page is open. Close it with ``page.context.close()``.
    """
    context = browser.new_context(viewport={"width": width, "height": height})
    page = cast(WatchedPage, context.new_page())
    errors = page.errors = []

    def said(message: ConsoleMessage) -> None:
        if message.type == "error":
            errors.append(f"console: {message.text}")

    def asked(request: Request) -> None:
        if not request.url.startswith(LOCAL):
            errors.append(f"outside: {request.url}")

    page.on("console", said)
    page.on("pageerror", lambda error: errors.append(f"script: {error}"))
    page.on("request", asked)
    page.on("requestfailed", lambda request: errors.append(f"failed: {request.url}"))
    page.goto(url)
    return page
