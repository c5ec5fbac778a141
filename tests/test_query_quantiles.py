"""The spread of a head's queries: quantiles of their normalized entropy, in laws and against loops."""

import math
from dataclasses import replace

import naive
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import MASK, H, L, Tiny, record

from core import attention_measures, cost, fast_heads, netcdf, query_quantiles, table
from core.attention_measures import PATTERNS, general, head_measures
from core.experiment import parse
from core.recorder import Recorder
from core.sites import Heads
from core.trace import Snapshot, Trace
from core.vocabulary import ENTROPY_QUANTILES, HEAD_MEASURES, HEADS_STANDARD

WAYS = {"the fast way": head_measures, "the general way": general}
NAMES = list(HEAD_MEASURES)
RULES = st.builds(Heads, st.floats(0.01, 100), st.sampled_from([None, None, 3.0]), st.sampled_from(list(PATTERNS)),
                  st.booleans())


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def padded(lengths):
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


def quantiles(way, q, k, mask, rule):
    """(5, H)."""
    found = dict(zip(NAMES, WAYS[way](q, k, mask, rule, True), strict=True))
    return np.stack([found[name].numpy() for name in ENTROPY_QUANTILES])


def by_loops(q, k, mask, rule):
    """The same in float64, row by row."""
    q, k = q.double().numpy(), k.double().numpy()
    batch, heads, length, _ = q.shape
    real = np.ones((batch, length), bool) if mask is None else mask.numpy()
    visible = real[:, :, None] & real[:, None, :] & (np.tri(length, dtype=bool) if rule.causal else True)
    found = [naive.head(np.einsum("bqk,bnk->bqn", q[:, head], k[:, head]) * rule.scale, visible, rule.softcap,
                        rule.pattern) for head in range(heads)]
    return np.array([[one[name] for one in found] for name in ENTROPY_QUANTILES])


