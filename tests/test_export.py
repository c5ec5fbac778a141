"""What is handed out: one file that opens from disk, without a network, and holds what the pages show."""

from __future__ import annotations

import base64
import contextlib
import csv
import io
import math
import re
import shlex
import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import pyarrow.parquet as pq
import pytest
from browser import ROOT
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import update
from streamlit.testing.v1 import AppTest

from core import __main__ as core_command
from core import archive, service
from core.database import RUNS
from core.experiment import parse
from core.store import Ask, Store
from core.sweep import grid
from core.table import shown
from core.worked import worked
from pages.ui import (
    component,
    dossier,
    export,
    feed,
    handout,
    handout_blocks,
    lesson_handout,
    lessons,
    scenes,
    single,
    softmax_link,
    tensor_link,
    worksheet,
)
from pages.ui.cache import Measured
from pages.ui.handout_blocks import Drawn
from pages.ui.handout_marks import marked, prose
from pages.ui.lesson_link import Visit
from pages.ui.picture import FORMATS, Picture, Subject
from pages.ui.places import DRIFT, LIVE, PRECISION, SWEEP
from pages.ui.text import LANGUAGES, Words, escaped
from pages.ui.views import PRECISION_VIEWS, VIEWS, Lab
from pages.ui.views.sweep import State
from pages.ui.views.training import LIVE_VIEWS

MODEL = {"n_layers": 2, "d_model": 16, "n_heads": 2}
HOSTILE = ("<img src=x onerror=alert(1)></script><script>alert(2)</script> [a](javascript:alert(3)) **b** `c` $x$ %{y} "
           "<a href='http://b'>c</a>")
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
        self.tags, self.texts, self.codes, self._silent, self._inside = [], [], [], False, ""
        self.feed(content)
        self.text = "".join(self.texts)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._silent, self._inside = tag in ("script", "style"), tag
        if tag == "br":
            self.texts.append("\n")

    def handle_endtag(self, tag):
        self._silent, self._inside = False, ""

    def handle_data(self, data):
        if self._inside == "pre":
            self.codes.append(data)
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


def protocol_line():
    """What a page says of the runs below its pictures; the second has not recorded yet with what it is paired."""
    from dataclasses import replace

    import streamlit as page
    from test_export import Measured, Words, export, service

    from pages.ui import panels

    views = service.view(page.query_params["runs"].split("."))
    views[1] = replace(views[1], provenance={})
    panels.pairing_and_protocol([Measured(one, run, None) for run, one in zip(
        views, export._named(views, Words("en")), strict=True)], Words("en"))


def test_a_page_says_nothing_of_pairing_where_one_run_has_not_recorded_what_tells(runs):
    at = AppTest.from_function(protocol_line, default_timeout=60)
    at.query_params["runs"] = ".".join(runs[name] for name in ("base", "none"))
    at.run()
    assert not at.exception
    assert at.caption and not [one for one in at.markdown if "-badge[" in one.value]


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
    read = Read(handout.page("title", "", [handout.Section("heading", [Drawn(long)])], t))
    assert sum(tag == "tr" for tag, _ in read.tags) == handout_blocks.ROWS + 1
    assert t("handout.rows", shown=handout_blocks.ROWS, count=count) in read.text
    assert t("handout.too_large", format="CSV") in read.text
    assert [len(read.downloads(ending)) for ending in FORMATS] == [0, 1]


@given(st.text(st.characters(blacklist_categories=("Cs", "Cc")), max_size=60))
def test_a_visitors_text_is_shown_letter_by_letter(text):
    read = Read(marked(escaped(text)) + "<i>")  # the parser holds back what may be the beginning of a tag
    assert [tag for tag, _ in read.tags] == ["i"]
    assert read.text.replace("\u2060", "") == text.replace("\u2060", "")


@pytest.mark.parametrize(("text", "made"), [
    ("**a `b`** c", "<strong>a <code>b</code></strong> c"), ("a  \nb", "a<br>\nb"),
    (r"**\*\***", "<strong>**</strong>"), ("*a* _b_", "<em>a</em> <em>b</em>"), ("[a](http://b)", "[a](http://b)"),
    (":red[:material/error:] a :gray[:material/unknown:]", "✕ a "),
    ("a & b < c", "a &amp; b &lt; c"), ("`**`", "<code>**</code>"), ("2 ** 3", "2 ** 3"),
])
def test_the_marks_of_our_sentences_become_html(text, made):
    assert marked(text) == made


