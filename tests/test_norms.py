"""Laws that hold for every norm in the table, closed forms, and what sets each apart."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.norms import NoNorm, NormSettings, normalize
from core.tables import NORMS, load

ITEMS = {item["id"]: item for item in json.loads((Path(__file__).parent / "acceptance.json").read_text())["items"]}
REAL = [name for name in NORMS if name != "none"]
PER_TOKEN = [name for name in REAL if name != "batchnorm"]
SCALE_FREE = ["layernorm", "rmsnorm", "groupnorm", "scalenorm", "layernorm_std_eps", "layernorm_unbiased", "batchnorm"]
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
CUBE = [[[2, 4, 6, 8], [1, 3, 5, 7], [0, 2, 4, 6]], [[-1, 0, 1, 2], [3, 3, 3, 3], [-2, -1, 0, 1]]]


def norm(name, width=16, **options):
    return load(NORMS, name)(width, NormSettings(**options))


def draws(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def randomized(module):
    with torch.no_grad():
        for index, parameter in enumerate(module.parameters()):
            parameter.copy_(0.5 + draws(*parameter.shape, seed=index).abs())
    return module


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("cast_first", [False, True])
@pytest.mark.parametrize("naive", [False, True])
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("name", NORMS)
def test_every_norm_keeps_shape_and_dtype_is_finite_and_has_a_gradient(name, affine, naive, cast_first, dtype):
    wide = torch.promote_types(dtype, torch.float32)
    module = norm(name, affine=affine, naive=naive, cast_first=cast_first, dtype=wide)
    x = draws(2, 5, 16, dtype=dtype).requires_grad_()
    y = module(x)
    assert y.shape == x.shape
    assert y.dtype == dtype
    assert y.isfinite().all()
    y.square().sum().backward()
    assert x.grad.dtype == dtype
    assert x.grad.isfinite().all()
    assert x.grad.abs().max() > 0


@pytest.mark.parametrize("name", NORMS)
def test_a_constant_token_gives_finite_values_and_gradients(name):
    x = torch.full((1, 3, 16), 2.0, requires_grad=True)
    y = norm(name)(x)
    (y * draws(1, 3, 16)).sum().backward()
    assert y.isfinite().all()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("name", ["layernorm", "groupnorm", "layernorm_std_eps", "layernorm_unbiased"])
def test_a_constant_token_is_turned_into_zeros(name):
    assert torch.equal(normalize(name, torch.full((2, 16), 3.0)), torch.zeros(2, 16))


@pytest.mark.parametrize("name", SCALE_FREE)
@given(scale=st.floats(-20, 20).map(np.exp2))
@settings(max_examples=20, deadline=None)
def test_without_eps_the_scale_of_the_input_is_gone(name, scale):
    x = draws(2, 6, 16, dtype=torch.float64)
    torch.testing.assert_close(normalize(name, scale * x, eps=0), normalize(name, x, eps=0), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", PER_TOKEN)
def test_a_norm_per_token_looks_at_no_other_token(name):
    x = draws(2, 6, 16)
    changed = x.clone()
    changed[1, 3] += 5
    before, after = norm(name)(x), norm(name)(changed)
    untouched = torch.ones(2, 6, dtype=torch.bool)
    untouched[1, 3] = False
    assert torch.equal(before[untouched], after[untouched])


@pytest.mark.parametrize("name", REAL)
def test_the_fused_kernel_and_the_written_out_formula_agree(name):
    x = draws(3, 5, 16, dtype=torch.float64)
    fused, written = (randomized(norm(name, naive=naive, dtype=torch.float64))(x) for naive in (False, True))
    torch.testing.assert_close(fused, written, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", NORMS)
def test_the_table_says_how_many_parameters_a_norm_has(name):
    entry = NORMS[name]
    for affine in (True, False):
        count = sum(parameter.numel() for parameter in norm(name, affine=affine).parameters())
        assert count == entry.always + (entry.vectors * 16 + entry.scalars if affine else 0)


@pytest.mark.parametrize("name", REAL)
def test_gamma_is_one_and_beta_zero_at_first_and_both_are_used(name):
    x = draws(2, 5, 16)
    torch.testing.assert_close(norm(name)(x), norm(name, affine=False)(x), rtol=1e-6, atol=1e-6)
    module = norm(name)
    with torch.no_grad():
        module.weight.fill_(3.0)
        if module.bias is not None:
            module.bias.fill_(0.5)
    shift = 0.0 if module.bias is None else 0.5
    torch.testing.assert_close(module(x), 3 * norm(name, affine=False)(x) + shift, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("cast_first", [False, True])
def test_the_cast_back_stands_before_or_after_gamma(cast_first):
    x, module = draws(4, 16, dtype=torch.bfloat16), randomized(norm("rmsnorm", cast_first=cast_first))
    plain = x.float() / (x.float().square().mean(-1, keepdim=True) + 1e-5).sqrt()
    after = (plain * module.weight).bfloat16()
    before = plain.bfloat16() * module.weight.bfloat16()
    assert not torch.equal(after, before)
    assert torch.equal(module(x), before if cast_first else after)


@pytest.mark.parametrize("name", ["layernorm", "rmsnorm", "scalenorm", "groupnorm", "layernorm_std_eps"])
def test_a_naive_float16_norm_of_large_values_is_silently_zero_and_a_wide_one_is_not(name):
    x = (300 * draws(4, 128)).sign().half() * 300
    assert torch.equal(norm(name, 128, naive=True)(x), torch.zeros_like(x))
    assert norm(name, 128)(x).float().square().mean().sqrt().item() == pytest.approx(1, abs=0.02)


def test_float16_squares_overflow_from_256_on():
    for value, output in ((255.875, 1.0), (256.0, 0.0)):
        x = torch.full((1, 16), value, dtype=torch.float16)
        assert norm("rmsnorm", naive=True)(x).unique().item() == output


def test_no_norm_returns_the_tensor_itself():
    x = draws(2, 3, 16)
    assert norm("none")(x) is x
    assert isinstance(norm("none"), NoNorm)


def test_groupnorm_normalizes_each_group_of_features_of_each_token():
    y = normalize("groupnorm", 7 + 3 * draws(2, 5, 16, dtype=torch.float64), groups=4, eps=0).unflatten(-1, (4, 4))
    torch.testing.assert_close(y.mean(-1), torch.zeros(2, 5, 4, dtype=torch.float64), rtol=0, atol=1e-12)
    torch.testing.assert_close(y.var(-1, correction=0), torch.ones(2, 5, 4, dtype=torch.float64))


def test_features_that_do_not_split_into_groups_are_refused():
    with pytest.raises(ValueError, match="5 features do not split into 4 groups; allowed: a divisor of 5"):
        normalize("groupnorm", [3, 1, -2, 8, 5])


def test_scalenorm_puts_every_token_on_the_sphere_of_radius_root_d():
    lengths = normalize("scalenorm", draws(5, 16, dtype=torch.float64)).norm(dim=-1)
    torch.testing.assert_close(lengths, torch.full((5,), 4.0, dtype=torch.float64))


def test_dyt_is_a_tanh_with_a_learned_slope_even_when_not_affine():
    module, x = norm("dyt", affine=False), draws(2, 16)
    assert [name for name, _ in module.named_parameters()] == ["alpha"]
    torch.testing.assert_close(module(x), torch.tanh(0.5 * x))


@pytest.mark.parametrize("naive", [False, True])
def test_batchnorm_pools_real_tokens_and_with_pooled_the_padding_too(naive):
    x = 3 + draws(3, 4, 16, dtype=torch.float64)
    mask = torch.arange(4) < torch.tensor([4, 2, 3])[:, None]
    for pooled, counted in ((False, x[mask]), (True, x.flatten(0, 1))):
        expected = (x - counted.mean(0)) / (counted.var(0, correction=0) + 1e-5).sqrt()
        module = norm("batchnorm", pooled=pooled, naive=naive, dtype=torch.float64)
        torch.testing.assert_close(module(x, mask), expected)
        torch.testing.assert_close(module.running_mean, 0.1 * counted.mean(0))
        torch.testing.assert_close(module.running_var, 0.9 + 0.1 * counted.var(0, correction=1))


@pytest.mark.parametrize("naive", [False, True])
def test_batchnorm_follows_torchs_own_in_training_and_evaluation(naive):
    ours, theirs = norm("batchnorm", momentum=0.3, naive=naive), torch.nn.BatchNorm1d(16, momentum=0.3)
    for seed in range(3):
        x = 2 + draws(4, 5, 16, seed=seed)
        torch.testing.assert_close(ours(x).flatten(0, 1), theirs(x.flatten(0, 1)))
    x = draws(4, 5, 16, seed=9)
    torch.testing.assert_close(ours.eval()(x).flatten(0, 1), theirs.eval()(x.flatten(0, 1)))
    torch.testing.assert_close(ours.running_var, theirs.running_var)


@pytest.mark.parametrize("naive", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_what_stands_in_the_padding_does_not_reach_batchnorms_real_tokens(training, naive):
    mask = torch.arange(4) < torch.tensor([4, 2, 3])[:, None]
    x = draws(3, 4, 16)
    other = torch.where(mask.unsqueeze(-1), x, torch.full_like(x, 1e4))
    outputs = [norm("batchnorm", naive=naive).train(training)(given, mask)[mask] for given in (x, other)]
    assert torch.equal(*outputs)


@pytest.mark.parametrize("name", ["layernorm", "rmsnorm"])
def test_the_kernels_are_torchs_own(name):
    kernels = {"layernorm": torch.nn.LayerNorm(16), "rmsnorm": torch.nn.RMSNorm(16, eps=1e-5)}
    x = draws(2, 5, 16)
    assert torch.equal(norm(name)(x), kernels[name](x))


def test_batchnorm_takes_an_array_of_one_token_in_evaluation():
    assert norm("batchnorm").eval()(draws(1, 1, 16)).isfinite().all()


# ── acceptance ──


@pytest.mark.parametrize("call", [key for key in ITEMS["A01"]["expect"] if "norm" in key])
def test_a01_worked_vectors(call):
    name, _, vector = call.partition(" ")
    expected = ITEMS["A01"]["expect"][call]
    assert normalize(name, json.loads(vector)).tolist() == pytest.approx(expected, abs=ITEMS["A01"]["abs"])


def test_a01_rows_are_made_equal():
    rows = np.random.RandomState(7).randn(4, 8) * [0.01, 0.1, 1, 10, 100, 1000, 0.5, 2]
    assert rows.var(1) == pytest.approx(ITEMS["A01"]["expect"]["row variances, numpy seed 7"],
                                        rel=ITEMS["A01"]["rel_variances"])
    assert normalize("layernorm", rows).var(-1, correction=0).numpy() == pytest.approx(1, abs=1e-6)


def test_a02_the_cube_of_lesson_three():
    expect, cube = ITEMS["A02"]["expect"], torch.tensor(CUBE, dtype=torch.float64)
    assert cube.mean(-1).numpy() == pytest.approx(np.array(expect["mean"]))
    assert cube.var(-1, correction=0).numpy() == pytest.approx(np.array(expect["biased var"]))
    y = normalize("layernorm", CUBE)
    assert y[0, 0].tolist() == pytest.approx(expect["first token"], abs=ITEMS["A02"]["abs"])
    assert y[1, 1].tolist() == pytest.approx(expect["constant token"], abs=ITEMS["A02"]["abs"])


@pytest.mark.parametrize("std", ITEMS["A03"]["expect"])
def test_a03_where_eps_stands(std):
    row = draws(1, 64, dtype=torch.float64)
    row = (row - row.mean()) / row.std(correction=0) * float(std)
    found = [normalize(name, row).std(correction=0).item() for name in ("layernorm", "layernorm_std_eps")]
    assert found == pytest.approx(ITEMS["A03"]["expect"][std], rel=ITEMS["A03"]["rel"])


def test_a04_the_backward_pass_of_layernorm():
    x = draws(16, dtype=torch.float64).requires_grad_()
    weights = draws(16, seed=1, dtype=torch.float64)
    y = normalize("layernorm", x, eps=0)
    (gradient,) = torch.autograd.grad((y * weights).sum(), x)
    assert gradient.sum().item() == pytest.approx(0, abs=1e-10)
    assert (gradient @ y).item() == pytest.approx(0, abs=1e-10)
    tripled = (3 * x).detach().requires_grad_()
    (third,) = torch.autograd.grad((normalize("layernorm", tripled, eps=0) * weights).sum(), tripled)
    assert third.numpy() == pytest.approx(gradient.numpy() / 3, abs=1e-10)


@pytest.mark.parametrize(("name", "lost"), [("layernorm", 2), ("rmsnorm", 1)])
def test_a04_the_size_of_the_jacobian(name, lost):
    x = draws(16, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(lambda given: normalize(name, given, eps=0), x)
    scale = x.std(correction=0) if name == "layernorm" else x.square().mean().sqrt()
    assert jacobian.norm().item() == pytest.approx(((16 - lost) ** 0.5 / scale).item(), abs=1e-10)


@pytest.mark.parametrize("size", [1e-30, 1e-7, 1.0, 1e30])
def test_scalenorm_has_no_epsilon_and_keeps_zeros(size):
    x = torch.randn(3, 16, generator=torch.Generator().manual_seed(0)) * size
    torch.testing.assert_close(normalize("scalenorm", x, 0.5).square().mean(-1), torch.ones(3))
    zeros = torch.zeros(2, 16, requires_grad=True)
    normalize("scalenorm", zeros, 1e-5).sum().backward()
    assert zeros.grad.isfinite().all()
