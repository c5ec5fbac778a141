"""Charts of trainings: they grow at their ends, and what is not a value is never a colour or a point of a line."""

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import plotly.graph_objects as go
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from pages.ui import charts, theme
from pages.ui.charts import Course, Event, Film, Strip
from pages.ui.charts.axes import axis_for, first_sizes
from pages.ui.charts.steps import EVENTS, HEIGHT_PX, LABEL_GAP
from pages.ui.patches import wire
from pages.ui.text import LANGUAGES, Words

T = Words("en")
FRAME = charts.Frame(title="x", statistic="rms", y_title="layer")
STEPS = np.array([0, 1, 2, 4, 8, 16, 100, 1000])
ROWS = ["embed", "0", "1"]
NUMBERS = st.sampled_from([np.nan, np.inf, -np.inf, 0.0, -2.5, 1.0, 3.0, 1e-3, 2e4, 1e-15, 1e15])
TABLES = st.lists(NUMBERS, min_size=len(STEPS) * len(ROWS), max_size=len(STEPS) * len(ROWS)).map(
    lambda cells: np.array(cells).reshape(len(STEPS), len(ROWS)))
MASKS = st.lists(st.booleans(), min_size=len(STEPS) * len(ROWS), max_size=len(STEPS) * len(ROWS)).map(
    lambda cells: np.array(cells).reshape(len(STEPS), len(ROWS)))
RULES = settings(max_examples=20, deadline=None, derandomize=True,
                 phases=[Phase.explicit, Phase.generate])  # to shrink a chart takes minutes


def strip(values=None, name="a", **changes):
    values = np.ones((len(STEPS), len(ROWS))) if values is None else np.asarray(values, float)
    return Strip(name, STEPS[: len(values)], ROWS[: values.shape[1]], values, **changes)


def course(values, name="a", norm="none", **changes):
    return Course(name, STEPS[: len(values)], np.array(values, float), theme.style(norm), **changes)


def frame(scale):
    return replace(FRAME, y_scale=scale)


def strips(*series, scale="log", t=T, **settings_):
    return charts.strips(series, frame(scale), t, **settings_)


def steps(*series, scale="log", t=T, **settings_):
    return charts.steps(series, frame(scale), t, **settings_)


def begins(old, new, path=()):
    """Hold that `new` only adds to the ends of what `old` has."""
    if isinstance(old, np.ndarray):
        assert old.dtype == new.dtype, path
        np.testing.assert_array_equal(new[..., : old.shape[-1]], old, err_msg=str(path))
    elif isinstance(old, dict):
        assert old.keys() == new.keys(), path
        for name in old:
            begins(old[name], new[name], (*path, name))
    elif isinstance(old, list | tuple):
        assert list(new)[: len(old)] == list(old), path
    else:
        assert old == new, path


def grown(draw, scale, count, most=None):
    """The traces before and after some steps came, in order."""
    old, new = (draw(part).data for part in (count, most or len(STEPS)))
    assert [trace.uid for trace in old] == [trace.uid for trace in new]
    assert len({trace.uid for trace in new}) == len(new)
    for before, after in zip(old, new, strict=True):
        begins(before.to_plotly_json(), after.to_plotly_json())


def cut(one, count):
    """The same after `count` steps."""
    tables = {name: table[:count] for name in ("values", "steps", "observed", "non_finite")
              if (table := getattr(one, name, None)) is not None and len(table)}
    events = {"events": tuple(event for event in one.events if event.step <= STEPS[count - 1])} \
        if isinstance(one, Course) else {}
    return replace(one, **tables, **events)


@pytest.mark.parametrize("scale", charts.SCALES)
@given(values=TABLES, other=TABLES, observed=MASKS, broken=MASKS, count=st.integers(1, len(STEPS) - 1))
@RULES
def test_maps_over_steps_only_add_to_the_ends_of_their_arrays(scale, values, other, observed, broken, count):
    series = [strip(values, observed=observed, non_finite=broken * 3.0), strip(other, "b")]
    grown(lambda part: strips(*(cut(one, part) for one in series), scale=scale), scale, count)


