"""Prints the path of the Chromium that Playwright installed; exit status 1 when there is none."""

import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

with sync_playwright() as playwright:
    path = Path(playwright.chromium.executable_path)
if not path.exists():
    sys.exit(1)
print(path)
