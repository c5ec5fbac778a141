"""The stack: which sites it has and what they show, placements, scales, embedding and head."""

import math

import pytest
import torch
from stacks import VECTORS, experiment, shown, with_random_constants

from core.corpus import batch
from core.model import build
from core.sites import sites_of
from core.tables import PLACEMENTS
from core.vocabulary import SITES

NAMES = {"norm1", "norm2", "norm1_out", "norm2_out", "attn_sum", "mlp_sum"}

# ── sites ──


@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("sublayers", ["both", "attention", "mlp"])
@pytest.mark.parametrize("norm", ["none", "layernorm"])
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_block_has_the_sites_of_its_placement_and_all_are_seen(placement, norm, sublayers, residual):
    described = experiment(placement=placement, norm=norm, sublayers=sublayers, residual=residual,
                           protocol={"attention": "explicit"})
    stack, seen, _ = shown(described)
    found = {name for layer, name in sites_of(stack, 2) if layer == 1}
    assert found == {name for layer, name in seen if layer == 1}
    numbers = {"both": "12", "attention": "1", "mlp": "2"}[sublayers]
    patterns = {"pre": ["norm{}"], "sandwich": ["norm{}", "norm{}_out"], "branch": ["norm{}_out"], "post": []}
    norms = {pattern.format(n) for pattern in patterns[placement] for n in numbers if norm != "none"}
    summed = placement == "post" and norm != "none" and residual
    sums = {{"1": "attn_sum", "2": "mlp_sum"}[n] for n in numbers if summed}
    assert found & NAMES == norms | sums
    attention = {"q", "k", "v", "attn_scores", "attn_pattern", "attn_out", "resid_mid"}
    assert found & attention == (attention if "1" in numbers else set())
    mlp = {"mlp_pre", "mlp_act", "mlp_out"}
    assert found & mlp == (mlp if "2" in numbers else set())
    assert {"resid_pre", "resid_post"} <= found


def test_what_every_site_shows_has_the_shape_of_the_vocabulary():
    described = experiment(placement="sandwich", n_kv_heads=1, head_dim=5, activation="geglu",
                           protocol={"attention": "explicit"})
    stack, seen, _ = shown(described)
    sizes = {"B": 3, "T": 6, "D": 16, "H": 2, "K": 5, "F": 32, "V": 256}
    assert set(seen) == set(sites_of(stack, 2))
    for (_, name), tensor in seen.items():
        assert tensor.shape == tuple(sizes[axis] for axis in SITES[name].shape.split()), name
        assert tensor.requires_grad


def test_sites_are_found_in_the_order_of_the_forward_pass():
    described = experiment(placement="sandwich", protocol={"attention": "explicit"})
    stack, seen, _ = shown(described)
    assert list(seen) == list(sites_of(stack, 2))


def test_a_site_shows_what_its_name_says():
    described = experiment(placement="post", activation="swiglu", residual_alpha=0.5, branch_scale=2.0, norm="rmsnorm")
    stack, seen, _ = shown(described)
    block, here = stack.layers[0], {name: tensor for (layer, name), tensor in seen.items() if layer == 0}
    torch.testing.assert_close(here["attn_sum"], 0.5 * here["resid_pre"] + here["attn_out"])
    torch.testing.assert_close(here["resid_mid"], block.norm1(here["attn_sum"]))
    torch.testing.assert_close(here["mlp_pre"], block.mlp.gate(here["resid_mid"]))
    hidden = block.mlp.get_submodule("in")(here["resid_mid"])
    torch.testing.assert_close(here["mlp_act"], torch.nn.functional.silu(here["mlp_pre"]) * hidden)
    torch.testing.assert_close(here["mlp_out"], 2 * block.mlp.out(here["mlp_act"]))
    torch.testing.assert_close(here["resid_post"], block.norm2(here["mlp_sum"]))
    assert torch.equal(seen[1, "resid_pre"], here["resid_post"])


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_placement_puts_its_norms_where_it_says(placement):
    described = experiment(placement=placement, norm="layernorm", sublayers="mlp", source=VECTORS)
    stack = with_random_constants(build(described))
    _, seen, _ = shown(described, stack)
    block, x = stack.layers[0], seen[0, "resid_pre"]
    norms = {"norm": getattr(block, "norm2", None), "out": getattr(block, "norm2_out", None)}
    expected = {
        "pre": lambda f: x + f(norms["norm"](x)),
        "post": lambda f: norms["norm"](x + f(x)),
        "sandwich": lambda f: x + norms["out"](f(norms["norm"](x))),
        "branch": lambda f: x + norms["out"](f(x)),
    }[placement](lambda y: block.mlp(y, None))
    torch.testing.assert_close(seen[0, "resid_post"], expected)


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_without_a_residual_the_stream_is_the_branch(placement):
    described = experiment(placement=placement, residual=False, residual_alpha=3.0, source=VECTORS)
    _, seen, _ = shown(described)
    if placement == "post":
        torch.testing.assert_close(seen[1, "resid_post"].mean(-1), torch.zeros(3, 6), rtol=0, atol=1e-6)
    else:
        assert torch.equal(seen[1, "resid_post"], seen[1, "mlp_out"])


def test_final_norm_stands_where_the_canonical_experiment_says():
    for model, present in (({}, True), ({"placement": "post"}, False), ({"norm": "none"}, False),
                           ({"placement": "post", "final_norm": True}, True), ({"final_norm": False}, False)):
        stack = build(experiment(**model))
        assert ("final_norm" in stack.sites) == present
        assert (stack.final_norm is not None) == present