def test_the_names_say_which_share_of_the_queries_lies_below():
    assert naive.QUERIES == ENTROPY_QUANTILES
    assert [*HEADS_STANDARD, *ENTROPY_QUANTILES] == NAMES
    assert {HEAD_MEASURES[name].detail for name in ENTROPY_QUANTILES} == {"full"}


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=60)
@given(lengths=st.lists(st.integers(1, 20), min_size=1, max_size=3), seed=st.integers(0, 1000), rule=RULES)
def test_they_are_those_of_naive_loops(way, lengths, seed, rule):
    q, k = (draw(len(lengths), 2, max(lengths), 4, seed=seed + n) for n in range(2))
    found = quantiles(way, q, k, padded(lengths), rule)
    np.testing.assert_allclose(found, by_loops(q, k, padded(lengths), rule), rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("scale", [0.0, 1e-3, 0.4, 30.0])
def test_both_ways_agree_with_loops_over_many_queries(causal, scale):
    q, k, rule = draw(2, 3, 150, 8), draw(2, 3, 150, 8, seed=1), Heads(scale, None, "softmax", causal)
    assert fast_heads.measures(q, k, None, rule, 0.99, True) is not None
    for way in WAYS:
        np.testing.assert_allclose(quantiles(way, q, k, None, rule), by_loops(q, k, None, rule), rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("way", WAYS)
@given(lengths=st.lists(st.integers(1, 24), min_size=1, max_size=3).filter(lambda found: max(found) > 1),
       seed=st.integers(0, 1000), causal=st.booleans(), exponent=st.floats(-8, 8))
def test_they_ascend_from_0_to_1_whatever_the_scores(way, lengths, seed, causal, exponent):
    q, k = (draw(len(lengths), 2, max(lengths), 4, seed=seed + n) for n in range(2))
    found = quantiles(way, q, k, padded(lengths), Heads(10**exponent, None, "softmax", causal))
    assert (found >= 0).all() and (found <= 1).all() and (np.diff(found, axis=0) >= 0).all()


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_all_are_1_000_when_uniform_and_0_000_when_one_hot_at_every_length_with_padding(way, causal):
    for length in range(2, 81):
        alike = torch.eye(length).expand(3, 2, -1, -1).contiguous()
        mask = padded([length, max(2, length // 2), 1])  # a sequence of one token has no choice, and does not count
        for scale, shown in ((0.0, "1.000"), (100.0, "0.000")):
            found = quantiles(way, alike, alike, mask, Heads(scale, None, "softmax", causal))
            assert {f"{value:.3f}" for value in found.ravel()} == {shown}, length


@pytest.mark.parametrize("way", WAYS)
def test_a_head_that_is_half_one_hot_and_half_uniform_is_told_from_one_that_is_halfway(way):
    length = 64
    q, k = torch.eye(length)[None, None].clone(), torch.eye(length)[None, None]
    q[:, :, ::2] = 0  # every second query scores all keys alike
    rule = Heads(100.0, None, "softmax", False)
    found = dict(zip(NAMES, WAYS[way](q, k, None, rule, True)[:, 0].tolist(), strict=True))
    assert found["entropy_norm"] == pytest.approx(0.5, abs=1e-6)
    assert [round(found[name], 3) for name in ENTROPY_QUANTILES] == [0, 0, 0.5, 1, 1]  # between both kinds: halfway


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e36])
def test_a_head_with_a_score_that_is_not_finite_has_none_and_the_others_have(bad):
    q, k = draw(2, 3, 6, 4), draw(2, 3, 6, 4, seed=1)
    q[1, 2, 4, 0] = bad
    for way in WAYS:
        found = quantiles(way, q, k, None, Heads(1e4, None, "softmax", True))
        assert np.isfinite(found[:, :2]).all() and np.isnan(found[:, 2]).all()


@pytest.mark.parametrize("way", WAYS)
def test_where_no_query_has_a_choice_they_are_undefined(way):
    rule = Heads(1.0, None, "softmax", True)
    for mask in (padded([1, 1]), torch.zeros(2, 1, dtype=torch.bool)):
        assert np.isnan(quantiles(way, draw(2, 2, 1, 4), draw(2, 2, 1, 4), mask, rule)).all()


@pytest.mark.parametrize("way", WAYS)
def test_what_stands_at_padding_does_not_matter(way):
    q, k, mask, rule = draw(3, 2, 9, 5), draw(3, 2, 9, 5, seed=1), padded([9, 4, 1]), Heads(1, None, "softmax", True)
    clean = quantiles(way, q, k, mask, rule)
    for padding in (math.nan, math.inf, 1e30):
        spoilt = [torch.where(mask[:, None, :, None], x, padding) for x in (q, k)]
        assert np.array_equal(quantiles(way, *spoilt, mask, rule), clean)


@pytest.mark.parametrize("piece", [1, 40, 200])
def test_pieces_of_any_size_give_the_same(monkeypatch, piece):
    q, k, mask, rule = draw(3, 2, 9, 5), draw(3, 2, 9, 5, seed=1), padded([9, 4, 1]), Heads(1, None, "softmax", True)
    whole = general(q, k, mask, rule, True)
    monkeypatch.setattr(attention_measures, "PIECE", piece)
    assert torch.allclose(general(q, k, mask, rule, True), whole, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("way", WAYS)
def test_the_other_measures_are_what_they_are_without_them(way):
    q, k, mask, rule = draw(3, 2, 9, 5), draw(3, 2, 9, 5, seed=1), padded([9, 4, 2]), Heads(1, None, "softmax", True)
    assert torch.equal(WAYS[way](q, k, mask, rule), WAYS[way](q, k, mask, rule, True)[: len(HEADS_STANDARD)])


def test_on_a_device_nothing_is_fetched():
    q, k = (torch.empty(2, 3, 9, 4, device="meta") for _ in range(2))  # which has no numbers to fetch
    mask = torch.empty(2, 9, dtype=torch.bool, device="meta")
    for given_mask in (None, mask):
        found = general(q, k, given_mask, Heads(1.0, None, "softmax", True), True)
        assert found.device.type == "meta" and found.shape == (len(NAMES), 3)


@given(st.lists(st.floats(0, 1, width=32), min_size=1, max_size=40), st.integers(0, 5))
def test_shares_that_do_not_count_are_left_out(shares, others):
    given_shares = torch.tensor([shares + [query_quantiles.LEFT_OUT] * others, [math.nan] * (len(shares) + others)])
    found = query_quantiles.of_shares(given_shares)
    np.testing.assert_allclose(found[:, 0], np.quantile(shares, list(ENTROPY_QUANTILES.values())), atol=1e-12)
    assert found[:, 1].isnan().all()


# In a record


@pytest.mark.parametrize("mask", [None, MASK])
def test_detail_standard_has_none_and_detail_full_has_them_in_every_layer(mask):
    full, standard = record(Tiny(), mask), record(Tiny(), mask, detail="standard")
    assert list(full.heads) == NAMES and list(standard.heads) == list(HEADS_STANDARD)
    for name in ENTROPY_QUANTILES:
        assert np.isfinite(full.heads[name]).all() and full.heads[name].shape == (L, H)
        assert np.isnan(Trace((standard,)).head(name)).all()
    for name in HEADS_STANDARD:
        assert np.array_equal(full.heads[name], standard.heads[name]), name


def test_a_step_of_another_detail_has_what_it_asked_for():
    model = Tiny()
    with Recorder(model, "standard") as recorder:
        for number, detail in enumerate((None, "full")):
            recorder.begin(detail=detail)
            model(torch.zeros(1, 4, dtype=torch.long))
            assert ("entropy_norm_p50" in recorder.snapshot(number, 0.0).heads) == (detail == "full")


def test_what_was_stored_without_them_still_reads():
    full = record(Tiny())
    old = replace(full, heads={name: full.heads[name] for name in HEADS_STANDARD})  # as detail full was before
    trace = Trace(tuple(Snapshot.from_bytes(stored.to_bytes()) for stored in (old, full)))
    assert [list(shot.heads) for shot in trace.snapshots] == [list(HEADS_STANDARD), NAMES]
    for name in ENTROPY_QUANTILES:
        found = trace.head(name)
        assert np.isnan(found[0]).all() and np.array_equal(found[1], full.heads[name])


def test_they_stand_in_every_export_beside_the_mean():
    full = record(Tiny())
    rows = table.tidy(Trace((full,)), "r").to_pylist()
    for name in ENTROPY_QUANTILES:
        values = {(row["layer"], row["head"]): row["value"] for row in rows if row["statistic"] == name}
        assert values == {(layer, head): full.heads[name][layer, head] for layer in range(L) for head in range(H)}
        variable = netcdf.dataset(netcdf.Recording(Trace((full,)), "r"))[name]
        assert np.array_equal(variable[0], full.heads[name])
        assert variable.attrs == {"units": "share", "long_name": netcdf.DEFINITIONS[name]}


def test_the_cost_knows_that_heads_are_stored():
    few, many = (cost.cost(parse({"model": {"n_heads": heads, "n_layers": 100}})).stored_bytes for heads in (1, 64))
    assert many - few >= 100 * 63 * len(NAMES) * 4
