"""The stack as a whole: torch's own layer, sites, placements, residual scales, padding, causality, every combination."""

import copy
import math

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.corpus import batch
from core.cost import parameters
from core.experiment import parse
from core.fields import ExperimentError
from core.model import build
from core.sites import sites_of
from core.tables import ACTIVATIONS, INITS, NORMS, PATTERNS, PLACEMENTS, POSITIONS, QK_NORMS, SOURCES
from core.vocabulary import SITES

SMALL = {"n_layers": 2, "d_model": 16, "n_heads": 2, "d_ff": 32}
VECTORS = {"source": "gaussian", "seq_len": 6, "batch": 3}
TOKENS = {"source": "tokens", "seq_len": 6, "batch": 3}
NAMES = {"norm1", "norm2", "norm1_out", "norm2_out", "attn_sum", "mlp_sum"}


def experiment(source=TOKENS, protocol=None, **model):
    return parse({"model": {**SMALL, **model}, "input": source, "protocol": protocol or {}})


def watched(stack):
    """Hook every site of `stack`; return what they show, by path, filled at each forward pass."""
    seen = {}
    for (layer, name), site in sites_of(stack, len(stack.layers)).items():
        site.register_forward_hook(lambda _m, _i, y, key=(layer, name): seen.update({key: y}))
    return seen


def shown(description, stack=None, step=0):
    stack = stack or build(description)
    seen, data = watched(stack), batch(description, step)
    return stack, seen, stack(data.inputs, data.mask)


# ── torch's own layer ──


@pytest.mark.parametrize("mode", ["free", "causal", "padded"])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-6), ("float64", 1e-12)])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("placement", ["pre", "post"])
def test_every_block_equals_torchs_own_encoder_layer(placement, activation, dtype, tolerance, mode):
    lengths = [6, 4, 3] if mode == "padded" else None
    described = experiment({**VECTORS, "lengths": lengths}, {"dtype": dtype}, n_layers=3, placement=placement,
                           activation=activation, causal=mode == "causal", positions="none", final_norm=False)
    stack, seen, _ = shown(described, with_random_constants(build(described)))
    mask = batch(described, 0).mask
    for layer, block in enumerate(stack.layers):
        theirs = encoder_layer(block, placement, activation, stack.dtype)
        causal = torch.nn.Transformer.generate_square_subsequent_mask(6, dtype=stack.dtype) if mode == "causal" else None
        expected = theirs(seen[layer, "resid_pre"].detach(), src_mask=causal,
                          src_key_padding_mask=None if mask is None else ~mask)
        real = slice(None) if mask is None else mask
        error = (seen[layer, "resid_post"] - expected)[real].abs().max()
        assert error <= tolerance * expected[real].abs().max()


def encoder_layer(block, placement, activation, dtype):
    """Return torch's layer with the block's weights."""
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, 0.0, activation, batch_first=True, dtype=dtype,
                                             norm_first=placement == "pre")
    mine = block.state_dict()
    theirs = {"self_attn.out_proj": "attn.o", "linear1": "mlp.in", "linear2": "mlp.out", "norm1": "norm1", "norm2": "norm2"}
    weights = {f"{name}.{kind}": mine[f"{own}.{kind}"] for name, own in theirs.items() for kind in ("weight", "bias")}
    for kind in ("weight", "bias"):
        weights[f"self_attn.in_proj_{kind}"] = torch.cat([mine[f"attn.{part}.{kind}"] for part in "qkv"])
    layer.load_state_dict(weights)
    return layer


def with_random_constants(stack):
    """Move every bias, γ and β away from 0 and 1."""
    with torch.no_grad():
        for index, (name, parameter) in enumerate(stack.named_parameters()):
            if name.endswith("bias") or "norm" in name:
                noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(index))
                parameter.add_(0.2 * noise)
    return stack


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
    sums = {{"1": "attn_sum", "2": "mlp_sum"}[n] for n in numbers if placement == "post" and norm != "none" and residual}
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
    torch.testing.assert_close(with_waves[-1, "embed"] - without[-1, "embed"], expected.expand(3, 6, 16), atol=1e-6, rtol=0)


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


