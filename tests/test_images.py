"""Charts as images for slides, the replay of a training as a film: drawn by a real Chromium, and looked into."""

from __future__ import annotations

import io
import re
import subprocess
import time
import xml.etree.ElementTree as ET
import zlib
from contextlib import suppress
from dataclasses import replace
from functools import partial

import numpy as np
import plotly.graph_objects as go
import pytest
from browser import ROOT, server
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from streamlit.testing.v1 import AppTest

from core import archive, service
from core.experiment import parse
from pages.ui import chromium, export, feed, filming, images, replay, theme
from pages.ui.chromium import ImageError
from pages.ui.filming import Filming
from pages.ui.patches import plain
from pages.ui.picture import Picture, Subject
from pages.ui.places import LIVE
from pages.ui.text import Words
from pages.ui.views.training import LIVE_VIEWS

MODEL = {"n_layers": 2, "d_model": 16, "n_heads": 2}
BASES = ("light", "dark")
LINE = "#e5202a"
WAIT_S = 20.0
chinese = pytest.mark.skipif(not subprocess.run(["fc-list", ":lang=zh"], capture_output=True, check=False).stdout,
                             reason="no Chinese type is installed")


def experiment(norm="layernorm", steps=0, **protocol):
    return parse({"model": {**MODEL, "norm": norm}, "input": {"batch": 2, "seq_len": 8},
                  "protocol": {"steps": steps, **protocol}})


MADE = {"base": experiment(), "training": experiment(steps=40, lr=0.003), "short": experiment(steps=6),
        "broken": experiment("none", 40, optimizer="sgd", lr=3.0)}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Name → id of runs in a store of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRIFTSCOPE_STORE", f"sqlite:///{tmp_path_factory.mktemp('images') / 'store.db'}")
        yield {name: archive.play(one, keep=True).run for name, one in MADE.items()}
        service.stop()


@pytest.fixture(scope="module")
def address(runs):
    with server(ROOT / "app.py") as running:
        yield running


@pytest.fixture(scope="module", autouse=True)
def drawing():
    """Chromium is kept from one image to the next, and ended after the last."""
    yield
    chromium.STUDIO.stop()


def titled(title, **more):
    figure = go.Figure([go.Scatter(y=[1, 2, np.nan, 4, 3], line={"color": LINE, "width": 4}, name=title)],
                       {"title": {"text": title}, "showlegend": True, "xaxis": {"title": {"text": title}}})
    return Picture("key", figure, title, Subject(), dict, **more)


def pixels(content):
    return np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))


def rgb(color):
    return [int(color[place:place + 2], 16) for place in (1, 3, 5)]


def watched(runs, names, lang="en"):
    views = service.view([runs[name] for name in names])
    return feed.watch([(run.id, one) for run, one in zip(views, export._named(views, Words(lang)), strict=True)])


def moving(runs, names, key, lang="en"):
    """A picture of a training that a player moves, and its recorded steps."""
    found = watched(runs, names, lang)
    made = LIVE_VIEWS["overview"].make(found, {**LIVE.defaults, "view": "overview"}, Words(lang))
    return next(one for one in made if one.key == key), feed.steps(found)


# images


@pytest.mark.parametrize("base", BASES)
def test_a_png_has_the_pixels_of_a_slide_the_themes_background_and_the_charts_colours(base):
    content = images.image(titled("title"), ".png", base, ["r1", "r2"])
    found = pixels(content)
    assert found.shape == (1440, 2560, 3)
    palette = theme.PALETTES[base]
    edges = [found[:16], found[-16:], found[:, :16], found[:, -16:]]
    assert all((edge == rgb(palette.background)).all() for edge in edges)  # nothing stands at an edge, nor is it cut
    for color in (LINE, palette.text, palette.grid):
        assert (found == rgb(color)).all(axis=-1).sum() > 500
    assert Image.open(io.BytesIO(content)).info == {"Title": "title", "Source": "Driftscope r1 r2"}


@pytest.mark.parametrize(("height", "width", "size"), [
    (460, 0, (1280, 720)), (1080, 0, (1920, 1080)), (460, 1600, (1600, 900)), (1440, 1600, (2560, 1440))])