@pytest.mark.parametrize("scale", charts.SCALES)
@given(values=TABLES, broken=MASKS, events=st.lists(st.sampled_from(STEPS.tolist())),
       count=st.integers(1, len(STEPS) - 1))
@RULES
def test_lines_over_steps_only_add_to_the_ends_of_their_arrays(scale, values, broken, events, count):
    series = [course(values[:, row], name, layer=layer, non_finite=broken[:, row] * 3.0,
                     events=tuple(Event(step, kind) for step, kind in zip(events, [*EVENTS] * 99, strict=False)))
              for row, (name, layer) in enumerate([("a", "0"), ("a", "1"), ("b", "0")])]
    grown(lambda part: steps(*(cut(one, part) for one in series), scale=scale), scale, count)


def test_a_variant_that_has_not_begun_has_its_traces_already():
    nothing = Strip("b", STEPS[:0], ROWS, np.empty((0, 3)))
    grown(lambda part: strips(strip(), nothing if part == 1 else strip(name="b")), "log", 1)
    grown(lambda part: steps(course([1, 2]), course([] if part == 1 else [1, 2], "b")), "log", 1)


def cells(figure):
    """The grey and the coloured map of each variant, with all columns, and what the hover says of coloured cells."""
    maps = [trace for trace in figure.data if trace.type == "heatmap"]
    return [(whole(grey, len(coloured.x)), whole(coloured, len(coloured.x)))
            for grey, coloured in zip(maps[::2], maps[1::2], strict=True)]


def whole(trace, columns):
    """A map with what Plotly takes for columns that it has not: no cell, no text."""
    assert trace.text.shape[1] <= columns and trace.z.shape[1] == len(trace.x) <= columns
    made = go.Heatmap(trace)
    room = columns - trace.z.shape[1]
    made.z = np.pad(trace.z, ((0, 0), (0, room)), constant_values=np.nan)
    made.text = np.array([[*row, *[""] * (columns - len(row))] for row in trace.text.tolist()], object)
    made.customdata = trace.z if trace.customdata is None and "%{z:" in trace.hovertemplate else trace.customdata
    return made


@pytest.mark.parametrize("scale", charts.SCALES)
@given(values=TABLES, observed=MASKS)
@RULES
def test_a_cell_is_coloured_if_it_has_a_value_with_a_place_and_else_grey_and_says_why(scale, values, observed):
    ((grey, coloured),) = cells(strips(strip(values, observed=observed), scale=scale))
    axis = axis_for(scale, values[observed], first_sizes([np.where(observed, values, np.nan)]))
    placed = (axis.has_place(values) & observed).T
    np.testing.assert_array_equal(np.isfinite(coloured.z), placed)
    np.testing.assert_array_equal(np.isfinite(grey.z), ~placed)
    np.testing.assert_array_equal(coloured.customdata[placed], values.T[placed].astype(np.float32))
    assert {(said, value) for said, value in zip(grey.text[~placed], grey.z[~placed], strict=True)} <= {
        *((said, 1.0) for said in ("NaN", "+Inf", "−Inf", "0", "-2.5")), (T("chart.unseen"), 0.0)}
    assert (grey.text[placed] == "").all()
    assert (grey.text.T[~observed] == T("chart.unseen")).all()
    assert grey.hoverongaps is coloured.hoverongaps is False


def test_what_no_cell_needs_is_not_sent():
    sound, broken = strip().values, strip().values.copy()
    broken[2, 1] = np.nan
    for values, wide in ((sound, 0), (broken, 4)):  # one column more, or Plotly would end the cell elsewhere
        grey, coloured, _ = strips(strip(values)).data
        assert grey.z.shape == grey.text.shape == (len(ROWS), wide) and list(grey.x) == STEPS[:wide].tolist()
        assert coloured.z.shape == (len(ROWS), len(STEPS)) and coloured.text.shape == (len(ROWS), 0)
        assert coloured.hovertemplatefallback == ""
    assert strips(strip(), scale="linear").data[1].customdata is None  # there the colour's number is the value