def test_a_layer_may_have_a_norm_of_its_own():
    stack = build(experiment(n_layers=3, layer_norms={"0": "none", "2": "rmsnorm"}))
    assert [type(block.norm1).__name__ for block in stack.layers] == ["NoNorm", "LayerNorm", "RMSNorm"]
    assert ["norm1" in block.sites for block in stack.layers] == [False, True, True]


# ── scales ──


def test_a21_rezero_at_init_is_the_identity():
    described = experiment(branch_scale="rezero", placement="pre", n_layers=4)
    _, seen, _ = shown(described)
    assert torch.equal(seen[3, "resid_post"], seen[-1, "embed"])


@pytest.mark.parametrize(("scale", "factor"), [("layerscale", 0.3), ("inv_sqrt_2L", 1 / math.sqrt(4)), (0.7, 0.7)])
def test_a_branch_scale_multiplies_what_is_added(scale, factor):
    plain, scaled = experiment(source=VECTORS), experiment(source=VECTORS, branch_scale=scale, layerscale_init=0.3)
    _, before, _ = shown(plain)
    _, after, _ = shown(scaled)
    torch.testing.assert_close(after[0, "attn_out"], factor * before[0, "attn_out"])
    torch.testing.assert_close(after[0, "resid_mid"], after[0, "resid_pre"] + after[0, "attn_out"])


def test_learned_scales_are_parameters_one_or_one_a_feature():
    for scale, width in (("rezero", 1), ("layerscale", 16)):
        names = dict(build(experiment(branch_scale=scale)).named_parameters())
        assert names["layers.1.scale1.weight"].shape == names["layers.1.scale2.weight"].shape == (width,)


def test_alpha_multiplies_the_stream():
    for alpha, value in ((0.4, 0.4), ("deepnorm", 4**0.25)):
        _, seen, _ = shown(experiment(source=VECTORS, residual_alpha=alpha))
        expected = value * seen[1, "resid_mid"] + seen[1, "mlp_out"]
        torch.testing.assert_close(seen[1, "resid_post"], expected)


@pytest.mark.parametrize("placement", ["pre", "sandwich"])
def test_depth_scaling_divides_what_the_branch_sees_by_root_layer(placement):
    described = experiment(n_layers=3, placement=placement, depth_scaling="inv_sqrt_layer", norm="rmsnorm")
    _, seen, _ = shown(described)
    for layer in range(3):
        for site in ("norm1", "norm2"):
            rms = seen[layer, site].square().mean().sqrt().item()
            assert rms == pytest.approx((layer + 1) ** -0.5, rel=1e-3)
    if placement == "sandwich":
        assert seen[2, "norm1_out"].square().mean().sqrt().item() == pytest.approx(1, rel=1e-3)


# ── in and out ──


def test_vectors_go_straight_into_layer_zero_and_get_a_gradient():
    described = experiment(source=VECTORS, positions="learned", embed_scale=3.0, embed_norm=True)
    stack, seen, output = shown(described)
    given = batch(described, 0).inputs
    assert torch.equal(seen[-1, "embed"], given)
    assert not given.requires_grad
    assert output.logits is None
    output.x.sum().backward()
    assert seen[-1, "embed"].grad.shape == given.shape
    assert not [name for name, _ in stack.named_parameters() if name.startswith(("embed", "head"))]


def test_the_embedding_is_scaled_then_positions_are_added_then_it_is_normed():
    plain = experiment(embed_scale=4.0)
    stack, seen, _ = shown(plain)
    tokens = batch(plain, 0).inputs
    summed = 4 * stack.embed.token.weight[tokens] + stack.embed.position.weight
    torch.testing.assert_close(seen[-1, "embed"], summed)
    _, normed, _ = shown(experiment(embed_scale=4.0, embed_norm=True))
    torch.testing.assert_close(normed[-1, "embed"], torch.nn.functional.layer_norm(summed, (16,)))


def test_sinusoidal_positions_are_those_of_the_paper():
    plain, waves = experiment(positions="none"), experiment(positions="sinusoidal")
    _, without, _ = shown(plain)
    _, with_waves, _ = shown(waves)
    t, i = torch.arange(6.0)[:, None], torch.arange(0, 16, 2)
    angles = t / 10000 ** (i / 16)
    expected = torch.stack((angles.sin(), angles.cos()), -1).flatten(1)
    added = with_waves[-1, "embed"] - without[-1, "embed"]
    torch.testing.assert_close(added, expected.expand(3, 6, 16), atol=1e-6, rtol=0)


def test_a_tied_head_is_the_embedding_and_adds_no_parameter():
    stack, _, output = shown(experiment(tie_embeddings=True))
    assert "head.weight" not in dict(stack.named_parameters())
    torch.testing.assert_close(output.logits, output.x @ stack.embed.token.weight.T)


def test_the_final_soft_cap_bounds_the_logits_that_are_shown():
    _, plain, _ = shown(experiment())
    _, capped, output = shown(experiment(final_softcap=1.0))
    torch.testing.assert_close(capped[2, "logits"], torch.tanh(plain[2, "logits"]))
    assert capped[2, "logits"] is output.logits


def test_parameters_have_the_names_of_the_design():
    names = [name for name, _ in build(experiment(activation="swiglu")).named_parameters()]
    block = [f"layers.0.{part}.{kind}" for part in ("norm1", "attn.q", "attn.k", "attn.v", "attn.o", "norm2", "mlp.in",
                                                    "mlp.gate", "mlp.out") for kind in ("weight", "bias")]
    assert [name for name in names if name.startswith("layers.0")] == block
    assert [name for name in names if not name.startswith("layers")] == [
        "embed.token.weight", "embed.position.weight", "final_norm.weight", "final_norm.bias", "head.weight"]


def test_without_bias_only_norms_have_one():
    names = [name for name, _ in build(experiment(bias=False)).named_parameters() if name.endswith("bias")]
    assert all("norm" in name for name in names)
