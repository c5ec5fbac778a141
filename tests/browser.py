"""What tests with a real browser share: Chromium, a server process, and questions to a chart in the page."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright
from ports import free_port

ROOT = Path(__file__).resolve().parents[1]
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)
READY = "[data-testid=stApp][data-test-script-state=notRunning]"
ALLOWED = ("_stcore/health", "_stcore/host-config")
"""Streamlit asks for these below a deep link first, where they are not."""


def chromium() -> str | None:
    """Return the browser's path: BROWSER_PATH, else what is installed."""
    return os.environ.get("BROWSER_PATH") or shutil.which("chromium") or shutil.which("google-chrome")


@contextmanager
def browser() -> Iterator[Browser]:
    """Start Chromium."""
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium(), args=FLAGS.split())
        yield started
        started.close()


@contextmanager
def server(app: Path, folder: Path = ROOT, base: str = "", log: Path | None = None,
           **environment: str) -> Iterator[str]:
    """Run ``streamlit run app`` in `folder` on a free port; yield its address, with the path `base` if there is one.

    `log`: takes its standard error.
    """
    port = free_port()
    command = [sys.executable, "-m", "streamlit", "run", str(app), f"--server.port={port}",
               "--server.headless=true", *([f"--server.baseUrlPath={base}"] if base else [])]
    address = f"http://127.0.0.1:{port}{f'/{base}' if base else ''}"
    with log.open("wb") if log else nullcontext() as errors:
        process = subprocess.Popen(command, cwd=folder, stderr=errors,
                                   env=os.environ | {"PYTHONPATH": str(folder)} | environment)
        try:
            _wait_for(address, process)
            yield address
        finally:
            process.terminate()
            process.wait(timeout=20)


def _wait_for(address: str, process: subprocess.Popen[bytes], limit_s: float = 30) -> None:
    """Wait until the server answers."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end and process.poll() is None:
        try:
            urllib.request.urlopen(f"{address}/_stcore/health", timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError(f"no answer from {address} within {limit_s} s (exit status {process.poll()})")


class Visit:
    """One page opened in the browser, and everything that went wrong in it."""

    def __init__(self, page: Page, address: str) -> None:
        self.page, self.address = page, address
        self.errors: list[str] = []
        self.hosts: set[str] = set()
        page.on("console", self._listen)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self.hosts.add(request.url.split("/")[2]))

    def _listen(self, message: ConsoleMessage) -> None:
        where = message.location.get("url", "")
        if message.type == "error" and not where.endswith(ALLOWED):
            self.errors.append(f"{message.text} ({where})")

    def open(self, path: str = "") -> Visit:
        """Open a path and wait for the script to end."""
        self.page.goto(self.address + path)
        self.settle()
        return self

    def settle(self) -> None:
        """Wait until the script has run and the browser has painted."""
        self.page.wait_for_selector(READY)
        self.page.wait_for_timeout(150)
        self.page.wait_for_selector(READY)

    def chart(self, expression: str, number: int = 0) -> Any:
        """Evaluate JavaScript about a chart, there called `gd`, once it has been drawn."""
        find = "document.querySelectorAll('.driftscope-chart')[n]"
        self.page.wait_for_function(f"n => {find}?._fullLayout", arg=number)
        return self.page.evaluate(f"n => {{ const gd = {find}; {expression} }}", number)
