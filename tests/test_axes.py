"""Value axes: where a value stands, what has no place, and what the labels say."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pages.ui import theme
from pages.ui.charts import SCALES
from pages.ui.charts.axes import Axis, axis_for, finite_range, number, numbers, ruler

FINITE = st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.lists(FINITE, min_size=1, max_size=20).map(np.array)


@pytest.mark.parametrize("scale", SCALES)
def test_what_is_not_finite_has_no_place_on_any_axis(scale):
    values = np.array([np.nan, np.inf, -np.inf, 2.0])
    axis = axis_for(scale, values)
    np.testing.assert_array_equal(axis.has_place(values), [False, False, False, True])
    np.testing.assert_array_equal(np.isnan(axis.place(values)), [True, True, True, False])


def test_zero_and_negative_values_have_a_place_on_all_but_the_log_axis():
    values = np.array([-1.0, 0.0, 1.0])
    assert {scale: axis_for(scale, values).has_place(values).tolist() for scale in SCALES} == {
        "log": [False, False, True], "linear": [True] * 3, "symlog": [True] * 3}


@given(VALUES)
@settings(max_examples=200, deadline=None, derandomize=True)
def test_symlog_keeps_order_sign_and_zero_of_any_numbers(values):
    axis = axis_for("symlog", values)
    placed = axis.place(values)
    assert np.isfinite(placed).all()
    assert np.abs(values[(placed == 0) & (values != 0)]).max(initial=0) < 1e-15 * axis.linear_to
    assert (placed * np.sign(values) >= 0).all()
    order = np.argsort(values, kind="stable")
    assert (np.diff(placed[order]) >= 0).all()
    np.testing.assert_allclose(axis.place(-values), -placed)


def test_far_from_zero_symlog_is_the_logarithm():
    values = 10.0 ** np.arange(0, 30)
    axis = Axis("symlog", 1e-3, 1e30)
    np.testing.assert_allclose(np.diff(axis.place(values)), 1.0, rtol=1e-6)


@given(VALUES)
@settings(max_examples=200, deadline=None, derandomize=True)
def test_symlog_labels_ascend_contain_zero_and_are_few(values):
    settings_ = axis_for("symlog", values).layout("x")
    places = np.asarray(settings_["tickvals"])
    assert (np.diff(places) > 0).all()
    assert 0.0 in places
    assert len(places) == len(settings_["ticktext"]) <= 16


def test_a_label_on_a_symlog_axis_stands_where_its_number_is():
    axis = axis_for("symlog", np.array([-1000.0, 0.01, 1000.0]))
    labels = dict(zip(axis.layout("")["ticktext"], axis.layout("")["tickvals"], strict=True))
    assert labels["1,000"] == pytest.approx(float(axis.place(np.array(1000.0))))
    assert labels["−1,000"] == pytest.approx(-labels["1,000"])


@pytest.mark.parametrize(("value", "said"), [
    (0, "0"), (1, "1"), (100, "100"), (65504, "65,504"), (1e5, "10<sup>5</sup>"), (-1e-7, "−10<sup>−7</sup>"),
    (2e-9, "2·10<sup>−9</sup>"), (0.05, "0.05"), (-3.0, "−3"),
    (9.999e5, "10<sup>6</sup>"), (999.9, "1,000"), (5e-324, "4.94·10<sup>−324</sup>"),
])
def test_labels_write_powers_of_ten_as_such(value, said):
    assert number(value) == said


@pytest.mark.parametrize(("low", "high"), [(0.3, 3.2), (1e-30, 1e30), (4.0, 4.1), (1.0, 10.0)])
def test_a_colour_bar_has_labels_at_their_numbers_and_within_its_ends(low, high):
    axis = Axis("log")
    bar = ruler(axis, low, high)
    places = np.asarray(bar["tickvals"])
    assert 2 <= len(places) <= 10
    assert (places >= np.log10(low) - 1e-6).all() and (places <= np.log10(high) + 1e-6).all()


def test_an_axis_knows_only_finite_values():
    values = np.array([np.nan, -np.inf, -1.0, 0.0, 2.0, np.inf])
    assert finite_range(values, "linear") == (-1.0, 2.0)
    assert finite_range(values, "symlog") == (-1.0, 2.0)
    assert finite_range(values, "log") == (2.0, 2.0)
    assert finite_range(values[:2], "log") is None


def test_an_unknown_scale_is_refused():
    with pytest.raises(ValueError, match="y_scale is 'cubic'; allowed are linear, log, symlog"):
        axis_for("cubic", np.ones(2))


@pytest.mark.parametrize(("values", "said"), [
    ([1e4, 1e7], ["10<sup>4</sup>", "10<sup>7</sup>"]), ([100.0, 1e4], ["100", "10,000"]),
    ([-1e6, 0.0, 1e6], ["−10<sup>6</sup>", "0", "10<sup>6</sup>"]),
    ([5e4, 1e5], ["5·10<sup>4</sup>", "10<sup>5</sup>"]),
])
def test_the_labels_of_one_axis_are_written_in_one_way(values, said):
    assert numbers(np.array(values)) == said


@pytest.mark.parametrize("decades", [0.01, 0.5, 0.95, 1.0, 1.5, 2.0, 2.2, 3.0, 4.2, 6.0, 12.0, 60.0])
def test_a_log_axis_has_labels_of_one_size_and_not_too_many(decades):
    """Plotly's rule: powers from 0.7 decades a label on, and a quarter larger; below, 1, 2 and 5 down to 0.3."""
    layout = axis_for("log", np.array([3.0, 3.0 * 10.0**decades])).layout("")
    size, share = layout["tickfont"]["size"], 1.1 * decades / layout["nticks"]
    assert size * (1.25 if share > 0.7 else 1.0) == theme.TICK_PX
    assert decades < 1 or share > 0.3
    assert (3 * decades if share < 0.7 else decades / np.ceil(share)) <= 7
    assert layout["tickformatstops"] == [{"dtickrange": [None, "D2"], "value": "~g"}]