def marks(figure):
    (found,) = [trace for trace in figure.data if trace.type == "scatter"]
    return list(zip(found.x.tolist(), found.y, found.marker.symbol, found.text, strict=True))


def test_marks_stand_where_cells_without_a_value_begin():
    values = np.ones((8, 3))
    values[3:, 0], values[5, 1], values[1, 2] = np.nan, np.inf, -1
    observed = np.ones((8, 3), bool)
    observed[:2, 0] = False
    counts = np.zeros((8, 3))
    counts[6:, 1] = 7
    figure = strips(strip(values, observed=observed, non_finite=counts))
    assert marks(figure) == [
        (0, "embed", "line-ew-open", T("chart.unseen")), (1, "1", "triangle-down", "-1"),
        (4, "embed", "triangle-up", "NaN"), (16, "0", "triangle-up", "+Inf"),
        (100, "0", "triangle-up-open", T("chart.in_part", value="1", count="7"))]
    assert figure.layout.title.subtitle.text == (
        "▲ without a finite value: 6 · ▼ zero or negative, no place on a log scale: 1 · "
        "△ over the finite entries only: 2 · – not observed: 2")


def test_every_value_over_a_part_of_the_entries_is_said_to_be_one():
    counts = np.zeros((8, 3))
    counts[6:, 1] = 7
    ((_, coloured),) = cells(strips(strip(non_finite=counts)))
    assert {"": 22, f"<br>{T('chart.cell_in_part')}": 2} == {
        said: int((coloured.text == said).sum()) for said in np.unique(coloured.text.astype(str))}
    assert "%{text}" in coloured.hovertemplate and np.isfinite(coloured.z).all()


def test_a_row_that_a_variant_does_not_have_is_empty_and_neither_grey_nor_counted():
    shallow = strip(np.full((8, 2), np.nan), "b")
    figure = strips(strip(), shallow)
    (_, _), (grey, coloured) = cells(figure)
    assert np.isnan(grey.z[2]).all() and np.isnan(coloured.z).all() and np.isfinite(grey.z[:2]).all()
    assert list(figure.layout.yaxis.categoryarray) == ROWS
    assert figure.layout.title.subtitle.text == T("chart.cells_non_finite", count=16)


def test_rows_that_lie_apart_keep_their_places():
    one = Strip("a", STEPS, ["embed", "1"], np.ones((8, 2)))
    ((_, _), (grey, coloured)) = cells(strips(strip(), one))
    assert list(coloured.y) == ROWS and np.isnan(coloured.z[1]).all() and np.isnan(grey.z[1]).all()


@pytest.mark.parametrize("scale", charts.SCALES)
@pytest.mark.parametrize("values", [
    [[1.0, 1.0]], [[5e-324, 1e300]], [[np.nan, np.inf]], [[0.0, 0.0]], [[1e300, -1e300]], [[1.0, 1.0 + 1e-12]],
    np.empty((0, 2))])
def test_colours_and_axes_are_finite_for_any_numbers(scale, values):
    figure = strips(strip(np.array(values, float)), scale=scale)
    colors = figure.layout.coloraxis
    if colors.cmin is not None:
        assert np.isfinite([colors.cmin, colors.cmax]).all() and colors.cmin < colors.cmax
    assert all(np.isfinite(list(figure.layout.xaxis.autorangeoptions.to_plotly_json().values())))
    ((_, coloured),) = cells(figure)
    assert not np.isinf(coloured.z).any()
    line = steps(course(np.ravel(values)), scale=scale)
    assert not np.isinf(line.data[0].y).any()
    json.dumps(json.loads(figure.to_json()), allow_nan=False)


