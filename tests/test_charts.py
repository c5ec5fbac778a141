"""Figures: lines, gaps and their marks, axis ranges, references, names."""

import base64
import json
import subprocess
import sys

import numpy as np
import plotly.graph_objects as go
import pytest

from core.vocabulary import FLOAT16_MAX
from pages.ui import charts, theme
from pages.ui.charts.axes import axis_for
from pages.ui.text import LANGUAGES, Words

T = Words("en")
LAYERS = np.arange(-1, 5)


def series(*values: float, norm: str = "none", name: str = "no norm") -> charts.Series:
    return charts.Series(name, LAYERS[: len(values)], np.array(values), theme.style(norm), "resid_post")


def frame(**changes: object) -> charts.Frame:
    return charts.Frame(**{"title": "RMS", "statistic": "rms", "y_title": "RMS"} | changes)  # type: ignore[arg-type]


def draw(*lines: charts.Series, **changes: object) -> go.Figure:
    return charts.profile(lines, frame(**changes), T)


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_chart_of_lines_or_facets_draws_nothing_in_every_language(lang: str) -> None:
    for name in ("profile", "ribbons", "exponents"):
        figure = charts.CHARTS[name]([], frame(), Words(lang))
        assert Words(lang)("chart.nothing") in [note.text for note in figure.layout.annotations]


def test_a_value_over_a_part_of_the_entries_is_drawn_and_marked() -> None:
    one = charts.Series("a", LAYERS[:3], np.array([1.0, 2.0, 3.0]), non_finite=np.array([0, 7, 0]))
    line, mark = charts.profile([one], frame(), T).data
    np.testing.assert_array_equal(line.y, [1, 2, 3])
    assert list(mark.x) == [0] and list(mark.marker.symbol) == ["triangle-up-open"]
    assert mark.text[0] == T("chart.in_part", value="2", count="7")
    assert charts.profile([one], frame(), T).layout.title.subtitle.text == T("chart.parts", count=1)


@pytest.mark.parametrize("y_scale", charts.SCALES)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_is_a_gap_and_never_zero(bad: float, y_scale: str) -> None:
    line, gap = draw(series(1, 2, bad, 4), y_scale=y_scale).data
    expected = axis_for(y_scale, np.array([1, 2, 4.0])).place(np.array([1, 2, np.nan, 4]))
    np.testing.assert_array_equal(line.y, expected)
    assert np.isnan(line.y).tolist() == [False, False, True, False]
    assert line.connectgaps is False
    assert list(gap.x) == [1]


def test_the_triangles_say_which_value_is_missing_and_stand_at_the_edges() -> None:
    _, gap = draw(series(1, np.nan, np.inf, -np.inf, 0.0, -2.5)).data
    assert list(gap.text) == ["NaN", "+Inf", "−Inf", "0", "-2.5"]
    assert list(gap.marker.symbol) == ["triangle-up", "triangle-up", *["triangle-down"] * 3]
    assert list(gap.y) == [1, 1, 0, 0, 0]
    assert gap.yaxis == "y2"
    assert "%{text}" in gap.hovertemplate


def test_the_subtitle_counts_what_the_axis_cannot_show() -> None:
    notes = draw(series(1, np.nan, np.inf, -np.inf, 0.0, -2.5)).layout.title.subtitle.text
    assert notes == "▲ NaN or +Inf: 2 · ▼ −Inf: 1 · ▼ zero or negative, no place on a log axis: 2"
    assert draw(series(1, 2)).layout.title.subtitle.text == ""


def test_zero_and_negative_values_are_drawn_on_a_linear_axis() -> None:
    figure = draw(series(1, 0, -2), y_scale="linear")
    assert len(figure.data) == 1
    np.testing.assert_array_equal(figure.data[0].y, [1, 0, -2])


def test_the_axis_has_no_fixed_range_so_that_a_zoom_outlives_new_numbers() -> None:
    layout = draw(series(1, 2, np.inf)).layout
    assert layout.yaxis.range is None and layout.xaxis.range is None
    assert layout.uirevision == draw(series(5, 6)).layout.uirevision
    assert layout.yaxis.uirevision != draw(series(1, 2), y_scale="linear").layout.yaxis.uirevision


@pytest.mark.parametrize("y_scale", charts.SCALES)
def test_a_figure_without_a_finite_value_comes_out_whole_and_says_so(y_scale: str) -> None:
    figure = draw(series(np.nan, np.nan), series(np.inf, np.nan, name="b"), y_scale=y_scale, references={"max": 1.0})
    assert [note.text for note in figure.layout.annotations] == ["No finite value to draw"]
    assert len(figure.data) == 4
    assert figure.layout.xaxis.title.text == "layer"


