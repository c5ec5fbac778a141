"""What is handed out: one file that opens from disk, without a network, and holds what the pages show."""

from __future__ import annotations

import base64
import csv
import io
import subprocess
import sys
from html.parser import HTMLParser

import pyarrow.parquet as pq
import pytest
from browser import ROOT
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import update

from core import archive, service
from core.database import RUNS
from core.experiment import parse
from core.store import Ask, Store
from core.table import shown
from pages.ui import component, dossier, export, feed, handout
from pages.ui.cache import Measured
from pages.ui.handout_marks import marked
from pages.ui.picture import FORMATS, Picture, Subject
from pages.ui.places import DRIFT, LIVE, PRECISION
from pages.ui.text import LANGUAGES, Words, escaped
from pages.ui.views import PRECISION_VIEWS, VIEWS, Lab
from pages.ui.views.training import LIVE_VIEWS

MODEL = {"n_layers": 2, "d_model": 16, "n_heads": 2}
HOSTILE = "<img src=x onerror=alert(1)></script><script>alert(2)</script> [a](javascript:alert(3)) **b** `c` $x$ %{y}"
MOST_BYTES = 3 * 2**20
THEMES = ("light", "dark")
SHOWN = """chart => chart._fullData.map(trace => {
  const plain = (part) => Array.from(part?._inputArray ?? part ?? [], one => typeof one == "object" && one !== null
    ? plain(one) : typeof one == "number" && !Number.isFinite(one) ? null : one);
  return plain(trace.z ?? trace.y);
})"""


def experiment(norm="layernorm", steps=0, **protocol):
    return parse({"model": {**MODEL, "norm": norm}, "input": {"batch": 2, "seq_len": 8},
                  "protocol": {"steps": steps, **protocol}})


MADE = {"base": experiment(), "none": experiment("none"), "hostile": experiment("rmsnorm"),
        "training": experiment(steps=6), "broken": experiment("none", 400, optimizer="sgd", lr=1e3, record_every=7)}
PROBES, TRAININGS = ("base", "none", "hostile"), ("training", "broken")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Name → id of runs in a store of their own; one of them has a hostile name, one is a repetition, one waits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRIFTSCOPE_STORE", f"sqlite:///{tmp_path_factory.mktemp('export') / 'store.db'}")
        found = {name: archive.play(one, keep=True).run for name, one in MADE.items()}
        found["again"] = service.repeat(found["base"])
        store = Store()
        (found["waiting"],) = store.ask([Ask("w", experiment("dyt").canonical_json("cpu"))], "probe", "")
        with store.database.writing() as connection:
            connection.execute(update(RUNS).where(RUNS.c.id == found["hostile"]).values(name=HOSTILE))
            connection.execute(update(RUNS).where(RUNS.c.id == found["again"]).values(status="done", steps_done=1))
        store.close()
        yield found
        service.stop()


class Read(HTMLParser):
    """A file as its reader has it: texts without those of scripts and styles, tags with what they say, downloads."""

    def __init__(self, content):
        super().__init__()
        self.tags, self.texts, self._silent = [], [], False
        self.feed(content)
        self.text = "".join(self.texts)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._silent = tag in ("script", "style")
        if tag == "br":
            self.texts.append("\n")

    def handle_endtag(self, tag):
        self._silent = False

    def handle_data(self, data):
        if not self._silent:
            self.texts.append(data)

    def downloads(self, ending):
        return [base64.b64decode(attrs["href"].partition(",")[2]) for tag, attrs in self.tags
                if tag == "a" and attrs["download"].endswith(ending)]


def file(runs, names, views=(), lang="en"):
    return export.made([runs[name] for name in names], views, Words(lang)).decode()


def pictures(runs, names, view, lang):
    """The pictures of a view, made from what the store says of these runs."""
    views = service.view([runs[name] for name in names])
    variants = export._named(views, Words(lang))
    if MADE[names[0]].protocol.steps:
        watched = feed.watch([(run.id, one) for run, one in zip(views, variants, strict=True)])
        return LIVE_VIEWS[view].make(watched, {**LIVE.defaults, "view": view}, Words(lang))
    measured = [Measured(one, run, service.trace(run.id)) for run, one in zip(views, variants, strict=True)]
    return VIEWS[view].make(measured, {**DRIFT.defaults, "view": view}, Words(lang))


# without a browser


@pytest.mark.parametrize(("names", "view"), [*((PROBES, view) for view in VIEWS),
                                             *((TRAININGS, view) for view in LIVE_VIEWS)])
