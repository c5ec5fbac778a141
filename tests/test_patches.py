"""Patches: what they make of a figure is the next figure, and of growing numbers they hold the new ones alone."""

import json

import numpy as np
import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pages.ui.patches import apply, patches, plain, wire

SHAPES = arrays.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4)
NUMBERS = st.sampled_from(["float64", "float32", "int32", "bool"]).flatmap(lambda kind: arrays.arrays(kind, SHAPES))
SCALARS = st.none() | st.booleans() | st.integers(-9, 9) | st.floats(width=32) | st.text(max_size=3)
VALUES = st.recursive(
    SCALARS | NUMBERS | arrays.arrays(object, st.integers(0, 3), elements=st.text(max_size=2)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=4),
    max_leaves=12)
TRACES = st.lists(st.dictionaries(st.sampled_from(["x", "y", "z", "name"]), VALUES, max_size=4), max_size=3)
FIGURES = st.fixed_dictionaries({"data": TRACES, "layout": st.dictionaries(st.text(max_size=2), VALUES, max_size=4)})


def seen(value):
    """What a browser has of it."""
    return json.loads(wire(value))


@given(FIGURES, FIGURES)
def test_a_patched_figure_is_the_next_figure(old, new):
    assert apply(seen(old), seen(patches(old, new))) == seen(new)


@given(FIGURES)
def test_a_figure_that_stays_has_no_patch(figure):
    again = json.loads(json.dumps(figure, default=lambda array: array.tolist()))
    assert patches(figure, figure) == []
    assert patches(again, json.loads(json.dumps(again))) == []


@given(arrays.arrays("float32", arrays.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=5)),
       st.integers(1, 3), st.data())
def test_an_array_that_grew_sends_what_it_grew_by(whole, more, draw):
    axis = draw.draw(st.integers(0, min(whole.ndim, 2) - 1))
    grown = np.concatenate([whole, np.repeat(np.take(whole, [0], axis), more, axis)], axis)
    old, new = ({"data": [{"y": one}], "layout": {}} for one in (whole, grown))
    (op,) = patches(old, new)
    assert np.size(op["add"]) == grown.size - whole.size
    assert apply(seen(old), seen([op])) == seen(new)


def heat(steps, layers=12):
    rows = np.arange(layers * 400, dtype=np.float32).reshape(layers, 400)[:, :steps] / 3
    return {"data": [{"z": rows, "x": np.arange(steps)}], "layout": {"title": {"text": str(steps)}}}


def test_one_more_step_costs_one_column_however_many_there_were():
    few, many = (len(wire(patches(heat(steps), heat(steps + 1)))) for steps in (20, 380))
    assert many <= few + 40
    assert many < 0.02 * len(wire(heat(381)))


def test_a_column_that_changed_is_sent_from_there_on():
    old, new = heat(20), heat(20)
    new["data"][0]["z"] = new["data"][0]["z"].copy()
    new["data"][0]["z"][3, 17] = 0
    (op,) = patches(old, new)
    assert (op["path"], op["cut"], op["axis"], op["add"].shape) == (("data", 0, "z"), 17, 1, (12, 3))


def test_nan_stays_nan_and_says_nothing_new():
    old, new = ({"data": [{"y": np.array([1.0, np.nan, np.inf]), "text": [float("nan")]}], "layout": {}}
                for _ in range(2))
    assert patches(old, new) == []
    assert seen(old)["data"][0] == {"y": [1.0, None, None], "text": [None]}


def test_another_number_of_traces_sends_all_of_them():
    old, new = {"data": [{"y": [1]}], "layout": {}}, {"data": [{"y": [1]}, {"y": [2]}], "layout": {}}
    assert patches(old, new) == [{"path": ("data",), "set": new["data"]}]


def test_float32_is_written_as_short_as_it_is():
    assert wire(np.array([0.1, 1 / 3], np.float32)) == b"[0.1,0.33333334]"
    assert wire(np.array([[0.1, 0.2]], np.float32)[:, ::-1]) == b"[[0.2,0.1]]"


def test_a_plotly_figure_keeps_its_arrays_and_loses_its_template():
    numbers = np.arange(3, dtype=np.float32)
    figure = plain(go.Figure(go.Scatter(y=numbers), {"template": "plotly", "meta": {"film": {"rows": numbers}}}))
    assert figure["data"][0]["y"].dtype == figure["layout"]["meta"]["film"]["rows"].dtype == np.float32
    assert "template" not in figure["layout"]


def test_what_is_no_figure_is_refused():
    with pytest.raises(TypeError, match="not JSON serializable: set"):
        wire({"data": {1}})
