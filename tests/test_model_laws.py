"""Laws of the whole stack: torch's own layer, padding, causality, precision, and every combination of options."""

import copy

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stacks import TOKENS, VECTORS, experiment, shown, watched, with_random_constants

from core.corpus import batch
from core.cost import parameters
from core.experiment import parse
from core.fields import ExperimentError
from core.model import build
from core.sites import sites_of
from core.tables import ACTIVATIONS, INITS, NORMS, PATTERNS, PLACEMENTS, POSITIONS, QK_NORMS, SOURCES

DTYPES = ["float32", "float64", "bfloat16", "float16"]

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
        causal = torch.full((6, 6), -torch.inf, dtype=stack.dtype).triu(1) if mode == "causal" else None
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
    theirs = {"self_attn.out_proj": "attn.o", "linear1": "mlp.in", "linear2": "mlp.out", "norm1": "norm1",
              "norm2": "norm2"}
    weights = {f"{name}.{kind}": mine[f"{own}.{kind}"] for name, own in theirs.items() for kind in ("weight", "bias")}
    for kind in ("weight", "bias"):
        weights[f"self_attn.in_proj_{kind}"] = torch.cat([mine[f"attn.{part}.{kind}"] for part in "qkv"])
    layer.load_state_dict(weights)
    return layer


# ── padding and causality ──


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("norm", NORMS)
def test_what_stands_in_the_padding_influences_no_real_token_and_no_gradient(norm, causal):
    described = experiment({**VECTORS, "lengths": [6, 4, 3]}, {"dtype": "float64"}, norm=norm, causal=causal)
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
@pytest.mark.parametrize("dtype", DTYPES)
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
        "bn_padding": st.sampled_from(["masked", "pooled"]),
        "layer_norms": st.dictionaries(st.just("0"), st.sampled_from([*NORMS])),
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


@given(model=model_documents(), source=input_documents(), dtype=st.sampled_from(DTYPES),
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