def test_a_hand_out_of_any_view_has_all_its_pictures_with_their_numbers_and_is_not_large(runs, names, view):
    made = pictures(runs, names, view, "en")
    content = file(runs, names, [view])
    read = Read(content)
    drawn = [attrs["aria-label"] for tag, attrs in read.tags if tag == "figure"]
    assert len(drawn) == len(made) > 0
    assert sum(attrs.get("class") == "chart" for _, attrs in read.tags) == sum(one.figure is not None for one in made)
    assert len(content) < MOST_BYTES
    for picture, as_csv, as_parquet in zip(made, read.downloads(".csv"), read.downloads(".parquet"), strict=True):
        columns = picture.columns()
        rows = list(csv.reader(io.StringIO(as_csv.decode())))
        count = len(next(iter(columns.values()), ()))
        assert len(rows) == count + 1
        assert pq.read_table(io.BytesIO(as_parquet)).num_rows == count
        written = [["" if one is None else shown(one) if isinstance(one, float) else str(one) for one in values]
                   for values in columns.values()]
        assert [list(row) for row in zip(*rows[1:], strict=True)] == (written if count else [])


@pytest.mark.parametrize("view", [name for name, one in PRECISION_VIEWS.items() if isinstance(one, Lab)])
def test_a_view_of_numbers_alone_is_handed_out_with_what_is_said_of_each_picture(view):
    t, shown_there = Words("zh"), {**PRECISION.defaults, "view": view}
    read = Read(dossier.of_lab("precision", PRECISION_VIEWS[view], shown_there, t).decode())
    told = PRECISION_VIEWS[view].make(shown_there, t)
    assert [attrs["aria-label"] for tag, attrs in read.tags if tag == "figure"] == [one.picture.label for one in told]
    assert all(Read(marked(one.said)).text in read.text for one in told)


@pytest.mark.parametrize("lang", LANGUAGES)
def test_a_hand_out_says_where_its_numbers_come_from_and_how_to_compute_them_again(runs, lang):
    t = Words(lang)
    text = Read(file(runs, PROBES, lang=lang)).text
    for view in service.view([runs[name] for name in PROBES]):
        known = [view.id, view.provenance["engine"], view.provenance["torch"], view.provenance["device"]]
        assert all(str(one) in text for one in known)
    assert text.count("python -m core run --preset pre_layernorm") == len(PROBES)
    assert t("pairing.same_weights", fields="") in text and t("norm.none") in text
    assert t("handout.text") not in text


def test_the_program_in_a_hand_out_computes_the_same_numbers(runs):
    text = Read(file(runs, TRAININGS)).text
    program = text[text.index("from core.archive"):].partition("for name, one in changes.items()}")
    found = {}
    exec("".join(program[:2]), found)
    losses = [repr([one.loss for one in trace.snapshots]) for trace in found["traces"].values()]
    assert losses == [repr([one.loss for one in service.trace(runs[name]).snapshots]) for name in TRAININGS]


def test_a_broken_training_is_judged_with_the_sign_of_an_alarm_and_one_that_is_too_short_with_none(runs):
    signs = [part.split("</h3>")[1].startswith("<p><span class=alarm aria-hidden=true>✕</span> ")
             for part in file(runs, TRAININGS).split("<div class=judged>")[1:]]
    assert signs == [False, True]


def test_a_table_that_is_long_shows_its_first_rows_and_one_that_is_too_large_for_the_file_says_so():
    count = 90_000
    long = Picture("p", None, "label", Subject(), lambda: {"number": [float(one) for one in range(count)],
                                                           "text": ["abcdefgh"] * count})
    t = Words("en")
    read = Read(handout.page("title", "", [handout.Section("heading", pictures=[long])], t))
    assert sum(tag == "tr" for tag, _ in read.tags) == handout.ROWS + 1
    assert t("handout.rows", shown=handout.ROWS, count=count) in read.text
    assert t("handout.too_large", format="CSV") in read.text
    assert [len(read.downloads(ending)) for ending in FORMATS] == [0, 1]


@given(st.text(st.characters(blacklist_categories=("Cs", "Cc")), max_size=60))
def test_a_visitors_text_is_shown_letter_by_letter(text):
    read = Read(marked(escaped(text)) + "<i>")  # the parser holds back what may be the beginning of a tag
    assert [tag for tag, _ in read.tags] == ["i"]
    assert read.text.replace("\u2060", "") == text.replace("\u2060", "")


