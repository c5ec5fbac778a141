"""The view of a head's queries without a browser: boxes of one layer, bands over depth, and why there are none."""

import json
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
from probes import probed

from core import table
from core.experiment import parse
from core.films import Film
from core.trace import Trace
from core.train import train
from core.vocabulary import EMBED, ENTROPY_QUANTILES
from pages.ui import charts, component, explain
from pages.ui.link import Variant
from pages.ui.places import ENTROPY, LAST, LIVE
from pages.ui.text import LANGUAGES, Words
from pages.ui.views import ENTROPY_VIEWS, queries
from pages.ui.views.training import maps
from pages.ui.watching import Watched, of_heads

SMALL = {"model.n_layers": 3, "model.d_model": 32, "input.batch": 2, "input.seq_len": 16}
T = Words("en")
KINDS = {
    "usual": {},
    "saturated": {"model.qk_gain": 10.0},
    "uniform": {"model.pattern": "uniform"},
    "ragged": {"input.lengths": "ragged"},
    "one layer": {"model.n_layers": 1},
    "one token": {"input.batch": 1, "input.seq_len": 1},
    "many heads": {"model.n_heads": 16},
    "all nan": {"model.embed_scale": 1e30, "protocol.dtype": "float16"},
    "standard": {"protocol.detail": "standard"},
    "no attention": {"model.sublayers": "mlp"},
    "lstm": {"model.family": "lstm"},
}
"""Kind of stack → what it changes."""


@cache
def measured(kind):
    return probed(kind, SMALL, KINDS[kind])


def pictures(kind, view="queries", lang="en", **shown):
    return ENTROPY_VIEWS[view].make([measured(kind)], ENTROPY.defaults | shown, Words(lang))


def engine(kind, layer):
    """The quantiles of the heads of a layer, (5, H)."""
    heads = measured(kind).trace.snapshots[-1].heads
    return np.stack([heads[name][layer] for name in ENTROPY_QUANTILES])


