"""The view over time and its verdict: the lines are the recorded numbers, what is missing is said, growth is judged."""

import math
from dataclasses import replace

import numpy as np
import pytest
from probes import probed

from core.experiment import parse
from core.time_verdicts import over_time
from core.trace import Trace
from core.train import train
from pages.ui import explain
from pages.ui.places import DRIFT, GRADIENTS
from pages.ui.text import LANGUAGES, Words
from pages.ui.views import GRADIENT_VIEWS, VIEWS
from pages.ui.views import over_time as view

SMALL = {"model.family": "lstm", "model.n_layers": 3, "model.d_model": 16, "input.batch": 2, "input.seq_len": 16}
EN = Words("en")


def pictures(measured, table=VIEWS, place=DRIFT, **shown):
    return table["time"].make(measured, place.defaults | shown, EN)


@pytest.fixture(scope="module")
def pair():
    return [probed("with", SMALL, {}), probed("without", SMALL, {"model.norm": "none"})]


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("moment", ["mean", "rms", "absmax"])
@pytest.mark.parametrize("gate", ["gate_f", "cell", "hidden"])
def test_the_lines_are_the_recorded_numbers(pair, gate, moment, gradient):
    shown = {"gate": gate, "moment": moment, "of": "gradient" if gradient else "forward", "depth": "1", "who": "1",
             "scale": "linear"}
    by_variant, by_layer = pictures(pair, **shown)
    for line, one in zip(by_variant.figure.data[::2], pair, strict=False):
        recorded = one.trace.snapshots[0].over_steps(1, gate, moment, gradient)
        np.testing.assert_array_equal(np.asarray(line.y, float), recorded)
        assert np.asarray(line.x).tolist() == list(range(16))
    for layer, line in enumerate(by_layer.figure.data[:6:2]):
        recorded = pair[1].trace.snapshots[0].over_steps(layer, gate, moment, gradient)
        np.testing.assert_array_equal(np.asarray(line.y, float), recorded)
    assert by_layer.columns()[EN("time.step")] == list(range(16))


def test_the_gradients_page_shows_gradients(pair):
    by_variant, _ = pictures(pair, GRADIENT_VIEWS, GRADIENTS, scale="linear")
    recorded = pair[0].trace.snapshots[0].over_steps(2, "hidden", "rms", True)
    np.testing.assert_array_equal(np.asarray(by_variant.figure.data[0].y, float), recorded)


@pytest.mark.parametrize(("changes", "gate", "said"), [
    ({"model.family": "transformer"}, "hidden", "reads all tokens at once: it has no time steps"),
    ({"model.family": "gru"}, "cell", "this configuration has no site cell"),
    ({"protocol.detail": "standard"}, "hidden", "recorded in detail full only"),
])
def test_what_has_no_line_says_why(pair, changes, gate, said):
    without = probed("other", SMALL, changes)
    for picture in pictures([without], gate=gate):
        assert picture.figure is None and said in " ".join(picture.remarks)
    beside, _ = pictures([pair[0], without], gate=gate)
    assert beside.figure is not None and said in " ".join(beside.remarks) and "other" in " ".join(beside.remarks)


def test_seven_variants_and_many_layers_stay_within_the_traces_of_a_chart():
    many = [probed(str(number), SMALL | {"input.seq_len": 4}, {"model.init_gain": 1.0 + number, "model.n_layers": 40})
            for number in range(7)]
    by_variant, by_layer = pictures(many)
    assert len(by_variant.figure.data) <= 60 and len(by_layer.figure.data) <= 60
    assert len(by_layer.figure.data) == 2 * view.MOST_LAYERS + 1
    assert EN("time.some_layers", count=view.MOST_LAYERS) in by_layer.remarks


def test_a_long_sequence_says_which_time_steps_it_shows():
    (by_variant, _) = pictures([probed("long", SMALL | {"model.n_layers": 1, "input.seq_len": 300}, {})])
    assert EN("time.thinned", kept=256) in by_variant.remarks and len(by_variant.figure.data[0].x) == 256


# ── the verdict ──


