"""How long a visitor waits and how much is sent, in a real Chromium: opening to first chart, a moved control to the
changed chart, every view, a stack of 96 layers, and one of 48 layers with 16 heads that reads 512 tokens.

Run: BROWSER_PATH=$(which chromium) python benchmarks/pages.py. Starts the app with a store of its own on a free port;
each control change asks for experiments that nobody has computed, so three variants are computed every time. Bytes are
those of the network, compressed as sent, and those of the WebSocket, which carries what the page draws.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from browser import READY, Visit, browser, server  # noqa: E402
from playwright.sync_api import Browser, WebSocket  # noqa: E402

from pages.ui.link import pack  # noqa: E402
from pages.ui.places import DRIFT, ENTROPY, GRADIENTS  # noqa: E402

DRAWN = "() => [...document.querySelectorAll('.driftscope-chart')].some(gd => gd._fullLayout && gd.data.length)"
VALUES = ("(() => { const d = document.querySelector('.driftscope-chart').data; "
          "return d.map(l => Array.from(l.y._inputArray ?? l.y).at(-1)) })()")


class Meter:
    """Counts what a visit is sent: `network` bytes over HTTP, `socket` bytes over WebSockets."""

    def __init__(self, visit: Visit) -> None:
        self.network = self.socket = 0.0
        session = visit.page.context.new_cdp_session(visit.page)
        session.send("Network.enable")
        session.on("Network.loadingFinished", self._loaded)
        visit.page.on("websocket", self._listen)

    def _loaded(self, event: dict[str, float]) -> None:
        self.network += event["encodedDataLength"]

    def _listen(self, socket: WebSocket) -> None:
        socket.on("framereceived", self._received)

    def _received(self, payload: bytes | str) -> None:
        self.socket += len(payload)


def opening(visit: Visit, path: str) -> float:
    """Return the seconds from navigation to the first drawn chart."""
    begun = time.perf_counter()
    visit.page.goto(visit.address + path)
    visit.page.wait_for_function(DRAWN)
    seconds = time.perf_counter() - begun
    visit.page.wait_for_selector(READY)
    return seconds


def control(visit: Visit, meter: Meter, seed: int) -> tuple[float, float]:
    """Return the seconds from another initialization chosen in its menu to changed numbers, and the bytes sent."""
    page = visit.page
    opening(visit, f"/drift?view=profile&x={_seeded(seed)}")
    before, sent = page.evaluate(VALUES), meter.socket
    page.get_by_role("combobox", name="Initialization").click()
    choice = page.get_by_role("option", name="Kaiming", exact=True)
    choice.wait_for()
    begun = time.perf_counter()
    choice.click()
    page.wait_for_function(f"old => JSON.stringify({VALUES}) !== JSON.stringify(old)", arg=before)
    seconds = time.perf_counter() - begun
    page.wait_for_selector(READY)
    return seconds, meter.socket - sent


def visited(chromium: Browser, address: str) -> tuple[Visit, Meter]:
    """Return a visit with an empty cache, and what counts its bytes."""
    visit = Visit(chromium.new_context(locale="en-US", viewport={"width": 1280, "height": 768}).new_page(), address)
    visit.page.set_default_timeout(120_000)
    return visit, Meter(visit)


def main() -> None:
    """Print the medians and the spread, and the bytes."""
    with tempfile.TemporaryDirectory() as folder, browser() as chromium, \
            server(ROOT / "app.py", DRIFTSCOPE_STORE=f"sqlite:///{folder}/store.db") as address:
        visit, meter = visited(chromium, address)
        print(f"cold server, first visitor, nothing computed: {opening(visit, '/drift'):.2f} s")
        print(f"bytes of a first visit: {meter.network / 1e6:.2f} MB network, {meter.socket / 1e3:.0f} kB socket")
        time.sleep(8)
        report("warm server, computed before", [opening(visit, "/drift") for _ in range(5)])
        report("warm server, nothing computed",
               [opening(visit, f"/drift?layers=12&norm=layernorm&x={_seeded(seed)}") for seed in range(1, 4)])
        moved = [control(visit, meter, 100 + number) for number in range(9)]
        report("control to chart, three variants computed", [seconds for seconds, _ in moved])
        print(f"bytes of a moved control: {statistics.median(sent for _, sent in moved) / 1e3:.0f} kB socket")
        for stack in STACKS:
            for place in (DRIFT, GRADIENTS, ENTROPY):
                for view in place.views:
                    _look(visit, meter, f"/{place.name}?view={view}", stack)


def report(what: str, times: Sequence[float]) -> None:
    """Print the median and the spread of some seconds."""
    print(f"{what}: median {statistics.median(times):.2f} s, {min(times):.2f} … {max(times):.2f} s")


STACKS = (
    {"model.n_layers": 12, "model.d_model": 64, "input.batch": 2},
    {"model.n_layers": 96, "model.d_model": 64, "input.batch": 2},
    {"model.n_layers": 48, "model.d_model": 256, "model.n_heads": 16, "input.batch": 1, "input.seq_len": 512},
)


def _look(visit: Visit, meter: Meter, view: str, stack: dict[str, int]) -> None:
    """Print what a view of one variant of this stack takes, once it is computed, and what it sends."""
    path = f"{view}&x={pack({'base': stack, 'variants': []})}"
    run, said = visit.page.get_by_role("button", name="Run", exact=True), visit.page.locator("h3")
    visit.page.goto(visit.address + path)
    run.or_(said).first.wait_for()
    if run.count():
        run.click()
    said.wait_for()
    if "view=weights" in view:  # one head is computed beside the rest
        second = visit.page.locator(".driftscope-chart").nth(1)
        run.or_(second).first.wait_for()
        if run.count():
            run.click()
        second.wait_for()
    sent, begun = meter.socket, time.perf_counter()
    visit.page.goto(visit.address + path)
    visit.page.wait_for_selector("h3")
    visit.page.wait_for_selector(READY)
    seconds, kilobytes = time.perf_counter() - begun, (meter.socket - sent) / 1e3
    print(f"{view}, {stack['model.n_layers']} layers: {seconds:.2f} s, {kilobytes:.0f} kB socket", flush=True)


def _seeded(seed: int) -> str:
    return pack({"base": {"protocol.seed": seed}})


if __name__ == "__main__":
    main()