def traces(figure, kind):
    return [trace for trace in figure.data if trace.type == kind]


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("view", ENTROPY_VIEWS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_view_of_every_kind_of_stack_comes_out_whole(view, kind, lang):
    for measure in ("entropy", "entropy_norm_p50"):
        made = pictures(kind, view, lang, measure=measure)
        assert made[0].figure is not None or made[0].remarks
        for picture in made:
            columns = picture.columns()
            assert len({len(column) for column in columns.values()}) <= 1
            table.table_of(columns)
            assert all(Words(lang)(f"{part}.{name}") for name in picture.subject.extra
                       for part in ("extra", "what", "formula"))
            if picture.figure is not None:
                json.dumps(component._bare(picture.figure), allow_nan=False)
                assert len(picture.figure.data) <= charts.MAX_TRACES
    one = measured(kind)
    assert all(explain.sentence(verdict, Words(lang))
               for verdict in ENTROPY_VIEWS[view].judge(one.trace, one.experiment, ENTROPY.defaults))


@pytest.mark.parametrize(("layer", "place"), [("0", 0), ("1", 1), (LAST, 2), ("77", 2)])
def test_the_boxes_are_the_engines_quantiles_of_the_layer_that_is_looked_at(layer, place):
    picture = pictures("usual", layer=layer)[0]
    (box,), wanted = traces(picture.figure, "box"), engine("usual", place)
    assert np.array_equal([box.lowerfence, box.q1, box.median, box.q3, box.upperfence], wanted)
    assert list(box.x) == [0, 1, 2, 3]
    (means,) = traces(picture.figure, "scatter")
    assert np.array_equal(means.y, measured("usual").trace.snapshots[-1].heads["entropy_norm"][place])
    assert np.array_equal(means.customdata.T, wanted)
    columns = picture.columns()
    assert columns[T("chart.layer")] == 4 * [place]
    assert np.array_equal([columns[name] for name in ENTROPY_QUANTILES], wanted)


def test_shares_stand_on_an_axis_from_0_to_1():
    boxes, depths = pictures("saturated")
    axes = [boxes.figure.layout.yaxis, *(axis for axis in depths.figure.select_yaxes() if not axis.overlaying)]
    assert {axis.range for axis in axes} == {charts.SHARES} and np.clip([0, 1], *charts.SHARES).tolist() == [0, 1]
    assert not any(axis.autorange for axis in axes)


def test_each_head_has_its_bands_and_its_median_over_the_layers_and_no_embedding():
    figure = pictures("usual")[1].figure
    wanted = np.stack([engine("usual", layer) for layer in range(3)], 1)  # (5, R, H)
    assert [note.text for note in figure.layout.annotations] == [f"<b>Head {head}</b>" for head in range(4)]
    medians = [trace for trace in figure.data if trace.name == T("statistic.q50")]
    assert np.array_equal([trace.y for trace in medians], wanted[2].T)
    bands = [trace for trace in figure.data if trace.fill == "toself"]
    assert [band.name for band in bands] == 4 * [name for name, *_ in charts.HEAD_BANDS]
    for place, band in enumerate(bands):
        _, lower, upper, _ = charts.HEAD_BANDS[place % 2]
        assert set(band.y) == {*wanted[lower, :, place // 2], *wanted[upper, :, place // 2]}
    for axis in figure.select_xaxes():
        assert EMBED not in (axis.tickvals or ()) and axis.range[0] > EMBED


def test_more_heads_than_facets_are_a_map_of_medians_that_says_the_rest():
    boxes, depths = pictures("many heads")
    assert len(traces(boxes.figure, "box")[0].x) == 16 > queries.MOST_HEADS
    (cells,) = traces(depths.figure, "heatmap")
    wanted = np.stack([engine("many heads", layer) for layer in range(3)], 2)  # (5, H, R)
    np.testing.assert_allclose(cells.z, wanted[2], rtol=1e-6)
    assert f"5–95 %: {wanted[0, 7, 1]:.3f} … {wanted[4, 7, 1]:.3f}" in cells.hovertext[7][1]


def test_one_layer_has_no_depth_to_look_along():
    assert [picture.key for picture in pictures("one layer")] == ["queries"]


@pytest.mark.parametrize("kind", ["all nan", "one token"])
def test_a_head_without_a_finite_quantile_is_a_triangle_and_no_box(kind):
    figure = pictures(kind)[0].figure
    assert len(traces(figure, "box")[0].x) == 0
    marks = [trace for trace in figure.data if trace.yaxis == "y2"]
    assert [list(trace.x) for trace in marks] == [[0, 1, 2, 3]] and set(marks[0].text) == {"NaN"}
    assert T("chart.nothing") in [note.text for note in figure.layout.annotations]


def test_a_broken_head_leaves_the_boxes_of_the_others():
    quantiles, means = np.tile(np.linspace(0, 1, 5)[:, None], 3), np.full(3, 0.5)
    quantiles[:, 1] = means[1] = np.nan
    figure = charts.boxes(charts.Boxes("a", quantiles, means), charts.Frame("x", "s", "y", "linear", x_title="Head"), T)
    assert list(traces(figure, "box")[0].x) == [0, 2]
    _, seen, gap = figure.data
    assert list(seen.x) == [0, 2] and list(gap.x) == [1] and not figure.layout.annotations
    assert T("chart.above_axis", count=1) in figure.layout.title.subtitle.text


@pytest.mark.parametrize("lang", LANGUAGES)
def test_where_nothing_was_recorded_a_sentence_says_why(lang):
    t = Words(lang)
    reasons = {"standard": t("drift.not_full"), "no attention": t("entropy.no_head", variant="no attention")}
    for kind, why in reasons.items():
        (picture,) = pictures(kind, lang=lang)
        assert (picture.figure, picture.remarks) == (None, (why,))
    both = ENTROPY_VIEWS["heads"].make([measured("usual"), measured("standard")],
                                       ENTROPY.defaults | {"measure": "entropy_norm_p95", "who": "1"}, t)
    assert both[0].figure is None and both[0].remarks == (t("drift.not_full"),)
    assert [line.name for line in both[1].figure.data] == ["usual"]
    assert both[1].remarks == (f"standard{t('drift.colon')}{t('drift.not_full')}",)


def test_the_embedding_is_no_layer_of_this_page():
    assert str(EMBED) not in ENTROPY.shown["layer"] and {LAST, "0", "511"} <= set(ENTROPY.shown["layer"])
    for view, looked in ENTROPY_VIEWS.items():
        assert view in ENTROPY.views and set(looked.asks) <= ENTROPY.shown.keys()


# Over the steps of a training, most of which are recorded in detail standard


def watched(**protocol):
    experiment = parse({}).with_values(SMALL | {"model.n_layers": 2, "protocol.steps": 3} | protocol)
    trace = Trace(tuple(train(experiment)))
    run = SimpleNamespace(id="r", status="stopped", over=True)
    film = Film(run, np.array(trace.steps), np.array([one.loss for one in trace.snapshots]), trace, 1, ())
    return Watched(Variant({}, experiment, "a"), run, trace, film)


def test_a_step_in_detail_standard_is_unseen_and_not_broken():
    one = watched()
    has = ["entropy_norm_p50" in shot.heads for shot in one.trace.snapshots]
    assert has == [True, False, False, True]
    assert of_heads(one.trace, "entropy_norm_p50").observed.all(1).tolist() == has
    assert of_heads(one.trace, "entropy_norm").observed.all()
    lines, drawn = maps.entropy([one], LIVE.defaults | {"measure": "entropy_norm_p50"}, T)[::-1]
    assert T("chart.cells_unseen", count=2 * 2 * 4) in drawn.figure.layout.title.subtitle.text
    assert {trace.mode for trace in lines.figure.data if np.isnan(np.asarray(trace.y, float)).any()} == set()
    steps = lines.columns()
    assert steps.pop(T("chart.step")) == [0, 3] and np.isfinite(list(steps.values())).all()


def test_a_training_in_detail_standard_says_that_it_has_no_quantiles():
    (picture,) = maps.entropy([watched(**{"protocol.detail": "standard"})],
                              LIVE.defaults | {"measure": "entropy_norm_p50"}, T)
    assert (picture.figure, picture.remarks) == (None, (T("drift.not_full"),))
