"""The event stream against a real web server: what a viewer is sent, what viewers share, and how it ends."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest
import uvicorn
import waiting
from starlette.applications import Starlette
from streamlit import config

from core.database import StoreError
from pages.ui import events, stream
from pages.ui.events import Look
from pages.ui.patches import apply, wire

until = partial(waiting.until, seconds=10)


class Numbers:
    """A source that a test turns on by hand."""

    def __init__(self) -> None:
        self.steps, self.looks, self.over, self.error, self.more = 3, 0, False, None, {}

    def __call__(self, query):
        self.looks += 1
        if self.error:
            raise self.error
        return Look({"line": line(self.steps, query.get("gain", "1")), **self.more}, self.over)


def line(steps, gain="1"):
    numbers = float(gain) * np.arange(steps, dtype=np.float32) / 3
    return {"data": [{"y": np.where(numbers == 1, np.nan, numbers)}], "layout": {"title": str(steps)}}


class Viewer:
    """One open stream; `figures` is what a browser would have."""

    def __init__(self, port: int, query: str = "") -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        self.connection.request("GET", f"/driftscope/live?{query}")
        self.answer = self.connection.getresponse()
        self.figures = {}

    def next(self):
        """Return the name and content of the next event; None at the end, a comment as it is."""
        lines = []
        while (read := self.answer.readline()) not in (b"", b"\n"):
            lines.append(read.decode().rstrip("\n"))
        if not lines or lines[0].startswith(":"):
            return lines[0] if lines else None
        name, content = (line.partition(": ")[2] for line in lines)
        content = json.loads(content)
        if name == "state":
            self.figures = content["figures"]
        if name == "patch":
            for figure, ops in content["figures"].items():
                apply(self.figures[figure], ops)
        return name, content

    def close(self) -> None:
        self.answer.close()
        self.connection.close()


@contextlib.contextmanager
def serving(source) -> Iterator[tuple[int, events.Live]]:
    """Run the routes on a free port."""
    routes = stream.routes(source)
    server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), port=0, log_level="critical", ws="none"))
    thread = threading.Thread(target=server.run)
    thread.start()
    until(lambda: server.started)
    try:
        yield server.servers[0].sockets[0].getsockname()[1], routes[-1].app
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture
def source() -> Numbers:
    return Numbers()


@pytest.fixture
def port(source) -> Iterator[int]:
    with serving(source) as (number, live):
        yield number
        until(lambda: not live.viewers)
        assert live._channels == {}  # nothing is kept of viewers that left


@pytest.fixture
def watch(port):
    with contextlib.ExitStack() as stack:
        yield lambda query="": stack.enter_context(contextlib.closing(Viewer(port, query)))


def seen(figure):
    return json.loads(wire(figure))


def test_a_viewer_gets_the_whole_first_and_then_what_changed(source, watch):
    viewer = watch()
    assert viewer.next()[0] == "state"
    for source.steps in (4, 5, 9, 8):
        name, content = viewer.next()
        assert name == "patch" and list(content["figures"]) == ["line"]
        assert viewer.figures == {"line": seen(line(source.steps))}
    assert viewer.figures["line"]["data"][0]["y"][3] is None


def test_nobody_may_keep_a_stream(watch):
    headers = watch().answer.headers
    assert headers["Content-Type"].startswith("text/event-stream")
    assert (headers["Cache-Control"], headers["X-Accel-Buffering"]) == ("no-store", "no")


def test_a_stream_without_news_gives_signs_of_life_only(source, watch, monkeypatch):
    monkeypatch.setattr(events, "BEAT_S", 0.4)
    viewer = watch()
    assert viewer.next()[0] == "state"
    assert [viewer.next(), viewer.next()] == [": still here"] * 2
    source.steps = 4
    assert viewer.next()[0] == "patch"


def test_another_figure_sends_the_whole(source, watch):
    viewer = watch()
    viewer.next()
    source.more = {"other": line(2)}
    assert viewer.next()[0] == "state"
    assert viewer.figures == {"line": seen(line(3)), "other": seen(line(2))}
    source.more = {}
    assert viewer.next()[0] == "state"
    assert list(viewer.figures) == ["line"]


def test_viewers_of_the_same_query_share_its_looks(source, watch):
    viewers = [watch(f"gain={gain}&run=a" if order else f"run=a&gain={gain}") for gain in (1, 2) for order in range(20)]
    assert all(viewer.next()[0] == "state" for viewer in viewers)
    before = source.looks
    time.sleep(4 * events.EVERY_S)
    assert source.looks - before <= 2 * 5
    source.steps = 7
    for number, viewer in enumerate(viewers):
        assert viewer.next()[0] == "patch"
        assert viewer.figures["line"] == seen(line(7, "1" if number < 20 else "2"))


def test_looks_end_when_nobody_watches(source, watch):
    viewer = watch()
    viewer.next()
    viewer.close()
    time.sleep(2 * events.EVERY_S)
    before = source.looks
    time.sleep(3 * events.EVERY_S)
    assert source.looks == before


def test_the_end_comes_after_the_last_change_and_to_latecomers_too(source, watch):
    viewer = watch()
    viewer.next()
    source.steps, source.over = 6, True
    assert [viewer.next()[0], viewer.next(), viewer.next()] == ["patch", ("over", {}), None]
    assert viewer.figures["line"] == seen(line(6))
    late = watch()
    assert [late.next()[0], late.next(), late.next()] == ["state", ("over", {}), None]
    assert late.figures["line"] == seen(line(6))


@pytest.mark.parametrize("error", [ValueError("there is no run 'x'"), StoreError("the store cannot be read")])
def test_what_cannot_be_shown_is_said_in_a_sentence(source, watch, error):
    viewer = watch()
    viewer.next()
    source.error = error
    assert [viewer.next(), viewer.next()] == [("failure", {"reason": str(error)}), None]
    assert watch().next() == ("failure", {"reason": str(error)})


def test_a_mistake_of_the_source_is_logged_and_ends_the_stream_alone(source, watch, caplog):
    viewer, bystander = watch(), watch("gain=2")
    assert [viewer.next()[0], bystander.next()[0]] == ["state"] * 2
    source.error = ZeroDivisionError("a mistake")
    assert [viewer.next(), bystander.next()] == [None] * 2
    assert "a mistake" in caplog.text
    source.error = None
    assert watch().next()[0] == "state"


def test_figures_that_json_cannot_say_are_logged(source, watch, caplog):
    source.more = {"wrong": {"data": [{"y": {1, 2}}], "layout": {}}}
    assert watch().next() is None
    assert "not JSON serializable: set" in caplog.text


def test_more_viewers_than_allowed_are_refused_with_a_sentence(watch, monkeypatch):
    monkeypatch.setattr(events, "MAX_STREAMS", 2)
    first, _ = watch(), watch()
    refused = watch()
    assert refused.answer.status == 503
    assert refused.answer.read() == b"2 people are watching already, and this server allows no more."
    first.close()
    until(lambda: watch().answer.status == 200)


def test_a_viewer_that_reads_too_slowly_gets_the_whole_and_misses_nothing(source, watch):
    viewer = watch()
    viewer.next()
    for source.steps in range(400_000, 2_400_001, 400_000):  # in all more than the connection can hold
        before = source.looks
        until(lambda: source.looks > before + 1)  # noqa: B023
    names = []
    while viewer.figures["line"]["layout"]["title"] != "2400000":
        names.append(viewer.next()[0])
    assert "state" in names and len(names) < 6
    assert viewer.figures["line"] == seen(line(2_400_000))


def test_the_routes_follow_the_base_path(source):
    before = config.get_option("server.baseUrlPath")
    try:
        config.set_option("server.baseUrlPath", "/deep/down/")
        paths = [route.path for route in stream.routes(source)]
    finally:
        config.set_option("server.baseUrlPath", before)
    assert paths == [f"/deep/down/{path}" for path in (stream.PLOTLY, stream.FEED, stream.METRICS, stream.LIVE)]


def test_without_a_source_there_are_neither_streams_nor_metrics():
    assert [route.path for route in stream.routes()] == [f"/{stream.PLOTLY}", f"/{stream.FEED}"]


def test_the_address_of_a_query_is_the_same_in_any_order():
    assert stream.live({"run": "a b", "lang": "zh"}) == stream.live({"lang": "zh", "run": "a b"}) \
        == "driftscope/live?lang=zh&run=a+b"
