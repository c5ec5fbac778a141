"""The compiled passes and the general way give the same numbers."""

import math
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from core import fast_heads, moments, scan
from core.attention_measures import general, head_measures
from core.columns import COLUMNS, INDEX_SPAN, N_STANDARD, VALUE_SPAN, Reading
from core.fast_tokens import TokenSizes
from core.scan_heads import _exp
from core.sites import Heads
from core.statistics import cosine_of, row_of
from core.vocabulary import HEAD_MEASURES, HEADS_STANDARD, SATURATED

ROOT = Path(__file__).parent.parent
EXACT = {name for name in COLUMNS if name.startswith(("n", "log2_hist")) or name in ("min", "max")}
PLACE = {name: place for place, name in enumerate(COLUMNS)}


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def spoilt(x, *entries):
    x = x.copy()
    for index, value in entries:
        x.reshape(-1)[index] = value
    return x


def agree(x, reading):
    """Both ways of measuring `x` (R, W) give the same: counts and extremes exactly, all else to rounding."""
    fast, slow = row_of(x, reading), moments.row(x if x.dtype == torch.float64 else x.float(), reading).numpy()
    some = bool(x.isfinite().any())
    size = math.hypot(slow[PLACE["mean"]], slow[PLACE["std"]]) if some else 0.0
    for name, found, expected in zip(COLUMNS, fast, slow, strict=True):
        if name.startswith(("outlier_", "median_abs")):
            continue
        if name in EXACT or math.isnan(expected):
            assert np.array_equal(found, expected if some or name[0] in "nl" else math.nan, equal_nan=True), name
        elif name == "token_cosine":
            assert found == pytest.approx(expected, abs=1e-6), name
        else:
            scale = size if name == "mean" or name[0] == "q" else 0.0
            assert abs(found - expected) <= 2e-5 * max(abs(expected), 1e-2 * scale) + 5e-324, (name, found, expected)
    same_outliers(x, fast, slow)


def same_outliers(x, fast, slow):
    """The fast way takes the median only where there may be outliers; of equal ones each way may name others."""
    (indices, values, median), (others, expected, wanted) = (
        (row[INDEX_SPAN], row[VALUE_SPAN], row[PLACE["median_abs"]]) for row in (fast, slow))
    assert np.array_equal(np.abs(values), np.abs(expected), equal_nan=True)
    assert np.isnan(indices).tolist() == np.isnan(others).tolist()
    named = ~np.isnan(indices)
    assert (x.reshape(-1)[indices[named].astype(int)].double().numpy() == values[named]).all()
    assert (math.isnan(median) and not named.any()) or median == pytest.approx(wanted, rel=1e-6)


SHAPES = {
    "one entry": (1, 1), "one token": (1, 40), "width one": (50, 1), "two tokens": (2, 3),
    "a block and one": (1, 4097), "tokens beyond a block": (70, 61), "wide tokens": (3, 5000),
    "many tokens": (640, 16), "a sampled tensor": (300, 256),
}
SCALES = (1e-38, 1e-30, 1e-12, 1e-4, 1.0, 1e5, 1e12, 1e30)
DTYPES = {"float32": torch.float32, "float64": torch.float64, "float16": torch.float16, "bfloat16": torch.bfloat16}
READINGS = (Reading(True, False), Reading(False, True), Reading(True, True, outliers=True))


