"""What a training's losses say: each verdict, its numbers, and that it can be said."""

import math

import numpy as np
import pytest

from core.experiment import parse
from core.learning import CHANGE, LEAST, learning
from pages.ui.explain import sentence
from pages.ui.text import LANGUAGES, Words

TOKENS, VECTORS = parse({"protocol": {"steps": 9}}), parse({"input": {"source": "gaussian"}, "protocol": {"steps": 9}})


def judged(losses, experiment=TOKENS, events=()):
    return learning(np.arange(len(losses)), np.array(losses, float), events, experiment)


@pytest.mark.parametrize(("losses", "code", "alarm"), [
    (np.linspace(6, 2, 50), "learning_falls_tokens", False), (np.full(50, 5.5), "learning_flat_tokens", False),
    (np.linspace(5, 9, 50), "learning_rises_tokens", True), ([5.0] * (LEAST - 1), "learning_early", False),
    ([], "learning_early", False),
])
def test_the_ends_of_the_losses_are_compared(losses, code, alarm):
    verdict = judged(losses)
    assert (verdict.code, verdict.alarm) == (code, alarm)
    if "chance" in verdict.numbers:
        assert verdict.numbers["chance"] == pytest.approx(math.log(256))


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
@pytest.mark.parametrize("losses", [np.linspace(6, 2, 50), np.full(50, 5.5), np.linspace(5, 9, 50), [5.0]])
@pytest.mark.parametrize("experiment", [TOKENS, VECTORS])
def test_every_verdict_can_be_said_with_its_numbers(lang, losses, experiment):
    said = sentence(judged(losses, experiment), Words(lang))
    assert "{" not in said and ("5 %" in said or len(losses) < LEAST)
    assert sentence(judged([1.0], events=[(7, "non_finite")]), Words(lang)).count("7") == 1
