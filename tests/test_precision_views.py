"""The views of the precision page without a browser: whole for every kind of stack, and the numbers of the engine."""

import json
import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import test_views
from hypothesis import given
from hypothesis import strategies as st
from probes import probed
from test_views import SMALL

from core import table
from core.fixed_point import Scheme, integer_layernorm
from core.format_gap import gap
from core.headroom import headroom
from core.silent import STATES
from core.variances import ARITHMETICS, METHODS, data
from pages.ui import charts, component, explain, link
from pages.ui.charts.promises import LOOKS
from pages.ui.link import View
from pages.ui.places import HALVES, PRECISION, Form
from pages.ui.text import LANGUAGES, Words
from pages.ui.views import PRECISION_VIEWS, Lab, Viewpoint, silent
from pages.ui.views.variance import SWEPT

EN = Words("en")
RUNS = {name: one for name, one in PRECISION_VIEWS.items() if isinstance(one, Viewpoint)}
LABS = {name: one for name, one in PRECISION_VIEWS.items() if isinstance(one, Lab)}
KINDS = {
    **{name: kind for name, kind in test_views.KINDS.items() if name in (
        "usual", "no norm", "post", "one layer", "vanishing", "zero", "standard", "attention alone", "explicit",
        "mixed layers", "one token")},
    "naive": {"input.source": "scaled", "input.feature_scales": [1000.0] * 16},
    "branch": {"model.placement": "branch"}, "beyond": {"model.norm": "none", "model.embed_scale": 1e6},
    "all inf": {"model.embed_scale": 1e38},
}


def measured(kind, view):
    return [one_run(kind, tuple(changes.items())) for changes in ({}, *RUNS[view].variants)]


@cache
def one_run(kind, changes):
    name = " ".join(str(value) for _, value in changes) or "float32"
    return probed(name, {**SMALL, **KINDS[kind]}, dict(changes))


def pictures(kind, view, lang="en", **shown):
    return RUNS[view].make(measured(kind, view), PRECISION.defaults | shown, Words(lang))


def whole(picture, t):
    """Say that a picture can be drawn, explained and taken away."""
    assert picture.figure is not None or picture.remarks
    columns = picture.columns()
    assert len({len(column) for column in columns.values()}) <= 1
    for write in table.FORMATS.values():
        write(table.table_of(columns))
    for key in picture.subject.extra:
        assert t(f"extra.{key}") and t(f"what.{key}") and t(f"formula.{key}")
    if picture.figure is not None:
        json.dumps(component._bare(picture.figure), allow_nan=False)
        assert len(picture.figure.data) <= 60