def lengths(count):
    """Some ways to cut `count` tokens into sequences."""
    return {(count,), (1,) * count, (count // 2, count - count // 2), (0, count // 3, 0, count - count // 3)}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_any_shape_and_scale(shape, dtype):
    for number, scale in enumerate(SCALES):
        x = torch.from_numpy(normal(*shape, seed=number) * scale).to(dtype)
        for reading in READINGS:
            agree(x, reading)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_any_cut_into_sequences(shape):
    x = torch.from_numpy(normal(*shape) + 0.3).float()
    for cut in lengths(shape[0]):
        agree(x, Reading(False, True, cut))


KINDS = {
    "mean 1e4": normal(90, 60) + 1e4,
    "mean -1e4, std 1e-2": normal(90, 60) * 1e-2 - 1e4,
    "1e4 plus or minus 1": 1e4 + np.sign(normal(90, 60)),
    "far from zero": np.abs(normal(90, 60)) + 3,
    "one far entry": spoilt(normal(90, 60), (3000, 1e8)),
    "zeros": np.zeros((90, 60)),
    "negative zeros": np.full((90, 60), -0.0),
    "constant": np.full((90, 60), 0.1),
    "half zeros": np.maximum(normal(90, 60), 0),
    "a token of zeros": spoilt(normal(90, 60), *((index, 0.0) for index in range(60, 120))),
    "a tiny token": spoilt(normal(90, 60), *((index, 1e-25) for index in range(60, 120))),
    "alike": np.tile(normal(60), (90, 1)),
    "nearly alike": np.tile(normal(60), (90, 1)) + 1e-4 * normal(90, 60),
    "subnormal": normal(90, 60) * 1e-41,
    "subnormal in float16": normal(90, 60) * 1e-5,
    "beyond float16": normal(90, 60) * 1e5,
    "the edges of float16": np.resize([65519.9, 65520, -65520, 2.0**-14, -(2.0**-14), 2.0**-15, 0, 1], (90, 60)),
    "the largest": np.sign(normal(90, 60)) * np.finfo(np.float32).max,
    "rows from 1e-30 to 1e20": normal(90, 60) * 10.0 ** np.linspace(-30, 20, 90)[:, None],
    "nan": spoilt(normal(90, 60), (17, np.nan)),
    "infinite": spoilt(normal(90, 60), (0, np.inf), (5399, -np.inf)),
    "whole tokens nan": spoilt(normal(90, 60), *((index, np.nan) for index in range(60, 120))),
    "all kinds, exploding": spoilt(normal(90, 60) * 1e30, (0, np.inf), (1, -np.inf), (900, np.nan), (30, 3e38)),
    "only nan": np.full((90, 60), np.nan),
    "only infinite": np.full((90, 60), -np.inf),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_any_kind_of_tensor(kind, dtype):
    x = torch.from_numpy(KINDS[kind]).to(dtype)
    for reading in (*READINGS, Reading(True, True, (30, 60), True), Reading(False, True, (1, 40, 0, 49))):
        agree(x, reading)


def test_tensors_that_are_not_contiguous_or_empty():
    x = torch.from_numpy(normal(60, 90)).float()
    for view in (x.T, x[::2], x[:, ::3], x.T[5:50, 7:], x[:0], x[:, :0], x[0:1].expand(20, -1)):
        for reading in READINGS:
            agree(view, reading)


@settings(max_examples=150, deadline=None)
@given(hnp.arrays(np.float32, hnp.array_shapes(min_dims=2, max_dims=2, max_side=9),
                  elements=st.one_of(st.floats(width=32), st.floats(-4, 4, width=32))), st.integers(0, 9))
def test_any_float32_table(x, first):
    first = min(first, len(x))
    agree(torch.from_numpy(x), Reading(True, True, (first, len(x) - first), True))


def test_the_pass_writes_the_columns_that_it_means():
    places = (scan.COUNT, scan.N_NAN, scan.POSINF, scan.NEGINF, scan.ZEROS, scan.SUBNORMAL, scan.OVERFLOW, scan.LOW,
              scan.HIGH, scan.MEAN, scan.STD, scan.COSINE)
    assert [COLUMNS[place] for place in places] == [
        "n", "n_nan", "n_posinf", "n_neginf", "n_zero", "n_subnormal", "n_overflow", "min", "max", "mean", "std",
        "token_cosine"]


def test_rows_that_wait_for_their_quantiles_get_them_together():
    tables, sizes = [torch.from_numpy(normal(rows, 8, seed=rows)).float() for rows in (7, 20, 7, 33)], TokenSizes()
    tables.append(tables[0] * 1e-30)
    reading, rows = Reading(False, True), np.full((len(tables), N_STANDARD), np.nan)
    for table, row in zip(tables, rows, strict=True):
        row_of(table, reading, row, sizes)
    assert np.isnan(rows[:, PLACE["token_rms_p50"]]).all()
    sizes.write()
    for table, row in zip(tables, rows, strict=True):
        assert np.array_equal(row, row_of(table, reading)[:N_STANDARD], equal_nan=True)


@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1.0, 1e25])
def test_cosine_of_two_tables(scale):
    x, y = (torch.from_numpy(normal(50, 33, seed=seed) * scale).float() for seed in (1, 2))
    assert cosine_of(x, y + x) == pytest.approx(float(moments.mean_cosine(x.double(), (y + x).double())), abs=1e-6)


def test_a_cosine_that_the_pass_cannot_take_is_left_to_the_general_way():
    x = torch.ones(4, 3)
    x[2] = 1e-30
    assert math.isnan(scan.mean_cosine(x.numpy(), x.numpy()))
    assert cosine_of(x, x) == pytest.approx(1)


# Attention


def draw(*shape, seed=0):
    return torch.from_numpy(normal(*shape, seed=seed)).float()


HEADS = {"short": (3, 2, 9, 5), "one token": (2, 2, 1, 4), "two tokens": (1, 1, 2, 4), "long": (1, 2, 300, 16)}


def same_heads(q, k, mask, rule, wide=torch.float64):
    quick = fast_heads.measures(q, k, mask, rule, SATURATED, True)
    slow = general(q.to(wide), k.to(wide), mask, rule, True)
    assert quick is not None
    assert torch.equal(fast_heads.measures(q, k, mask, rule, SATURATED).nan_to_num(-1),
                       quick[: len(HEADS_STANDARD)].nan_to_num(-1))
    for name, found, expected in zip(HEAD_MEASURES, quick.tolist(), slow.tolist(), strict=True):
        assert found == pytest.approx(expected, rel=1e-5, abs=1e-5 if "entropy" in name else 2e-6, nan_ok=True), name


@pytest.mark.parametrize("shape", HEADS.values(), ids=HEADS)
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("scale", [0.0, 1e-3, 0.4, 30.0, 1e4])
def test_heads_are_measured_alike(shape, causal, scale):
    q, k = draw(*shape), draw(*shape, seed=1)
    masks = (None, torch.arange(shape[2]) < torch.arange(shape[0])[:, None] + 1, draw(shape[0], shape[2], seed=5) > 0)
    for mask in masks:
        same_heads(q, k, mask, Heads(scale, None, "softmax", causal))


@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_scores_that_are_nearly_alike_keep_their_spread(offset):
    q, k = torch.ones(1, 1, 200, 8), torch.full((1, 1, 200, 8), offset) + 1e-2 * draw(1, 1, 200, 8)
    same_heads(q, k, None, Heads(1.0, None, "softmax", True), torch.float32)  # the scores themselves are rounded


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e36])
def test_heads_that_the_pass_cannot_measure_are_left_to_the_general_way(bad):
    q, k = draw(2, 3, 6, 4), draw(2, 3, 6, 4, seed=1)
    q[1, 2, 4, 0] = bad
    rule = Heads(0.5, None, "softmax", True)
    for full in (False, True):
        assert fast_heads.measures(q, k, None, rule, SATURATED, full) is None
        assert torch.allclose(head_measures(q, k, None, rule, full), general(q, k, None, rule, full), equal_nan=True)


