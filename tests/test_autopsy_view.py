"""The autopsy on the page: what a visitor reads of a value that is not finite, and the way to a run that holds."""

import dataclasses
import math
from functools import cache
from types import SimpleNamespace
from urllib.parse import parse_qsl, urlencode, urlparse

import numpy as np
import pytest
from stacks import TOKENS, experiment
from test_autopsy import OVERFLOWS
from test_autopsy import spoiled as one_step

from core.autopsy import CELLS, ORIGINS
from core.causes import HOWS, TURNS, How
from core.films import Film
from core.lineage import STEPS
from core.remedies import REMEDIES, remedies
from core.stops import event
from core.trace import Trace
from core.train import train
from pages.ui import autopsy_card, cases, charts, component, explain, fields, link
from pages.ui.charts.cells import LOOKS
from pages.ui.link import Variant, View
from pages.ui.places import LIVE
from pages.ui.text import LANGUAGES, Words
from pages.ui.views.training import LIVE_VIEWS
from pages.ui.views.training.autopsy import autopsy
from pages.ui.watching import Watched

TEXT = {"source": "text", "text": "What leaves a layer is measured, and what enters it. " * 20, "seq_len": 8,
        "batch": 2}
KINDS = {
    "start": experiment(TOKENS, {"dtype": "float16"}, **OVERFLOWS),
    "forward": experiment(TEXT, {"steps": 30, "optimizer": "sgd", "lr": 1000.0}),
    "inf": experiment(TEXT, {"steps": 30, "dtype": "float16", "lr": 3.0}, norm="none"),
    "gradient": experiment(TEXT, {"steps": 30, "optimizer": "sgd", "lr": 1000.0}, norm="none", init_gain=1.5),
    "parameter": experiment(TEXT, {"steps": 3}),
    "finite": experiment(TEXT, {"steps": 3}),
    "overflow steps": experiment(TEXT, {"steps": 3, "dtype": "float16", "loss_scale": "dynamic"}, init_gain=4.0),
}
BROKEN = tuple(kind for kind in KINDS if kind not in ("finite", "overflow steps"))
LANGS = pytest.mark.parametrize("lang", LANGUAGES)


def filmed(kind, described, trace):
    events = tuple((one.step, name) for one in trace.snapshots if (name := event(described, one)))
    run = SimpleNamespace(id=kind, status="stopped", over=True)
    film = Film(run, np.array(trace.steps), np.array([one.loss for one in trace.snapshots]), trace, 1, events)
    return Watched(Variant({}, described, kind), run, trace, film)


@cache
def watched(kind):
    described = KINDS[kind]
    if kind == "parameter":  # its gradient alone is Inf
        return filmed(kind, described, one_step(described, lambda stack: stack.get_parameter(
            "layers.1.mlp.out.weight").register_hook(lambda gradient: gradient * math.inf)))
    return filmed(kind, described, Trace(tuple(train(described))))


@cache
def spoiled():
    """A run in which an update made a weight Inf."""
    described = experiment(TEXT, {"steps": 10})
    totals = {"grad_total_norm": 3.0, "clip_factor": 0.5, "lr": 1e30}
    before = dataclasses.replace(watched("finite").trace.snapshots[0], step=4, totals=totals)
    (sick,) = one_step(described, lambda stack: stack.get_parameter("layers.1.mlp.out.weight").data.fill_(
        math.inf)).snapshots
    after = dataclasses.replace(sick, step=5, non_finite=dataclasses.replace(sick.non_finite, step=5))
    return filmed("weights", described, Trace((before, after)))


def one(kind):
    return spoiled() if kind == "weights" else watched(kind)


def pictures(*kinds, lang="en", who="0"):
    return autopsy([one(kind) for kind in kinds], {**LIVE.defaults, "who": who}, Words(lang))


def marked(figure):
    """The rows and columns of the cells that carry the sign of a state."""
    return {trace.uid: set(zip(trace.x, trace.y, strict=True)) - {(None, None)} for trace in figure.data
            if trace.type == "scatter"}


@LANGS
@pytest.mark.parametrize("kind", [*BROKEN, "weights"])
def test_each_cell_says_its_state_by_a_sign_and_in_words(kind, lang):
    t, case = Words(lang), cases.examined(one(kind))
    maps = [picture for picture in pictures(kind, lang=lang) if picture.key.startswith("cells")]
    assert maps
    for picture in maps:
        cells = case.gradient if picture.key == "cells.gradient" else case.forward
        found, names = marked(picture.figure), list(picture.figure.data[0].x)
        for state, look in LOOKS.items():
            places = {(names[cells.layers.index(layer)], site) for layer, site in cells.places(state)}
            assert (state in found) == bool(places)
            assert found.get(state, set()) == (places if look.signed else set())
        said = {words for row in picture.figure.data[0].hovertext for words in row if words}
        states = {state for state in cells.states.flat if state in LOOKS}
        assert all(any(t(f"autopsy.cell_{state}_help") in words for words in said) for state in states)
        columns = picture.columns()
        assert len({len(column) for column in columns.values()}) == 1
        assert len(next(iter(columns.values()))) == (cells.states != "absent").sum()
        assert component._bare(picture.figure)


