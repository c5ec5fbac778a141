"""The Chromium that draws images: one for all, kept for a while, never left behind, and without a network."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

import plotly.graph_objects as go
import psutil
import pytest
from browser import ROOT, Visit, server
from streamlit.testing.v1 import AppTest

from core import archive, service
from core.experiment import parse
from pages.ui import chromium as drawer
from pages.ui import image_panel, images
from pages.ui.chromium import STUDIO, ImageError, Studio
from pages.ui.patches import plain
from pages.ui.picture import Picture, Subject
from pages.ui.text import LANGUAGES, Words

WAIT_S = 20.0
FIGURE = {**images.dressed(plain(go.Figure(go.Scatter(y=[1, 2, 3]))), "light"), "title": "t", "source": ""}
SLIDE = {"format": "png", "width": 640, "height": 360, "scale": 1}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A training in a store of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRIFTSCOPE_STORE", f"sqlite:///{tmp_path_factory.mktemp('chromium') / 'store.db'}")
        described = {"model": {"n_layers": 2, "d_model": 16, "n_heads": 2}, "input": {"batch": 2, "seq_len": 8},
                     "protocol": {"steps": 40, "lr": 0.003}}
        yield archive.play(parse(described), keep=True).run
        service.stop()


@pytest.fixture(scope="module", autouse=True)
def drawing():
    """What is drawn in this process is ended after the last test."""
    yield
    STUDIO.stop()


def test_what_a_figure_points_to_in_a_network_is_not_fetched():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(1)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/picture.png"
        layout = {**FIGURE["layout"], "images": [{"source": url, "x": 0, "y": 1, "sizex": 1, "sizey": 1}]}
        drawn = STUDIO.draw([{**FIGURE, "layout": layout}], **SLIDE | {"format": "svg"}).decode()
        assert drawn.count("<path") > 3
        with pytest.raises(TimeoutError):
            listener.accept()


def alive(process):
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def gone(processes, limit_s=WAIT_S):
    """Wait until processes have ended; return those that have not."""
    end = time.monotonic() + limit_s
    while (left := [one for one in processes if alive(one)]) and time.monotonic() < end:
        time.sleep(0.05)
    return left


def browsers(process):
    """The processes of Chromium below another, and of what starts it."""
    found = []
    for one in process.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if "chromium_wrapper" in (said := " ".join(one.cmdline())) or "--user-data-dir" in said:
                found.append(one)
    return found


@pytest.fixture
def studio():
    made = Studio(idle_s=3600)
    yield made
    made.stop()


def own(studio):
    return psutil.Process(studio._kaleido.subprocess.pid)


def test_one_browser_draws_what_several_threads_ask_for_and_ends_when_it_is_told_to(studio):
    found, before = [], browsers(psutil.Process())
    threads = [threading.Thread(target=lambda: found.append(studio.draw([FIGURE], **SLIDE))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0] == found[1] == found[2]
    new = [one for one in browsers(psutil.Process()) if one not in before]
    assert [one for one in new if one.ppid() == os.getpid()] == [own(studio)]
    processes = [own(studio), *own(studio).children(recursive=True)]
    assert len(processes) > 2
    studio.stop()
    assert gone(processes) == []


def test_a_browser_that_draws_nothing_for_a_while_is_ended_and_another_one_draws_the_next():
    studio = Studio(idle_s=0.5)
    first = studio.draw([FIGURE], **SLIDE)
    assert gone([own(studio)] if studio._kaleido else []) == []
    assert studio.draw([FIGURE], **SLIDE) == first
    studio.stop()


def test_nobody_waits_for_the_drawings_of_others_to_hear_that_the_browser_runs(studio):
    studio.open()
    drawing = threading.Thread(target=lambda: studio.draw([FIGURE] * 40, **SLIDE))
    drawing.start()
    time.sleep(0.2)
    studio.open()
    assert drawing.is_alive()
    drawing.join()


def test_a_browser_that_has_ended_leaves_no_file_behind(studio, monkeypatch):
    with tempfile.TemporaryDirectory() as folder:  # pytest's own has so long a path that no socket fits into it
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        studio.draw([FIGURE], **SLIDE)
        assert list(Path(folder).iterdir())
        studio.stop()
        assert list(Path(folder).iterdir()) == []


def test_a_browser_that_died_is_replaced(studio):
    first = studio.draw([FIGURE], **SLIDE)
    os.killpg(own(studio).pid, signal.SIGKILL)
    assert studio.draw([FIGURE], **SLIDE) == first


def test_a_browser_that_hangs_is_replaced(studio, monkeypatch):
    first = studio.draw([FIGURE], **SLIDE)
    hanging = own(studio)
    os.killpg(hanging.pid, signal.SIGSTOP)
    monkeypatch.setattr(drawer, "DRAW_S", 1.0)
    threading.Timer(1.1, monkeypatch.undo).start()  # the other has its time
    assert studio.draw([FIGURE], **SLIDE) == first
    assert gone([hanging]) == []


def test_whoever_waits_for_an_image_when_the_browser_is_stopped_is_told_so(studio):
    studio.open()
    said = []

    def ask():
        try:
            while True:
                studio.draw([FIGURE], **SLIDE)
        except ImageError as error:
            said.append(str(error))

    thread = threading.Thread(target=ask)
    thread.start()
    time.sleep(0.5)
    studio.stop()
    thread.join()
    assert said == ["Chromium is being stopped"]


def workers():
    """The threads of browsers, that of what other tests draw among them."""
    return [one for one in threading.enumerate() if one.name == "images"]


def test_a_browser_that_is_stopped_ends_while_others_ask_for_more(studio):
    over, said, before = threading.Event(), set(), workers()

    def ask():
        while not over.is_set():
            try:
                studio.open()
            except ImageError as error:
                said.add(str(error))

    askers = [threading.Thread(target=ask) for _ in range(3)]
    for thread in askers:
        thread.start()
    for _ in range(2):
        studio.open()
        studio.stop()
    over.set()
    for thread in askers:
        thread.join()
    studio.stop()
    assert workers() == before
    assert said <= {"Chromium is being stopped"}


def test_what_cannot_be_drawn_is_refused_in_a_sentence_and_the_browser_draws_the_next(studio, caplog):
    studio.open()
    browser = own(studio)
    for figure in ({**FIGURE, "layout": {}}, {**FIGURE, "title": "\x01"}):
        with pytest.raises(ImageError, match=r"^Chromium cannot draw this figure$"):
            studio.draw([figure], **SLIDE)
    assert "TypeError" in caplog.text and "EncodingError" in caplog.text
    assert studio.draw([FIGURE], **SLIDE)
    assert own(studio) == browser


@pytest.mark.parametrize(("path", "said"), [
    ("/nowhere/chromium", "there is no Chromium; the environment variable BROWSER_PATH may name one"),
    (sys.executable, f"{sys.executable} does not start as a browser")])
def test_where_there_is_no_chromium_a_sentence_says_so(studio, monkeypatch, path, said):
    monkeypatch.setenv("BROWSER_PATH", path)
    with pytest.raises(ImageError, match=f"^{re.escape(said)}$"):
        studio.draw([FIGURE], **SLIDE)


def panel():
    """The way to images of a chart, as a page."""
    import plotly.graph_objects as figures
    import streamlit as page

    from pages.ui.image_panel import _ways
    from pages.ui.picture import Picture as Made
    from pages.ui.picture import Subject as About
    from pages.ui.text import Words as Spoken

    _ways(Made("k", figures.Figure(), "l", About(), dict), [], Spoken(page.query_params["lang"]), "here")


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_page_says_so_too(monkeypatch, lang):
    t = Words(lang)
    STUDIO.stop()
    monkeypatch.setenv("BROWSER_PATH", "/nowhere/chromium")
    at = AppTest.from_function(panel, default_timeout=60)
    at.query_params["lang"] = lang
    at.run()
    assert [one.value for one in at.info] == [t("image.no_chromium")]
    assert not at.error and not at.exception and not at.get("download_button")
    monkeypatch.setenv("BROWSER_PATH", "/bin/false")
    at.run()
    assert [one.value.replace("\\", "") for one in at.error] == [
        t("image.failed", reason=t("image.no_start", path="/bin/false"))]
    assert not at.info and not at.exception and not at.get("download_button")


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_page_says_why_a_download_failed_until_another_succeeds(monkeypatch, lang):
    t = Words(lang)
    at = AppTest.from_function(panel, default_timeout=60)
    at.query_params["lang"] = lang
    at.run()
    troubles = at.session_state["image.here.k.troubles"]
    picture, asked = Picture("k", go.Figure(go.Scatter(y=[1])), "l", Subject(), dict), (".svg", "light")
    STUDIO.stop()
    with monkeypatch.context() as patch:
        patch.setenv("BROWSER_PATH", "/nowhere/chromium")
        with pytest.raises(ImageError):
            image_panel._made(troubles, picture, *asked)
    assert [one.value.replace("\\", "") for one in at.run().error] == [t("image.failed", reason=t("image.none"))]
    assert image_panel._made(troubles, picture, *asked)
    assert not at.run().error and not at.exception


@pytest.mark.browser
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_when_the_server_ends_no_chromium_stays(chromium, tmp_path, end):
    with server(ROOT / "app.py", DRIFTSCOPE_STORE=f"sqlite:///{tmp_path / 'store.db'}") as address:
        context = chromium.new_context(locale="en-US")
        visit = Visit(context.new_page(), address).open("/softmax?lang=en")
        visit.page.get_by_role("button", name="Picture", exact=True).first.click()
        visit.page.get_by_role("button", name="Download PNG").wait_for(timeout=60_000)
        context.close()
        port = address.rpartition(":")[2]
        (process,) = [one for one in psutil.Process().children() if f"--server.port={port}" in one.cmdline()]
        processes = browsers(process)
        assert len(processes) > 2
        process.send_signal(end)
        assert gone([process, *processes]) == []


# the command line


def command(arguments, **environment):
    return subprocess.run([sys.executable, "-m", "pages.ui.export", *map(str, arguments)], cwd=ROOT, check=False,
                          env=os.environ | environment, capture_output=True, text=True)


def test_chromium_asks_nothing_of_a_network_by_itself(run, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        proxy.settimeout(0.1)
        done = command([run, "--picture", "overview/loss", "--image", tmp_path / "out.svg"],
                       CHOREO_PROXY_SERVER=f"127.0.0.1:{proxy.getsockname()[1]}")
        assert (done.returncode, done.stderr) == (0, "")
        with pytest.raises(TimeoutError):
            proxy.accept()


def test_without_chromium_the_command_refuses_in_one_line(run, tmp_path):
    target = tmp_path / "out.png"
    done = command([run, "--picture", "overview/loss", "--image", target], BROWSER_PATH="/nowhere/chromium")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "there is no Chromium; the environment variable BROWSER_PATH may name one\n"
    assert not target.exists()


def test_a_command_that_is_interrupted_ends_without_a_word_and_without_a_browser(run, tmp_path):
    process = subprocess.Popen([sys.executable, "-m", "pages.ui.export", run, "--film", tmp_path / "out.gif",
                                "--picture", "overview/profile"], cwd=ROOT, stderr=subprocess.PIPE)
    end = time.monotonic() + WAIT_S
    while not (processes := browsers(psutil.Process(process.pid))) and time.monotonic() < end:
        time.sleep(0.05)
    time.sleep(1)
    processes = browsers(psutil.Process(process.pid)) or processes
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=WAIT_S) == (None, b"")
    assert process.returncode == 130
    assert processes and gone(processes) == []
