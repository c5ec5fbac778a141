"""Exactly 0 is told from the smallest change: on the map of a leak, and on an axis of sizes."""

from functools import partial

import numpy as np
import pytest

from pages.ui import charts
from pages.ui.charts.leaks import CROSSED_COLUMNS, Exchange, Leak, Span, leaks
from pages.ui.text import LANGUAGES, Words
from pages.ui.views import zero

T = Words("en")
FRAME = charts.Frame("title", "change", "sequence", x_title="position")


def drawn(values, columns=None, t=T):
    values = np.array(values, float)
    names = [str(place) for place in range(columns or values.shape[1])]
    outside = np.ones(values.shape, bool)
    outside[0] = False
    one = Leak("a", values, values >= 0, outside & (values > 0), [["who"] * values.shape[1]] * len(values))
    at = Exchange([str(row) for row in range(len(values))], names, Span(0, 1, 1), Span(0, 1, len(names) - 1))
    return leaks([one], at, FRAME, t)


@pytest.mark.parametrize("tiny", [1e-30, 1e-7, 1.0])
def test_zero_has_cells_of_its_own_and_the_smallest_change_a_colour_of_the_scale(tiny):
    figure = drawn([[0, 2, 2], [0, tiny, -1]])
    scale, nothing = figure.data[:2]
    assert np.isfinite(scale.z).tolist() == [[False, True, True], [False, True, False]]
    assert np.isfinite(nothing.z).tolist() == [[True, False, False], [True, False, False]]
    assert scale.coloraxis == "coloraxis" and nothing.coloraxis is None


def test_what_leaked_has_a_cross_and_what_may_change_a_frame():
    figure = drawn([[0, 2, 2], [0, 1e-9, 3]])
    crosses = figure.data[2]
    assert list(zip(crosses.x, crosses.y, strict=True)) == [("1", "1"), ("2", "1")]
    frames = [(shape.x0, shape.x1, shape.y0, shape.y1, shape.line.dash) for shape in figure.layout.shapes]
    assert frames == [(0.5, 2.5, -0.5, 0.5, "6px,4px"), (0.5, 1.5, -0.5, 0.5, None)]


def test_many_columns_have_no_crosses_but_frames_and_the_colour_of_zero():
    values = np.ones((2, CROSSED_COLUMNS + 1))
    assert len(drawn(values).data[2].x) == 0 and len(drawn(values).layout.shapes) == 2


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_legend_says_what_occurs(lang):
    t = Words(lang)
    said = {trace.name for trace in drawn([[0, 2, np.inf], [0, 1, 3]], t=t).data if trace.showlegend is not False}
    assert {t("batchnorm.exactly_zero"), t("batchnorm.leaked"), t("batchnorm.exchanged")} <= said
    quiet = {trace.name for trace in drawn([[1, 2, 2], [-1, -1, -1]], t=t).data if trace.showlegend is not False}
    assert not {t("batchnorm.exactly_zero"), t("batchnorm.leaked"), t("batchnorm.not_finite")} & quiet


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize(("values", "scale"), [((0, 0, 0), "linear"), ((0, 1e-7, 2), "symlog"), ((1e-3, 1, 2), "log")])
def test_on_an_axis_of_sizes_zero_is_a_place_with_its_word(lang, values, scale):
    t = Words(lang)
    line = charts.Series("a", np.arange(3), np.array(values, float))
    figure = zero.drawn(partial(charts.profile, [line]), [line.values], FRAME, t)
    ticks = dict(zip(figure.layout.yaxis.tickvals or (), figure.layout.yaxis.ticktext or (), strict=True))
    assert (ticks.get(0.0) == t("batchnorm.exactly_zero")) == (0 in values)
    assert all(at >= 0 for at in ticks) and np.isfinite(figure.data[0].y.astype(float)).all()
    assert (figure.layout.yaxis.type == "log") == (scale == "log")
    assert len(figure.data) == 1  # no mark at the edge: 0 has its place
