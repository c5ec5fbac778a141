"""What a training's losses say: each verdict, its numbers, and that it can be said."""

import math

import numpy as np
import pytest

from core.experiment import parse
from core.learning import BETTER, CHANGE, LEAST, UNDECIDED, learning
from pages.ui.explain import sentence
from pages.ui.text import LANGUAGES, Words

TOKENS, VECTORS = parse({"protocol": {"steps": 9}}), parse({"input": {"source": "gaussian"}, "protocol": {"steps": 9}})


def judged(losses, experiment=TOKENS, events=()):
    return learning(np.arange(len(losses)), np.array(losses, float), events, experiment)


CHANCE = math.log(256)
SHAPES = {
    "falls": (np.linspace(6, 2, 50), "falls", False),
    "most is learned at once": ([5.7, 4.0, 3.4, *[3.3] * 97], "falls", False),
    "rises": (np.linspace(5, 9, 50), "rises", True),
    "flat at chance": (np.full(50, CHANCE), "chance", False),
    "flat below chance": (np.full(50, 4.0), "flat", False),
    "explodes, then sits at chance": ([5.9, 40.0, *np.geomspace(1e7, 6, 40), *[CHANCE] * 158], "exploded", True),
    "explodes late, ends at chance": ([*np.linspace(5.7, 3, 100), 1e7, *[CHANCE] * 60], "exploded", True),
    "explodes, and stays up": ([5.7, *np.geomspace(5.7, 1e7, 40)], "exploded", True),
    "spikes, then recovers below its start": ([5.7, 5.5, 300.0, 9.0, *np.linspace(6, 3, 40)], "falls", False),
    "starts far above chance, falls to it": (np.geomspace(90, CHANCE, 60), "to_chance", False),
    "starts far above chance, falls below it": (np.geomspace(90, 3, 60), "falls", False),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_each_shape_of_a_loss_is_called_what_it_is(shape):
    losses, code, alarm = SHAPES[shape]
    verdict = judged(losses)
    assert (verdict.code, verdict.alarm) == (f"learning_{code}_tokens", alarm)
    assert verdict.numbers["chance"] == pytest.approx(CHANCE)
    assert verdict.numbers["peak"] == max(losses)


@pytest.mark.parametrize("losses", [[], [5.0] * (LEAST - 1), [5.0] * (LEAST - 1) + [math.nan] * 20])
def test_of_few_finite_losses_nothing_is_said_yet(losses):
    verdict = judged(losses)
    assert (verdict.code, verdict.alarm, verdict.numbers) == ("learning_early", False, {"count": min(len(losses), 9)})


def test_what_is_not_decided_has_no_sign_of_all_being_well():
    undecided = ([], np.full(20, CHANCE), np.full(20, 4.0), np.geomspace(90, 5.5, 60))
    assert {judged(losses).code for losses in undecided} | {"learning_flat"} == UNDECIDED
    assert judged(np.linspace(6, 2, 50)).code not in UNDECIDED


@pytest.mark.parametrize("scale", [1 - 0.5 * BETTER, 1 - 1.5 * BETTER])
def test_a_loss_is_better_than_a_guess_from_the_stated_share_on(scale):
    assert (judged([6.0, *[CHANCE * scale] * 20]).code == "learning_falls_tokens") == (scale < 1 - BETTER)


@pytest.mark.parametrize("factor", [1 - 0.9 * CHANGE, 1 - 1.1 * CHANGE, 1 + 0.9 * CHANGE, 1 + 1.1 * CHANGE])
def test_a_change_counts_from_the_stated_share_on(factor):
    verdict = judged([4.0] * 10 + [4.0 * factor] * 10)
    assert (verdict.code == "learning_flat_tokens") == (abs(factor - 1) < CHANGE)


def test_a_loss_that_is_a_projection_may_fall_below_zero_and_has_no_chance_level():
    verdict = judged(np.linspace(0.5, -30, 40), VECTORS)
    assert verdict.code == "learning_falls" and "chance" not in verdict.numbers
    assert judged([0.0] * 10 + [1.0] * 10, VECTORS).code == "learning_rises"
    assert judged([0.0] * 20, VECTORS).code == "learning_flat"


def test_a_value_that_was_not_finite_is_said_first_and_an_overflow_is_not_one():
    broken = judged([5.0, math.nan], events=[(0, "overflow"), (1, "non_finite")])
    assert (broken.code, broken.alarm, broken.numbers) == ("learning_non_finite", True, {"step": 1.0})
    assert judged(np.full(20, 5.0), events=[(3, "overflow")]).code == "learning_flat_tokens"


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("experiment", [TOKENS, VECTORS])
def test_every_verdict_can_be_said_with_its_numbers(lang, experiment):
    for losses in ([5.0], *(losses for losses, *_ in SHAPES.values())):
        said = sentence(verdict := judged(losses, experiment), Words(lang))
        assert "{" not in said and "NaN" not in said
        assert f"{100 * verdict.thresholds.get('share', 0.05):g} %" in said or len(losses) < LEAST
    assert sentence(judged([1.0], events=[(7, "non_finite")]), Words(lang)).count("7") == 1
