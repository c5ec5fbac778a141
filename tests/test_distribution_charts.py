"""Ribbons, histograms by power of two, and maps: what is drawn of the numbers, and what is not a colour."""

import numpy as np
import pytest

from core.vocabulary import HISTOGRAM_BINS, HISTOGRAM_LOW
from pages.ui import charts, theme
from pages.ui.charts.exponents import EXPONENTS
from pages.ui.charts.ribbons import BANDS
from pages.ui.text import LANGUAGES, Words

T = Words("en")
LAYERS = np.arange(-1, 4)
FRAME = charts.Frame(title="x", statistic="resid_post", y_title="entry", x_title="layer")


def ribbon(scale=1.0, bad=(), name="a"):
    quantiles = scale * np.outer([-3, -2, -1, 0, 1, 2, 3], np.ones(len(LAYERS)))
    quantiles[:, list(bad)] = np.nan
    low, high = quantiles[0] - 1, quantiles[-1] + 1
    counts = np.zeros(len(LAYERS))
    counts[list(bad)] = 9
    return charts.Ribbon(name, LAYERS, quantiles, low, high, theme.style("none"), non_finite=counts)


def histogram(counts=None, absmax=2.0, name="a"):
    table = np.zeros((len(LAYERS), len(HISTOGRAM_BINS)), np.int64)
    for exponent, count in (counts or {0: 1000}).items():
        table[:, HISTOGRAM_BINS.index(str(exponent))] = count
    return charts.Histogram(name, LAYERS, table, np.full(len(LAYERS), absmax))


def grid(values, **changes):
    values = np.array(values, float)
    everywhere = np.ones(values.shape, bool)
    named = {"columns": [str(c) for c in range(values.shape[1])], "rows": [f"r{r}" for r in range(values.shape[0])],
             "values": values, "exists": everywhere, "observed": everywhere} | changes
    return charts.grid(charts.Grid(**named), FRAME, T)


def points(trace):
    return set(zip(trace.x, trace.y, strict=True))


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("count", [0, 1, 3, 4, 6])
def test_facets_of_any_number_come_out_whole(lang, count):
    names = [f"v{i}" for i in range(count)]
    for figure in (charts.ribbons([ribbon(name=name) for name in names], FRAME, Words(lang)),
                   charts.exponents([histogram(name=name) for name in names], FRAME, Words(lang))):
        assert len(figure.data) <= charts.MAX_TRACES
        titles = [note.text for note in figure.layout.annotations]
        assert titles[:count] == [f"<b>{name}</b>" for name in names]
        assert (T("chart.nothing") in titles) == (count == 0 and lang == "en")


@pytest.mark.parametrize(("layers", "facets", "labels"), [
    (1, 3, ["emb", "0"]), (1, 1, ["emb", "0"]), (4, 3, ["emb", "1", "2", "3"]), (4, 1, ["emb", "0", "1", "2", "3"]),
])
def test_layers_are_labelled_from_the_first_where_there_is_room(layers, facets, labels):
    one = ribbon()
    made = [charts.Ribbon(str(i), one.layers[: layers + 1], one.quantiles[:, : layers + 1], one.low[: layers + 1],
                          one.high[: layers + 1]) for i in range(facets)]
    assert list(charts.ribbons(made, FRAME, T).layout.xaxis.ticktext) == labels


def test_each_band_lies_between_its_quantiles():
    one = ribbon()
    figure = charts.ribbons([one], charts.Frame("x", "s", "e", "linear"), T)
    bands = [trace for trace in figure.data if trace.fill == "toself"]
    assert [band.name for band in bands] == [name for name, *_ in BANDS]
    for band, (_, lower, upper, _) in zip(bands, BANDS, strict=True):
        assert set(band.y) == {one.quantiles[lower][0], one.quantiles[upper][0]}


def test_the_true_extremes_are_drawn_and_not_the_outer_quantiles():
    one = ribbon()
    figure = charts.ribbons([one], charts.Frame("x", "s", "e", "linear"), T)
    (ends,) = [trace for trace in figure.data if trace.name == T("chart.extremes")]
    assert np.nanmin(ends.y) == one.low.min() and np.nanmax(ends.y) == one.high.max()


