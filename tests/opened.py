"""A hand-out as its reader opens it: from disk, in a real Chromium, with the network off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from playwright.sync_api import Page


class Opened:
    """A file, opened, and everything that went wrong or was asked for."""

    def __init__(self, page: Page, path: Path) -> None:
        self.page = page
        self.errors: list[str] = []
        self.asked: list[str] = []
        page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("dialog", lambda dialog: (self.errors.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: self.asked.append(request.url))
        page.goto(path.as_uri())
        for chart in page.locator(".chart").all():
            chart.locator(".main-svg").first.wait_for()

    def chart(self, function: str, number: int = 0) -> Any:
        """Return what a function of JavaScript makes of a chart."""
        return self.page.locator(".driftscope-chart").nth(number).evaluate(function)

    def check(self) -> None:
        """Nothing went wrong in it, and it asked for nothing but itself."""
        assert self.errors == []
        assert [url for url in self.asked if not url.startswith(("file:", "blob:null/", "data:"))] == []
