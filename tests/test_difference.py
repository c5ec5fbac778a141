"""The largest difference between two runs: found wherever it is, located, and honest about what is not finite."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.difference import largest_difference
from core.experiment import parse
from core.trace import Trace
from core.train import train
from tests.made import snapshot

TINY = {"model": {"n_layers": 2, "d_model": 8, "n_heads": 2}, "input": {"batch": 2, "seq_len": 4},
        "protocol": {"steps": 3}}


def one(step=0, **changes):
    made = replace(snapshot([1.0, 2.0], gradient=[3.0, 4.0], step=step), totals={"lr": 0.1})
    return replace(made, **changes)


def changed(group, name, index, value):
    """A step in which one number is another one."""
    made = one()
    arrays = {key: np.array(values, float) for key, values in getattr(made, group).items()}
    arrays[name][index] = value
    return replace(made, **{group: arrays})


PLACES = {
    "activation": (changed("activations", "rms", 2, 7.0), (1, "resid_post", None, "rms"), 2.0, 7.0),
    "gradient": (changed("gradients", "rms", 0, 7.0), (-1, "embed", None, "grad_rms"), 1.0, 7.0),
    "head": (changed("heads", "entropy", (1, 0), 7.0), (1, "attn", 0, "entropy"), 0.5, 7.0),
    "parameter": (changed("parameters", "weight_norm", 0, 7.0), (0, "layers.0.attn.q.weight", None, "weight_norm"),
                  3.0, 7.0),
    "loss": (one(loss=7.0), (2, "loss", None, "value"), 1.5, 7.0),
    "total": (one(totals={"lr": 7.0}), (None, "all", None, "lr"), 0.1, 7.0),
}


@pytest.mark.parametrize("name", PLACES)
def test_a_number_that_differs_is_found_and_located_as_in_the_tidy_table(name):
    other, place, a, b = PLACES[name]
    found = largest_difference(Trace((one(),)), Trace((other,)))
    assert (found.differing, found.one_sided, found.identical) == (1, 0, False)
    for gap in (found.largest, found.relative):
        assert (gap.layer, gap.site, gap.head, gap.statistic, gap.a, gap.b) == (*place, a, b)
    assert found.largest.absolute == b - a
    assert found.largest.relative == pytest.approx((b - a) / b)


def test_the_same_run_played_twice_is_identical_in_every_number_it_recorded():
    first, second = (Trace(tuple(train(parse(TINY)))) for _ in range(2))
    found = largest_difference(first, second)
    assert found.identical
    assert found.steps == 4
    groups = ("activations", "gradients", "heads", "parameters")
    assert found.compared == sum(1 + len(shot.totals) + sum(np.size(values) for group in groups
                                                            for values in getattr(shot, group).values())
                                 for shot in first.snapshots)


def test_another_seed_differs_from_the_first_step_on():
    other = parse(TINY).with_values({"protocol.seed": 1})
    found = largest_difference(*(Trace(tuple(train(each))) for each in (parse(TINY), other)))
    assert found.same_layout
    assert 0 < found.differing < found.compared
    assert found.relative.relative <= 2 and found.largest.absolute > 0


finite = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(st.tuples(finite, finite), min_size=1, max_size=5))
def test_the_largest_is_the_largest_of_all_steps(pairs):
    a, b = (Trace(tuple(one(step, loss=pair[side]) for step, pair in enumerate(pairs))) for side in (0, 1))
    found = largest_difference(a, b)
    differing = [(x, y) for x, y in pairs if x != y or math.copysign(1, x) != math.copysign(1, y)]
    assert found.differing == len(differing)
    if differing:
        with np.errstate(over="ignore"):
            assert found.largest.absolute == max(np.abs(np.subtract(x, y)) for x, y in differing)
        assert found.relative.relative == max(found_relative(x, y) for x, y in differing)
        assert 0 <= found.relative.relative <= 2
    mirrored = largest_difference(b, a)
    assert (mirrored.differing, mirrored.largest and mirrored.largest.absolute) == (
        found.differing, found.largest and found.largest.absolute)


def found_relative(x, y):
    size = max(abs(x), abs(y))
    return abs(x / size - y / size) if size else 0.0


@pytest.mark.parametrize(("a", "b", "apart"), [
    (math.nan, math.nan, None), (math.inf, math.inf, None), (math.nan, 1.0, True), (1.0, math.inf, True),
    (math.inf, -math.inf, True), (math.nan, math.inf, True), (1.0, 2.0, False),
])
def test_what_is_not_finite_on_one_side_is_counted_apart_and_nan_equals_nan(a, b, apart):
    found = largest_difference(*(Trace((one(loss=value),)) for value in (a, b)))
    assert found.identical == (apart is None)
    assert found.one_sided == bool(apart)
    assert (found.first_one_sided is not None) == bool(apart)
    assert (found.largest is not None) == (apart is False)


def test_nan_with_other_bits_is_still_nan():
    odd = np.array([0x7FF8000000000001], np.uint64).view(np.float64)[0]
    assert largest_difference(*(Trace((one(loss=value),)) for value in (float(odd), math.nan))).identical


def test_steps_that_one_run_alone_recorded_are_counted_and_the_runs_are_not_identical():
    found = largest_difference(Trace((one(0), one(1), one(2))), Trace((one(1), one(4))))
    assert (found.steps, found.only_a, found.only_b, found.differing) == (1, 2, 1, 0)
    assert not found.identical


def test_runs_without_a_common_step_have_compared_nothing():
    found = largest_difference(Trace((one(0),)), Trace((one(1),)))
    assert (found.steps, found.compared, found.identical) == (0, 0, False)


def test_other_layouts_are_said_and_not_compared():
    found = largest_difference(Trace((one(),)), Trace((snapshot([1.0, 2.0, 3.0]),)))
    assert (found.same_layout, found.compared, found.identical) == (False, 0, False)


def test_only_statistics_that_both_recorded_are_compared():
    found = largest_difference(Trace((one(),)), Trace((one(gradients={}),)))
    assert found.differing == 0
    assert found.compared < largest_difference(Trace((one(),)), Trace((one(),))).compared
