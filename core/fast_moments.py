"""The row of a tensor on the CPU, with NumPy: the fast way of what `core.moments` defines.

Sums are taken row by row and then pairwise over rows, in the entries' own dtype. Where that could cost digits, more is
done, and only there: a vanishing or exploding tensor is first scaled by a power of two, which is exact; a mean far
above the std is taken off; a token so much smaller than the others that its squares vanish is measured apart; entries
that are not finite are counted and left out. The one case left to the general way is the token measures of tokens that
are finite in part, or of very different size.

Shapes: R rows (tokens, or 1), W features of a row (or all n entries), n = R·W, B sequences.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core import fast_order, fast_tokens, moments
from core.columns import (
    COLUMN,
    COLUMNS,
    FLOAT16_NORMAL,
    FLOAT16_OVERFLOW,
    HISTOGRAM_SPAN,
    INDEX_SPAN,
    QUANTILE_SPAN,
    VALUE_SPAN,
    Reading,
)
from core.fast_order import BITS, F64, I64, Floats
from core.fast_tokens import Entries

COMFORTABLE = (1e-12, 1e12)
"""Tensors whose largest magnitude lies outside are scaled first."""

LEAST_VARIANCE = 1e-2
"""Share of the mean square that the variance must have, for Σx² in the entries' own dtype to give it."""

BLOCK = 1 << 18
"""Entries counted at a time, so that what is set aside for it stays small."""

LANE = 256
"""Entries summed at a time where a row is all n entries."""


def row(x: Floats, reading: Reading) -> F64:
    """Return the row of `x` (R, W), contiguous, float32 or float64, as COLUMNS, (C,); what is undefined is NaN."""
    out = _BLANK.copy()
    out[0] = x.size
    if x.size:
        low, high = float(np.minimum.reduce(x, None)), float(np.maximum.reduce(x, None))  # NaN when there is one
        if math.isfinite(low) and math.isfinite(high):
            entries = _entries(out, x, low, high, reading.tokens)
            if reading.tokens:
                fast_tokens.write(out, entries, reading.lengths)
        else:
            _finite_part(out, x, reading)
    if reading.full:
        _sampled(out, x, reading)
    return out


_BLANK = np.full(len(COLUMNS), np.nan)
_BLANK[: COLUMN["min"]] = 0


@np.errstate(over="ignore", invalid="ignore")
def norm(x: Floats) -> float:
    """Return ‖x‖₂ of a contiguous array as its own dtype gives it, each lane, and float64 over lanes."""
    return math.sqrt(float(_square_sums(_lanes(x, tokens=False)).sum(dtype=np.float64))) if x.size else 0.0


def _entries(out: F64, x: Floats, low: float, high: float, tokens: bool) -> Entries:
    """Write n_zero … std of finite entries."""
    size = max(high, -low)
    factor = _factor(size, x.dtype)
    scaled = x if factor == 1.0 else x * x.dtype.type(factor)
    lanes = _lanes(scaled, tokens)
    squares = _square_sums(lanes)
    mean, mean_square = _mean(_sums(lanes), x.size), _mean(squares, x.size)
    variance = mean_square - mean * mean
    if not variance > LEAST_VARIANCE * mean_square:
        mean, variance = _shifted(scaled, mean, tokens)
    std = 0.0 if low == high else math.sqrt(variance)
    mean = low * factor if low == high else mean
    out[COLUMN["n_zero"]: COLUMN["std"] + 1] = (*_counts(x, size), low, high, mean / factor, std / factor)
    return Entries(x, scaled, factor, squares)


def _shifted(x: Floats, near: float, tokens: bool) -> tuple[float, float]:
    """Return mean and variance of `x`, taken about a value near the mean."""
    shift = x.dtype.type(near)
    lanes = _lanes(x - shift, tokens)
    offset = _mean(_sums(lanes), x.size)
    return float(shift) + offset, max(_mean(_square_sums(lanes), x.size) - offset * offset, 0.0)


def _factor(size: float, dtype: np.dtype[Any]) -> float:
    """Return the power of two that brings a tensor of absmax `size` where its squares are safe; 1 if they are."""
    if size == 0 or COMFORTABLE[0] < size < COMFORTABLE[1]:
        return 1.0
    limit = BITS[dtype].bias - 7
    return float(2.0 ** max(-limit, min(limit, -math.frexp(size)[1])))


def _lanes(x: Floats, tokens: bool) -> tuple[Floats, ...]:
    """Return `x` as rows that are summed on their own: its tokens, or all entries cut into lanes."""
    if tokens:
        return (x,)
    flat = x.reshape(-1)
    whole = flat.size - flat.size % LANE
    return tuple(part for part in (flat[:whole].reshape(-1, LANE), flat[None, whole:]) if part.size)


def _sums(lanes: tuple[Floats, ...]) -> Floats:
    """Return Σx of every lane."""
    return _joined([np.vecdot(part, _ones(part.shape[-1], part.dtype)) for part in lanes])


