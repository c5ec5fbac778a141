"""How live a training is to watch, in a real Chromium: four variants of twelve layers trained by the real workers.

Run: BROWSER_PATH=$(which chromium) python benchmarks/live.py [view]. Starts the app with a store of its own on a free
port. Measured are 30 s in the middle of the training: paintings a second, the age of what is painted (from when its
newest step could first be read from the store, asked every 100 ms), bytes of the event stream, and the CPU time of the
server's process without its workers; then the growth of its memory while 500 updates are sent. The browser shares the
cores with the training, at the same priority; a visitor's draws on a machine of its own.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import numpy as np  # noqa: E402
import psutil  # noqa: E402
from browser import Visit, browser, server  # noqa: E402
from playwright.sync_api import Browser  # noqa: E402

from core.store import Store  # noqa: E402
from pages.ui import link  # noqa: E402
from pages.ui.link import View  # noqa: E402
from pages.ui.places import LIVE  # noqa: E402

BASE = {"model.n_layers": 12, "model.d_model": 32, "model.n_heads": 4, "input.batch": 2, "input.seq_len": 16,
        "protocol.steps": 2000, "protocol.detail": "standard"}
VARIANTS = ({"model.norm": "rmsnorm"}, {"model.norm": "dyt"}, {"model.norm": "groupnorm"})
WARM_S, MEASURED_S, UPDATES = 15.0, 30.0, 500
POLL_MS = 100

LISTENING = """
window.live = { frames: [], paintings: [] };
window.EventSource = class extends window.EventSource {
  constructor(url) {
    super(url);
    for (const name of ["state", "patch"])
      this.addEventListener(name, ({ data }) => live.frames.push([Date.now() / 1000, new Blob([data]).size]));
  }
};
"""
FOLLOWING = """() => document.querySelectorAll(".driftscope-chart").forEach((gd, chart) => {
  const newest = () => gd.data.map(trace => Array.from(trace.x?._inputArray ?? trace.x ?? []).at(-1) ?? -1);
  gd.on("plotly_afterplot", () => live.paintings.push([Date.now() / 1000, chart, Math.max(...newest())]));
})"""
DRAWN = "() => document.querySelectorAll('.driftscope-chart .main-svg').length > 0"


@dataclass
class Watch:
    """What is asked while the page is watched. `known`: newest step → when it could first be read."""

    visit: Visit
    store: Store
    runs: list[str]
    process: psutil.Process
    known: dict[int, float] = field(default_factory=dict)

    def wait(self, seconds: float, frames: int = sys.maxsize) -> None:
        """Let the page be for so long, or until so many updates came; ask the store all the while."""
        end = time.time() + seconds
        while time.time() < end and self.visit.page.evaluate("live.frames.length") < frames:
            newest = max((step for run in self.runs for step, *_ in self.store.steps(run, max(self.known, default=-1))),
                         default=-1)
            self.known.setdefault(newest, time.time())
            self.visit.page.wait_for_timeout(POLL_MS)

    @property
    def cpu(self) -> float:
        """Seconds of CPU that the server's process took so far."""
        times = self.process.cpu_times()
        return float(times.user + times.system)

    def since(self, begun: float, what: str) -> np.ndarray:
        """Return what the page noted since then: rows that begin with a time."""
        rows = [row for row in self.visit.page.evaluate(f"live.{what}") if row[0] >= begun]
        return np.array(rows or np.empty((0, 3)), float)


def path(view: str) -> str:
    """Return the link to the training."""
    base, shown = LIVE.origin("pre_layernorm").with_values(BASE), {**LIVE.defaults, "view": view}
    return f"/live?{urlencode(link.write(View('pre_layernorm', base, VARIANTS, shown), LIVE))}"


@contextmanager
def training(chromium: Browser, address: str, view: str, url: str) -> Iterator[Watch]:
    """Start the training in the page, and watch it once it is drawn."""
    context = chromium.new_context(locale="en-US", viewport={"width": 1280, "height": 1400})
    context.add_init_script(LISTENING)
    visit = Visit(context.new_page(), address)
    visit.page.set_default_timeout(120_000)
    visit.open(path(view))
    visit.page.get_by_role("button", name="Start").click()
    visit.page.wait_for_function(f"() => new URL(location).searchParams.has('{link.RUNS}')")
    visit.page.wait_for_function(DRAWN)
    runs = visit.page.evaluate(f"new URL(location).searchParams.get('{link.RUNS}')").split(".")
    (process,) = [one for one in psutil.Process().children() if "streamlit" in one.cmdline()]
    store = Store(url)
    yield Watch(visit, store, runs, process)
    store.close()
    context.close()


def measure(watch: Watch) -> None:
    """Print the table."""
    watch.wait(WARM_S)
    watch.visit.page.evaluate(FOLLOWING)
    begun, cpu, memory, step = time.time(), watch.cpu, watch.process.memory_info().rss, max(watch.known)
    watch.wait(MEASURED_S)
    seconds = time.time() - begun
    used = watch.cpu - cpu
    trained = (max(watch.known) - step) / seconds
    frames, paintings = watch.since(begun, "frames"), watch.since(begun, "paintings")
    ages = np.array([when - watch.known[step] for step, when in firsts(paintings).items() if step in watch.known])
    print(f"updates sent: {len(frames) / seconds:.2f} a second, {frames[:, 1].sum() / seconds / 1e3:.1f} kB/s, "
          f"median {np.median(frames[:, 1]) / 1e3:.1f} kB; the first state {first_state(watch) / 1e3:.0f} kB")
    for chart in np.unique(paintings[:, 1]):
        print(f"chart {chart:.0f}: {(paintings[:, 1] == chart).sum() / seconds:.2f} paintings a second")
    print(f"age of the newest step when painted: median {np.median(ages):.2f} s, {ages.min():.2f} … {ages.max():.2f} s")
    print(f"server process without workers: {100 * used / seconds:.0f} % of one core")
    first = watch.visit.page.evaluate("live.frames.length")
    watch.wait(2 * UPDATES, first + UPDATES)
    sent = watch.visit.page.evaluate("live.frames.length") - first + len(frames)
    grown = (watch.process.memory_info().rss - memory) / 2**20
    print(f"memory of the server process: {memory / 2**20:.0f} MiB, {grown:+.1f} MiB after {sent} updates")
    print(f"steps of every variant: {trained:.2f} a second; errors in the browser: {watch.visit.errors or 'none'}")


def firsts(paintings: np.ndarray) -> dict[int, float]:
    """Return when each step was painted first, in the chart of the loss; the profile has layers along its axis."""
    found: dict[int, float] = {}
    for when, chart, step in paintings.tolist():
        if chart == 0:
            found.setdefault(int(step), when)
    return found


def first_state(watch: Watch) -> float:
    """Return the bytes of the largest message: a viewer who comes now gets at least so much at once."""
    return float(watch.since(0, "frames")[:, 1].max())


def main() -> None:
    """Train, watch, print."""
    view = sys.argv[1] if len(sys.argv) > 1 else LIVE.defaults["view"]
    print(f"view {view}, {1 + len(VARIANTS)} variants of {BASE['model.n_layers']} layers; load of this machine before: "
          f"{psutil.getloadavg()[0]:.1f} on {psutil.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as folder, browser() as chromium:
        url = f"sqlite:///{folder}/store.db"
        with server(ROOT / "app.py", DRIFTSCOPE_STORE=url, DRIFTSCOPE_LIMIT_STORED_BYTES="1GiB") as address, \
                training(chromium, address, view, url) as watch:
            measure(watch)


if __name__ == "__main__":
    main()
