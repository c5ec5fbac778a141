"""Fixtures for tests with a real browser; everything else needs none. Machines are shared: no test has a deadline.

Hypothesis draws the same examples every time: what fails on one machine fails on all.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import browser as real
import pytest
from hypothesis import settings
from playwright.sync_api import Browser

settings.register_profile("shared", deadline=None, derandomize=True)
settings.load_profile("shared")


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """One Chromium for the whole session."""
    if real.chromium() is None:
        pytest.fail("no Chromium: set BROWSER_PATH")
    with real.browser() as started:
        yield started


@pytest.fixture(scope="session")
def chart_address() -> Iterator[str]:
    """The application of tests/chart_app.py, running."""
    with real.server(Path(__file__).with_name("chart_app.py")) as address:
        yield address