def test_numbers_that_float32_does_not_hold_are_sent_in_full():
    ((_, coloured),) = cells(strips(strip([[1e300, 1e-300]])))
    np.testing.assert_array_equal(coloured.customdata, [[1e300], [1e-300]])
    ((_, coloured),) = cells(strips(strip([[1e30, 1e-30]])))
    assert coloured.customdata.dtype == coloured.z.dtype == np.float32


def test_steps_are_numbers_so_that_uneven_ones_stand_where_they_are():
    for figure in (strips(strip()), steps(course(np.ones(8)))):
        trace = next(trace for trace in figure.data if len(trace.x))
        np.testing.assert_array_equal(trace.x, STEPS)
        assert trace.x.dtype == np.int32
        assert figure.layout.xaxis.type is None
        assert figure.layout.xaxis.title.text == "step"
    edges = strips(strip()).layout.xaxis.autorangeoptions
    assert (edges.clipmin, edges.clipmax) == (-0.5, 1450)


def test_a_single_step_is_the_only_label():
    for figure in (strips(strip(np.ones((1, 3)))), steps(course([1.0]))):
        assert list(figure.layout.xaxis.tickvals) == [0]


@pytest.mark.parametrize(("count", "places"), [(1, [(1, 1)]), (2, [(1, 1), (1, 2)]), (3, [(1, 1), (1, 2), (1, 3)]),
                                               (4, [(1, 1), (1, 2), (2, 1), (2, 2)])])
def test_variants_stand_side_by_side_on_the_same_axes_and_four_as_a_square(count, places):
    figure = strips(*(strip(name=f"v{number}") for number in range(count)))
    assert [note.text for note in figure.layout.annotations] == [f"<b>v{number}</b>" for number in range(count)]
    assert len(figure.data) == 3 * count
    axes = [[figure.layout[trace[f"{letter}axis"].replace(letter, f"{letter}axis")] for letter in "xy"]
            for trace in figure.data[::3]]
    for (x, y), name in zip(axes, ((trace.xaxis, trace.yaxis) for trace in figure.data[::3]), strict=True):
        assert (y.anchor, x.anchor) == name
    lefts, tops = (sorted({axis.domain[end] for axis in side}) for end, side in enumerate(zip(*axes, strict=True)))
    assert [(len(tops) - tops.index(y.domain[1]), 1 + lefts.index(x.domain[0])) for x, y in axes] == places
    for side, letter in zip(zip(*axes, strict=True), "xy", strict=True):
        spans = sorted({axis.domain for axis in side})
        assert spans[0][0] == 0 and spans[-1][1] == pytest.approx(1)
        assert all(before[1] < after[0] for before, after in pairwise(spans))
        assert len({axis.matches or axis.plotly_name.replace("axis", "") for axis in side}) == 1, letter
    assert {trace.coloraxis for _, trace in cells(figure)} == {"coloraxis"}


def test_more_variants_than_have_room_are_refused():
    with pytest.raises(ValueError, match="maps over steps are at most 4, these are 5: draw fewer variants"):
        strips(*[strip()] * 5)


def test_many_heads_have_few_labels_one_a_layer():
    rows = [f"{layer} · {head}" for layer in range(12) for head in range(16)]
    axis = strips(Strip("a", STEPS, rows, np.ones((8, 192)))).layout.yaxis
    assert list(axis.ticktext) == [f"{layer} · 0" for layer in range(12)]
    assert axis.range == (-0.5, 191.5)


def test_nothing_to_draw_is_said():
    for figure in (strips(), strips(Strip("a", STEPS[:0], ROWS, np.empty((0, 3)))), steps(), steps(course([]))):
        assert T("chart.nothing") in [note.text for note in figure.layout.annotations]


# ── lines ──


@pytest.mark.parametrize("scale", charts.SCALES)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_is_a_gap_with_a_triangle(scale, bad):
    line, gaps, _ = steps(course([1, 2, bad, 4]), scale=scale).data
    assert np.isnan(line.y).tolist() == [False, False, True, False] and line.connectgaps is False
    assert list(gaps.x) == [2] and gaps.yaxis == "y2"
    assert "▼" in steps(course([1, -np.inf])).layout.title.subtitle.text


