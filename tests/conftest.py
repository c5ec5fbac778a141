"""Fixtures for tests with a real browser; everything else needs none. Machines are shared: no test has a deadline.

Hypothesis draws the same examples every time: what fails on one machine fails on all. Torch takes one thread, here and
in every process that a test starts: with as many as there are cores, small steps wait for whatever else runs there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before anything imports torch

import browser as real
import pytest
from hypothesis import settings
from opened import Opened
from playwright.sync_api import Browser, expect
from postgres import Postgres
from postgres import postgres as started_postgres

settings.register_profile("shared", deadline=None, derandomize=True)
settings.load_profile("shared")
expect.set_options(timeout=60_000)  # as what a page is asked for; only what fails takes it


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """One Chromium for the whole session."""
    if real.chromium() is None:
        pytest.fail("no Chromium: set BROWSER_PATH")
    with real.browser() as started:
        yield started


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server for the whole session."""
    with started_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def chart_address() -> Iterator[str]:
    """The application of tests/chart_app.py, running."""
    with real.server(Path(__file__).with_name("chart_app.py")) as address:
        yield address


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where the store of the real application is."""
    return f"sqlite:///{tmp_path_factory.mktemp('app') / 'store.db'}"


@pytest.fixture(scope="module")
def run(url: str) -> Iterator[str]:
    """A finished training of a small stack in that store."""
    from small import TRAINED

    from core import archive, service

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRIFTSCOPE_STORE", url)
        yield str(archive.play(TRAINED, keep=True).run)
        service.stop()


@pytest.fixture(scope="module")
def address(url: str) -> Iterator[str]:
    """The real application with its real workers, running, and a store of its own."""
    with real.server(real.ROOT / "app.py", DRIFTSCOPE_STORE=url) as running:
        yield running


@pytest.fixture
def visit(chromium: Browser, address: str) -> Iterator[real.Visit]:
    """One visit to it, in English, in which nothing may go wrong and no other host be asked."""
    context = chromium.new_context(locale="en-US", viewport={"width": 1280, "height": 768})
    context.set_default_timeout(60_000)
    opened = real.Visit(context.new_page(), address)
    yield opened
    assert opened.errors == []
    assert opened.hosts <= {address.removeprefix("http://")}
    context.close()


@pytest.fixture
def open_file(chromium: Browser) -> Iterator[Callable[..., Opened]]:
    """Opens a file offline in a theme; nothing may go wrong in it, and it may ask for nothing but itself."""
    opened: list[Opened] = []

    def open_it(path: Path, theme: Literal["light", "dark"] = "light") -> Opened:
        context = chromium.new_context(viewport={"width": 1280, "height": 900}, color_scheme=theme, offline=True)
        opened.append(Opened(context.new_page(), path))
        return opened[-1]

    yield open_it
    for one in opened:
        one.check()
        one.page.context.close()
