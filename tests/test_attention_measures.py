"""The measures of attention heads against naive loops and closed forms."""

import json
import math
from pathlib import Path

import naive
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core import attention_measures
from core.attention_measures import PATTERNS, general, head_measures, measures_of_scores
from core.sites import Heads
from core.tables import PATTERNS as NAMES
from core.vocabulary import HEAD_MEASURES

ACCEPTANCE = {item["id"]: item for item in json.loads((Path(__file__).parent / "acceptance.json").read_text())["items"]}


def draw(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def measured(q, k, mask, rule):
    found = head_measures(q, k, mask, rule, full=True)
    return dict(zip(HEAD_MEASURES, found.tolist(), strict=True))


def expected(q, k, mask, rule):
    """The same by loops, name → (H,)."""
    q, k = q.double().numpy(), k.double().numpy()
    batch, heads, length, width = q.shape
    real = np.ones((batch, length), bool) if mask is None else mask.numpy()
    visible = real[:, :, None] & real[:, None, :]
    if rule.causal:
        visible &= np.tri(length, dtype=bool)
    choices = visible & (visible.sum(2, keepdims=True) > 1)
    found = {name: [] for name in HEAD_MEASURES}
    for head in range(heads):
        scores = np.einsum("bqk,bnk->bqn", q[:, head], k[:, head]) * rule.scale
        for name, value in naive.head(scores, visible, rule.softcap, rule.pattern).items():
            found[name].append(value)
        found["q_rms"].append(math.sqrt((q[:, head][real] ** 2).sum() / real.sum() / width))
        found["k_rms"].append(math.sqrt((k[:, head][real] ** 2).sum() / real.sum() / width))
        pairs = [naive.cosine(q[b, head, i], k[b, head, j]) for b, i, j in np.argwhere(choices)
                 if naive.has_direction(q[b, head, i]) and naive.has_direction(k[b, head, j])]
        found["qk_cosine"].append(float(np.mean(pairs)) if pairs else math.nan)
    return found


def agree(q, k, mask, rule, rel=1e-5, absolute=2e-6):
    found, wanted = measured(q, k, mask, rule), expected(q, k, mask, rule)
    for name in HEAD_MEASURES:
        assert found[name] == pytest.approx(wanted[name], rel=rel, abs=absolute, nan_ok=True), name


MASKS = {
    "none": None,
    "ragged": torch.arange(9) < torch.tensor([9, 4, 1])[:, None],
    "holes": draw(3, 9, seed=5) > 0,
    "one sequence empty": torch.arange(9) < torch.tensor([0, 9, 2])[:, None],
}


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("softcap", [None, 2.0])
def test_measures_are_those_of_naive_loops(causal, mask, pattern, softcap):
    if pattern == "identity" and not causal and MASKS[mask] is not None:
        assert MASKS[mask] is not None  # padding queries, which do not see themselves, are left out
    agree(2 * draw(3, 2, 9, 5), draw(3, 2, 9, 5, seed=1), MASKS[mask], Heads(0.4, softcap, pattern, causal))


@pytest.mark.parametrize("scale", [0.0, 1e-3, 30.0, 1e5])
def test_measures_hold_from_uniform_to_saturated(scale):
    agree(draw(2, 2, 12, 4), draw(2, 2, 12, 4, seed=1), None, Heads(scale, None, "softmax", True))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_queries_of_any_dtype_are_measured_in_float32_or_wider(dtype):
    q, k = draw(2, 2, 12, 4, dtype=dtype), draw(2, 2, 12, 4, seed=1, dtype=dtype)
    agree(q, k, None, Heads(0.5, None, "softmax", True))


@pytest.mark.parametrize("size", [1e-20, 1e12])
def test_scale_and_alignment_hold_for_vanishing_and_exploding_queries(size):
    q, k = size * draw(2, 2, 6, 4), size * draw(2, 2, 6, 4, seed=1)
    agree(q, k, None, Heads(0.5, None, "softmax", True), absolute=0 if size < 1 else 1e-6)


def test_zero_queries_have_no_direction():
    q, k = draw(1, 1, 6, 4), draw(1, 1, 6, 4, seed=1)
    q[0, 0, 2], k[0, 0, 3] = 0, 0
    agree(q, k, None, Heads(0.5, None, "softmax", True))
    assert math.isnan(measured(0 * q, k, None, Heads(0.5, None, "softmax", True))["qk_cosine"][0])


@pytest.mark.parametrize("length", [1, 2, 3, 8, 64, 257, 1024])
@pytest.mark.parametrize("causal", [True, False])
def test_entropy_norm_is_one_when_uniform_and_zero_when_one_hot_at_every_length(length, causal):
    q, k = draw(1, 1, length, 4), draw(1, 1, length, 4, seed=1)
    for rule in (Heads(1.0, None, "uniform", causal), Heads(0.0, None, "softmax", causal)):
        found = measured(q, k, None, rule)["entropy_norm"][0]
        assert math.isnan(found) if length == 1 else found == pytest.approx(1, abs=1e-6)
    found = measured(q, k, None, Heads(1.0, None, "identity", causal))
    assert found["entropy"][0] == 0
    assert math.isnan(found["entropy_norm"][0]) if length == 1 else found["entropy_norm"][0] == 0
    alike = torch.eye(length)[None, None]
    found = measured(alike, alike, None, Heads(1000.0, None, "softmax", causal))
    assert found["entropy"][0] == pytest.approx(0, abs=1e-6)


def padded(lengths):
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


WAYS = {"the fast way": head_measures, "the general way": general}


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_entropy_norm_is_1_000_when_uniform_and_0_000_when_one_hot_at_every_length_with_padding(way, causal):
    place = list(HEAD_MEASURES).index("entropy_norm")
    for length in range(2, 81):
        lengths = [length, max(2, length // 2), 1]  # a sequence of one token has no choice, and does not count
        alike = torch.eye(length).expand(3, 2, -1, -1).contiguous()
        for scale, shown in ((0.0, "1.000"), (100.0, "0.000")):
            found = WAYS[way](alike, alike, padded(lengths), Heads(scale, None, "softmax", causal))[place]
            assert [f"{value:.3f}" for value in found.tolist()] == 2 * [shown], length


@pytest.mark.parametrize("way", WAYS)
@given(lengths=st.lists(st.integers(1, 24), min_size=1, max_size=3).filter(lambda found: max(found) > 1),
       seed=st.integers(0, 1000), causal=st.booleans(), exponent=st.floats(-8, 8))
def test_entropy_norm_lies_between_0_and_1_whatever_the_scores(way, lengths, seed, causal, exponent):
    q, k = (draw(len(lengths), 2, max(lengths), 4, seed=seed + n) for n in range(2))
    rule = Heads(10**exponent, None, "softmax", causal)
    found = WAYS[way](q, k, padded(lengths), rule)[list(HEAD_MEASURES).index("entropy_norm")]
    assert (found >= 0).all() and (found <= 1 + torch.finfo(torch.float32).eps).all()  # sums over a row are in float32


@pytest.mark.parametrize("length", [int(length) for length in ACCEPTANCE["A05"]["expect"]])
def test_a_uniform_causal_head_has_the_mean_entropy_of_the_closed_form(length):
    found = measured(draw(1, 1, length, 4), draw(1, 1, length, 4), None, Heads(1.0, None, "uniform", True))
    assert found["entropy"][0] == pytest.approx(ACCEPTANCE["A05"]["expect"][str(length)], abs=1e-6)
    assert found["entropy"][0] == pytest.approx(math.lgamma(length + 1) / length, abs=1e-9)
    assert found["entropy_norm"][0] == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("case", ACCEPTANCE["A06"]["expect"])
def test_gaussian_scores_have_the_entropy_of_the_reference(case):
    length, spread = (float(part.partition("=")[2]) for part in case.split(","))
    found = measures_of_scores(spread * draw(4000, int(length)))
    assert float(found["entropy"]) == pytest.approx(ACCEPTANCE["A06"]["expect"][case], abs=0.01)


def test_given_scores_are_measured_per_head_with_what_each_query_sees():
    scores = 3 * draw(2, 3, 5, 7)
    visible = draw(2, 1, 5, 7, seed=3) > -0.3
    visible[0, 0, 2] = False
    visible[1, 0, 1] = torch.arange(7) == 4
    found = measures_of_scores(scores.masked_fill(~visible, -math.inf), visible, softcap=2.0)
    for head in range(3):
        wanted = naive.head(scores[:, head].numpy(), visible[:, 0].numpy(), 2.0)
        assert found.keys() == wanted.keys() - naive.QUERIES.keys()
        for name in found:
            value = wanted[name]
            assert float(found[name][head]) == pytest.approx(value, rel=1e-5, abs=1e-6), name


def test_given_scores_of_one_head_need_no_further_axes():
    scores = draw(6, 8)
    flat, full = measures_of_scores(scores), measures_of_scores(scores[None, None])
    assert list(flat) == list(HEAD_MEASURES)[:7]
    assert all(torch.equal(flat[name], full[name]) and flat[name].shape == (1,) for name in flat)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("given", ["q", "scores"])
def test_a_head_with_a_score_that_is_not_finite_is_undefined_and_the_others_are_not(bad, given):
    q, k = draw(2, 3, 6, 4).abs(), draw(2, 3, 6, 4, seed=1).abs()
    if given == "q":
        q[1, 2, 4, 0] = bad
        found = measured(q, k, None, Heads(0.5, None, "softmax", True))
        assert math.isnan(found["q_rms"][2]) and not math.isnan(found["k_rms"][2])
    else:
        scores = q @ k.transpose(-1, -2)
        scores[1, 2, 4, 3] = bad
        found = {name: values.tolist() for name, values in measures_of_scores(scores).items()}
    for name in list(HEAD_MEASURES)[:7]:
        assert math.isnan(found[name][2]), name
        assert not any(math.isnan(value) for value in found[name][:2]), name


def test_what_stands_at_padding_does_not_matter():
    q, k = draw(3, 2, 9, 5), draw(3, 2, 9, 5, seed=1)
    mask, rule = MASKS["ragged"], Heads(0.4, None, "softmax", True)
    clean = head_measures(q, k, mask, rule)
    for padding in (math.nan, math.inf, 1e30):
        spoilt = [torch.where(mask[:, None, :, None], x, padding) for x in (q, k)]
        assert torch.equal(head_measures(*spoilt, mask, rule), clean)


def test_a_batch_of_padding_alone_is_undefined():
    found = head_measures(draw(2, 2, 4, 3), draw(2, 2, 4, 3), torch.zeros(2, 4, dtype=torch.bool),
                          Heads(1.0, None, "softmax", True))
    assert found.isnan().all()


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("mask", ["none", "ragged"])
@pytest.mark.parametrize("piece", [1, 18, 40, 200, 400])
def test_pieces_of_any_size_give_the_same(monkeypatch, causal, mask, piece):
    q, k, rule = draw(3, 2, 9, 5), draw(3, 2, 9, 5, seed=1), Heads(0.5, None, "softmax", causal)
    whole = general(q, k, MASKS[mask], rule)
    monkeypatch.setattr(attention_measures, "PIECE", piece)
    assert torch.allclose(general(q, k, MASKS[mask], rule), whole, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("shape", [(3, 2, 9), (1, 1, 1), (8, 4, 64), (2, 16, 4096), (1024, 2, 8), (1, 128, 16384)])
@pytest.mark.parametrize("causal", [True, False])
def test_pieces_meet_every_pair_once_and_are_never_larger_than_allowed(shape, causal):
    batch, heads, length = shape
    size, pairs = 1 << 18, 0
    for sequences, queries, keys in attention_measures.pieces(shape, size, causal):
        held = (sequences.stop - sequences.start) * heads * (queries.stop - queries.start) * keys.stop
        assert held <= max(size, heads * length)
        assert keys.start == 0 and keys.stop == (queries.stop if causal else length)
        pairs += (sequences.stop - sequences.start) * (queries.stop - queries.start)
    assert pairs == batch * length


def test_every_pattern_of_the_tables_is_measured():
    assert set(PATTERNS) == set(NAMES)


def test_measuring_makes_no_graph_and_changes_no_argument():
    q, k = draw(1, 1, 6, 4).requires_grad_(), draw(1, 1, 6, 4, seed=1).requires_grad_()
    copies = q.detach().clone(), k.detach().clone()
    state = torch.get_rng_state()
    assert not head_measures(q, k, None, Heads(0.5, None, "softmax", True)).requires_grad
    scores = q.detach()[0] @ k.detach()[0].mT
    copy = scores.clone()
    measures_of_scores(scores)
    assert torch.equal(q, copies[0]) and torch.equal(k, copies[1]) and torch.equal(scores, copy)
    assert torch.equal(torch.get_rng_state(), state)
