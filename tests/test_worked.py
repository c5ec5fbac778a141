"""Every norm worked by hand against the engine's, against torch's own layers, and against the lessons' numbers."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.norms import DyT, NormSettings, normalize
from core.pools import POOLS
from core.tables import NORMS, load
from core.worked import ALPHA, WORKED, Dials, worked

ITEMS = {item["id"]: item for item in json.loads((Path(__file__).parent / "acceptance.json").read_text())["items"]}
CUBE = np.array([[[2, 4, 6, 8], [1, 3, 5, 7], [0, 2, 4, 6]], [[-1, 0, 1, 2], [3, 3, 3, 3], [-2, -1, 0, 1]]], float)
SHAPES = [(2, 3, 4), (1, 1, 2), (1, 5, 8), (4, 1, 6), (3, 2, 16)]
DTYPES = {torch.float64: 1e-11, torch.float32: 1e-5, torch.bfloat16: 5e-3, torch.float16: 1e-3}
SCALES = [1e-4, 1e-2, 1.0, 1e2, 1e4]


def draws(shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def engine(name, x, eps=1e-5, groups=2):
    return normalize(name, x, eps, groups).detach().double().numpy()


def test_every_norm_of_the_engine_is_worked_and_no_other():
    assert list(WORKED) == list(NORMS)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", NORMS)
def test_every_norm_is_the_engines_at_every_dtype_and_scale(name, dtype, scale):
    x = torch.from_numpy(draws((3, 4, 16)) * scale).to(dtype)
    expected = worked(name, x.double().numpy(), Dials(groups=2)).values("normalized" if name != "none" else "x")
    np.testing.assert_allclose(engine(name, x), expected, rtol=DTYPES[dtype], atol=DTYPES[dtype])


@pytest.mark.parametrize("eps", [0.0, 1e-5, 0.1])
@pytest.mark.parametrize(("name", "shape"), [
    (name, shape) for name in NORMS for shape in SHAPES
    if name != "batchnorm" or shape[:2] != (1, 1)])  # torch refuses a batch of one token in training
def test_every_norm_is_the_engines_in_every_shape(name, shape, eps):
    x = 3 + draws(shape)
    np.testing.assert_allclose(worked(name, x, Dials(eps, 2)).values("output"), engine(name, x, eps), rtol=1e-9,
                               atol=1e-9)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
@pytest.mark.parametrize("name", NORMS)
def test_the_largest_and_smallest_entries_that_are_allowed_neither_overflow_nor_vanish(name, scale):
    x = draws((2, 3, 4)) * scale
    for eps in (0.0, 1e-5):
        found = worked(name, x, Dials(eps, 2)).values("output")
        assert np.isfinite(found).all()
        np.testing.assert_allclose(found, engine(name, x, eps), rtol=1e-9, atol=1e-30)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", NORMS)
def test_what_is_not_finite_spreads_as_in_the_engine(name, bad):
    x = CUBE.copy()
    x[0, 1, 2] = bad
    np.testing.assert_allclose(worked(name, x, Dials(groups=2)).values("output"), engine(name, x), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("name", NORMS)
def test_what_is_not_finite_reaches_no_entry_that_shares_no_statistic_with_it(name, bad):
    x = CUBE.copy()
    x[0, 1, 2] = bad
    sheet = worked(name, x, Dials(groups=2))
    for step in sheet.steps:
        assert not (step.broken & ~sheet.sharing((0, 1, 2))).any()
    assert sheet.steps[-1].broken[0, 1, 2] == (name != "dyt" or bool(np.isnan(bad)))


@pytest.mark.parametrize(("name", "layer"), [
    ("layernorm", torch.nn.LayerNorm(8)), ("rmsnorm", torch.nn.RMSNorm(8, eps=1e-5)),
    ("batchnorm", torch.nn.BatchNorm1d(8)), ("groupnorm", torch.nn.GroupNorm(4, 8))])
@pytest.mark.parametrize("scale", SCALES)
def test_gamma_and_beta_are_those_of_torchs_own_layers(name, layer, scale):
    layer = layer.double().train()
    x, gamma, beta = draws((3, 5, 8)) * scale, draws(8, 1), draws(8, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(gamma))
        if getattr(layer, "bias", None) is not None:
            layer.bias.copy_(torch.from_numpy(beta))
        flat = layer(torch.from_numpy(x).reshape(15, 8)).reshape(3, 5, 8).numpy()
    found = worked(name, x, Dials(1e-5, 4, gamma=tuple(gamma), beta=tuple(beta)))
    np.testing.assert_allclose(found.values("output"), flat, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", NORMS)
def test_a_norm_learns_what_the_engines_does(name):
    gamma, beta = (1.5, 2.0, -1.0, 0.5), (0.5, 0.0, 1.0, -2.0)
    module = load(NORMS, name)(4, NormSettings(groups=2, dtype=torch.float64))
    with torch.no_grad():
        for parameter, values in ((getattr(module, "weight", None), gamma), (getattr(module, "bias", None), beta)):
            if parameter is not None:
                parameter.copy_(torch.tensor(values[:len(parameter)]))
    found = worked(name, CUBE, Dials(groups=2, gamma=gamma, beta=beta)).values("output")
    np.testing.assert_allclose(found, module(torch.from_numpy(CUBE)).detach().numpy(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", NORMS)
def test_eps_matters_to_a_norm_exactly_where_the_table_says_so(name):
    small, large = (worked(name, CUBE, Dials(eps, 2)).values("output") for eps in (1e-5, 0.1))
    assert (small != large).any() == WORKED[name].eps


def test_dyt_starts_where_the_engines_does():
    assert DyT.alpha_at_init == ALPHA


@pytest.mark.parametrize("name", [name for name in WORKED if WORKED[name].pool != "entry"])
@given(entry=st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 7)))
@settings(max_examples=15, deadline=None)
def test_only_entries_that_share_a_statistic_move_an_output_and_all_of_them_do(name, entry):
    x = draws((3, 2, 8))
    changed = x.copy()
    changed[entry] += 1
    sheets = [worked(name, one, Dials(groups=4)) for one in (x, changed)]
    moved = sheets[0].values("output") != sheets[1].values("output")
    np.testing.assert_array_equal(moved, sheets[0].sharing(entry))


@pytest.mark.parametrize(("name", "count"), [("token", 6), ("feature", 4), ("position", 12), ("group", 12),
                                             ("entry", 24)])
def test_a_pool_has_so_many_statistics(name, count):
    labels = POOLS[name].label((2, 3, 4), 2)
    assert labels.shape == (2, 3, 4)
    np.testing.assert_array_equal(np.unique(labels), np.arange(count))
    sizes = {"B": 2, "T": 3, "D": 4, "G": 2}
    assert np.prod([sizes[axis] for axis in POOLS[name].axes.split()]) == count


@pytest.mark.parametrize("name", NORMS)
def test_a_statistic_is_one_number_for_all_that_share_it_and_every_step_has_a_formula(name):
    sheet = worked(name, draws((2, 3, 4)), Dials(groups=2))
    assert sheet.steps[0].name == "x" and sheet.steps[-1].name == "output"
    for step in sheet.steps:
        assert step.values.shape == (2, 3, 4) and step.latex
        assert not step.shared or step.axes in (POOLS[sheet.pool].axes, "")
        labels = np.unique(sheet.labels) if step.shared else []
        assert [len(np.unique(step.values[sheet.labels == label])) for label in labels] == [1] * len(labels)


@pytest.mark.parametrize("name", ["layernorm", "groupnorm", "layernorm_std_eps", "layernorm_unbiased", "batchnorm"])
@pytest.mark.parametrize("value", [3.0, 0.1, 1 / 3, 1e30, -7e-30])
def test_a_constant_token_gives_exact_zeros(name, value):
    x = np.full((2, 3, 7), value)
    sheet = worked(name, x, Dials())
    assert not sheet.values("normalized").any()
    assert not sheet.values("centred").any()


def test_without_eps_a_constant_token_is_not_a_number():
    assert np.isnan(worked("layernorm", CUBE, Dials(eps=0)).values("output")[1, 1]).all()


def test_batchnorm_over_two_samples_alone_gives_plus_and_minus_one_everywhere():
    x = draws((2, 3, 4)) * 100
    alone = worked("batchnorm", x, Dials(eps=0, alone=True)).values("output")
    np.testing.assert_allclose(np.abs(alone), 1)
    pooled = worked("batchnorm", x, Dials(eps=0)).values("output")
    assert np.ptp(np.abs(pooled)) > 1
    np.testing.assert_array_equal(worked("layernorm", x, Dials(alone=True)).values("output"),
                                  worked("layernorm", x).values("output"))


@pytest.mark.parametrize(("call", "text"), [
    (lambda: worked("layernorm", CUBE[0]), r"the tensor has shape \(3, 4\); allowed: three axes \(B, T, D\)"),
    (lambda: worked("layernorm", CUBE[:0]), r"the tensor has shape \(0, 3, 4\); allowed"),
    (lambda: worked("groupnorm", CUBE, Dials(groups=3)), "4 features do not split into 3 groups; allowed: a divisor"),
    (lambda: worked("groupnorm", CUBE, Dials(groups=0)), "4 features do not split into 0 groups"),
    (lambda: worked("rmsnorm", CUBE, Dials(gamma=(1.0, 2.0))), "there are 2 numbers for 4 features; allowed: 1 or 4")])
def test_what_cannot_be_worked_says_why(call, text):
    with pytest.raises(ValueError, match=text):
        call()


# ── the lessons' numbers ──


def row(*values):
    return np.array([[values]], float)


@pytest.mark.parametrize("call", [key for key in ITEMS["A01"]["expect"] if "norm" in key])
def test_a01_worked_vectors(call):
    name, _, vector = call.partition(" ")
    expected = ITEMS["A01"]["expect"][call]
    assert worked(name, row(*json.loads(vector))).values("output")[0, 0] == pytest.approx(
        expected, abs=ITEMS["A01"]["abs"])


def test_the_first_vectors_mean_and_variance_and_what_rmsnorm_keeps_of_a_mean():
    sheet = worked("layernorm", row(3, 1, -2, 8, 5))
    assert (sheet.values("mean")[0, 0, 0], sheet.values("variance")[0, 0, 0]) == pytest.approx((3, 11.6))
    z = row(2, -1, 0.5, 4)
    assert worked("layernorm", z).values("output").mean() == pytest.approx(0, abs=1e-12)
    assert worked("rmsnorm", z).values("output").mean() == pytest.approx(0.597, abs=5e-4)


def test_a01_rows_are_made_equal():
    rows = np.random.RandomState(7).randn(4, 8) * [0.01, 0.1, 1, 10, 100, 1000, 0.5, 2]
    sheet = worked("layernorm", rows[None])
    assert sheet.values("variance")[0, :, 0] == pytest.approx(
        ITEMS["A01"]["expect"]["row variances, numpy seed 7"], rel=ITEMS["A01"]["rel_variances"])
    assert sheet.values("output").var(-1) == pytest.approx(np.ones((1, 4)), abs=1e-6)


def test_a02_the_cube():
    expect, sheet = ITEMS["A02"]["expect"], worked("layernorm", CUBE)
    np.testing.assert_allclose(sheet.values("mean")[..., 0], expect["mean"])
    np.testing.assert_allclose(sheet.values("variance")[..., 0], expect["biased var"])
    output = sheet.values("output")
    assert output[0, 0] == pytest.approx(expect["first token"], abs=ITEMS["A02"]["abs"])
    assert output[1, 1].tolist() == expect["constant token"]


@pytest.mark.parametrize("std", ITEMS["A03"]["expect"])
def test_a03_where_eps_stands(std):
    x = draws((1, 1, 64))
    x = (x - x.mean()) / x.std() * float(std)
    found = [worked(name, x).values("output").std() for name in ("layernorm", "layernorm_std_eps")]
    assert found == pytest.approx(ITEMS["A03"]["expect"][std], rel=ITEMS["A03"]["rel"])


def test_unbiased_and_std_eps_differ_as_the_lessons_say():
    one = row(1, 0, 0, 0)
    assert worked("layernorm", one).values("output")[0, 0] == pytest.approx([1.732, *[-0.577] * 3], abs=5e-4)
    assert worked("layernorm_unbiased", one).values("output")[0, 0] == pytest.approx([1.5, *[-0.5] * 3], abs=5e-4)
    tiny = row(1, 2, 3, 4) * 1e-4
    inside, outside = (worked(name, tiny).values("output")[0, 0] for name in ("layernorm", "layernorm_std_eps"))
    assert (inside[3], outside[3]) == pytest.approx((0.0474, 1.2315), abs=5e-5)
    assert outside[3] / inside[3] == pytest.approx(26, abs=0.05)