def made(values, gradient=False, times=None):
    """A trace whose hidden state has this RMS at each time step, forward or as its gradient."""
    (snapshot,) = train(parse({}).with_values(SMALL | {"model.n_layers": 1, "input.seq_len": len(values)}))
    numbers = snapshot.over_time.astype(np.float64)
    numbers[int(gradient), snapshot.layout.over_time.index((0, "hidden")), 1] = values
    steps = snapshot.time_steps if times is None else np.array(times, np.int32)
    return Trace((replace(snapshot, over_time=numbers, time_steps=steps),))


TIMES = np.arange(32)
CASES = {
    "steady": (np.ones(32), False), "exploding": (1.2 ** TIMES, True), "vanishing": (0.8 ** TIMES, True),
    "growing": (np.minimum(TIMES + 1.0, 3), False), "shrinking": (1 / np.minimum(TIMES + 1.0, 3), False),
    "zero": (np.zeros(32), False), "undefined": (np.r_[0.0, np.ones(31)], True),
    "non_finite": (np.r_[np.ones(20), np.nan, np.ones(11)], True), "single": (np.ones(1), False),
}
"""Code → a size over time in the direction of flow, and whether it is an alarm."""


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("code", CASES)
def test_a_size_over_time_is_judged_in_the_direction_of_flow(code, gradient):
    values, alarm = CASES[code]
    trace = made(values[::-1] if gradient else values, gradient)
    found = over_time(trace, "hidden", 0, gradient)
    assert (found.code, found.alarm) == (f"{'gradient_' if gradient else ''}time_{code}", alarm)
    for lang in LANGUAGES:
        assert explain.sentence(found, Words(lang))


def test_the_factor_per_time_step_is_that_of_the_exponential():
    found = over_time(made(0.9 ** TIMES), "hidden", 0)
    assert found.numbers["per_step"] == pytest.approx(0.9) and found.numbers["growth"] == pytest.approx(0.9**31)
    assert (found.numbers["first_step"], found.numbers["last_step"]) == (0, 31)
    backward = over_time(made(0.9 ** TIMES, gradient=True), "hidden", 0, gradient=True)
    assert backward.numbers["per_step"] == pytest.approx(1 / 0.9) and backward.numbers["first_step"] == 31


@pytest.mark.parametrize(("lang", "fitted", "average"), [("en", "fitted: ", "average"), ("zh", "拟合：", "平均")])
def test_a_factor_per_time_step_that_is_fitted_is_not_called_the_average(lang, fitted, average):
    values = np.minimum(0.1 + TIMES, 4.0)  # fills, then stays: the fit is far below the average
    found = over_time(made(values), "hidden", 0)
    assert found.numbers["per_step"] < 0.95 * found.numbers["growth"] ** (1 / 31)
    for code in CASES:
        said = explain.sentence(over_time(made(CASES[code][0]), "hidden", 0), Words(lang))
        assert average not in said and ("×" in said) == (fitted in said)


def test_time_steps_that_are_left_out_count_in_the_factor():
    found = over_time(made(0.9 ** (2.0 * TIMES), times=2 * TIMES), "hidden", 0)
    assert found.numbers["per_step"] == pytest.approx(0.9)


def test_the_first_time_step_that_is_not_finite_is_named_in_the_direction_of_flow():
    values = np.ones(32)
    values[[5, 20]] = np.nan
    assert over_time(made(values), "hidden", 0).numbers["bad_step"] == 5
    assert over_time(made(values, gradient=True), "hidden", 0, gradient=True).numbers["bad_step"] == 20


@pytest.mark.parametrize(("changes", "code"), [
    ({"model.family": "transformer"}, "nothing_absent"), ({"protocol.detail": "standard"}, "nothing_not_taken")])
def test_where_nothing_was_taken_nothing_is_judged(changes, code):
    trace = Trace(tuple(train(parse({}).with_values(SMALL | changes))))
    assert over_time(trace, "hidden", 0).code == code


def test_a_norm_in_the_cell_makes_gradients_explode_back_in_time_at_initialization():
    base = {"model.family": "lstm", "model.n_layers": 4, "input.batch": 2}
    found = {norm: over_time(probed(norm, base, {"model.norm": norm}).trace, "hidden", 0, gradient=True)
             for norm in ("layernorm", "none")}
    assert found["layernorm"].code == "gradient_time_exploding" and found["layernorm"].numbers["growth"] > 100
    assert not found["none"].alarm and found["none"].numbers["growth"] < 30
    assert math.isfinite(found["none"].numbers["per_step"])