def test_the_exponential_is_right_to_a_unit_in_the_last_place():
    t = -np.concatenate((np.linspace(0, 87, 20001), np.logspace(-12, 0, 2001))).astype(np.float32)
    found = np.array([_exp(value) for value in t], np.float64)
    assert np.abs(found / np.exp(t.astype(np.float64)) - 1).max() < 1.2e-7
    assert 0 <= float(_exp(np.float32(-1e30))) < 2e-38


# Compilation


def test_a_process_finds_compiled_what_another_left(tmp_path):
    code = ("import core.scan_order as loops; "
            "print(sum(loops.gathered.stats.cache_hits.values()), sum(loops.gathered.stats.cache_misses.values()))")
    for hits in ("0 2", "2 0"):
        done = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=ROOT, capture_output=True, text=True,
                              check=True, env={"NUMBA_CACHE_DIR": str(tmp_path)})
        assert done.stdout.strip() == hits


def test_where_no_folder_can_be_written_to_every_process_compiles_for_itself(tmp_path):
    shutil.copytree(ROOT / "core", tmp_path / "core", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "core" / "__pycache__").touch()  # a file where the folder would be
    code = "import core.scan_order as loops; print(len(loops.gathered.signatures), loops.gathered.stats.cache_path)"
    done = subprocess.run([sys.executable, "-B", "-W", "error", "-c", code], cwd=tmp_path, capture_output=True,
                          text=True, check=True, env={"HOME": "/dev/null"})
    assert done.stdout.strip() == "2 None"