def test_prose_has_links_lists_tables_and_formulas_and_no_html_of_its_own():
    made = prose("a $x_1$ **b**\n\n$$y = \\frac{x}{\\sigma}$$\n\n- [one](drift?x=1)\n"
                 "- [two](javascript:alert(1)) <b>\n\n| A | B |\n|---|--:|\n| 1 | 2 |")
    tags = [tag for tag, _ in Read(made).tags]
    assert tags.count("math") == 2 and tags.count("mfrac") == 1 and tags.count("li") == 2 and tags.count("td") == 2
    assert [attrs["href"] for tag, attrs in Read(made).tags if tag == "a"] == ["drift?x=1"]
    assert "b" not in tags and "$" not in Read(made).text


@pytest.mark.parametrize(("latex", "text"), [
    (r"\text{<img src=x onerror=alert(1)>}", "<img\u00a0src=x\u00a0onerror=alert(1)>"),
    (r"a < b \le c \& d", "a<b≤c&d"), (r"\text{&lt;b>}", "<b>"), (r"\href{javascript:alert(1)}{x}", "x")])
def test_a_formula_holds_no_html(latex, text):
    read = Read(prose(f"${latex}$"))
    assert read.text.strip() == text
    assert {tag for tag, _ in read.tags} <= {"div", "p", "span", "math", "mrow", "mtext", "mi", "mo"}
    assert all("href" not in attrs for _, attrs in read.tags)


@pytest.mark.parametrize("latex", [r"\left(", r"\frac{", "a_", r"\text{<b>}\sqrt"])
def test_a_formula_that_cannot_be_read_is_shown_as_it_was_written(latex):
    read = Read(prose(f"a ${latex}$ b"))
    assert read.text.strip() == f"a {latex} b"
    assert [tag for tag, _ in read.tags] == ["div", "p", "span", "code"]


def test_the_name_of_a_row_of_cells_is_text():
    (label,) = [attrs["aria-label"] for tag, attrs in Read(worksheet.row(np.ones(2), "' onfocus='x' <b>", 0)).tags
                if tag == "table"]
    assert label == "' onfocus='x' <b>"


@pytest.mark.parametrize("name", lessons.names())
def test_every_formula_of_a_lesson_becomes_mathml(name):
    found = [block for lang in LANGUAGES for section in lessons.lesson(name, lang).sections
             for block in (section.slide, *section.blocks) if isinstance(block, str)]
    read = Read("".join(map(prose, found)))
    assert sum(text.count("$$") // 2 for text in found) == sum(
        tag == "math" and attrs["display"] == "block" for tag, attrs in read.tags)
    assert not re.search(r"[\\&$]", read.text)


@pytest.mark.parametrize("asked", [*softmax_link.PRESETS.values(), softmax_link.Asked("own", (1.0, -math.inf, 3.0)),
                                   softmax_link.Asked(upstream="normal", temperature=0.5)])
def test_the_program_of_a_row_of_scores_computes_what_the_page_shows(asked):
    found, row = run_program(single.softmax_row(asked, Words("en")).decode()), asked.row()
    np.testing.assert_array_equal(found["row"].p, row.p)
    np.testing.assert_array_equal(found["gradient"], row.gradient(asked.gradient(row)))


@pytest.mark.parametrize("asked", [*tensor_link.PRESETS.values(), tensor_link.Asked("nan_1_inf_2", norm="rmsnorm"),
                                   tensor_link.Asked(norm="batchnorm", pool="batch", gamma="1_2_3_4", scale=0.1)])
def test_the_program_of_a_worked_tensor_computes_every_step(asked):
    found, sheet = run_program(single.worked_tensor(asked, Words("zh")).decode()), worked(
        asked.norm, asked.tensor(), asked.dials())
    assert [step.name for step in found["sheet"].steps] == [step.name for step in sheet.steps]
    for mine, there in zip(found["sheet"].steps, sheet.steps, strict=True):
        np.testing.assert_array_equal(mine.values, there.values)