# ── padding and causality ──


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("norm", NORMS)
def test_what_stands_in_the_padding_influences_no_real_token_and_no_gradient(norm, causal):
    described = experiment({**VECTORS, "lengths": [6, 4, 3]}, {"dtype": "float64"}, norm=norm, causal=causal, norm_groups=4)
    data = batch(described, 0)
    noise = torch.where(data.mask.unsqueeze(-1), data.inputs, 3 + 5 * torch.randn(data.inputs.shape))
    results = []
    for inputs in (data.inputs, noise):
        stack = build(described)
        x = stack(inputs, data.mask).x[data.mask]
        (x * torch.linspace(-1, 1, x.numel(), dtype=x.dtype).view(x.shape)).sum().backward()
        results.append((x, [parameter.grad for parameter in stack.parameters()]))
    torch.testing.assert_close(results[0], results[1], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("norm", [name for name in NORMS if name != "batchnorm"])
def test_a_padded_sequence_gives_what_it_gives_alone(norm):
    described = experiment({**VECTORS, "lengths": [6, 4, 3]}, norm=norm, causal=False)
    stack, data = build(described), batch(described, 0)
    together = stack(data.inputs, data.mask).x
    for row, length in enumerate((6, 4, 3)):
        alone = stack(data.inputs[row : row + 1, :length]).x
        torch.testing.assert_close(together[row : row + 1, :length], alone, rtol=1e-4, atol=1e-5)


def test_pooled_batchnorm_lets_the_padding_shift_its_statistics():
    outputs = []
    for pooling in ("masked", "pooled"):
        described = experiment({**VECTORS, "lengths": [6, 4, 3]}, norm="batchnorm", bn_padding=pooling)
        data = batch(described, 0)
        outputs.append(build(described)(data.inputs, data.mask).x[data.mask])
    assert (outputs[0] - outputs[1]).abs().max() > 1e-2


@pytest.mark.parametrize("protocol", ["fused", "explicit"])
@pytest.mark.parametrize("norm", NORMS)
def test_later_tokens_change_earlier_outputs_under_batchnorm_in_training_alone(norm, protocol):
    described = experiment(VECTORS, {"attention": protocol}, norm=norm)
    stack, data = build(described), batch(described, 0).inputs
    changed = data.clone()
    changed[:, 4:] += 1
    before, after = (stack(given).x[:, :4] for given in (data, changed))
    assert torch.equal(before, after) == (norm != "batchnorm")
    stack.eval()
    assert torch.equal(*(stack(given).x[:, :4] for given in (data, changed)))


# ── precision, devices, copies ──


@pytest.mark.parametrize("source", [TOKENS, VECTORS])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
def test_every_precision_computes_in_its_own_and_keeps_wide_parameters(dtype, norm, source):
    stack, seen, output = shown(experiment(source, {"dtype": dtype, "attention": "explicit"}, norm=norm))
    compute = getattr(torch, dtype)
    assert {tensor.dtype for tensor in seen.values()} == {compute}
    output.x.float().sum().backward()
    wide = torch.promote_types(compute, torch.float32)
    assert {parameter.dtype for parameter in stack.parameters()} == {wide}
    assert all(parameter.grad.dtype == wide for parameter in stack.parameters() if parameter.grad is not None)


def test_low_precision_is_the_same_model_rounded():
    reference = shown(experiment(protocol={"dtype": "float64"}))[2].logits
    for dtype, tolerance in (("float32", 1e-5), ("float16", 0.02), ("bfloat16", 0.1)):
        torch.testing.assert_close(shown(experiment(protocol={"dtype": dtype}))[2].logits.double(), reference,
                                   rtol=0, atol=tolerance)


def test_building_and_running_leave_the_callers_random_state_alone():
    before = torch.get_rng_state()
    shown(experiment())
    assert torch.equal(torch.get_rng_state(), before)


def test_a_copy_is_independent_and_gives_the_same():
    described = experiment(placement="sandwich")
    stack = build(described)
    twin, data = copy.deepcopy(stack), batch(described, 0)
    assert torch.equal(stack(data.inputs).logits, twin(data.inputs).logits)
    with torch.no_grad():
        twin.layers[0].attn.q.weight.zero_()
        twin.layers[0].norm1.weight.zero_()
    assert not torch.equal(stack(data.inputs).logits, twin(data.inputs).logits)
    seen = watched(twin)
    stack(data.inputs)
    assert seen == {}


def test_eval_mode_switches_dropout_off_in_every_part():
    described = experiment(dropout=0.5)
    stack, data = build(described).eval(), batch(described, 0)
    plain = build(experiment()).eval()
    assert torch.equal(stack(data.inputs).logits, plain(data.inputs).logits)


# ── everything together ──


def model_documents():
    return st.fixed_dictionaries({}, optional={
        "n_layers": st.integers(1, 3), "d_model": st.sampled_from([8, 16]), "n_heads": st.sampled_from([1, 2, 4]),
        "head_dim": st.sampled_from([None, 4, 6]), "n_kv_heads": st.sampled_from([None, 1]),
        "d_ff": st.sampled_from([None, 8, 24]), "activation": st.sampled_from([*ACTIVATIONS]),
        "norm": st.sampled_from([*NORMS]), "placement": st.sampled_from([*PLACEMENTS]),
        "norm_affine": st.booleans(), "norm_dtype": st.sampled_from(["float32", "compute"]),
        "norm_cast": st.sampled_from(["after", "before"]), "norm_groups": st.sampled_from([1, 2, 4]),
        "bn_padding": st.sampled_from(["masked", "pooled"]), "layer_norms": st.dictionaries(st.just("0"), st.sampled_from([*NORMS])),
        "final_norm": st.sampled_from([None, True, False]), "residual": st.booleans(),
        "residual_alpha": st.sampled_from([1.0, 0.5, "deepnorm"]),
        "branch_scale": st.sampled_from([1.0, 0.5, "inv_sqrt_2L", "rezero", "layerscale"]),
        "depth_scaling": st.sampled_from(["none", "inv_sqrt_layer"]), "init": st.sampled_from([*INITS]),
        "embed_norm": st.booleans(), "embed_scale": st.sampled_from([None, 2.0]),
        "sublayers": st.sampled_from(["both", "attention", "mlp"]), "causal": st.booleans(),
        "pattern": st.sampled_from([*PATTERNS]), "attention_scale": st.sampled_from([None, "1/K", 0.3, -0.3, 0.0]),
        "qk_norm": st.sampled_from([*QK_NORMS]), "qk_norm_scope": st.sampled_from(["head", "full"]),
        "attn_softcap": st.sampled_from([None, 5.0]), "final_softcap": st.sampled_from([None, 5.0]),
        "positions": st.sampled_from([*POSITIONS]), "bias": st.booleans(), "tie_embeddings": st.booleans(),
        "dropout": st.sampled_from([0.0, 0.3]),
    })


def input_documents():
    return st.fixed_dictionaries({
        "source": st.sampled_from([name for name in SOURCES if name != "scaled"]), "batch": st.integers(1, 3),
        "seq_len": st.integers(1, 5), "lengths": st.sampled_from([None, "ragged"]),
    })


@given(model=model_documents(), source=input_documents(), dtype=st.sampled_from(["float32", "float64", "bfloat16", "float16"]),
       protocol=st.sampled_from([None, "fused", "explicit"]), mode=st.sampled_from(["train", "eval"]))
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
def test_every_combination_that_is_accepted_runs_forward_and_backward(model, source, dtype, protocol, mode):
    try:
        described = parse({"model": model, "input": source,
                           "protocol": {"dtype": dtype, "attention": protocol, "mode": mode}})
    except ExperimentError:
        return
    stack, data = build(described).train(mode == "train"), batch(described, 0)
    seen = watched(stack)
    output = stack(data.inputs, data.mask)
    (output.x if output.logits is None else output.logits).float().sum().backward()
    assert output.x.shape == (*data.inputs.shape[:2], described.resolved().model.d_model)
    assert output.x.dtype == getattr(torch, dtype)
    fused = described.resolved().protocol.attention == "fused"
    hidden = {"attn_scores", "attn_pattern"} if fused else set()
    assert set(seen) == {key for key in sites_of(stack, len(stack.layers)) if key[1] not in hidden}
    assert sum(parameter.numel() for parameter in stack.parameters()) == parameters(described.resolved())