def test_a_long_line_shows_few_of_its_symbols():
    long = Course("a", np.arange(2000), np.ones(2000))
    assert steps(long).data[0].marker.maxdisplayed == 16
    assert steps(cut(long, 8)).data[0].marker.maxdisplayed == 0


def test_the_hover_says_variant_step_layer_site_statistic_value_and_unit():
    one = course([1, 2], "no norm", layer="3", site="resid_post")
    hover = charts.steps([one], replace(FRAME, unit="nats"), T).data[0].hovertemplate
    for part in ("no norm", "step %{x}", "layer 3", "resid_post", "rms", "%{y:.5~g}", "nats"):
        assert part in hover
    hover = strips(strip(name="no norm")).data[1].hovertemplate
    for part in ("no norm", "step %{x}", "layer %{y}", "rms", "%{customdata:.5~g}"):
        assert part in hover


def test_a_variant_with_several_layers_has_one_legend_entry_and_a_shade_for_each():
    figure = steps(*(course([1, 2 + layer], layer=str(layer)) for layer in range(3)), course([1, 9], "b", "rmsnorm"))
    lines = [trace for trace in figure.data if trace.yaxis is None]
    assert [line.showlegend for line in lines] == [True, False, False, True]
    assert len({line.legendgroup for line in lines}) == 2 and len({line.line.color for line in lines}) == 4
    assert lines[3].line.color == theme.NORM_COLORS["rmsnorm"]
    assert {trace.legendgroup for trace in figure.data} == {line.legendgroup for line in lines}


def light(color):
    coded = [int(color[start: start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in coded]
    return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))


@pytest.mark.parametrize("norm", theme.NORM_COLORS)
@pytest.mark.parametrize("count", [2, 3, 6])
def test_shades_are_seen_on_both_backgrounds_and_ascend_with_the_layers(norm, count):
    figure = steps(*(course([1, 2], norm=norm, layer=str(layer)) for layer in range(count)))
    lights = [light(trace.line.color) for trace in figure.data if trace.yaxis is None]
    assert (np.diff(lights) > 0).all()
    for palette in theme.PALETTES.values():
        for one in lights:
            low, high = sorted((one, light(palette.background)))
            assert (high + 0.05) / (low + 0.05) >= 3


def test_lines_that_look_alike_say_layer_and_last_value_at_their_ends_and_others_do_not():
    other = course([7, 7, 7], "b", "rmsnorm")
    figure = steps(course([1, 2.5, np.nan], layer="0"), course([1, 3.25, 4], layer="11"), other)
    assert [(note.x, note.text) for note in figure.layout.annotations] == [(1, "0 · 2.5"), (2, "11 · 4")]
    assert not steps(course([1, 2]), course([1, 2], "b", "rmsnorm")).layout.annotations
    assert [note.text for note in steps(course([1, 2]), course([1, 3], "b")).layout.annotations] == ["a · 2", "b · 3"]


@pytest.mark.parametrize("scale", charts.SCALES)
@given(ends=st.lists(st.floats(1, 1000), min_size=2, max_size=14))
@RULES
def test_numbers_at_the_ends_of_lines_keep_apart_in_their_order(scale, ends):
    figure = steps(*(course([1, value], layer=str(row)) for row, value in enumerate(ends)), scale=scale)
    values = np.array([1.0, *ends])
    axis = axis_for(scale, values, first_sizes([np.ones(1)]))
    low, high = axis.level(np.array([values.min(), values.max()]))
    notes = figure.layout.annotations
    assert len(notes) == len(ends)
    heights = [(note.y - low) / ((high - low) or 1) + note.yshift / HEIGHT_PX for note in notes]
    assert (np.diff(heights) > LABEL_GAP - 1.5 / HEIGHT_PX).all()
    assert min(heights) > -0.01 and max(heights) < 1.01


