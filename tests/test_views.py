"""The views of the drift page without a browser: every view of every kind of stack comes out whole and right."""

import json
import math
from functools import cache

import numpy as np
import pytest
from made import recorded
from probes import probed

from core import table
from core.landscape import STATES
from core.trace import Trace
from core.vocabulary import SITES, STATISTICS
from pages.ui import component, explain
from pages.ui.cache import Measured
from pages.ui.places import DRIFT
from pages.ui.stage import Stage
from pages.ui.text import LANGUAGES, Words
from pages.ui.views import VIEWS, depth, tokens

SMALL = {"model.n_layers": 3, "model.d_model": 16, "input.batch": 2, "input.seq_len": 16}
KINDS = {
    "usual": {},
    "no norm": {"model.norm": "none"},
    "post": {"model.placement": "post"},
    "deep": {"model.n_layers": 96},
    "one layer": {"model.n_layers": 1},
    "exploding": {"model.norm": "none", "model.init": "kaiming", "model.init_gain": 30.0, "model.n_layers": 12},
    "vanishing": {"model.norm": "none", "model.residual": False, "model.init": "normal", "model.n_layers": 24},
    "overflowing": {"model.norm": "none", "model.init": "kaiming", "model.n_layers": 12, "protocol.dtype": "float16",
                    "model.init_gain": 4.0},
    "all nan": {"model.embed_scale": 1e30, "protocol.dtype": "float16"},
    "zero": {"model.embed_scale": 0.0, "model.positions": "none", "model.norm": "none"},
    "vectors": {"input.source": "gaussian"},
    "ragged": {"input.lengths": "ragged"},
    "standard": {"protocol.detail": "standard"},
    "attention alone": {"model.sublayers": "attention"},
    "explicit": {"protocol.attention": "explicit"},
    "mixed layers": {"model.layer_norms": {"0": "none", "2": "batchnorm"}},
    "lstm": {"model.family": "lstm"},
    "lstm without norm": {"model.family": "lstm", "model.norm": "none", "input.source": "gaussian"},
    "ragged gru": {"model.family": "gru", "input.lengths": "ragged", "model.layer_norms": {"0": "none"}},
    "gru of one token": {"model.family": "gru", "input.batch": 1, "input.seq_len": 1},
    "lstm in standard": {"model.family": "lstm", "protocol.detail": "standard"},
    "overflowing lstm": {"model.family": "lstm", "protocol.dtype": "float16", "model.embed_scale": 1e30},
    "deep gru": {"model.family": "gru", "model.n_layers": 24},
    "one token": {"input.batch": 1, "input.seq_len": 1},
    "beyond float32": {"protocol.dtype": "float64", "model.embed_scale": 1e300},
}
"""Kind of stack → what it changes."""


@cache
def measured(kind):
    return probed(kind, SMALL, KINDS[kind])


def pictures(view, kinds, lang="en", **shown):
    return VIEWS[view].make([measured(kind) for kind in kinds], DRIFT.defaults | shown, Words(lang))


def values(trace):
    return np.asarray(trace.z if trace.type == "heatmap" else trace.y, float)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_view_of_every_kind_of_stack_comes_out_whole(view, kind):
    for changes in ({}, {"of": "gradient"}, {"scale": "symlog", "site": "mlp_act"},
                    {"scale": "linear", "stat": "n_nan"}):
        for picture in pictures(view, [kind], **changes):
            assert picture.figure is not None or picture.remarks
            columns = picture.columns()
            assert len({len(column) for column in columns.values()}) <= 1
            for write in table.FORMATS.values():
                write(table.table_of(columns))
            if picture.figure is not None:
                json.dumps(component._bare(picture.figure), allow_nan=False)
                assert len(picture.figure.data) <= 60


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_view_judges_every_kind_of_stack_in_words(view, kind):
    one = measured(kind)
    for of, t in (("forward", Words("en")), ("gradient", Words("zh"))):
        for verdict in VIEWS[view].judge(one.trace, one.experiment, DRIFT.defaults | {"of": of}):
            said = explain.sentence(verdict, t)
            assert said and "{" not in said
            assert not verdict.expected or t(f"expected.{verdict.expected}")


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_bears_seven_variants(view):
    for picture in pictures(view, list(KINDS)[:7]):
        assert picture.figure is None or len(picture.figure.data) <= 60


@pytest.mark.parametrize("view", VIEWS)
def test_the_controls_of_a_view_are_parameters_of_the_link(view):
    assert set(VIEWS[view].asks) <= DRIFT.shown.keys()
    assert view in DRIFT.shown["view"]


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_picture_can_say_what_its_numbers_are(lang):
    t = Words(lang)
    for view in VIEWS:
        for picture in pictures(view, ["usual", "standard"], lang):
            for key in picture.subject.extra:
                assert t(f"extra.{key}") and t(f"what.{key}") and t(f"formula.{key}")
            for name in picture.subject.statistics:
                assert t(f"what.{name}") and t(f"formula.{name}")
            assert set(picture.subject.sites) <= SITES.keys()