def test_a_picture_that_needs_more_room_than_a_slide_gets_it_in_the_same_ratio(height, width, size):
    assert images.size(titled("t", height=height, width=width)) == size


@pytest.mark.parametrize("title", ["均方根（RMS）", "stream & “gradient”"])
def test_an_svg_is_text_says_what_it_shows_and_needs_nothing_from_elsewhere(title):
    said = f"{title}\u00a0</title><script>&"
    content = images.image(replace(titled(title), label=said), ".svg", "light", ["r1"]).decode()
    root = ET.fromstring(content)
    spoken = ["".join(one.itertext()) for one in root.iter("{http://www.w3.org/2000/svg}text")]
    assert spoken.count(title) == 3
    assert [root[0].text, root[1].text] == [said, "Driftscope r1"]
    assert (root.get("width"), root.get("height")) == ("1280", "720")
    assert "@font-face { font-family: 'Source Sans'" in content
    linked = [value for one in root.iter() for name, value in one.attrib.items() if name.endswith(("href", "src"))]
    assert [value for value in linked if not value.startswith("#")] == []
    assert set(re.findall(r"https?://[^\"'\s)]+", content)) <= {"http://www.w3.org/2000/svg",
                                                               "http://www.w3.org/1999/xlink"}


@pytest.mark.parametrize("ending", images.FORMATS)
def test_signs_that_xml_forbids_are_left_out(ending):
    picture = titled("a\x01b\x1b\ufffe\ud800c")
    picture.figure.data[0].text = ["\x02d", "e", "", "", ""]
    picture.figure.data[0].mode = "lines+text"
    content = images.image(picture, ending, "light")
    assert len(content) > 1000
    if ending == ".svg":
        spoken = ["".join(one.itertext()) for one in ET.fromstring(content).iter("{http://www.w3.org/2000/svg}text")]
        assert spoken.count("abc") == 3 and "d" in spoken


@chinese
@pytest.mark.parametrize("title", ["无归一化的最大值", "training 12 of 60"])
def test_a_pdf_is_one_page_of_a_slides_size_whose_text_can_be_read_out_again(title):
    content = images.image(titled(title), ".pdf", "dark")
    assert content.startswith(b"%PDF-")
    assert re.findall(rb"/MediaBox \[(.*?)\]", content) == [b"0 0 960 540"]
    assert content.count(b"/Type /Page\n") == 1
    assert set(title) - {" "} <= said_by(content)
    assert b"FontName" in content


def said_by(pdf):
    """The letters that a reader of a PDF finds in it: of its fonts, and those that replace them."""
    found = ""
    for packed in re.findall(rb"stream\r?\n(.*?)endstream", pdf, re.DOTALL):
        with suppress(zlib.error):
            text = zlib.decompress(packed).decode("latin1")
            found += "".join(map(letters, re.findall(r"/ActualText <FEFF([0-9A-F]+)>", text)))
            if "begincmap" not in text:
                continue
            found += "".join(map(letters, re.findall(r"^<\w+> <(\w{4})>$", text, re.MULTILINE)))
            for first, last, start in re.findall(r"^<(\w+)> <(\w+)> <(\w{4})>$", text, re.MULTILINE):
                found += "".join(chr(int(start, 16) + n) for n in range(int(last, 16) - int(first, 16) + 1))
    return set(found)


def letters(digits):
    return bytes.fromhex(digits).decode("utf-16-be")


@chinese
def test_chinese_letters_are_drawn_and_not_one_box_for_all():
    drawn = [pixels(images.image(titled(title), ".png", "light")) for title in ("均方根", "残差流", "均方根")]
    assert (drawn[0] != drawn[1]).any()
    assert (drawn[0] == drawn[2]).all()


def test_a_chart_that_a_player_moves_is_as_it_is_at_the_newest_step(runs):
    picture, steps = moving(runs, ["training"], "profile")
    drawn = images.dressed(plain(picture.figure), "light")
    assert "meta" not in drawn["layout"]
    assert replay.newest(picture, steps, Words("en")) == "newest: step 40"
    assert replay.newest(moving(runs, ["training"], "loss")[0], steps, Words("en")) == ""  # it shows all steps
    np.testing.assert_array_equal(drawn["data"][0]["y"], picture.figure.data[0].y)
    assert drawn["layout"]["template"]["layout"]["font"]["family"] == theme.FONT


