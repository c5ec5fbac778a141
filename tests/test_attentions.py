"""Attention: both protocols, all patterns, and each option against a law of its own."""

import numpy as np
import pytest
import torch

from core import fused
from core.experiment import parse
from core.model import build
from core.tables import PATTERNS
from core.train import train

SMALL = {"n_layers": 1, "d_model": 32, "n_heads": 4, "positions": "none", "norm": "none"}
SITES = ("q", "k", "v", "attn_scores", "attn_pattern")


def attend(mask=None, x=None, protocol=None, change=None, **model):
    """Build a stack of one attention sublayer over vectors and return what its sites show, and its output."""
    document = {"model": {**SMALL, "sublayers": "attention", **model},
                "input": {"source": "gaussian", "seq_len": 6, "batch": 2},
                "protocol": {"attention": "explicit", "dtype": "float64", **(protocol or {})}}
    stack, seen = build(parse(document)), {}
    for site in SITES:
        stack.layers[0].sites[site].register_forward_hook(lambda _m, _i, y, site=site: seen.update({site: y.detach()}))
    if change:
        change(stack)
    stack.layers[0].heads.register_forward_pre_hook(lambda _m, given: seen.update(heads=given))
    seen["out"] = stack(vectors() if x is None else x, mask).x
    return stack, seen