@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize("of", ["forward", "gradient"])
def test_the_map_holds_every_number_of_the_trace_and_no_other(statistic, of):
    (picture, _) = pictures("overview", ["usual"], stat=statistic, of=of, scale="linear")
    one = measured("usual").trace
    columns = picture.columns()
    shown = dict(zip(zip(columns[Words("en")("drift.site")], columns["layer"], strict=True), columns[
        ("grad_" if of == "gradient" else "") + statistic], strict=True))
    group = one.snapshots[-1].gradients if of == "gradient" else one.snapshots[-1].activations
    for row, (layer, site) in enumerate(one.layout.sites):
        if STATISTICS[statistic].sites is None or site in STATISTICS[statistic].sites:
            expected = group.get(statistic, np.full(len(one.layout.sites), np.nan))[row]
            seen = statistic in group and not np.isnan(group["n"][row])
            assert shown.pop((site, layer)) == (pytest.approx(expected, nan_ok=True) if seen else None)
    assert not shown


def test_the_map_s_colours_are_the_numbers_of_its_table():
    (picture, _) = pictures("overview", ["usual"], scale="linear")
    (cells,) = [trace for trace in picture.figure.data if trace.type == "heatmap"]
    columns = picture.columns()
    for site, layer, value in zip(columns[Words("en")("drift.site")], columns["layer"], columns["rms"], strict=True):
        drawn = cells.z[list(cells.y).index(site), layer + 1]
        assert (value is None or math.isnan(value)) == bool(np.isnan(drawn))
        assert np.isnan(drawn) or drawn == pytest.approx(value, rel=1e-6)


def test_where_no_gradient_comes_the_map_says_so_instead_of_drawing_nothing():
    one = measured("usual")
    bare = Trace(tuple(type(s)(**{**vars(s), "gradients": {}}) for s in one.trace.snapshots))
    (picture, _) = VIEWS["overview"].make([Measured(one.variant, None, bare)], DRIFT.defaults | {"of": "gradient"},
                                          Words("en"))
    assert picture.figure is None and picture.remarks == (Words("en")("overview.no_gradient"),)


def test_the_stream_and_the_input_of_its_branches_are_separate_answers():
    stream, attention, mlp = pictures("streams", ["usual"])
    trace = measured("usual").trace
    np.testing.assert_array_equal(attention.figure.data[0].y, trace.profile("norm1", "rms")[1])
    np.testing.assert_array_equal(mlp.figure.data[0].y, trace.profile("norm2", "rms")[1])
    np.testing.assert_array_equal(stream.figure.data[0].y[1:], trace.profile("resid_post", "rms")[1])
    _, attention, _ = pictures("streams", ["no norm"])
    np.testing.assert_array_equal(attention.figure.data[0].y,
                                  measured("no norm").trace.profile("resid_pre", "rms")[1])


@pytest.mark.parametrize(("statistic", "kind", "reason", "site"), [
    ("layer_cosine", "usual", "drift.not_taken", "norm1"), ("norm", "post", "drift.not_taken", "resid_pre"),
    ("kurtosis", "standard", "drift.not_full", "norm1"), ("rms", "attention alone", "streams.none", ""),
])
def test_an_input_that_has_no_such_number_says_why_and_draws_no_gap(statistic, kind, reason, site):
    t = Words("en")
    _, attention, mlp = pictures("streams", [kind], stat=statistic)
    without = mlp if reason == "streams.none" else attention
    assert without.figure is None and without.remarks == (t(reason, site=site),)
    _, both, _ = pictures("streams", ["no norm", kind], stat=statistic)
    if statistic == "kurtosis":  # one variant has it, the other says by name why not
        assert len(both.figure.data) == 1 and both.remarks == (f"{kind}: {t(reason, site=site)}",)


@pytest.mark.parametrize("view", ["overview", "profile", "streams"])
def test_a_count_is_of_all_entries_and_never_called_one_of_a_part(view):
    for picture in pictures(view, ["overflowing"], stat="n_nan"):
        assert Words("en")("chart.cell_in_part") not in [trace.name for trace in picture.figure.data]
        assert "△" not in (picture.figure.layout.title.subtitle.text or "")