def test_a_layer_without_a_finite_entry_is_a_gap_with_a_triangle_in_a_ribbon():
    figure = charts.ribbons([ribbon(bad=[2])], FRAME, T)
    for band in (trace for trace in figure.data if trace.fill == "toself"):
        assert 1 not in band.x  # layer 1 is the third of −1 … 3
        assert np.isnan(band.x).sum() == 1
    (gap,) = [trace for trace in figure.data if trace.uid.endswith("gaps")]
    assert list(gap.x) == [1]
    assert list(gap.marker.symbol) == ["triangle-up"]


def test_a_log_axis_becomes_symlog_for_entries_with_signs():
    figure = charts.ribbons([ribbon(1e6)], FRAME, T)
    assert figure.layout.yaxis.type == "linear"
    assert "0" in figure.layout.yaxis.ticktext


def test_the_matched_axes_of_facets_find_their_range_by_themselves():
    figure = charts.ribbons([ribbon(), ribbon(name="b")], FRAME, T)
    assert figure.layout.yaxis.autorange is True and figure.layout.yaxis2.matches == "y"


def cells(figure):
    (cells,) = [trace for trace in figure.data if trace.type == "heatmap"]
    return cells


def test_one_outlier_is_seen_and_does_not_flatten_the_histogram():
    figure = charts.exponents([histogram({0: 65_535, 40: 1}, absmax=1.5 * 2.0**40)], FRAME, T)
    shares = cells(figure).z
    assert shares[0, 0] == pytest.approx(0, abs=1e-4)  # nearly all entries
    assert shares[-1, 0] == pytest.approx(np.log10(1 / 65_536), abs=1e-4)
    assert np.isnan(shares[1:-1]).all()
    assert figure.layout.coloraxis.cmin == pytest.approx(np.log10(1 / 65_536))


def test_the_line_of_the_largest_magnitude_is_the_true_one_even_beyond_the_sample():
    figure = charts.exponents([histogram({0: 100}, absmax=1000.0)], FRAME, T)
    (line,) = [trace for trace in figure.data if trace.name == T("statistic.absmax")]
    assert set(line.y) == {np.log2(1000.0)}
    assert set(line.customdata) == {1000.0}
    assert cells(figure).y[-1] == 9.5  # a row for it although it is empty


def test_what_only_float64_holds_stands_at_the_edge_of_the_rows_and_is_said_in_full():
    figure = charts.exponents([histogram({127: 10, -149: 10}, absmax=1e300)], FRAME, T)
    (line,) = [trace for trace in figure.data if trace.name == T("statistic.absmax")]
    assert set(line.y) == {128.0} and set(line.customdata) == {1e300}
    names = [row[0] for row in cells(figure).text]
    assert names[0] == "|x| < 2<sup>−148</sup>" and names[-1] == "2<sup>127</sup> ≤ |x|"
    assert names[1] == "2<sup>−148</sup> ≤ |x| < 2<sup>−147</sup>"


def test_zeros_and_what_is_not_finite_have_rows_of_their_own():
    figure = charts.exponents([histogram({3: 5, "zero": 2, "nonfinite": 1})], FRAME, T)
    assert figure.layout.yaxis.ticktext[0] == T("chart.zero")
    assert figure.layout.yaxis.ticktext[-1] == T("chart.non_finite")
    assert np.isfinite(cells(figure).z[0]).all() and np.isfinite(cells(figure).z[-1]).all()
    assert T("chart.not_finite_entries", count=len(LAYERS)) in figure.layout.title.subtitle.text


def test_counts_by_row_add_up_to_all_entries():
    one = histogram({-149: 1, -3: 10, 127: 2, "zero": 4, "nonfinite": 3})
    assert cells(charts.exponents([one], FRAME, T)).customdata[..., 0].sum(0).tolist() == [20] * len(LAYERS)


def test_a_stack_of_zeros_and_one_of_nan_come_out_whole():
    for name in ("zero", "nonfinite"):
        figure = charts.exponents([histogram({name: 7}, absmax=0.0 if name == "zero" else np.nan)], FRAME, T)
        assert np.isfinite(cells(figure).z).any()