def vectors(length=6, seed=0):
    return torch.randn(2, length, 32, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("options", [{}, {"n_kv_heads": 2}, {"attention_scale": "1/K"}, {"attention_scale": -0.5},
                                     {"attention_scale": 0.0}, {"qk_norm": "rmsnorm"}, {"positions": "rotary"},
                                     {"head_dim": 5}])
def test_fused_and_explicit_give_the_same_output_and_gradients(options, causal, padded, dtype):
    mask = torch.arange(6) < torch.tensor([[6], [4]]) if padded else None
    runs = [attend(mask, protocol={"attention": protocol, "dtype": dtype}, causal=causal, **options)
            for protocol in ("fused", "explicit")]
    tolerance = {"float32": 1e-5, "float64": 1e-12}[dtype]
    torch.testing.assert_close(runs[0][1]["out"], runs[1][1]["out"], rtol=tolerance, atol=tolerance)
    for _, seen in runs:
        seen["out"].square().sum().backward()
    for (name, one), other in zip(runs[0][0].named_parameters(), runs[1][0].parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=20 * tolerance, atol=20 * tolerance, msg=name)


def test_fused_shows_neither_scores_nor_pattern():
    _, seen = attend(protocol={"attention": "fused"})
    assert set(seen) == {"q", "k", "v", "heads", "out"}


def test_scores_are_scaled_and_taken_before_the_soft_cap():
    _, plain = attend(attention_scale=0.3)
    torch.testing.assert_close(plain["attn_scores"], 0.3 * plain["q"] @ plain["k"].transpose(-2, -1))
    _, capped = attend(attention_scale=0.3, attn_softcap=1.0)
    assert torch.equal(capped["attn_scores"], plain["attn_scores"])
    assert plain["attn_scores"].abs().max() > 1


def test_a_soft_cap_bounds_what_the_softmax_sees():
    _, seen = attend(attn_softcap=2.0, qk_gain=10.0, causal=False)
    torch.testing.assert_close(seen["attn_pattern"], (2 * torch.tanh(seen["attn_scores"] / 2)).softmax(-1))


def test_a_wide_soft_cap_changes_nothing():
    _, plain = attend()
    _, capped = attend(attn_softcap=1000.0)
    torch.testing.assert_close(plain["out"], capped["out"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("scale", "value"), [(None, 8**-0.5), ("1/K", 1 / 8), (0.7, 0.7)])
def test_the_scale_is_one_over_root_k_one_over_k_or_the_number_given(scale, value):
    stack, seen = attend(attention_scale=scale)
    torch.testing.assert_close(seen["attn_scores"], value * seen["q"] @ seen["k"].transpose(-2, -1))
    assert stack.layers[0].heads.scale == pytest.approx(value)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_pattern_is_a_distribution_over_the_visible_keys(pattern, padded, causal):
    mask = torch.arange(6) < torch.tensor([[6], [4]]) if padded else None
    _, seen = attend(mask, pattern=pattern, causal=causal)
    real = torch.ones(2, 6, dtype=torch.bool) if mask is None else mask
    visible = (torch.ones(6, 6).tril().bool() if causal else torch.ones(6, 6).bool()) & real[:, None, None, :]
    p = seen["attn_pattern"]
    assert p.shape == (2, 4, 6, 6)
    torch.testing.assert_close(p.sum(-1), torch.ones(2, 4, 6, dtype=p.dtype))
    rows = real[:, None, :, None].expand(p.shape)
    assert p[rows & ~visible.expand(p.shape)].abs().sum() == 0
    expected = {"uniform": visible / visible.sum(-1, keepdim=True), "identity": torch.eye(6)}.get(pattern)
    if expected is not None:
        torch.testing.assert_close(p, expected.expand(p.shape), check_dtype=False)


def test_the_uniform_pattern_averages_the_values_and_the_identity_returns_them():
    _, uniform = attend(pattern="uniform", causal=False)
    stack, identity = attend(pattern="identity")
    mean = uniform["v"].mean(2, keepdim=True).expand_as(uniform["v"]).transpose(1, 2).flatten(2)
    out = stack.layers[0].attn.o
    torch.testing.assert_close(uniform["out"] - vectors(), out(mean), atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(identity["out"] - vectors(), out(identity["v"].transpose(1, 2).flatten(2)))


@pytest.mark.parametrize("pattern", PATTERNS)
def test_scores_and_pattern_have_gradients_where_they_matter(pattern):
    gradients = {}

    def watch(stack):
        stack.layers[0].sites["attn_pattern"].register_forward_hook(
            lambda _m, _i, y: y.register_hook(lambda gradient: gradients.update(pattern=gradient)) and None)

    _, seen = attend(pattern=pattern, change=watch)
    seen["out"].sum().backward()
    assert gradients["pattern"].shape == (2, 4, 6, 6)
    assert gradients["pattern"].abs().sum() > 0


def test_shared_keys_and_values_are_those_of_repeated_weights():
    shared, _ = attend(n_kv_heads=2)
    full, _ = attend()
    with torch.no_grad():
        for part in "qo":
            getattr(full.layers[0].attn, part).weight.copy_(getattr(shared.layers[0].attn, part).weight)
        for part in "kv":
            weight = getattr(shared.layers[0].attn, part).weight
            repeated = weight.unflatten(0, (2, 8)).repeat_interleave(2, 0).flatten(0, 1)
            getattr(full.layers[0].attn, part).weight.copy_(repeated)
    torch.testing.assert_close(shared(vectors()).x, full(vectors()).x)


def test_keys_and_values_are_shown_repeated_over_the_heads():
    _, seen = attend(n_kv_heads=1)
    assert seen["k"].shape == seen["v"].shape == seen["q"].shape == (2, 4, 6, 8)
    assert torch.equal(seen["k"][:, 0], seen["k"][:, 3])


def test_heads_are_shown_queries_keys_and_mask():
    mask = torch.arange(6) < torch.tensor([[6], [4]])
    stack, seen = attend(mask, n_kv_heads=2, attn_softcap=5.0, causal=False)
    q, k, given = seen["heads"]
    assert torch.equal(q, seen["q"])
    assert torch.equal(k, seen["k"])
    assert given is mask
    heads = stack.layers[0].heads
    assert (heads.softcap, heads.pattern, heads.causal) == (5.0, "softmax", False)


@pytest.mark.parametrize("name", ["rmsnorm", "layernorm"])
@pytest.mark.parametrize(("scope", "width"), [("head", 8), ("full", 32)])
def test_qk_norm_acts_over_a_head_or_over_all_heads(scope, width, name):
    stack, seen = attend(qk_norm=name, qk_norm_scope=scope, norm_eps=0.0)
    assert stack.layers[0].attn.q_norm.weight.shape == (width,)
    for site in "qk":
        x = seen[site].transpose(1, 2)
        x = x if scope == "head" else x.flatten(2)
        torch.testing.assert_close(x.square().mean(-1), torch.ones(x.shape[:-1], dtype=x.dtype))


def test_qk_norm_bounds_the_scores_by_root_k():
    _, seen = attend(qk_norm="rmsnorm", qk_gain=50.0)
    assert seen["attn_scores"].abs().max() <= 8**0.5 * (1 + 1e-6)


def test_qk_norm_follows_the_fields_of_the_norms():
    stack, _ = attend(qk_norm="rmsnorm", norm_affine=False, norm_eps=0.25, norm_dtype="compute")
    assert stack.layers[0].attn.q_norm.weight is None
    assert stack.layers[0].attn.q_norm.settings.eps == 0.25
    assert stack.layers[0].attn.q_norm.settings.naive


def test_rotary_scores_depend_on_the_difference_of_positions_only():
    same = vectors()[:, :1].expand(2, 6, 32)
    _, seen = attend(x=same, positions="rotary", causal=False)
    scores = seen["attn_scores"]
    for offset in range(-5, 6):
        diagonal = scores.diagonal(offset, -2, -1)
        torch.testing.assert_close(diagonal, diagonal[..., :1].expand_as(diagonal))
    assert (scores[..., 0, 0] - scores[..., 0, 3]).abs().min() > 1e-4


def test_rotary_turns_after_qk_norm_and_keeps_lengths():
    _, plain = attend(qk_norm="layernorm")
    _, turned = attend(qk_norm="layernorm", positions="rotary")
    torch.testing.assert_close(plain["q"].norm(dim=-1), turned["q"].norm(dim=-1))
    torch.testing.assert_close(plain["q"][:, :, 0], turned["q"][:, :, 0])
    assert not torch.allclose(plain["q"][:, :, 1], turned["q"][:, :, 1])


def test_rotary_turns_pairs_by_the_angle_of_theta():
    _, plain = attend()
    _, turned = attend(positions="rotary", rope_theta=100.0)
    pairs = [torch.complex(*seen["k"].chunk(2, -1)) for seen in (plain, turned)]
    angles = torch.arange(6)[:, None] * 100.0 ** (-torch.arange(4, dtype=torch.float64) / 4)
    torch.testing.assert_close(pairs[1], pairs[0] * torch.polar(torch.ones_like(angles), angles))


def test_dropout_falls_on_the_pattern_after_it_was_shown():
    stack, seen = attend(dropout=0.5)
    torch.testing.assert_close(seen["attn_pattern"].sum(-1), torch.ones(2, 4, 6, dtype=torch.float64))
    stack.eval()
    assert torch.equal(stack(vectors()).x, stack(vectors()).x)
    stack.train()
    assert not torch.equal(stack(vectors()).x, stack(vectors()).x)


@pytest.mark.parametrize("protocol", ["fused", "explicit"])
@pytest.mark.parametrize("padded", [False, True])
def test_dropout_on_the_pattern_shows_no_query_what_comes_later(padded, protocol):
    mask, outputs = torch.arange(6) < torch.tensor([[6], [4]]) if padded else None, []
    for moved in (0.0, 3.0):
        x = vectors()
        x[0, 4:] += moved
        x[1, 4 if padded else 5:] += moved
        with torch.random.fork_rng():
            torch.manual_seed(0)
            outputs.append(attend(mask, x, {"attention": protocol}, dropout=0.5)[1]["out"])
    same = (outputs[0] == outputs[1]).all(-1)
    assert same[0].tolist() == 4 * [True] + 2 * [False]
    assert same[1].tolist() == (4 * [True] + 2 * [False] if padded else 5 * [True] + [False])


@pytest.mark.parametrize(("size", "rounding"), [(1.0, 1e-5), (1e2, 1e-4), (1e4, 1e-2)])
@pytest.mark.parametrize("causal", [True, False])
def test_fused_gradients_are_those_of_the_written_out_softmax_at_any_scale(size, rounding, causal):
    given = [torch.randn(2, 3, 40, 8, generator=torch.Generator().manual_seed(n)) for n in range(4)]
    q, k, v = (x.mul(size if n < 1 else 1).requires_grad_() for n, x in enumerate(given[:3]))
    fused.attention(q, k, v, None, causal, 0.5).backward(given[3])
    q64, k64, v64 = (x.detach().double().requires_grad_() for x in (q, k, v))
    scores = (q64 * 0.5) @ k64.transpose(-2, -1)
    if causal:
        scores = scores.masked_fill(~torch.ones(40, 40, dtype=torch.bool).tril(), -torch.inf)
    (scores.softmax(-1) @ v64).backward(given[3].double())
    for found, exact in zip((q, k, v), (q64, k64, v64), strict=True):
        assert found.grad.isfinite().all()
        error = (found.grad - exact.grad).abs().max() / exact.grad.abs().max()
        assert error < rounding


@pytest.mark.parametrize("causal", [True, False])
def test_fused_gradients_pass_the_gradient_check_in_pieces(causal, monkeypatch):
    monkeypatch.setattr(fused, "PIECE", 7)
    given = [torch.randn(1, 2, 5, 3, generator=torch.Generator().manual_seed(n), dtype=torch.float64).requires_grad_()
             for n in range(3)]
    assert torch.autograd.gradcheck(lambda q, k, v: fused.attention(q, k, v, None, causal, 0.7), given)


def test_a_stack_that_explodes_has_finite_gradients_when_they_are_finite():
    snapshot = next(train(parse({"model": {"norm": "none", "n_layers": 24, "d_model": 32}, "input": {"batch": 2}})))
    assert snapshot.activations["rms"][-1] > 1e4
    assert snapshot.non_finite is None


def test_head_measures_of_written_out_scores_show_what_overflowed_in_the_run():
    document = {"model": {"n_layers": 1, "d_model": 64, "qk_gain": 100, "init_gain": 1.5, "causal": False},
                "input": {"source": "gaussian", "batch": 2, "seq_len": 16},
                "protocol": {"dtype": "float16", "attention": "explicit"}}
    snapshot = next(train(parse(document)))
    row = snapshot.layout.sites.index((0, "attn_scores"))
    assert snapshot.activations["n_posinf"][row] + snapshot.activations["n_neginf"][row] > 0
    assert not np.isfinite(snapshot.heads["score_absmax"]).all()