@pytest.mark.parametrize(("values", "statistic", "scale"), [
    ([1, 2], "rms", "log"), ([0, 2], "rms", "log"), ([0, 0], "rms", "linear"), ([0, 2], "n_nan", "symlog"),
    ([0, 0], "n_nan", "linear"), ([-1, 2], "mean", "symlog"), ([-0.1, 0.2], "token_cosine", "linear"),
    ([math.nan, math.inf], "rms", "log"), ([math.nan, 0.0, 1.0], "zero_frac", "symlog"), ([-2, -1], "min", "linear"),
])
def test_a_log_axis_gives_way_where_it_would_leave_out_what_is_no_fault(values, statistic, scale):
    values = [np.array(values, float)]
    assert depth.fitting(values, "log", statistic) == scale
    assert depth.fitting(values, "linear", statistic) == "linear"


def test_outliers_that_no_block_passes_on_are_said_to_be_gone_and_stand_in_the_table():
    changes = {"input.source": "scaled", "input.feature_scales": [1000.0] + [1.0] * 15, "model.placement": "post"}
    one = probed("post", SMALL, changes)
    (picture,) = VIEWS["outliers"].make([one], DRIFT.defaults, Words("en"))
    assert picture.figure is None and picture.remarks == (Words("en")("tokens.gone"),)
    assert picture.columns()["token"]


def test_every_wiring_of_a_stack_of_mixed_layers_is_named_with_its_layers():
    (picture,) = pictures("wiring", ["mixed layers"])
    assert set(picture.columns()["Variant"]) == {f"mixed layers (layers: {layer})" for layer in range(3)}


def test_the_stream_s_sentences_are_of_the_pass_that_is_shown():
    one = measured("usual")
    for of, prefix in (("forward", ""), ("gradient", "gradient_")):
        found = VIEWS["streams"].judge(one.trace, one.experiment, DRIFT.defaults | {"of": of})
        assert len(found) == 3 and all(verdict.code.startswith(prefix) for verdict in found)
        assert any(verdict.code.startswith("gradient_") for verdict in found) == bool(prefix)


def test_the_entries_of_a_point_are_those_of_every_variant_that_the_picture_is_about():
    t = Words("en")
    (picture,) = pictures("profile", ["usual", "ragged"])
    traces = [measured(kind).trace for kind in ("usual", "ragged")]
    counts = [int(trace.profile("resid_post", "n")[1][0]) for trace in traces]
    assert explain.entries(picture.subject, "resid_post", traces[:1], t) == t("drift.n_exact", n="512")
    assert explain.entries(picture.subject, "resid_post", traces, t) == t(
        "drift.n_exact", n=f"{min(counts)} … {max(counts)}")
    assert explain.entries(picture.subject, "attn_sum", traces, t) == ""
    text, _ = pictures("text", ["usual"])
    assert (text.subject.axes, text.variant) == ("D", "usual")
    assert explain.entries(text.subject, "resid_post", traces, t) == t("drift.n_exact", n="16")


def test_a_sample_is_called_one_beyond_its_size_for_every_picture_that_uses_one():
    t, big = Words("en"), recorded({(0, "resid_post"): {"n": 131_072.0, "n_sample": 65_536.0}})
    said = {view: explain.entries(pictures(view, ["usual"])[0].subject, "resid_post", [big], t)
            for view in ("profile", "quantiles", "exponents", "outliers")}
    sampled = t("drift.n_sampled", n=explain.number(131_072), sample=explain.number(65_536))
    assert said == {"profile": t("drift.n_exact", n=explain.number(131_072)), "quantiles": sampled,
                    "exponents": sampled, "outliers": sampled}


@pytest.mark.parametrize(("places", "who", "shown"), [((0, 1, 2), "2", "2"), ((0, 2), "2", "1"), ((0, 2), "1", "0")])
def test_the_variant_that_is_looked_at_is_found_among_those_that_finished(places, who, shown):
    assert Stage((None,) * len(places), places=places).among_finished(who) == shown


def test_ribbons_and_histograms_come_from_the_same_sample():
    """The share of entries below a power of two, from the histogram, lies where the quantiles say."""
    (ribbons,), (histograms,) = pictures("quantiles", ["usual"]), pictures("exponents", ["usual"])
    quantiles, counts = ribbons.columns(), histograms.columns()
    for row, layer in enumerate(quantiles["layer"]):
        at = [place for place, other in enumerate(counts["layer"]) if other == layer]
        total = sum(counts["count"][place] for place in at)
        middle = max(abs(quantiles["q25"][row]), abs(quantiles["q75"][row]))
        bound = 2.0 ** (math.floor(math.log2(middle)) + 1)
        inside = sum(counts["count"][place] for place in at if (counts["|x| ≥"][place] or 0) < bound)
        assert inside >= total / 2  # half of the entries lie between q25 and q75
        largest = max(counts["|x| ≥"][place] or 0 for place in at)
        assert largest <= max(abs(quantiles["min"][row]), abs(quantiles["max"][row])) < 2 * largest