def test_limits_of_float16_are_drawn_where_they_are_in_sight():
    wide = charts.exponents([histogram({-20: 1, 20: 1}, absmax=2.0**20)], FRAME, T)
    narrow = charts.exponents([histogram()], FRAME, T)
    named = {T("chart.float16_least"), T("chart.float16_most")}
    assert named <= {trace.name for trace in wide.data}
    assert not named & {trace.name for trace in narrow.data}


def test_the_lowest_and_highest_exponents_are_those_of_the_vocabulary():
    assert HISTOGRAM_BINS[EXPONENTS - 1] == "127" and HISTOGRAM_BINS[0] == str(HISTOGRAM_LOW)


def test_a_map_colours_values_by_the_scale_and_keeps_the_numbers():
    cell = cells(grid([[1, 10], [100, 1000]]))
    np.testing.assert_allclose(cell.z, [[0, 1], [2, 3]])
    np.testing.assert_array_equal(cell.customdata, [[1, 10], [100, 1000]])


def test_a_cell_without_a_value_is_a_mark_and_never_a_colour():
    figure = grid([[1, np.nan], [np.inf, 0]], observed=np.array([[True, True], [True, True]]))
    assert np.isnan(cells(figure).z).tolist() == [[False, True], [True, True]]
    bad, zero = (trace for trace in figure.data if trace.type == "scatter")
    assert (bad.name, points(bad)) == (T("chart.no_place"), {("1", "r0"), ("0", "r1")})
    assert set(bad.hovertext) == {"NaN", "+Inf"} and bad.marker.symbol == "triangle-up"
    assert (zero.name, points(zero), list(zero.hovertext)) == (T("chart.no_place_log"), {("1", "r1")}, ["0"])
    assert zero.marker.symbol == "triangle-down"  # 0 is a finite value
    assert figure.layout.title.subtitle.text == "▲ without a finite value: 2 · " \
        "▼ zero or negative, no place on a log scale: 1"


def test_numbers_beyond_float32_keep_their_colours():
    frame = charts.Frame(title="x", statistic="s", y_title="e", x_title="layer", y_scale="linear")
    everywhere = np.ones((1, 2), bool)
    figure = charts.grid(charts.Grid(["0", "1"], ["r"], np.array([[1e300, 2e300]]), everywhere, everywhere), frame, T)
    np.testing.assert_array_equal(cells(figure).z, [[1e300, 2e300]])


def test_a_map_tells_what_was_not_observed_from_what_does_not_exist():
    figure = grid([[1, 2, 3]], exists=np.array([[True, True, False]]), observed=np.array([[True, False, False]]))
    (mark,) = [trace for trace in figure.data if trace.type == "scatter"]
    assert mark.name == T("chart.unseen") and points(mark) == {("1", "r0")}
    assert np.isnan(cells(figure).z).tolist() == [[False, True, True]]


def test_a_cell_over_a_part_of_the_entries_is_coloured_and_marked():
    figure = grid([[1, 2]], non_finite=np.array([[0.0, 5.0]]))
    (mark,) = [trace for trace in figure.data if trace.type == "scatter"]
    assert points(mark) == {("1", "r0")} and "5" in mark.hovertext[0]
    assert np.isfinite(cells(figure).z).all()


@pytest.mark.parametrize("value", [1.0, 1e-300, 1e300])
def test_a_map_of_one_value_has_a_colour_of_the_middle(value):
    colors = grid([[value, value * (1 + 1e-9)]]).layout.coloraxis
    assert colors.cmin < np.log10(value) < colors.cmax


def test_a_map_of_nothing_finite_comes_out_whole_and_says_so():
    figure = grid([[np.nan, np.nan]])
    assert figure.layout.title.subtitle.text == T("chart.cells_non_finite", count=2)
    nothing = grid([[1.0]], exists=np.array([[False]]))
    assert [note.text for note in nothing.layout.annotations] == [T("chart.nothing")]


def test_many_columns_have_few_labels_and_the_ends_have_theirs():
    names = ["emb", *map(str, range(96)), "end"]
    axis = grid(np.ones((2, 98)), columns=names).layout.xaxis
    assert axis.ticktext[0] == "emb" and axis.ticktext[-1] == "end"
    assert 8 < len(axis.ticktext) < 30
    assert len(axis.categoryarray) == 98