def test_events_are_strokes_at_the_bottom_counted_and_said_once_a_variant():
    overflow = (Event(4, "overflow"), Event(8, "overflow"), Event(100, "non_finite"))
    figure = steps(course([1, 2], layer="0", events=overflow), course([1, 2], layer="1", events=overflow),
                   course([1, 2], "b"))
    one, other = figure.data[-2:]
    assert list(one.x) == [4, 8, 100] and list(one.marker.symbol) == ["line-ns-open"] * 2 + ["x-thin-open"]
    assert list(one.text)[::2] == [T("chart.event_at_overflow"), T("chart.event_at_non_finite")]
    assert len(other.x) == 0 and one.yaxis == other.yaxis == "y2" and max(one.y) < 0.1
    assert figure.layout.title.subtitle.text == " · ".join(
        [T("chart.event_overflow", count=2), T("chart.event_non_finite", count=1)])
    assert not {symbol for sign in EVENTS.values() for symbol in [sign.symbol]} & set(theme.INIT_SYMBOLS.values())


def test_an_unknown_event_a_scale_and_too_many_traces_are_refused():
    with pytest.raises(ValueError, match="the kind of an event is 'party'; allowed are overflow, non_finite"):
        steps(course([1], events=(Event(0, "party"),)))
    with pytest.raises(ValueError, match="y_scale is 'cubic'; allowed are linear, log, symlog"):
        steps(course([1]), scale="cubic")
    with pytest.raises(ValueError, match="a chart over steps has at most 60 traces, these are 61: draw fewer lines"):
        steps(*(course([1], layer=str(layer)) for layer in range(30)))
    assert len(steps(*(course([1], layer=str(layer)) for layer in range(29))).data) == 59


# ── film, cursor, words ──


def test_a_player_may_show_where_it_stands():
    for draw, one in ((steps, course([1, 2])), (strips, strip())):
        assert draw(one, cursor=True).layout.meta == {"cursor": True}
        assert draw(one).layout.meta is None


LAYERS = np.arange(-1, 2)


@pytest.mark.parametrize("scale", charts.SCALES)
@given(values=TABLES, other=TABLES, broken=MASKS)
@RULES
def test_a_film_shows_at_every_step_what_a_profile_of_that_step_shows(scale, values, other, broken):
    film = Film(STEPS.tolist(), [values, other], [broken * 2.0, broken * 0.0])
    series = [charts.Series(name, LAYERS, table[-1], theme.style(norm), non_finite=count[-1])
              for name, norm, table, count in zip("ab", ("none", "rmsnorm"), film.values, film.non_finite, strict=True)]
    figure = charts.profile(series, frame(scale), T, film)
    made = json.loads(wire(figure.layout.meta["film"]))
    assert made["steps"] == STEPS.tolist() and list(made["traces"]) == ["0", "1", "2", "3"] and len(figure.data) == 4
    axis = axis_for(scale, np.concatenate([values, other], None), first_sizes(film.values))
    for place in range(len(STEPS)):
        for row, table in enumerate(film.values):
            shown = np.array(made["traces"][str(2 * row)]["y"][place], float)
            np.testing.assert_allclose(shown, axis.place(table[place]), rtol=1e-6)
            gaps = {name: rows[place] for name, rows in made["traces"][str(2 * row + 1)].items()}
            expected = ~axis.has_place(table[place]) | (broken[place] & (row == 0))
            assert gaps.get("x", []) == LAYERS[expected].tolist()  # without a gap at any step the trace stays empty
            assert len(gaps.get("y", [])) == len(gaps.get("text", [])) == expected.sum()
            assert len(gaps["marker"]["symbol"] if gaps else []) == expected.sum()
    for index, trace in enumerate(figure.data):  # the picture is the film's last
        assert trace.uid and len(trace.x) == len(made["traces"][str(index)].get("x", [trace.x])[-1])
    assert made["notes"][-1] == figure.layout.title.subtitle.text


