"""The verdicts on looks: each code on the stack that earns it, with numbers that are the look's own."""

import numpy as np
import pytest

from core import batch_verdicts, leak_verdicts
from core.look import CompanionShift, EvaluationGap, PaddingShift, SampleLeak, TokenLeak
from core.trace import Trace
from core.train import train
from pages.ui import explain
from pages.ui.text import LANGUAGES, Words
from tests.test_looks import PER_TOKEN, described, found

BATCHNORM = {"model.norm": "batchnorm"}
TOKEN = TokenLeak(1, 4)
LEAKS = [
    *((TOKEN, {"model.norm": norm}, "leak_none", "leak_per_token") for norm in PER_TOKEN),
    (TOKEN, BATCHNORM, "leak_both", "leak_pooled"),
    (TOKEN, BATCHNORM | {"protocol.mode": "eval"}, "leak_none", "leak_running"),
    (TOKEN, BATCHNORM | {"input.batch": 2, "model.causal": False}, "leak_samples", "leak_pooled"),
    (TokenLeak(0, 4), BATCHNORM | {"input.batch": 1}, "leak_past", "leak_pooled"),
    (SampleLeak(1), BATCHNORM, "leak_samples", "leak_pooled"),
    (SampleLeak(0), {"input.batch": 1}, "leak_nobody", "leak_per_token"),
    (TokenLeak(1, 7), {"input.lengths": (10, 5, 10)}, "leak_padding", "leak_per_token"),
    (TokenLeak(1, 7), BATCHNORM | {"input.lengths": (10, 5, 10)}, "leak_padding", "leak_pooled"),
    (TokenLeak(1, 7), BATCHNORM | {"input.lengths": (10, 5, 10), "model.bn_padding": "pooled"}, "leak_both",
     "leak_pooled"),
    (TOKEN, {"model.norm": "none", "model.init_gain": 100.0, "model.n_layers": 24}, "leak_undefined",
     "leak_per_token"),
]
MOVES = [
    (CompanionShift(), {"model.norm": "none"}, ["companions_exact", "companions_rounding"]),
    (CompanionShift(), {}, ["companions_exact", "companions_rounding"]),
    (CompanionShift(), BATCHNORM, ["companions_tied"]),
    (CompanionShift(), BATCHNORM | {"input.seq_len": 1, "input.batch": 8}, ["companions_tied"]),
    (CompanionShift(), BATCHNORM | {"protocol.mode": "eval"}, ["companions_exact", "companions_rounding"]),
    (PaddingShift(), {}, ["padding_exact"]),
    (PaddingShift(), {"model.norm": "none"}, ["padding_none"]),
    (PaddingShift(), BATCHNORM, ["padding_rounding", "padding_exact"]),
    (PaddingShift(), BATCHNORM | {"input.batch": 1, "input.seq_len": 4}, ["padding_undefined"]),
    (PaddingShift(), BATCHNORM | {"model.bn_padding": "pooled"}, ["padding_shifts"]),
]
JUDGES = {CompanionShift: batch_verdicts.companions, PaddingShift: batch_verdicts.padding}


def said(verdict):
    """Every sentence of a verdict, in all languages, with no placeholder left empty."""
    for lang in LANGUAGES:
        t = Words(lang)
        sentence = explain.sentence(verdict, t)
        assert t("drift.colon") in sentence or sentence.startswith(t(f"verdict.{verdict.code}")[:4])
        assert "{" not in sentence and "  " not in sentence and "NaN" not in sentence
        assert not verdict.expected or t(f"expected.{verdict.expected}")


@pytest.mark.parametrize(("look", "changes", "code", "expected"), LEAKS, ids=[f"{one[2]}{n}" for n, one in
                                                                                enumerate(LEAKS)])
def test_a_leak_is_called_what_it_is(look, changes, code, expected):
    verdict = leak_verdicts.leak(found(look, changes), described(changes), look)
    assert (verdict.code, verdict.expected) == (code, expected)
    assert verdict.alarm == (code in ("leak_past", "leak_samples", "leak_both"))
    said(verdict)


def test_the_numbers_of_a_leak_are_the_largest_over_all_layers_relative_to_the_stream():
    seen = found(TOKEN, BATCHNORM)
    numbers = leak_verdicts.leak(seen, described(BATCHNORM), TOKEN).numbers
    for group in ("earlier", "others"):
        assert numbers[group] == max(change / level for change, level in zip(seen[group], seen["level"], strict=True))


def test_exactly_nothing_and_the_smallest_number_are_told_apart():
    seen = {name: np.array(values) for name, values in found(TOKEN, {}).items()}
    assert leak_verdicts.leak(seen, described({}), TOKEN).code == "leak_none"
    seen["others"][1] = 1e-30
    verdict = leak_verdicts.leak(seen, described({}), TOKEN)
    assert (verdict.code, verdict.alarm) == ("leak_samples", True)
    assert leak_verdicts.relative(seen, "others").tolist()[0] == 0 < leak_verdicts.relative(seen, "others")[1]


@pytest.mark.parametrize(("look", "changes", "codes"), MOVES, ids=[f"{one[2][0]}{n}" for n, one in enumerate(MOVES)])
def test_what_companions_and_padding_move_is_called_what_it_is(look, changes, codes):
    for verdict in JUDGES[type(look)](found(look, changes), described(changes)):
        assert verdict.code in (*codes, "companions_refused", "companions_two")
        assert verdict.alarm == (not verdict.code.endswith(("exact", "rounding", "none", "undefined")))
        said(verdict)


def test_one_and_two_tokens_have_verdicts_of_their_own():
    changes = BATCHNORM | {"input.seq_len": 1, "input.batch": 8}
    codes = [one.code for one in batch_verdicts.companions(found(CompanionShift(), changes), described(changes))]
    assert codes == ["companions_tied", "companions_refused", "companions_two"]
    evaluated = changes | {"protocol.mode": "eval"}
    (verdict,) = batch_verdicts.companions(found(CompanionShift(), evaluated), described(evaluated))
    assert verdict.expected == "companions_running" and not verdict.alarm


def trained(changes):
    experiment = described(changes | {"protocol.steps": 40, "protocol.record_every": 10})
    return Trace(tuple(train(experiment, look=EvaluationGap())))


@pytest.mark.parametrize(("changes", "code"), [
    ({}, "gap_none"), ({"model.norm": "none"}, "gap_none"), (BATCHNORM, "gap_open"),
    (BATCHNORM | {"model.bn_momentum": 0.0}, "gap_open"), ({"model.dropout": 0.3}, "gap_open"),
    (BATCHNORM | {"protocol.lr": 0.0, "input.batch": 256, "input.seq_len": 16, "model.n_layers": 1}, "gap_closed"),
], ids=str)
def test_a_gap_is_called_what_it_is(changes, code):
    trace = trained(changes)
    (verdict,) = batch_verdicts.gap(trace)
    gaps = batch_verdicts.over_steps(trace, "gap")
    assert (verdict.code, verdict.alarm) == (code, code == "gap_open")
    assert (verdict.numbers["start"], verdict.numbers["last"]) == (gaps[0].max(), gaps[-1].max())
    said(verdict)


def test_running_statistics_that_never_move_leave_the_gap_as_it_was():
    frozen, moving = (batch_verdicts.gap(trained(BATCHNORM | {"model.bn_momentum": momentum}))[0].numbers
                      for momentum in (0.0, 0.1))
    assert moving["last"] < 0.5 * frozen["last"] and moving["start"] == frozen["start"]