# films


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=400, unique=True).map(sorted))
def test_a_film_goes_from_the_first_step_to_the_last_in_few_frames(steps):
    chosen = replay.chosen(steps)
    assert (chosen[0], chosen[-1], len(chosen)) == (steps[0], steps[-1], min(len(steps), replay.MOST_FRAMES))
    assert chosen == sorted(set(chosen)) and set(chosen) <= set(steps)


@pytest.mark.parametrize("key", ["loss", "map", "profile"])
def test_a_film_has_a_frame_a_step_and_no_two_are_alike(runs, key):
    picture, steps = moving(runs, ["training"], key)
    chosen = replay.chosen(steps)[::8]
    content = replay.gif(list(replay.frames(picture, chosen, "dark", Words("zh"))), picture.label)
    film = Image.open(io.BytesIO(content))
    assert (film.size, film.n_frames, film.info["loop"]) == ((1280, 720), len(chosen), 0)
    frames, lasting = [], 0
    for place in range(film.n_frames):
        film.seek(place)
        lasting += film.info["duration"]
        frames.append(np.asarray(film.convert("RGB")))
    assert lasting == pytest.approx(replay.FILM_MS + replay.HOLD_MS, abs=10 * len(chosen))
    assert all((frame[:16] == rgb(theme.PALETTES["dark"].background)).all() for frame in frames)
    assert all((one != other).any() for place, one in enumerate(frames) for other in frames[:place])
    assert len(content) * replay.MOST_FRAMES / len(chosen) < 10 * 2**20
    assert picture.label.encode() in content


SHOWN = """const known = [...document.querySelectorAll('.driftscope-chart')].map(gd => [
  gd._fullData.map(one => Array.from(one.y?._inputArray ?? one.y ?? [], v => Number.isFinite(v) ? v : null)),
  (gd._fullLayout.shapes ?? []).filter(one => one.line.color === gd._fullLayout.font.color)
    .map(one => [one.x0, one.x1, one.y0, one.y1, one.xref, one.yref]),
  gd._fullLayout.title.subtitle.text ?? '']); return known"""


@pytest.mark.browser
def test_a_frame_shows_what_the_page_shows_at_that_step(runs, visit):
    names = ["training", "broken"]
    _, steps = moving(runs, names, "loss")
    step = steps[-1] // 2
    visit.open(f"/live?run={'.'.join(runs[name] for name in names)}&lang=en&step={step}")
    visit.chart("return 1", 2)
    visit.page.get_by_text(f"step {step} of {steps[-1]}").wait_for()
    visit.page.wait_for_timeout(1000)
    here = visit.chart(SHOWN)
    color = theme.PALETTES["light"].text
    for (lines, cursors, said), key in zip(here, ("loss", "map", "profile"), strict=True):
        made = replay.at(plain(moving(runs, names, key)[0].figure), step, color)
        if key != "map":
            assert lines == [[None if one is None or not np.isfinite(one) else pytest.approx(float(one))
                              for one in trace["y"]] for trace in made["data"]]
        assert cursors == [[one[name] for name in ("x0", "x1", "y0", "y1", "xref", "yref")]
                           for one in made["layout"].get("shapes", ()) if one.get("line", {}).get("color") == color]
        assert said == (made["layout"]["title"].get("subtitle") or {}).get("text", "")


@pytest.mark.parametrize(("step", "axis", "place"), [
    (5, {}, 5), (5, {"type": "log"}, 5), (0, {"type": "log"}, None),
    (5, {"type": "category", "categoryarray": ["0", "4", "8"]}, 1), (3, {"type": "category"}, None)])