@pytest.mark.parametrize("kind", BROKEN)
def test_the_producer_alone_has_the_frame_and_the_label(kind):
    case = cases.examined(watched(kind))
    first = pictures(kind)[0]
    assert first.key == f"cells.{case.direction}"
    column, row = (list(names) for names in (first.figure.data[0].x, first.figure.data[0].y))
    (frame,), (label,) = first.figure.layout.shapes, first.figure.layout.annotations
    cell = column[round(frame.x0 + 0.5)], row[round(frame.y0 + 0.5)]
    assert label.y == cell[1]
    if case.site in row:
        assert {cell} <= marked(first.figure)["made"] and case.site == cell[1] and "made here" in label.text
    else:
        assert "in a parameter" in label.text and cell == ("1", "mlp_out")
    assert all(not picture.figure.layout.shapes for picture in pictures(kind)[1:] if picture.key.startswith("cells"))


def test_spoiled_weights_frame_where_they_were_first_read():
    case = cases.examined(spoiled())
    (frame,), (label,) = (getattr(pictures("weights")[0].figure.layout, name) for name in ("shapes", "annotations"))
    assert label.y == case.first_read.output.site and "first seen" in label.text and frame.line.width >= 4


@pytest.mark.parametrize(("kind", "maps"), [
    ("forward", ["cells.forward"]), ("gradient", ["cells.gradient", "cells.forward"]), ("start", ["cells.forward"]),
    ("parameter", ["cells.gradient", "cells.forward"])])
def test_the_map_of_the_pass_that_broke_comes_first_and_one_that_is_all_alike_is_left_out(kind, maps):
    assert [picture.key for picture in pictures(kind) if picture.key.startswith("cells")] == maps
    states = {*cases.examined(watched(kind)).gradient.states.flat} & {"made", "spread", "finite"}
    assert "cells.gradient" in maps or len(states) == 1


@pytest.mark.parametrize("kind", [*BROKEN, "weights"])
def test_the_history_ends_with_the_step_at_which_it_broke(kind):
    case, keys = cases.examined(one(kind)), [picture.key for picture in pictures(kind)]
    assert ("history" in keys) == bool(case.earlier.steps)
    if "history" in keys:
        picture = pictures(kind)[-1]
        line = picture.figure.data[0]
        assert list(line.x) == [*case.earlier.steps, case.step]
        name, sizes = cases.sizes(case)
        np.testing.assert_array_equal(np.asarray(line.y, float)[:-1], sizes)
        signs = [trace for trace in picture.figure.data if trace.uid and trace.uid.endswith(("gaps", "events"))]
        assert all(case.step in list(trace.x) for trace in signs) and len(signs) == 2
        assert picture.subject.statistics == (("absmax",) if name == "absmax" else ())


@LANGS
def test_all_finite_is_said_with_the_number_of_steps(lang):
    (picture,) = pictures("finite", lang=lang)
    assert picture.key == "loss" and "4" in picture.remarks[0] and cases.examined(watched("finite")) is None


def test_the_first_that_broke_is_looked_at_where_the_chosen_one_is_finite_and_that_is_said():
    chosen = pictures("finite", "forward", "gradient")
    assert chosen[0].variant == "forward" and "“finite” is finite so far" in chosen[0].remarks[0]
    assert pictures("finite", "forward", "gradient", who="2")[0].variant == "gradient"
    assert pictures("forward")[0].remarks == ()


def test_overflow_steps_are_told_and_are_no_autopsy():
    found = watched("overflow steps")
    count = sum(name == "overflow" for _, name in found.film.events)
    assert count and cases.examined(found) is None
    (picture,) = pictures("overflow steps")
    assert f"overflow steps: {count}." in picture.remarks[-1] and len(picture.remarks) == 2


def test_an_autopsy_is_made_once_and_stays_while_the_run_goes_on():
    whole = watched("forward")
    again = filmed("forward", whole.experiment, Trace(whole.trace.snapshots))
    assert cases.examined(again) is cases.examined(whole)


@LANGS
@pytest.mark.parametrize("kind", [*BROKEN, "weights"])
def test_the_card_says_everything_in_words(kind, lang):
    t, watching = Words(lang), one(kind)
    case = cases.examined(watching)
    said = [autopsy_card.headline(case, t), autopsy_card.mechanism(case, t),
            autopsy_card.table(case, watching.experiment, t), *autopsy_card.sentences(case, t),
            *autopsy_card.untouched(watching, case, t)]
    assert all(words and "{" not in words and "nan" not in words for words in said)
    assert explain.named(case.site, case.layer, t) in said[0] and str(case.step) in said[0]
    rows = said[2].split("\n")
    rows = [row for row in rows if row.startswith("|")]
    assert len(rows) == 2 + len(case.making.inputs) + 2
    assert len({row.replace("\\|", "").count("|") for row in rows}) == 1
    made = case.making.output
    counts = [f"{count:,.0f} NaN".replace(",", "\u202f") for count in (made.n_nan,) if count > 0]
    assert all(words in rows[-1] for words in counts)