@pytest.mark.parametrize("scale", charts.SCALES)
@pytest.mark.parametrize("ends", [(1.0, 1e6), (5e-324, 1.7e308), (3.0, 3.0)])
def test_the_axis_of_a_film_holds_for_all_of_its_steps(scale, ends):
    film = Film([0, 1], [np.array([[ends[0], ends[1], 2.0], [3.0, 3.0, 3.0]])])
    figure = charts.profile([charts.Series("a", LAYERS, film.values[0][-1])], frame(scale), T, film)
    low, high = axis_for(scale, film.values[0], first_sizes(film.values)).place(np.array([min(2.0, ends[0]), ends[1]]))
    line = figure.layout.shapes[-1]
    assert line.opacity == 0 and line.y0 <= low <= high <= line.y1 and np.isfinite([line.y0, line.y1]).all()
    if high > low and high < 1e300:
        assert line.y0 < low and high < line.y1


def test_a_film_grows_at_its_end():
    table = np.exp(np.arange(24.0)).reshape(8, 3)
    old, new = (charts.profile([charts.Series("a", LAYERS, table[count - 1])], frame("symlog"), T,
                               Film(STEPS[:count].tolist(), [table[:count]])).layout.meta["film"] for count in (3, 8))
    begins(*(json.loads(wire(film)) for film in (old, new)))


def test_a_film_says_nothing_of_triangles_where_there_is_none_and_makes_the_same_ones_once():
    table = np.ones((8, 3))
    series = [charts.Series("a", LAYERS, table[-1])]
    assert charts.profile(series, FRAME, T, Film(STEPS.tolist(), [table])).layout.meta["film"]["traces"]["1"] == {}
    table[2:, 1] = np.nan
    film = charts.profile(series, FRAME, T, Film(STEPS.tolist(), [table])).layout.meta["film"]
    marker = film["traces"]["1"]["marker"]
    assert len({id(one) for one in marker}) == 2 and film["traces"]["1"]["x"] == [[], []] + [[0]] * 6
    assert film["notes"] == ["", ""] + [T("chart.above_axis", count=1)] * 6


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_word_is_of_the_language_and_traces_keep_their_identity_in_all(lang):
    t = Words(lang)
    values = np.array([[1, np.nan, 0.0], [1, 2, 3]])
    drawn = {
        "strips": lambda t: strips(strip(values, t("chart.layer"), key="k", non_finite=np.ones((2, 3)),
                                         observed=np.array([[True] * 3, [False] * 3])), t=t),
        "steps": lambda t: steps(course([1, np.nan, 0], t("chart.layer"), key="k", layer="0",
                                        events=(Event(0, "overflow"), Event(1, "non_finite"))), t=t)}
    for name, draw in drawn.items():
        assert charts.CHARTS[name] is getattr(charts, name)
        figure = draw(t)
        assert [trace.uid for trace in figure.data] == [trace.uid for trace in draw(T).data]
        assert all(trace.uid.isalnum() for trace in figure.data)
        text = json.dumps(figure.to_dict(), ensure_ascii=False, default=str)
        assert t("chart.step") in text
        assert lang == "en" or not {word for word in ("step %", "overflow,", "not observed", "entries") if word in text}


def test_hostile_names_are_shown_as_they_are():
    for figure in (strips(strip(name="<b>%{x}")), steps(course([1, 2], "<b>%{x}", layer="<i>"))):
        text = json.dumps(figure.to_dict(), default=str)
        assert "<b>%{x}" not in text.replace("<b>%{x}</b>", "") and "<i>" not in text


def test_a_training_of_many_steps_is_few_bytes_more_a_step():
    rng = np.random.default_rng(0)
    steps_ = np.arange(400)
    one = Strip("a", steps_, [str(row) for row in range(12)], rng.random((400, 12)))
    size = len(strips(one).to_json())
    assert size / (400 * 12) < 60  # of a cell, all of its arrays