def test_the_line_at_a_step_stands_where_the_axis_has_a_place_for_it(step, axis, place):
    figure = {"data": [], "layout": {"meta": {"cursor": True}, "xaxis3": axis}}
    shapes = replay.at(figure, step, "red")["layout"]["shapes"]
    assert [(one["x0"], one["x1"], one["xref"], one["yref"]) for one in shapes] == (
        [] if place is None else [(place, place, "x3", "y3 domain")])


def frames(count, seconds=0.0):
    for number in range(count):
        time.sleep(seconds)
        yield b"%d" % number


def over(film):
    end = time.monotonic() + WAIT_S
    while film._thread.is_alive() and time.monotonic() < end:
        time.sleep(0.01)
    return not film._thread.is_alive()


def test_a_film_in_the_making_counts_its_frames_and_has_its_content_in_the_end():
    film = Filming(frames(3), 3, b"-".join)
    assert over(film)
    assert (film.done, film.content, film.trouble, film.look()) == (3, b"0-1-2", None, False)


def test_a_film_that_is_stopped_or_left_comes_to_nothing(monkeypatch):
    stopped = Filming(frames(1000, 0.01), 1000, b"".join)
    assert stopped.look()
    stopped.stop()
    monkeypatch.setattr(filming, "LEFT_S", 0.05)
    left = Filming(frames(1000, 0.02), 1000, b"".join)
    for film in (stopped, left):
        assert over(film)
        assert (film.content, film.trouble) == (b"", None)
        assert film.done < 1000


@pytest.mark.parametrize(("error", "key"), [
    (ImageError("it is broken", "undrawn"), "image.undrawn"), (MemoryError("no room"), "image.unforeseen")])
def test_a_film_says_what_went_wrong(error, key, caplog):
    def failing():
        yield b"0"
        raise error

    film = Filming(failing(), 2, b"".join)
    assert over(film)
    assert (film.content, film.trouble.key) == (b"", key)
    assert ("no room" in caplog.text) == isinstance(error, MemoryError)


# on the page


def panel():
    """The ways to take the training's loss away, as a page: the address says the run and the scale."""
    import streamlit as page
    from test_images import LIVE, LIVE_VIEWS, Words, watched

    from pages.ui import image_panel

    found = watched({"asked": page.query_params["run"]}, ["asked"])
    shown = {**LIVE.defaults, "view": "overview", "scale": page.query_params["scale"]}
    (picture,) = [one for one in LIVE_VIEWS["overview"].make(found, shown, Words("en")) if one.key == "profile"]
    image_panel._ways(picture, found, Words("en"), "here")


def offered(at):
    return [one.proto.label for one in at.get("download_button") if "GIF" in one.proto.label]


def test_a_film_is_offered_only_for_the_chart_it_shows(runs):
    t = Words("en")
    at = AppTest.from_function(panel, default_timeout=60)
    at.query_params.update(run=runs["short"], scale="log")
    at.run()
    next(one for one in at.button if one.label == t("image.film")).click().run()
    assert over(at.session_state["film.here.profile"][1])
    assert offered(at.run()) == [t("drift.download", format="GIF")]
    at.query_params["scale"] = "linear"
    assert offered(at.run()) == []
    assert not at.exception


def downloaded(visit, name):
    with visit.page.expect_download() as download:
        visit.page.get_by_role("button", name=name, exact=True).click()
    return download.value.suggested_filename, download.value.path().read_bytes()


@pytest.mark.browser
@pytest.mark.parametrize(("lang", "base"), [("en", "light"), ("zh", "dark")])
def test_the_page_downloads_a_chart_in_the_visitors_theme_or_the_other_and_in_the_language(visit, lang, base):
    t = Words(lang)
    visit.page.emulate_media(color_scheme=base)
    visit.open(f"/softmax?lang={lang}")
    visit.chart("return 1")
    visit.page.get_by_role("button", name=t("image.fold"), exact=True).first.click()
    visit.page.get_by_text(t("image.lead", width=2560, height=1440)).wait_for()
    found = dict(downloaded(visit, t("drift.download", format=name)) for name, _ in images.FORMATS.values())
    assert list(found) == [f"driftscope-row{ending}" for ending in images.FORMATS]
    png, svg, pdf = found.values()
    assert (pixels(png)[0, 0] == rgb(theme.PALETTES[base].background)).all()
    assert visit.chart("return gd.layout.title.text") in svg.decode()
    assert pdf.startswith(b"%PDF-")
    assert visit.page.get_by_role("button", name=t("image.film")).count() == 0  # nothing moves here
    other = BASES[BASES.index(base) - 1]
    visit.page.get_by_role("radio", name=t(f"image.{other}")).click()
    visit.settle()
    _, png = downloaded(visit, t("drift.download", format="PNG"))
    assert (pixels(png)[0, 0] == rgb(theme.PALETTES[other].background)).all()