def test_a_site_that_standard_detail_has_no_distribution_of_is_said_in_words():
    for view in ("quantiles", "exponents", "outliers", "text"):
        (picture, *_) = pictures(view, ["standard"])
        assert picture.figure is None
        assert Words("en")("drift.not_full") in picture.remarks


def test_the_text_is_the_text_and_its_colours_are_the_sizes_of_its_tokens():
    picture, _ = pictures("text", ["usual"], layer="1", scale="linear")
    (cells,) = [trace for trace in picture.figure.data if trace.type == "heatmap"]
    snapshot = measured("usual").trace.snapshots[-1]
    np.testing.assert_allclose(np.ravel(cells.z), snapshot.token_rms[2], rtol=1e-6)
    said = [chr(token) if 32 < token < 127 else None for token in snapshot.tokens]
    shown = [cell.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&") for row in cells.text for cell in row]
    assert all(letter is None or letter == cell for letter, cell in zip(said, shown, strict=True))


@pytest.mark.parametrize(("written", "cell"), [("a", "a"), ("中₁", "中"), ("中₂", ""), ("中₃", ""), ("₂", "₂"),
                                               ("·", "·"), ("\\xe9", "\\xe9"), ("", "")])
def test_a_character_of_several_bytes_stands_in_the_cell_of_its_first(written, cell):
    assert tokens._letter(written) == cell


def test_a_text_that_is_not_finite_is_still_read():
    picture, _ = pictures("text", ["all nan"])
    (mark,) = [trace for trace in picture.figure.data if trace.type == "scatter"]
    snapshot = measured("all nan").trace.snapshots[-1]
    assert len(mark.text) == len(snapshot.tokens) and set(mark.hovertext) == {"NaN"}


@pytest.mark.parametrize("of", ["forward", "gradient"])
def test_a_statistic_that_is_not_taken_of_this_pass_says_so(of):
    name = next(name for name, one in STATISTICS.items() if not (one.gradient if of == "gradient" else one.forward))
    (picture, _) = pictures("overview", ["usual"], stat=name, of=of)
    assert picture.figure is None
    assert picture.remarks == (Words("en")("overview.of_activations" if of == "gradient" else "overview.of_gradients"),)


def test_a_variant_looks_the_same_in_every_view():
    kinds = ["usual", "deep", "no norm"]
    (lines,) = pictures("profile", kinds)
    (ribbons,) = pictures("quantiles", kinds)
    medians = [trace.line.color for trace in ribbons.figure.data if trace.name == Words("en")("statistic.q50")]
    assert [trace.line.color for trace in lines.figure.data] == medians
    assert len(set(medians)) == 3


def test_padding_is_no_token_of_the_text():
    picture, _ = pictures("text", ["ragged"])
    snapshot = measured("ragged").trace.snapshots[-1]
    (cells,) = [trace for trace in picture.figure.data if trace.type == "heatmap"]
    np.testing.assert_array_equal(np.isnan(np.ravel(cells.z)), snapshot.tokens < 0)
    assert not [trace for trace in picture.figure.data if trace.type == "scatter"]


def test_every_value_that_is_not_finite_is_counted_in_the_map_of_an_overflowing_stack():
    one = measured("overflowing").trace
    (picture, _) = pictures("overview", ["overflowing"])
    marks = {trace.name: len(trace.x) for trace in picture.figure.data if trace.type == "scatter"}
    rms, n = (one.snapshots[-1].activations[name] for name in ("rms", "n"))
    bad = sum(one.snapshots[-1].activations[name] for name in ("n_nan", "n_posinf", "n_neginf"))
    assert marks[Words("en")("chart.no_place")] == int((np.isnan(rms) & ~np.isnan(n)).sum()) > 0
    assert marks.get(Words("en")("chart.cell_in_part"), 0) == int((np.isfinite(rms) & (bad > 0)).sum())


@pytest.mark.parametrize("state", STATES)
def test_every_state_of_a_cell_has_a_name(state):
    for lang in LANGUAGES:
        assert Words(lang)(f"state.{state}")


def test_a_massive_feature_is_a_row_of_the_map_of_outliers_through_all_its_layers():
    scales = [1.0] * 16
    scales[5] = 1000.0
    one = probed("massive", SMALL, {"input.source": "scaled", "input.feature_scales": scales})
    (picture,) = VIEWS["outliers"].make([one], DRIFT.defaults, Words("en"))
    (cells,) = [trace for trace in picture.figure.data if trace.type == "heatmap"]
    assert all(row.endswith("feature 5") for row in cells.y)
    assert np.isfinite(np.asarray(cells.z)[0]).all() and len(cells.x) == 4
    assert set(picture.columns()["dim"]) == {5}
