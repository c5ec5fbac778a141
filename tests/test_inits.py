"""Draws that belong to names, and the stds, gains and constants of every init."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from core.experiment import parse
from core.init_scales import Fan, deepnorm_constants, gain
from core.inits import generator, unit_normals
from core.model import build
from core.tables import INITS

ROOT = Path(__file__).parent.parent
ITEMS = {item["id"]: item for item in json.loads((Path(__file__).parent / "acceptance.json").read_text())["items"]}
SIZES = {"d_model": 64, "n_heads": 4, "d_ff": 192, "n_layers": 3}
ROLES = ("attn.q", "attn.k", "attn.v", "attn.o", "mlp.in", "mlp.gate", "mlp.out")

STDS = {
    "xavier": lambda fan_in, fan_out, last: math.sqrt(2 / (fan_in + fan_out)),
    "normal": lambda fan_in, fan_out, last: 0.02,
    "lecun": lambda fan_in, fan_out, last: math.sqrt(1 / fan_in),
    "kaiming": lambda fan_in, fan_out, last: math.sqrt(2 / fan_in),
    "torch_default": lambda fan_in, fan_out, last: math.sqrt(1 / (3 * fan_in)),
    "gpt2": lambda fan_in, fan_out, last: 0.02 / math.sqrt(6) if last else 0.02,
}


def weights(**model):
    model = {**SIZES, "activation": "swiglu", **model}
    return dict(build(parse({"model": model, "input": {"seq_len": 8}})).state_dict())


@pytest.mark.parametrize("init", STDS)
def test_a_matrix_is_its_draws_times_the_std_of_the_init(init):
    found = weights(init=init)
    for role in ROLES:
        name = f"layers.1.{role}.weight"
        fan_out, fan_in = found[name].shape
        std = STDS[init](fan_in, fan_out, role in ("attn.o", "mlp.out"))
        torch.testing.assert_close(found[name], unit_normals(0, name, (fan_out, fan_in)) * std)


def test_unit_normals_are_unit_normals():
    draws = unit_normals(0, "layers.0.mlp.in.weight", (512, 512))
    assert draws.mean().item() == pytest.approx(0, abs=0.01)
    assert draws.std().item() == pytest.approx(1, abs=0.01)
    assert draws.dtype == torch.float32


def test_every_tensor_and_every_seed_has_draws_of_its_own():
    shape = (64, 64)
    names = ("layers.0.attn.q.weight", "layers.0.attn.k.weight")
    drawn = [unit_normals(seed, name, shape) for seed in (0, 1) for name in names]
    for index, one in enumerate(drawn):
        for other in drawn[:index]:
            assert abs(torch.corrcoef(torch.stack((one.flatten(), other.flatten())))[0, 1].item()) < 0.06


def test_drawing_leaves_the_callers_random_state_alone():
    before = torch.get_rng_state()
    weights()
    assert torch.equal(torch.get_rng_state(), before)


def test_the_draws_are_the_same_in_every_process():
    code = "from core.inits import generator; print(generator(3, 'head.weight').initial_seed())"
    seeds = {subprocess.run([sys.executable, "-c", code], cwd=ROOT, env={"PYTHONHASHSEED": str(hash_seed)},
                            capture_output=True, text=True, check=True).stdout for hash_seed in (1, 2)}
    assert seeds == {f"{generator(3, 'head.weight').initial_seed()}\n"}


@pytest.mark.parametrize("init", ["orthogonal"])
def test_an_orthogonal_matrix_has_orthonormal_rows_or_columns(init):
    found = weights(init=init)
    for role in ROLES:
        matrix = found[f"layers.0.{role}.weight"]
        short = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
        torch.testing.assert_close(short @ short.T, torch.eye(len(short)), rtol=0, atol=1e-5)


def test_an_orthogonal_matrix_is_that_of_torch_for_the_same_draws():
    torch.manual_seed(5)
    theirs = torch.nn.init.orthogonal_(torch.empty(24, 16))
    torch.manual_seed(5)
    from core.inits import orthogonal

    torch.testing.assert_close(orthogonal(torch.randn(24, 16)), theirs)


@pytest.mark.parametrize("shape", [(24, 16), (16, 24), (16, 16)])
@pytest.mark.parametrize("init", INITS)
def test_the_std_that_an_init_says_is_that_of_what_it_draws(init, shape):
    from core.inits import drawn

    experiment = parse({"model": {"init": init, "init_gain": 1.5, "output_gain": 0.5}})
    for role in ("attn.q", "attn.o", "mlp.in", "mlp.out"):
        weight = drawn(experiment, f"layers.0.{role}.weight", shape, torch.float64)
        fan = Fan(role.partition(".")[2], shape[1], shape[0], 12, 0.02)
        expected = INITS[init].std(fan) * gain(experiment.model, fan.role)
        assert weight.square().mean().sqrt().item() == pytest.approx(expected, rel=5 / math.sqrt(2 * weight.numel()))


def test_deepnorm_is_xavier_with_four_matrices_scaled_and_the_gate_left_alone():
    plain, deep = weights(init="xavier"), weights(init="deepnorm")
    beta = deepnorm_constants(3)[1]
    for role in ROLES:
        factor = beta if role in ("attn.v", "attn.o", "mlp.in", "mlp.out") else 1.0
        torch.testing.assert_close(deep[f"layers.2.{role}.weight"], factor * plain[f"layers.2.{role}.weight"])


@pytest.mark.parametrize("init", INITS)
def test_gains_multiply_the_matrices_they_name_under_every_init(init):
    plain = weights(init=init)
    gained = weights(init=init, init_gain=2.0, qk_gain=3.0, value_gain=5.0, output_gain=7.0)
    factors = {"attn.q": 6, "attn.k": 6, "attn.v": 10, "attn.o": 14, "mlp.in": 2, "mlp.gate": 2, "mlp.out": 14}
    for role, factor in factors.items():
        torch.testing.assert_close(gained[f"layers.0.{role}.weight"], factor * plain[f"layers.0.{role}.weight"])
    for name in ("embed.token.weight", "embed.position.weight", "head.weight"):
        assert torch.equal(gained[name], plain[name])


def test_embedding_positions_and_head_have_stds_of_their_own():
    found = weights(embed_std=0.7, pos_std=0.3, init="kaiming")
    for name, std in (("embed.token.weight", 0.7), ("embed.position.weight", 0.3), ("head.weight", 1 / 8)):
        torch.testing.assert_close(found[name], unit_normals(0, name, tuple(found[name].shape)) * std)


def test_biases_are_zero_norms_one_and_nothing_else_is_constant():
    for name, weight in weights().items():
        constant = 0.0 if name.endswith("bias") else 1.0
        assert bool((weight == constant).all()) == (name.endswith("bias") or "norm" in name), name


def test_a_float64_model_scales_the_same_float32_draws():
    experiment = parse({"model": SIZES, "protocol": {"dtype": "float64"}})
    double = build(experiment).state_dict()
    single = build(experiment.with_values({"protocol.dtype": "float32"})).state_dict()
    for name, weight in double.items():
        assert weight.dtype == torch.float64
        torch.testing.assert_close(weight.float(), single[name])


@pytest.mark.parametrize("n_layers", ITEMS["A13"]["expect"])
def test_a13_deepnorm_constants(n_layers):
    expected = ITEMS["A13"]["expect"][n_layers]
    assert deepnorm_constants(int(n_layers)) == pytest.approx(expected, abs=ITEMS["A13"]["abs"])
    model = {"n_layers": int(n_layers), "d_model": 8, "n_heads": 1, "d_ff": 8, "placement": "post",
             "residual_alpha": "deepnorm", "init": "deepnorm"}
    stack = build(parse({"model": model}))
    name = "layers.0.attn.v.weight"
    plain = unit_normals(0, name, (8, 8)) * math.sqrt(2 / 16)
    assert (stack.get_parameter(name) / plain).mean().item() == pytest.approx(expected[1], abs=ITEMS["A13"]["abs"])
    seen = {}
    for site in ("resid_pre", "attn_out", "attn_sum"):
        stack.layers[0].sites[site].register_forward_hook(lambda _m, _i, y, site=site: seen.update({site: y}))
    stack(torch.zeros(1, 4, dtype=torch.int64))
    alpha = ((seen["attn_sum"] - seen["attn_out"]) / seen["resid_pre"]).median().item()
    assert alpha == pytest.approx(expected[0], abs=10 * ITEMS["A13"]["abs"])