def _square_sums(lanes: tuple[Floats, ...]) -> Floats:
    """Return Σx² of every lane."""
    return _joined([np.vecdot(part, part) for part in lanes])


def _joined(parts: list[Floats]) -> Floats:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _mean(sums: Floats, count: int) -> float:
    return float(np.add.reduce(sums)) / count


@lru_cache(maxsize=16)
def _ones(width: int, dtype: np.dtype[Any]) -> Floats:
    return np.ones(width, dtype)


def _counts(x: Floats, size: float) -> tuple[int, int, int]:
    """Return how many entries are zero, subnormal in float16 and beyond float16; exact."""
    zeros = subnormal = overflow = 0
    flat = x.reshape(-1)
    for start in range(0, flat.size, BLOCK):
        magnitude = np.abs(flat[start: start + BLOCK])
        tiny = int(np.count_nonzero(magnitude < x.dtype.type(FLOAT16_NORMAL)))
        if tiny:
            has_zero = np.minimum.reduce(magnitude) == 0
            zero = magnitude.size - int(np.count_nonzero(magnitude.view(BITS[x.dtype].unsigned))) if has_zero else 0
            zeros, subnormal = zeros + zero, subnormal + tiny - zero
        if size >= FLOAT16_OVERFLOW:
            overflow += int(np.count_nonzero(magnitude >= x.dtype.type(FLOAT16_OVERFLOW)))
    return zeros, subnormal, overflow


def _finite_part(out: F64, x: Floats, reading: Reading) -> None:
    """Write all but the columns of FULL for a tensor with entries that are not finite."""
    finite = np.isfinite(x)
    kinds = np.isnan(x), x == np.inf, x == -np.inf
    out[COLUMN["n_nan"]: COLUMN["n_zero"]] = [np.count_nonzero(kind) for kind in kinds]
    known = x[finite]
    if known.size == 0:
        return
    _entries(out, known[None], float(known.min()), float(known.max()), tokens=False)
    whole: NDArray[np.bool_] = np.asarray(finite.all(1))
    if reading.tokens and finite[~whole].any():
        fast_tokens.write_general(out, x, reading.lengths, rms=True)
    elif reading.tokens:
        kept = x[whole]
        factor = _factor(float(np.abs(kept).max()), x.dtype)
        scaled = kept * x.dtype.type(factor)
        entries = Entries(kept, scaled, factor, np.vecdot(scaled, scaled))
        fast_tokens.write(out, entries, fast_tokens.lengths_of(reading.lengths, whole))


def _sampled(out: F64, x: Floats, reading: Reading) -> None:
    """Write the columns of FULL from the strided sample, all entries up to SAMPLE of them."""
    sample = np.ascontiguousarray(x.reshape(-1)[:: moments.stride(x.size, x.shape[-1])])
    taken = sample.size
    if not math.isfinite(out[COLUMN["mean"]]) or out[: COLUMN["n_zero"]][1:].any():
        sample = sample[np.isfinite(sample)]
    out[COLUMN["n_sample"]], out[HISTOGRAM_SPAN] = taken, 0
    if sample.size:
        out[QUANTILE_SPAN], histogram = fast_order.quantiles_and_histogram(sample)
        out[HISTOGRAM_SPAN] = histogram
        out[COLUMN["kurtosis"]] = _kurtosis(sample, out)
        if reading.outliers:
            size = max(out[COLUMN["max"]], -out[COLUMN["min"]])
            _write_outliers(out, x, fast_order.outliers(x, sample, histogram, size))
    out[HISTOGRAM_SPAN.stop - 1] = taken - sample.size


def _write_outliers(out: F64, x: Floats, found: tuple[float, I64] | None) -> None:
    if found is not None:
        out[COLUMN["median_abs"]], index = found
        out[INDEX_SPAN][: len(index)] = index
        out[VALUE_SPAN][: len(index)] = x.reshape(-1)[index]


def _kurtosis(sample: Floats, out: F64) -> float:
    """Return E[(x−mean)⁴]/std⁴ of the finite sample; NaN where its entries are equal, as they are where std is 0."""
    factor = _factor(max(out[COLUMN["max"]], -out[COLUMN["min"]]), sample.dtype)
    scaled = sample if factor == 1.0 else sample * sample.dtype.type(factor)
    spread = scaled - scaled.dtype.type(_mean(_sums(_lanes(scaled, tokens=False)), scaled.size))
    spread -= scaled.dtype.type(_mean(_sums(_lanes(spread, tokens=False)), scaled.size))  # what the first one rounded
    variance = _mean(_square_sums(_lanes(spread, tokens=False)), scaled.size)
    if variance == 0 or out[COLUMN["min"]] == out[COLUMN["max"]]:
        return math.nan
    spread *= sample.dtype.type(1 / math.sqrt(variance))
    spread *= spread
    return _mean(_square_sums(_lanes(spread, tokens=False)), scaled.size)