@LANGS
def test_every_code_can_be_said(lang):
    t, found = Words(lang), cases.examined(watched("inf"))
    known = {}
    for kind in (*BROKEN, "weights"):
        known |= cases.examined(one(kind)).how.numbers
    numbers = {**dict.fromkeys(("eps", "std", "rms", "q", "k", "product", "square", "grad_norm", "grad_total_norm",
                                "lr", "absmax", "limit", "bound", "loss_scale", "scaled"), 1.5), **known}
    for code in HOWS:
        assert "{" not in autopsy_card.mechanism(dataclasses.replace(found, how=How(code, numbers, "float16")), t)
    assert all(t(f"autopsy.origin_{code}") for code in ORIGINS)
    assert all(t(f"autopsy.cell_{code}") and t(f"autopsy.cell_{code}_help") for code in CELLS)
    assert all(t(f"autopsy.way_{code}") for code in {*TURNS.values(), "inf_over_inf", "unknown"})
    assert all(t(f"autopsy.operation_{kind}") for kind in {*STEPS, "same", "update", "attention", "mlp"})
    assert all(t(f"remedy.{name}") and t(f"remedy_why.{name}") for name in REMEDIES)


@pytest.mark.parametrize("kind", BROKEN)
def test_a_remedy_leads_to_the_broken_run_and_the_remedy_alone_beside_it(kind):
    watching = one(kind)
    offered = remedies(watching.experiment, cases.examined(watching))
    assert offered
    for remedy in offered:
        query = autopsy_card.paired(dataclasses.replace(watching, run=SimpleNamespace(id="abc123")), remedy,
                                    link.DEFAULT_PRESET)
        view, notices = link.read(query, LIVE)
        assert notices == [] and view.runs == ("abc123",) and view.shown["view"] == "overview"
        assert view.base.canonical_json() == watching.experiment.canonical_json()
        both, refused = link.compared(view)
        assert refused == [] and len(both) == 2
        assert both[1].experiment.canonical_json() == watching.experiment.with_values(remedy.changes).canonical_json()
        assert all(fields.spoken(code, Words(lang)) for code in fields.codes(both[1].changes) for lang in LANGUAGES)


def test_a_view_of_the_live_page_is_there_for_every_name():
    assert set(LIVE_VIEWS) == set(LIVE.views) and charts.CHARTS["cells"] is charts.cells


def small():
    """The link of a training at a rate that is too high."""
    origin = LIVE.origin(link.DEFAULT_PRESET)
    base = origin.with_values({"model.n_layers": 2, "model.d_model": 16, "model.n_heads": 2, "input.batch": 2,
                               "input.seq_len": 8, "protocol.optimizer": "sgd", "protocol.lr": 1000.0,
                               "protocol.steps": 30})
    return "/live?" + urlencode({**link.write(View(base=base, variants=({"model.norm": "none"},),
                                                   shown=LIVE.defaults), LIVE), "lang": "en"})


DRAWN = "return gd._fullData.map(trace => trace.name).filter((name, row, all) => all.indexOf(name) === row)"


@pytest.mark.browser
def test_a_visitor_sees_it_break_reads_where_clicks_a_remedy_and_sees_it_hold(visit):
    page = visit.open(small()).page
    page.get_by_role("button", name="Start", exact=True).click()
    page.get_by_role("button", name="Open the autopsy").first.wait_for()
    page.get_by_text("ended at step").nth(1).wait_for()
    visit.settle()
    page.get_by_role("button", name="Open the autopsy").first.click()
    page.get_by_role("heading", name="NaN was made at “norm before MLP (layer 0)” in step 3, by the norm.").wait_for()
    assert visit.chart("return gd._fullLayout.annotations.map(one => one.text)") == ["◀ <b>made here</b>"]
    page.get_by_role("button", name="Clip the gradient").click()
    page.get_by_text("1 × 30 updates").wait_for()
    assert dict(parse_qsl(urlparse(page.url).query))["run"].count(".") == 0
    page.get_by_role("button", name="Start", exact=True).click()
    page.get_by_text("done, 30 updates").wait_for()
    visit.settle()
    assert page.get_by_text("ended at step 3 of 30").count() == 1
    page.wait_for_function("document.querySelector('.driftscope-chart')?._fullData?.length >= 6")
    assert visit.chart(DRAWN) == ["Gradient clipping: off", "Gradient clipping: 1.0"]