@pytest.mark.browser
def test_the_live_page_makes_a_film_that_can_be_stopped_and_taken_away(runs, visit):
    t = Words("en")
    visit.open(f"/live?lang=en&run={runs['training']}")
    visit.chart("return 1", 2)
    button = partial(visit.page.get_by_role, "button", exact=True)
    button(name=t("image.fold")).nth(2).click()
    button(name=t("image.film")).click()
    visit.page.get_by_text(re.compile(r"Frame [1-9]\d* of 41")).wait_for()
    button(name=t("live.stop")).click()
    button(name=t("image.film")).wait_for()
    assert button(name=t("drift.download", format="GIF")).count() == 0
    button(name=t("image.film")).click()
    button(name=t("drift.download", format="GIF")).wait_for(timeout=120_000)
    name, content = downloaded(visit, t("drift.download", format="GIF"))
    assert name == "driftscope-profile.gif"
    assert Image.open(io.BytesIO(content)).n_frames == 41


# on the command line


def test_the_command_line_writes_a_picture_and_a_film(runs, tmp_path, capsys):
    picture, film, page = (tmp_path / name for name in ("out.PNG", "out.gif", "out.html"))
    assert export.main([runs["short"], "--image", str(picture), "--film", str(film), "--html", str(page),
                        "--picture", "overview/profile", "--theme", "dark", "--lang", "zh"]) == 0
    assert capsys.readouterr() == ("", "")
    assert (pixels(picture.read_bytes())[0, 0] == rgb(theme.PALETTES["dark"].background)).all()
    assert Image.open(io.BytesIO(film.read_bytes())).n_frames == 7
    assert page.read_text("utf-8") == export.made([runs["short"]], (), Words("zh")).decode()


def test_an_image_names_the_runs_that_it_shows_and_no_others(runs, tmp_path):
    picture = tmp_path / "out.svg"
    asked = [runs["training"], runs["broken"], "--view", "entropy", "--picture", "entropy/heads"]
    assert export.main([*asked, "--image", str(picture)]) == 0
    assert ET.fromstring(picture.read_text("utf-8"))[1].text == f"Driftscope {runs['training']}"


OVERVIEW = "overview/loss, overview/map, overview/profile"
REFUSED = {
    "nothing": ("training", [], "nothing is asked for; allowed: --html, --image, --film, one or several"),
    "ending": ("training", ["--image", "x.jpg"], "--image is 'x.jpg'; allowed: a file ending in .png, .svg, .pdf"),
    "film's ending": ("training", ["--film", "x.mp4"], "--film is 'x.mp4'; allowed: a file ending in .gif"),
    "which": ("training", ["--image", "x.png"], f"there are 3 pictures; allowed: --picture with one of {OVERVIEW}"),
    "wrong": ("training", ["--image", "x.png", "--picture", "map"], f"--picture is 'map'; allowed: {OVERVIEW}"),
    "no film": ("base", ["--film", "x.gif"],
                "there are no pictures that follow the steps of a training; another --view may have some"),
    "theme": ("base", ["--theme", "blue"], "argument --theme: invalid choice: 'blue' (choose from 'light', 'dark'); "
              "python -m pages.ui.export --help lists what is allowed"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_drawn_is_refused_in_one_line_with_status_2(runs, case, tmp_path, monkeypatch, capsys):
    name, options, said = REFUSED[case]
    monkeypatch.chdir(tmp_path)
    assert export.main([runs[name], *options]) == 2
    assert capsys.readouterr() == ("", f"{said}\n")
    assert list(tmp_path.iterdir()) == []