@pytest.mark.parametrize(("text", "made"), [
    ("**a `b`** c", "<strong>a <code>b</code></strong> c"), ("a  \nb", "a<br>b"), (r"**\*\***", "<strong>**</strong>"),
    ("a & b < c", "a &amp; b &lt; c"), ("`**`", "<code>**</code>"), ("2 ** 3", "2 ** 3"),
])
def test_the_marks_of_our_sentences_become_html(text, made):
    assert marked(text) == made


REFUSED = {
    "no such run": (["none such"], [], "the store has no run none such"),
    "waiting": (["waiting"], [], "run {waiting} is queued; allowed: a run that is over"),
    "two kinds": (["base", "training"], [],
                  "there are probes and trainings among the runs; allowed: all of one kind"),
    "twice": (["base", "again"], [], "runs {base} and {again} computed the same experiment; allowed: one of them"),
    "view": (["base"], ["--view", "autopsy"], f"--view is 'autopsy'; allowed: {', '.join(VIEWS)}"),
    "view of a training": (["training"], ["--view", "twins"], f"--view is 'twins'; allowed: {', '.join(LIVE_VIEWS)}"),
    "language": (["base"], ["--lang", "fr"], "argument --lang: invalid choice: 'fr' (choose from 'en', 'zh'); "
                 "python -m pages.ui.export --help lists what is allowed"),
    "nothing": ([], [], "the following arguments are required: RUN; "
                "python -m pages.ui.export --help lists what is allowed"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_handed_out_is_refused_in_a_sentence_with_status_2(runs, case, tmp_path, capsys):
    names, options, said = REFUSED[case]
    target = tmp_path / "out.html"
    assert export.main([*(runs.get(name, name) for name in names), "--html", str(target), *options]) == 2
    assert capsys.readouterr() == ("", said.format(**runs) + "\n")
    assert not target.exists()


def test_a_file_that_cannot_be_written_is_refused_in_a_sentence(runs, tmp_path, capsys):
    assert export.main([runs["base"], "--html", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"the file cannot be written: [Errno 21] Is a directory: '{tmp_path}'\n"


def test_more_runs_than_a_page_shows_are_refused(runs, monkeypatch):
    views = service.view([runs["base"]])
    many = [type(views[0])(**{**vars(views[0]), "id": str(n), "key": str(n)}) for n in range(DRIFT.most + 2)]
    monkeypatch.setattr(service, "view", lambda _ids: many)
    with pytest.raises(export.Refusal, match=f"there are {DRIFT.most + 2} runs; allowed: up to {DRIFT.most + 1}"):
        export.made(["a"], (), Words("en"))


def test_another_process_writes_the_same_file_and_imports_no_torch(runs, tmp_path):
    target = tmp_path / "out.html"
    code = ("import sys\nfrom pages.ui.export import main\n"
            "assert main(sys.argv[1:]) == 0\nassert not {'torch', 'numba'} & set(sys.modules)")
    done = subprocess.run([sys.executable, "-c", code, runs["base"], "--html", str(target), "--lang", "zh"], cwd=ROOT,
                          capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert target.read_text("utf-8") == file(runs, ["base"], lang="zh")


# in a browser


class Opened:
    """A file, opened from disk with the network off, and everything that went wrong or was asked for."""

    def __init__(self, page, path):
        self.page, self.errors, self.asked = page, [], []
        page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("dialog", lambda dialog: (self.errors.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: self.asked.append(request.url))
        page.goto(path.as_uri())
        for chart in page.locator(".chart").all():
            chart.locator(".main-svg").first.wait_for()

    def chart(self, function, number=0):
        return self.page.locator(".driftscope-chart").nth(number).evaluate(function)


@pytest.fixture
def open_file(chromium):
    """Open a file offline in a theme; nothing may go wrong in it, and it may ask for nothing but itself."""
    contexts, files = [], []

    def opened(path, theme="light"):
        contexts.append(chromium.new_context(viewport={"width": 1280, "height": 900}, color_scheme=theme))
        contexts[-1].set_offline(True)
        files.append(Opened(contexts[-1].new_page(), path))
        return files[-1]

    yield opened
    for one in files:
        assert one.errors == []
        assert [url for url in one.asked if not url.startswith(("file:", "blob:null/", "data:"))] == []
    for context in contexts:
        context.close()


RANGES = "chart => [chart._fullLayout.xaxis.range, chart._fullLayout.yaxis.range]"
BACKGROUND = "chart => chart._fullLayout.paper_bgcolor"


@pytest.mark.browser
@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_file_opened_from_disk_shows_every_picture_with_the_runs_numbers(runs, tmp_path, open_file, lang, theme):
    path = tmp_path / "out.html"
    path.write_text(file(runs, PROBES, lang=lang), "utf-8")
    opened = open_file(path, theme)
    made = [one for view in export.PROBE_VIEWS for one in pictures(runs, PROBES, view, lang)]
    drawn = opened.page.locator(".driftscope-chart")
    assert drawn.count() == len(made)
    for number, picture in enumerate(made):
        sent = [trace.z if trace.type == "heatmap" else trace.y for trace in picture.figure.data]
        assert opened.chart(SHOWN, number) == [component._plain(values) for values in sent]
    assert opened.page.evaluate("document.documentElement.lang") == lang
    assert opened.page.locator("#failure").count() == 0
    assert opened.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert opened.chart(BACKGROUND) == component.theme.PALETTES[theme].background


@pytest.mark.browser
def test_charts_of_the_file_can_be_hovered_zoomed_and_switched_to_the_other_theme(runs, tmp_path, open_file):
    path = tmp_path / "out.html"
    path.write_text(file(runs, PROBES), "utf-8")
    opened = open_file(path)
    page, mouse = opened.page, opened.page.mouse
    before = opened.chart(RANGES)
    box = page.locator(".nsewdrag").first.bounding_box()

    def move(x, y):
        mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"], steps=5)

    move(0.3, 0.3)
    page.locator(".hoverlayer .hovertext").first.wait_for()
    mouse.down()
    move(0.5, 0.5)
    move(0.7, 0.8)
    mouse.up()
    page.wait_for_timeout(300)
    zoomed = opened.chart(RANGES)
    assert zoomed != before
    page.get_by_role("button", name="Light / dark").click()
    page.wait_for_timeout(1000)
    assert opened.chart(BACKGROUND) == component.theme.PALETTES["dark"].background
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(17, 22, 31)"
    assert opened.chart(RANGES) == zoomed
    page.emulate_media(color_scheme="dark")  # what was chosen stays, whatever the system says
    page.get_by_role("button", name="Light / dark").click()
    page.wait_for_timeout(1000)
    assert opened.chart(BACKGROUND) == component.theme.PALETTES["light"].background


@pytest.mark.browser
def test_the_numbers_are_folded_away_and_can_be_taken_from_the_file(runs, tmp_path, open_file):
    path = tmp_path / "out.html"
    path.write_text(file(runs, PROBES), "utf-8")
    page = open_file(path).page
    figure = page.locator("figure").nth(1)
    assert not figure.locator("table").is_visible()
    figure.get_by_text("The numbers", exact=True).click()
    assert figure.locator("table").is_visible()
    with page.expect_download() as download:
        figure.get_by_text("Download CSV", exact=True).click()
    assert download.value.suggested_filename == "driftscope-profile.csv"
    rows = list(csv.DictReader(io.StringIO(download.value.path().read_text("utf-8"))))
    assert len(rows) == figure.locator("tbody tr").count() > 0


@pytest.mark.browser
def test_hostile_names_are_shown_as_they_are_and_run_nothing(runs, tmp_path, open_file):
    path = tmp_path / "out.html"
    path.write_text(file(runs, ["hostile", "base"], ["overview", "text"]), "utf-8")
    opened = open_file(path)
    page = opened.page
    assert page.locator("h1").inner_text().startswith(HOSTILE)
    assert page.get_by_role("heading", name=HOSTILE, exact=True).first.is_visible()
    assert page.locator("main img, main iframe, main a:not([download])").count() == 0
    assert any(HOSTILE.replace("%{", "%\u200b{") in text for text in opened.chart(
        "chart => [...chart.querySelectorAll('text')].map(one => one.textContent)", 1))


@pytest.mark.browser
def test_a_page_hands_out_what_is_on_screen(visit, tmp_path, open_file):
    path = tmp_path / "out.html"
    visit.open("/drift?layers=3&view=twins&stat=absmax")
    button = visit.page.get_by_role("button", name="Hand out")
    button.wait_for()
    visit.settle()
    with visit.page.expect_download() as download:
        button.click()
    download.value.save_as(path)
    assert download.value.suggested_filename == "driftscope-drift-twins.html"
    opened = open_file(path)
    for number in range(2):
        here = visit.chart(f"return ({SHOWN})(gd)", number)
        assert opened.chart(SHOWN, number) == here
        assert any(here)
    assert opened.page.get_by_text("python -m core run").count() == 1
