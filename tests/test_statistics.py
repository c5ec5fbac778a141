"""Every statistic of a tensor against the naive implementation, in both ways of measuring."""

import math

import naive
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from core import fast_moments, fast_order, moments
from core.columns import COLUMN, COLUMNS, OUTLIERS, Reading
from core.statistics import FROM_ROWS, cosine_of, histogram_of, named, row_of, statistics_of
from core.vocabulary import HISTOGRAM_BINS, SAMPLE, STATISTICS

RNG = np.random.default_rng(7)


def normal(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


def with_entries(x, **entries):
    """`x` with a few entries replaced; keys say nothing, values are (index, value)."""
    x = x.copy()
    for index, value in entries.values():
        x.reshape(-1)[index] = value
    return x


CASES = {
    "gaussian": normal(40, 16),
    "one entry": normal(1),
    "two entries": normal(2),
    "zeros": np.zeros((6, 8), np.float32),
    "negative zeros": np.full((4, 4), -0.0, np.float32),
    "constant": np.full((6, 8), 0.1, np.float32),
    "constant 1e-30": np.full((6, 8), 1e-30, np.float32),
    "huge 1e25": normal(20, 16) * np.float32(1e25),
    "largest float32": np.sign(normal(20, 16)) * np.finfo(np.float32).max,
    "3e38 and small": with_entries(normal(20, 16), a=(3, 3e38), b=(4, -3e38)),
    "tiny 1e-25": normal(20, 16) * np.float32(1e-25),
    "tiny 1e-32": normal(20, 16) * np.float32(1e-32),
    "subnormal": (normal(20, 16) * 1e-41).astype(np.float32),
    "least subnormal": with_entries(np.zeros((4, 4), np.float32), a=(5, 1e-45)),
    "mean 1e4 std 1": normal(40, 16) + np.float32(1e4),
    "mean -1e4 std 1e-2": (normal(40, 16) * 1e-2 - 1e4).astype(np.float32),
    "1e4 plus or minus 1": (1e4 + np.sign(normal(40, 16))).astype(np.float32),
    "tokens of very different size": normal(40, 16) * (10.0 ** np.linspace(-30, 20, 40)[:, None]).astype(np.float32),
    "nan": with_entries(normal(20, 16), a=(7, np.nan), b=(8, np.nan)),
    "infinite": with_entries(normal(20, 16), a=(0, np.inf), b=(1, np.inf), c=(9, -np.inf)),
    "all kinds": with_entries(normal(20, 16), a=(0, np.inf), b=(1, -np.inf), c=(9, np.nan), d=(30, 3e38), e=(31, 0)),
    "only nan": np.full((3, 4), np.nan, np.float32),
    "only infinite": np.full((3, 4), -np.inf, np.float32),
    "half zeros": np.maximum(normal(40, 16), 0),
    "positive": np.abs(normal(40, 16)) + np.float32(0.5),
    "powers of two": np.float32(2.0) ** np.arange(-149, 128, dtype=np.float32),
    "just below powers of two": np.nextafter(np.float32(2.0) ** np.arange(-140, 128, dtype=np.float32), np.float32(0)),
    "float16's edges": np.float32([65519.9, 65520, -65520, 65504, 2**-14, -(2**-14), 2**-14 * 0.999, 2**-24, 0]),
    "float64": normal(40, 16, dtype=np.float64),
    "float64 1e200": normal(40, 16, dtype=np.float64) * 1e200,
    "float64 1e-200": normal(40, 16, dtype=np.float64) * 1e-200,
    "float64 1e308": normal(40, 16, dtype=np.float64).clip(-1, 1) * 1.7e308,
    "float64 near its end": np.full((4, 4), 1e-323),
    "float64 shifted": normal(40, 16, dtype=np.float64) * 1e-6 + 1e4,
    "float64 rows from 1e-300 to 1e300": normal(61, 16, dtype=np.float64) * (10.0 ** np.arange(-300, 310, 10)[:, None]),
    "float16": normal(40, 16, dtype=np.float16),
    "float16 300s": np.full((8, 8), 300, np.float16),
    "float16 with inf": with_entries(normal(8, 8, dtype=np.float16), a=(3, np.inf)),
}


def close(found, expected, scale=0.0, rel=2e-5):
    """Equal as floats go: NaN with NaN, Inf with Inf, else to `rel` of the value or of `scale`."""
    if math.isnan(expected) or math.isinf(expected):
        return math.isnan(found) if math.isnan(expected) else found == expected
    return abs(found - expected) <= rel * max(abs(expected), 1e-2 * scale) + 5e-324


LEAST = 32 * 5e-324


def check(x, found):
    expected = naive.statistics(np.asarray(x, np.float64))
    for name, value in expected.items():
        scale = 0.0 if math.isnan(expected["rms"]) or name not in ("mean", *naive.QUANTILES) else expected["rms"]
        rounding = abs(found[name] - value) <= LEAST  # a mean or root of the least float64 may round to 0 or to it
        assert close(found[name], value, scale) or rounding, (name, found[name], value)
    bins = {name: found[f"log2_hist[{name}]"] for name in HISTOGRAM_BINS}
    assert {name: count for name, count in bins.items() if count} == naive.histogram(x)
    assert found["n_sample"] == sum(bins.values()) == np.size(x)


@pytest.mark.parametrize("case", CASES)
def test_every_statistic_is_that_of_the_naive_implementation(case):
    check(CASES[case], statistics_of(torch.from_numpy(np.atleast_1d(CASES[case]))))


@pytest.mark.parametrize("case", CASES)
def test_the_general_way_gives_the_same_for_every_tensor_as_the_fast_way_for_an_ordinary_one(case):
    x = torch.from_numpy(CASES[case])
    wide = x if x.dtype == torch.float64 else x.float()
    row = moments.row(wide.reshape(1, -1), Reading()).numpy()[None]
    found = {name: float(values[0]) for name, values in named(row, full=True).items()}
    counts = zip(HISTOGRAM_BINS, histogram_of(row)[0], strict=True)
    check(CASES[case], found | {f"log2_hist[{name}]": float(count) for name, count in counts})


WEIRD = st.sampled_from([math.nan, math.inf, -math.inf, -0.0, 5e-324])
FLOATS = st.one_of(st.floats(width=32), st.floats(-4, 4, width=32),
                   st.sampled_from([0.0, -0.0, 65520.0, 1e-45, 2**-14]))


@settings(max_examples=150, deadline=None)
@given(hnp.arrays(np.float32, hnp.array_shapes(min_dims=1, max_dims=2, max_side=12), elements=FLOATS))
def test_any_float32_array_is_measured_as_the_naive_implementation_does(x):
    check(x, statistics_of(torch.from_numpy(x)))


@settings(max_examples=100, deadline=None)
@given(hnp.arrays(np.float64, st.integers(1, 30), elements=st.one_of(st.floats(-1e306, 1e306), WEIRD)))
def test_any_float64_array_is_measured_as_the_naive_implementation_does(x):
    check(x, statistics_of(torch.from_numpy(x)))


@settings(max_examples=100, deadline=None)
@given(x=hnp.arrays(np.float32, (2, 5, 3), elements=st.floats(-100, 100, width=32)), power=st.integers(-36, 36))
def test_statistics_follow_the_scale_of_a_tensor(x, power):
    factor = np.float32(10.0**power) if power < 36 else np.float32(1e36)
    check(x * factor, statistics_of(torch.from_numpy(x * factor)))


def test_bfloat16_is_measured_from_its_exact_values():
    x = torch.from_numpy(normal(40, 16) * 1e30).bfloat16()
    check(x.double().numpy(), statistics_of(x))


def test_squares_of_float16_do_not_overflow():
    found = statistics_of(np.full((16, 16), 300, np.float16))
    assert found["rms"] == pytest.approx(300, rel=1e-3)
    assert found["n_posinf"] == 0


def test_a_tensor_without_entries_has_counts_of_zero_and_nothing_else():
    found = statistics_of(torch.zeros(0, 8))
    assert found["n"] == found["n_nan"] == found["n_sample"] == 0
    assert all(math.isnan(found[name]) for name in ("mean", "std", "rms", "absmax", "zero_frac", "q50", "kurtosis"))
    assert sum(value for name, value in found.items() if name.startswith("log2_hist")) == 0


def test_arrays_that_cannot_be_written_to_are_measured_too():
    x = normal(4, 4)
    x.flags.writeable = False
    assert statistics_of(x[::-1])["max"] == x.max()


def test_another_detail_is_refused_with_a_sentence():
    with pytest.raises(ValueError, match='detail is "some"; allowed: standard, full'):
        statistics_of(np.zeros(3), "some")


def test_integers_are_refused_with_a_sentence():
    with pytest.raises(TypeError, match=r"of real floating numbers; this tensor holds torch.int64"):
        statistics_of(torch.arange(3))


@pytest.mark.parametrize("case", [case for case, x in CASES.items() if x.ndim == 2])
def test_token_statistics_are_those_of_the_naive_implementation(case):
    x = np.stack([CASES[case], CASES[case][::-1]])
    found = statistics_of(torch.from_numpy(x), tokens=True)
    for name, value in naive.token_rms(x.reshape(-1, x.shape[-1])).items():
        assert close(found[name], value), name
    assert found["token_cosine"] == pytest.approx(naive.token_cosine(list(x)), abs=2e-6, nan_ok=True)


@pytest.mark.parametrize("way", [moments.row, lambda x, reading: fast_moments.row(x.numpy(), reading)])
@pytest.mark.parametrize("lengths", [(5, 5, 5, 5), (1, 9, 4, 6), (20,), (1,) * 20, (0, 12, 0, 8)])
def test_token_cosine_pools_the_pairs_of_all_sequences(way, lengths):
    x = normal(20, 8) + 0.5
    row = way(torch.from_numpy(x), Reading(full=False, tokens=True, lengths=lengths))
    sequences = np.split(x, np.cumsum(lengths)[:-1])
    assert float(row[COLUMN["token_cosine"]]) == pytest.approx(naive.token_cosine(sequences), abs=1e-6, nan_ok=True)


def test_tokens_that_are_all_alike_have_cosine_one():
    x = torch.from_numpy(normal(8)).expand(2, 6, 8)
    assert statistics_of(x, tokens=True)["token_cosine"] == pytest.approx(1, abs=1e-6)


def test_tokens_without_direction_are_left_out_of_token_cosine():
    x = with_entries(normal(6, 4), a=(0, np.nan), b=(9, np.inf))
    x[4] = 0
    found = statistics_of(torch.from_numpy(x), tokens=True)["token_cosine"]
    assert found == pytest.approx(naive.token_cosine([x[[1, 3, 5]]]), abs=1e-6)


@pytest.mark.parametrize("scale", [1, 1e-30, 1e30])
def test_layer_cosine_is_the_mean_over_tokens(scale):
    x, y = normal(30, 8) * np.float32(scale), normal(30, 8) + 0.3
    x[3], y[4, 0] = 0, np.nan
    found = float(cosine_of(torch.from_numpy(x), torch.from_numpy(y)))
    assert found == pytest.approx(naive.mean_cosine(x, y), abs=1e-6)
    clean = float(cosine_of(torch.from_numpy(x[5:]), torch.from_numpy(y[5:])))
    assert clean == pytest.approx(naive.mean_cosine(x[5:], y[5:]), abs=1e-6)


@pytest.mark.parametrize("shape", [(1, SAMPLE), (1, SAMPLE + 1), (512, 200), (300, 512), (1, 3 * SAMPLE)])
def test_beyond_the_sample_order_statistics_come_from_a_strided_sample_and_all_else_from_every_entry(shape):
    x = with_entries(np.maximum(normal(*shape), -0.5), a=(12345, 50.0))
    found = statistics_of(torch.from_numpy(x), tokens=False)
    n = x.size
    assert found["n"] == n
    assert found["n_sample"] == n if n <= SAMPLE else SAMPLE / 3 < found["n_sample"] <= SAMPLE
    assert found["absmax"] == 50
    assert found["zero_frac"] == (x == 0).mean()
    assert found["rms"] == pytest.approx(np.sqrt((x.astype(float) ** 2).mean()), rel=1e-6)
    assert found["subnormal_frac16"] == ((np.abs(x) < 2.0**-14) & (x != 0)).mean()
    assert sum(value for name, value in found.items() if name.startswith("log2_hist")) == found["n_sample"]
    assert found["q25"] == pytest.approx(np.quantile(x, 0.25), abs=0.02)


@pytest.mark.parametrize("width", [2, 64, 100, 128, 512])
def test_the_sample_meets_every_feature(width):
    n = width * (4 * SAMPLE // width)
    step = moments.stride(n, width)
    features = np.arange(0, n, step) % width
    assert len(np.unique(features)) == width
    assert len(features) <= SAMPLE


def test_quantiles_and_histogram_are_of_the_same_sample():
    x = normal(512, 300)
    x[:, ::2] *= 1e6
    found = statistics_of(torch.from_numpy(x))
    small = sum(found[f"log2_hist[{e}]"] for e in range(-149, 10)) / found["n_sample"]
    sample = x.reshape(-1)[:: moments.stride(x.size, x.size)]
    assert small == pytest.approx((np.abs(sample) < 1024).mean())
    assert found["q75"] == pytest.approx(np.quantile(sample.astype(float), 0.75), rel=1e-6)


@pytest.mark.parametrize("detail", ["standard", "full"])
def test_a_detail_has_the_statistics_that_the_vocabulary_gives_it(detail):
    found = statistics_of(torch.from_numpy(normal(2, 8, 4)), detail, tokens=True)
    wanted = [name for name, statistic in STATISTICS.items()
              if name in FROM_ROWS and (detail == "full" or statistic.detail == "standard")]
    assert [name for name in found if not name.startswith("log2_hist")] == wanted
    assert any(name.startswith("log2_hist") for name in found) == (detail == "full")


def test_every_statistic_of_the_vocabulary_has_its_entry():
    assert set(FROM_ROWS) == set(STATISTICS) - {"layer_cosine", "branch_ratio"}


def test_standard_and_full_agree():
    x = torch.from_numpy(normal(2, 8, 400))
    full, standard = statistics_of(x, "full", tokens=True), statistics_of(x, "standard", tokens=True)
    assert all(full[name] == value for name, value in standard.items() if name != "n_sample")


@pytest.mark.parametrize("way", ["fast", "general"])
def test_outliers_are_the_true_extremes_beyond_twenty_medians(way):
    x = normal(300, 512)
    x[17, 5], x[40, 511], x[41, 0] = 1000, -400, 25
    reading = Reading(tokens=True, outliers=True)
    found = row_of(torch.from_numpy(x), reading) if way == "fast" else moments.row(torch.from_numpy(x), reading).numpy()
    index = found[COLUMN["outlier_index_0"]:][:OUTLIERS]
    value = found[COLUMN["outlier_value_0"]:][:OUTLIERS]
    assert index[:3].tolist() == [17 * 512 + 5, 40 * 512 + 511, 41 * 512]
    assert value[:3].tolist() == [1000, -400, 25]
    assert np.isnan(index[3:]).all() and np.isnan(value[3:]).all()
    sample = np.abs(x.reshape(-1)[:: moments.stride(x.size, 512)])
    assert found[COLUMN["median_abs"]] == pytest.approx(np.median(sample), rel=1e-6)


@pytest.mark.parametrize("way", [row_of, lambda x, reading: moments.row(x, reading).numpy()])
def test_beside_many_zeros_an_outlier_is_measured_against_the_other_entries(way):
    x = np.maximum(normal(64, 64), 0)
    nothing = way(torch.from_numpy(x), Reading(tokens=True, outliers=True))
    assert np.isnan(nothing[COLUMN["outlier_index_0"]])
    x[3, 4] = 500
    found = way(torch.from_numpy(x), Reading(tokens=True, outliers=True))
    assert found[COLUMN["outlier_value_0"]] == 500
    assert found[COLUMN["median_abs"]] == pytest.approx(np.median(x[x > 0]), rel=1e-6)


def test_a_zero_tensor_with_one_spike_has_one_outlier_or_none_but_no_error():
    x = torch.zeros(8, 8)
    x[2, 3] = 1000
    found = row_of(x, Reading(tokens=True, outliers=True))
    assert found[COLUMN["max"]] == 1000


@pytest.mark.parametrize("size", [1, 7, 1000, 70000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_order_statistics_are_those_of_a_full_sort(size, dtype):
    x = np.concatenate((normal(size, dtype=dtype), np.zeros(size // 3, dtype), normal(size // 2, dtype=dtype) * 1e-30))
    ranks = np.unique(RNG.integers(0, x.size, 20))
    found, _ = fast_order.order_statistics(x, ranks)
    assert (found == np.sort(x)[ranks]).all()


def test_a_row_has_one_number_a_column():
    for full in (False, True):
        row = row_of(torch.from_numpy(normal(4, 4)), Reading(full))
        assert row.shape == (len(COLUMNS),)


def test_measuring_draws_no_random_numbers_and_makes_no_graph():
    x = torch.randn(8, 8, requires_grad=True)
    before = torch.get_rng_state()
    row = row_of(x, Reading())
    general = moments.row(x.detach(), Reading())
    assert torch.equal(torch.get_rng_state(), before)
    assert isinstance(row, np.ndarray) and not general.requires_grad
