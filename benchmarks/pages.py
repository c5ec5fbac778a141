"""How long a visitor waits, in a real Chromium: opening to first chart, and a moved control to the changed chart.

Run: BROWSER_PATH=$(which chromium) python benchmarks/pages.py. Starts the app with a store of its own on a free port;
each control change asks for experiments that nobody has computed, so three variants are computed every time.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from browser import READY, Visit, browser, server  # noqa: E402

FIRST = ".driftscope-chart .scatterlayer .trace"


def opening(visit: Visit, path: str) -> float:
    """Return the seconds from navigation to three drawn lines."""
    begun = time.perf_counter()
    visit.page.goto(visit.address + path)
    visit.page.wait_for_function(f"() => document.querySelectorAll('{FIRST}').length >= 3")
    return time.perf_counter() - begun


def control(visit: Visit, seed: int) -> float:
    """Return the seconds from another initialization chosen in its menu to a chart whose numbers are other ones."""
    page = visit.page
    opening(visit, f"/drift?x={_seeded(seed)}")
    page.wait_for_selector(READY)
    before = page.evaluate(_VALUES)
    page.get_by_role("combobox", name="Initialization").click()
    choice = page.get_by_role("option", name="Kaiming", exact=True)
    choice.wait_for()
    begun = time.perf_counter()
    choice.click()
    page.wait_for_function(f"old => JSON.stringify({_VALUES}) !== JSON.stringify(old)", arg=before)
    seconds = time.perf_counter() - begun
    page.wait_for_selector(READY)
    return seconds


_VALUES = ("(() => { const d = document.querySelector('.driftscope-chart').data; "
           "return d.map(l => Array.from(l.y._inputArray ?? l.y).at(-1)) })()")


def main() -> None:
    """Print the medians and the spread."""
    with tempfile.TemporaryDirectory() as folder, browser() as chromium, \
            server(ROOT / "app.py", DRIFTSCOPE_STORE=f"sqlite:///{folder}/store.db") as address:
        visit = Visit(chromium.new_context(locale="en-US", viewport={"width": 1280, "height": 768}).new_page(), address)
        visit.page.set_default_timeout(60_000)
        print(f"cold server, first visitor, nothing computed: {opening(visit, '/drift'):.2f} s")
        time.sleep(8)
        warm = [opening(visit, "/drift") for _ in range(5)]
        fresh = [opening(visit, f"/drift?layers=12&norm=layernorm&x={_seeded(seed)}") for seed in range(1, 4)]
        moved = [control(visit, 100 + number) for number in range(9)]
        for name, times in (("warm server, computed before", warm), ("warm server, nothing computed", fresh),
                            ("control to chart, three variants computed", moved)):
            print(f"{name}: median {statistics.median(times):.2f} s, {min(times):.2f} … {max(times):.2f} s")


def _seeded(seed: int) -> str:
    from pages.ui.link import pack

    return pack({"base": {"protocol.seed": seed}})


if __name__ == "__main__":
    main()