def test_a_sweep_is_handed_out_with_a_program_and_a_command_that_have_the_same_cells():
    base, axes = experiment(), {"model.norm": ["none", "layernorm"], "model.init_gain": [1.0, -0.5]}
    cells = grid(base, axes)
    states = [State(cell, "refused" if cell.experiment is None else "absent") for cell in cells]
    content = single.swept(states, base, axes, SWEEP.defaults, Words("en")).decode()
    found = run_program(content)
    assert [cell.experiment for cell in found["cells"]] == [cell.experiment for cell in cells]
    assert list(found["traces"]) == [cell.name for cell in cells if cell.experiment]
    command = next(line for line in Read(content).text.splitlines() if "python -m core sweep" in line)
    options = core_command._parser().parse_args(shlex.split(command.partition("core ")[2]))
    again = grid(core_command.experiment_of(options), core_command._fields(options.grid, "--grid"))
    assert [(cell.values, cell.experiment) for cell in again] == [(cell.values, cell.experiment) for cell in cells]
    reason = next(one.reason(Words("en")) for one in states if one.cell.refused)
    assert "-0.5" in reason and "\\" not in reason  # it is not Markdown
    assert all(f"{cell.name}: {reason}" in Read(content).text for cell in cells if cell.refused)


def test_a_lessons_hand_out_says_of_every_figure_how_to_have_it_again_be_it_a_picture_or_not():
    one, t = lessons.lesson("one_token", "en"), Words("en")
    visit = Visit(one.name, dials={"cube": 2})
    figures = [figure for section in one.sections for figure in section.figures]
    kept = {figure.state: scenes.scene(visit.state(one, figure.state), "key", t).keep() for figure in figures}
    read = Read(lesson_handout.made(one, visit, kept, "http://here/", t).decode())
    assert [figure.picture for figure in figures] == ["block", "steps"]
    shown_there = lessons.address(visit.state(one, "cube"), {"lang": "en"}, "http://here/")
    assert [attrs["href"] for tag, attrs in read.tags if tag == "a"].count(shown_there) == len(figures)


def run_program(content):
    """Run the Python of a hand-out as its reader does, and return what it leaves."""
    programs = [text for text in Read(content).codes if "from core" in text]
    found = {}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(programs[-1], found)
    return found


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


PAGES = {
    "drift-twins": "/drift?layers=3&view=twins&stat=absmax&lang=en",
    "softmax": "/softmax?lang=zh&std=8",
    "tensor": "/tensor?lang=en&norm=batchnorm",
    "norms-ranking": "/norms?lang=zh&view=ranking&layers=2&norms=layernorm,rmsnorm&placements=pre",
    "norms-overlay": "/norms?lang=en&view=overlay&layers=2&norms=layernorm,rmsnorm&placements=pre,post",
    "sweep": "/sweep?lang=zh&layers=2&across=model.norm%3Dnone%2Clayernorm&down=",
}
"""Name of a file → the page that hands it out."""


@pytest.mark.browser
@pytest.mark.parametrize("name", PAGES)
def test_a_page_hands_out_what_is_on_screen(visit, tmp_path, open_file, name):
    path, lang = tmp_path / "out.html", "zh" if "lang=zh" in PAGES[name] else "en"
    visit.open(PAGES[name])
    button = visit.page.get_by_role("button", name=Words(lang)("handout.button"))
    button.wait_for()
    visit.settle()
    with visit.page.expect_download() as download:
        button.click()
    download.value.save_as(path)
    assert download.value.suggested_filename == f"driftscope-{name}.html"
    opened, charts = open_file(path), visit.page.locator(".driftscope-chart").count()
    assert opened.page.locator(".driftscope-chart").count() == charts
    assert opened.page.locator("h1").inner_text() == visit.page.locator("h1").inner_text()
    for number in range(charts):
        here = visit.chart(f"return ({SHOWN})(gd)", number)
        assert opened.chart(SHOWN, number) == here
        assert any(here)
    programs = [text for text in opened.page.locator("pre").all_inner_texts() if "from core." in text]
    visit.page.get_by_text(Words(lang)("handout.code"), exact=True).click()
    shown_there = visit.page.locator("[data-testid=stPopoverBody] [data-testid=stCode]", has_text="from core.")
    assert shown_there.first.inner_text().split() == programs[-1].split()
    for said in visit.page.locator("[data-testid=stMain] [data-testid=stMarkdown] td").all_inner_texts():
        assert said.split()[-1] in opened.page.inner_text("body")