def test_an_empty_figure_comes_out_whole() -> None:
    assert [note.text for note in draw().layout.annotations] == ["No finite value to draw"]


@pytest.mark.parametrize("y_scale", charts.SCALES)
@pytest.mark.parametrize("level", [1e-300, 1.0, 1e300])
def test_rounding_noise_of_a_constant_does_not_fill_the_axis(y_scale: str, level: float) -> None:
    values = np.array([level, level * (1 + 1e-7)])
    (room,) = draw(series(*values), y_scale=y_scale).layout.shapes
    low, high = axis_for(y_scale, values).place(values * [0.96, 1.04])
    assert 0 <= room.y0 < low < high < room.y1


def test_a_reference_line_near_the_numbers_is_drawn_and_a_far_one_is_named() -> None:
    near = draw(series(1, 1e4), references={"float16 max": FLOAT16_MAX})
    assert [shape.y0 for shape in near.layout.shapes] == [FLOAT16_MAX]
    assert near.layout.shapes[0].label.text == "float16 max"
    far = draw(series(1e-3, 1), references={"float16 max": FLOAT16_MAX})
    (room,) = far.layout.shapes  # for its name, which hides no number then
    assert (room.y0, room.opacity) == (1e-3, 0)
    assert room.y1 > 2
    assert [note.text for note in far.layout.annotations] == ["float16 max ↑ far above this range"]


def test_the_hover_says_variant_layer_site_statistic_value_and_unit() -> None:
    hover = draw(series(1, 2), unit="nats").data[0].hovertemplate
    for part in ("no norm", "layer %{x}", "resid_post", "rms", "%{y:.5~g}", "nats"):
        assert part in hover


def test_colour_dash_and_symbol_are_those_of_the_theme() -> None:
    look = theme.style("rmsnorm", "post", "kaiming")
    (line,) = draw(charts.Series("a", LAYERS, np.ones(6) * 3, look)).data
    assert (line.line.color, line.line.dash, line.marker.symbol) == (look.color, look.dash, look.symbol)


def test_a_line_of_many_layers_shows_few_of_its_symbols_and_one_of_few_layers_all() -> None:
    few, many = (draw(charts.Series("a", np.arange(count), np.ones(count))).data[0] for count in (64, 65))
    assert [line.mode for line in (few, many)] == ["lines+markers"] * 2
    assert [line.marker.maxdisplayed for line in (few, many)] == [0, 16]


def test_lines_keep_their_identity_in_another_language() -> None:
    values = np.array([1.0, np.inf])
    lines = [charts.Series(name, LAYERS[:2], values, key="none:post") for name in ("no norm", "无归一化")]
    one, other = (charts.profile([line], frame(), T).data for line in lines)
    assert [trace.uid for trace in one] == [trace.uid for trace in other]
    assert all(trace.uid.isalnum() for trace in one)
    assert len({trace.uid for trace in one}) == 2
    assert {trace.legendgroup for trace in one} == {one[0].uid}


def test_numbers_travel_as_typed_arrays() -> None:
    line = json.loads(draw(series(1, np.nan, 3)).to_json())["data"][0]
    assert line["y"]["dtype"] == "f8"
    np.testing.assert_array_equal(np.frombuffer(base64.b64decode(line["y"]["bdata"])), [1, np.nan, 3])


def test_more_traces_than_a_browser_can_bear_are_refused() -> None:
    many = [series(1, 2, name=str(i)) for i in range(61)]
    with pytest.raises(ValueError, match="a profile has at most 60 traces, these are 61: draw fewer variants"):
        draw(*many)


def test_an_unknown_scale_is_refused() -> None:
    with pytest.raises(ValueError, match="y_scale is 'cubic'; allowed are linear, log, symlog"):
        draw(series(1, 2), y_scale="cubic")


@pytest.mark.parametrize("module", ["charts", "theme", "text"])
def test_charts_theme_and_text_load_neither_streamlit_nor_torch(module: str) -> None:
    code = f"import sys, pages.ui.{module}; print([m for m in ('streamlit', 'torch') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_lines_of_one_colour_and_dash_carry_their_names():
    def one(name, norm):
        return charts.Series(name, np.arange(3), np.array([1.0, 2.0, np.nan]), theme.style(norm))

    figure = charts.profile([one("a", "none"), one("b", "none"), one("c", "rmsnorm")], frame(), T)
    lines = [trace for trace in figure.data if trace.yaxis != "y2"]
    assert [list(line.text or ()) for line in lines] == [["", "a ", ""], ["", "b ", ""], []]