@pytest.mark.parametrize("view", RUNS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_view_of_every_kind_of_stack_comes_out_whole_and_judges_in_words(kind, view):
    for lang, shown in (("en", {}), ("zh", {"of": "gradient", "format": "bfloat16", "who": "2"}),
                        ("en", {"site": "mlp_act", "stat": "n_nan", "format": "float32", "who": "1"})):
        t = Words(lang)
        for picture in pictures(kind, view, lang, **shown):
            whole(picture, t)
        for one in measured(kind, view):
            for verdict in RUNS[view].judge(one.trace, one.experiment, PRECISION.defaults | shown):
                said = explain.sentence(verdict, t)
                assert said and "{" not in said


@pytest.mark.parametrize("view", RUNS)
def test_a_view_bears_that_only_the_base_is_finished(view):
    for picture in RUNS[view].make(measured("usual", view)[:1], PRECISION.defaults, EN):
        whole(picture, EN)


def test_every_view_is_in_the_link_with_its_controls_and_its_words():
    assert tuple(PRECISION_VIEWS) == PRECISION.views
    for name, one in PRECISION_VIEWS.items():
        assert set(one.asks) <= PRECISION.shown.keys()
        for lang in LANGUAGES:
            assert Words(lang)(f"precision_view.{name}") and Words(lang)(f"precision_view_help.{name}")
            assert name in LABS or Words(lang)(f"precision.fixed_{one.fixed}")


@pytest.mark.parametrize("view", RUNS)
def test_the_variants_of_a_view_are_the_formats_whatever_the_base_is(view):
    assert {changes["protocol.dtype"] for changes in RUNS[view].variants} == set(HALVES)
    found, refused = link.compared(View(base=PRECISION.origin("float16_overflow"), variants=RUNS[view].variants))
    assert len(found) == 1 + len(RUNS[view].variants) <= 7 and not refused
    assert found[0].experiment.protocol.dtype == "float32"


# links

SHOWN = st.fixed_dictionaries({name: st.sampled_from(list(values)) for name, values in PRECISION.shown.items()})


@given(SHOWN)
def test_every_state_survives_its_link(shown):
    view = replace(View.of(PRECISION), shown=shown)
    assert link.read(link.write(view, PRECISION), PRECISION) == (view, [])


@pytest.mark.parametrize("name", [name for name, values in PRECISION.shown.items() if not isinstance(values, Form)])
def test_what_a_link_cannot_say_is_replaced_with_a_notice(name):
    view, notices = link.read({name: "<b>nan"}, PRECISION)
    assert [notice.key for notice in notices] == ["link.choice"] and view == View.of(PRECISION)


@pytest.mark.parametrize("value", ["nan", "inf", "1e", "1e999", "", "--1", "0x10", "1" * 13, "1.2.3", "<b>"])
def test_a_number_that_cannot_be_placed_is_replaced_with_a_notice(value):
    view, notices = link.read({"value": value}, PRECISION)
    assert [notice.key for notice in notices] == ["link.form_value"] and view == View.of(PRECISION)
    assert all("{" not in explain.notice(notices[0], Words(lang)) for lang in LANGUAGES)


def test_the_format_of_the_base_is_not_to_be_changed_by_a_link():
    query = {"x": link.pack({"base": {"protocol.dtype": "float16"}, "variants": [{"model.norm": "none"}]})}
    view, notices = link.read(query, PRECISION)
    assert view.base.protocol.dtype == "float32"
    assert [notice.key for notice in notices] == ["link.field", "link.too_many"]


# numbers


def test_the_bars_are_the_least_headroom_of_each_site_and_cells_beyond_have_a_cross():
    bars, cells = pictures("beyond", "headroom")
    found = headroom(measured("beyond", "headroom")[0].trace, "float16")
    lengths = bars.figure.data[0]
    drawn = dict(zip([re.sub("<.?b>", "", row) for row in lengths.y], lengths.x, strict=True))
    for row, site in enumerate(found.sites):
        if site in drawn:
            assert drawn[site] == np.nanmin(found.values[row])
    assert drawn["embed"] < 0 and EN("precision.times_over", factor="")[:5] in bars.figure.data[1].text[0]
    crosses = next(trace for trace in cells.figure.data if trace.name == EN("precision.crossed"))
    assert len(crosses.x) == (found.values < 0).sum() > 0
    shown = [value for value in cells.columns()["headroom"] if value is not None]
    assert shown == found.values[found.states == "measured"].tolist()


def test_the_report_of_headroom_names_what_is_foretold_and_what_was_met(monkeypatch):
    said = []
    monkeypatch.setattr("streamlit.markdown", said.append)
    RUNS["headroom"].report(measured("beyond", "headroom"), EN)
    place = explain.named("embed", -1, EN)
    assert said[0].count(f"“{place}”") == 2 and "Inf" in said[0]
    RUNS["headroom"].report(measured("usual", "headroom"), EN)
    assert EN("precision.foretold_none") in said[1] and EN("precision.met_none") in said[1]


def test_silent_zeros_have_a_cell_a_layer_and_the_pairs_are_told_apart():
    cells, apart = pictures("naive", "silent")
    states = cells.columns()[EN("overview.state")]
    assert states.count(EN("promise.zero")) == 7  # two norms in each of three layers, and the final one
    crosses = next(trace for trace in cells.figure.data if trace.uid == "zero")
    assert len(crosses.x) == 4 and set(crosses.y) == {"float16 compute after"}
    assert set(LOOKS) == set(STATES) == set(silent.WORST)
    columns = apart.columns()
    assert columns[EN("precision.pair_naive", format="float16")] == [1.0] * 4
    for name in HALVES:
        assert columns[EN("precision.pair_cast", format=name)] == [0.0] * 4  # γ is 1


def test_the_gap_is_that_of_the_engine_and_its_chart_has_the_roundoff():
    lines, *maps = pictures("usual", "difference")
    base, *others = measured("usual", "difference")
    assert [one.variant for one in maps] == [one.name for one in others]
    for trace, one in zip(lines.figure.data, others, strict=True):
        found = gap(one.trace, base.trace, "rms")
        np.testing.assert_allclose(trace.y[1:], found.values[found.sites.index("resid_post"), 1:-1])
    assert len({trace.line.dash for trace in lines.figure.data}) == 2


def test_loss_scales_and_shares_of_small_numbers_are_the_snapshot_s():
    bars, scales = pictures("usual", "underflow", of="gradient")
    snapshot = measured("usual", "underflow")[0].trace.snapshots[-1]
    columns = bars.columns()
    for site, value in zip(columns[EN("drift.site")], columns["grad_subnormal_frac16"], strict=True):
        rows = snapshot.layout.rows(site)[1]
        assert value in snapshot.gradients["subnormal_frac16"][rows]
    assert scales.columns()["loss_scale"][:3] == [1, 2, 4]


# without a model

FRAME = charts.Frame("", "", "")
NUMBERS = {"ratio", "sigma", "entries", "draw", "bits", "fraction", "quantum", "gamma"}


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("lab", LABS)
def test_every_lab_comes_out_whole_at_every_value_of_every_control(lab, lang):
    t = Words(lang)
    for name in LABS[lab].asks:
        values = list(PRECISION.shown[name])
        for value in values if name not in NUMBERS else (values[0], values[-1]):
            for one in LABS[lab].make({**PRECISION.defaults, name: value}, t):
                assert "{" not in one.said
                whole(one.picture, t)


def test_the_curves_are_the_errors_and_what_is_no_error_is_a_triangle():
    first, second = LABS["variance"].make({**PRECISION.defaults, "arithmetic": "float32", "ratio": "100000"}, EN)
    columns = first.picture.columns()
    assert columns["mu_over_sigma"] == [*SWEPT, 1e5]
    by_name = {trace.uid: trace for trace in first.picture.figure.data}
    naive = by_name["naive0"]
    negative = np.array(columns["variance_naive"][:-1]) < 0
    assert negative.any() and np.isnan(naive.y[negative]).all()
    gaps = by_name["naive0gaps"]
    assert set(np.array(SWEPT)[negative]) <= set(gaps.x) and gaps.yaxis == "y50"
    assert first.alarm is True
    errors = np.array(columns["error_naive"][:-1])
    placed = ~negative & (errors > 0)
    np.testing.assert_array_equal(naive.y[placed], errors[placed])
    assert len([one for one in second.picture.figure.data if not one.uid.endswith("gaps")]) == len(ARITHMETICS)
    assert len([one for one in by_name if one.rstrip("0") in METHODS]) == len(METHODS)


def test_at_no_shift_there_is_no_point_to_mark_and_nothing_wrong():
    told = LABS["variance"].make({**PRECISION.defaults, "ratio": "0", "arithmetic": "float32"}, EN)[0]
    assert told.alarm is False and "own0" not in {trace.uid for trace in told.picture.figure.data}


@pytest.mark.parametrize(("shown", "kind"), [
    ({"quantum": "0.03"}, "rounds"), ({"quantum": "0.002"}, "saturates"), ({"fraction": "8"}, "overflows")])
def test_what_limits_the_integer_norm_is_said(shown, kind):
    told, entries = LABS["integer"].make({**PRECISION.defaults, **shown}, EN)
    assert told.said.startswith(EN(f"precision.integer_{kind}", **dict.fromkeys(
        ("step", "bits", "top", "error", "largest", "bound", "share", "accumulated", "limit", "least", "best",
         "output"), "")).split(":")[0])
    assert told.alarm == (kind != "rounds")
    scheme = Scheme(8, int(shown.get("fraction", 4)), "newton")
    own = integer_layernorm(data(256, 0), np.array([float(shown.get("quantum", 0.03))]), scheme)
    np.testing.assert_array_equal(entries.picture.columns()["integer"], own.y[0])


def test_the_ruler_says_what_becomes_of_the_number_in_every_format():
    (told,) = LABS["ruler"].make({**PRECISION.defaults, "value": "66246"}, EN)
    columns = told.picture.columns()
    known = dict(zip(columns["format"], columns["rounded"], strict=True))
    assert (known["float16"], known["bfloat16"], known["float32"]) == (np.inf, 66048, 66246)
    assert told.alarm is True and "66048" in told.said
    (zero,) = LABS["ruler"].make({**PRECISION.defaults, "value": "-0"}, EN)
    assert zero.alarm is False and not zero.picture.figure.layout.shapes


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_new_charts_say_so_where_there_is_nothing(lang):
    t = Words(lang)
    for figure in (charts.levels(charts.Levels([], [], [], []), FRAME, t),
                   charts.levels(charts.Levels(["a"], [charts.Part("", np.array([-np.inf]))], ["Inf"], [""]), FRAME, t),
                   charts.promises(charts.Norms(["0"], ["a"], [["unjudged"]], [[""]]), FRAME, t)):
        json.dumps(component._bare(figure), allow_nan=False)
