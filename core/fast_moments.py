"""The row of an ordinary tensor on the CPU, with NumPy: the fast way of what `core.moments` defines.

Ordinary: finite entries, no row so small or large that its squares leave the dtype, a std that is not lost beside the
mean. Whatever is not ordinary is refused (None), which costs one or two cheap passes, and is then measured the general
way. Vanishing and exploding tensors are ordinary after a scaling by a power of two, which is exact. Order statistics
and histogram come from one count by the leading bits of the entries (sign, exponent, first bits of the mantissa).

Shapes: R rows (tokens, or 1), W features of a row (or all n entries), n = R·W, B sequences.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from core.columns import (
    COLUMN,
    COLUMNS,
    FLOAT16_NORMAL,
    FLOAT16_OVERFLOW,
    HISTOGRAM_SPAN,
    INDEX_SPAN,
    OUTLIER_RATIO,
    OUTLIER_ZEROS,
    OUTLIERS,
    QUANTILE_SPAN,
    QUANTILES,
    TOKEN_QUANTILES,
    TOKEN_SPAN,
    VALUE_SPAN,
    Reading,
)
from core.moments import stride
from core.vocabulary import HISTOGRAM_BINS, HISTOGRAM_HIGH, HISTOGRAM_LOW

Floats = NDArray[np.floating[Any]]
F64 = NDArray[np.float64]

COMFORTABLE = (1e-12, 1e12)
"""Tensors whose largest magnitude lies outside are scaled first."""

LEAST_SQUARE = 1e-30
"""A row whose mean square (after scaling) is below this may have lost entries to underflow."""

LEAST_VARIANCE = 1e-2
"""Share of the mean square that the variance must have; below, Σx² in the entries' own dtype is too coarse for it."""

BLOCK = 1 << 18
"""Entries counted at a time, so that what is set aside for it stays small."""

LANE = 256
"""Entries summed at a time where a row is all n entries."""


class Bits(NamedTuple):
    """How a float dtype is laid out, and how many leading bits of its mantissa an order statistic looks at first."""

    unsigned: type[np.unsignedinteger[Any]]
    exponent: int
    mantissa: int
    leading: int

    @property
    def shift(self) -> int:
        """The bits that are dropped."""
        return self.mantissa - self.leading

    @property
    def bias(self) -> int:
        """What a biased exponent is above the true one."""
        return int((1 << (self.exponent - 1)) - 1)

    @property
    def largest(self) -> int:
        """The largest power of two to scale by."""
        return self.bias - 7


BITS: dict[np.dtype[Any], Bits] = {
    np.dtype(np.float32): Bits(np.uint32, 8, 23, 5), np.dtype(np.float64): Bits(np.uint64, 11, 52, 4),
}


def row(x: Floats, reading: Reading) -> F64 | None:
    """Return the row of `x` (R, W), contiguous, float32 or float64, as COLUMNS, or None where it is not ordinary."""
    if x.size == 0:
        return None
    high, low = float(x.max()), float(x.min())  # NaN when there is one
    size = max(high, -low)
    if not (math.isfinite(high) and math.isfinite(low)) or size == 0:
        return None
    factor = _factor(size, x.dtype)
    scaled = x if factor == 1.0 else x * x.dtype.type(factor)
    lanes = _lanes(scaled, reading.tokens)
    squares = _square_sums(lanes)  # (R,)
    mean, mean_square = _mean(_sums(lanes), x.size), _mean(squares, x.size)
    variance = mean_square - mean * mean
    least = squares.min() / x.shape[-1] if reading.tokens else mean_square
    if not (least > LEAST_SQUARE and variance > LEAST_VARIANCE * mean_square):
        return None
    out = np.full(len(COLUMNS), np.nan)
    std = math.sqrt(variance)
    out[: COLUMN["token_rms_p05"]] = (x.size, 0, 0, 0, *_counts(x, size), low, high, mean / factor, std / factor)
    _tokens(out, scaled, squares, factor, reading)
    if reading.full:
        _sampled(out, x, scaled, reading)
    return out


def norm(x: Floats) -> float:
    """Return ‖x‖₂ of a contiguous array as its own dtype gives it, each lane, and float64 over lanes."""
    return math.sqrt(float(_square_sums(_lanes(x, tokens=False)).sum(dtype=np.float64))) if x.size else 0.0


def cosines(x: Floats, y: Floats) -> Floats | None:
    """Return cos(x, y) of each row of x, y (R, W), (R,); None where a norm is too small or large to be taken so."""
    squares = np.vecdot(x, x), np.vecdot(y, y)
    least = LEAST_SQUARE * x.shape[-1]
    if not all(least < square.min() and square.max() < 1 / LEAST_SQUARE for square in squares):
        return None
    result: Floats = np.vecdot(x, y) / (np.sqrt(squares[0]) * np.sqrt(squares[1]))
    return result


def _factor(size: float, dtype: np.dtype[Any]) -> float:
    """Return the power of two that brings a tensor of absmax `size` where its squares are safe; 1 if they are."""
    if COMFORTABLE[0] < size < COMFORTABLE[1]:
        return 1.0
    limit = BITS[dtype].largest
    return 2.0 ** max(-limit, min(limit, -math.frexp(size)[1]))


def _lanes(x: Floats, tokens: bool) -> tuple[Floats, ...]:
    """Return `x` as rows that are summed on their own: its tokens, or all entries cut into lanes."""
    if tokens:
        return (x,)
    flat = x.reshape(-1)
    whole = flat.size - flat.size % LANE
    return tuple(part for part in (flat[:whole].reshape(-1, LANE), flat[None, whole:]) if part.size)


def _sums(lanes: tuple[Floats, ...]) -> Floats:
    """Return Σx of every lane."""
    return np.concatenate([np.vecdot(part, _ones(part.shape[-1], part.dtype)) for part in lanes])


def _square_sums(lanes: tuple[Floats, ...]) -> Floats:
    """Return Σx² of every lane."""
    return np.concatenate([np.vecdot(part, part) for part in lanes])


def _mean(sums: Floats, count: int) -> float:
    return float(sums.sum(dtype=np.float64)) / count


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
            zero = magnitude.size - int(np.count_nonzero(magnitude.view(BITS[x.dtype].unsigned)))
            zeros, subnormal = zeros + zero, subnormal + tiny - zero
        if size >= FLOAT16_OVERFLOW:
            overflow += int(np.count_nonzero(magnitude >= x.dtype.type(FLOAT16_OVERFLOW)))
    return zeros, subnormal, overflow


def _tokens(out: F64, x: Floats, squares: Floats, factor: float, reading: Reading) -> None:
    """Write token_rms and token_cosine; `squares`: Σx² of each token, (R,)."""
    if not reading.tokens:
        return
    norms = np.sqrt(squares)
    ordered = np.sort(norms).astype(np.float64) / (factor * math.sqrt(x.shape[-1]))
    below, above, weight = _ranks(TOKEN_QUANTILES, len(ordered))
    out[TOKEN_SPAN] = ordered[below] * (1 - weight) + ordered[above] * weight
    if reading.lengths:
        sums = _direction_sums(x, 1 / norms, reading.lengths).astype(np.float64)  # (B, W)
        pairs = sum(length * (length - 1) for length in reading.lengths)
        if pairs:
            out[COLUMN["token_cosine"]] = (float((sums * sums).sum()) - len(x)) / pairs


def _direction_sums(x: Floats, weights: Floats, lengths: tuple[int, ...]) -> Floats:
    """Return Σ_t x_t/‖x_t‖ of each sequence, (B, W)."""
    if len(set(lengths)) == 1:
        shape = (len(lengths), lengths[0])
        left, right = torch.from_numpy(weights).view(shape[0], 1, shape[1]), torch.from_numpy(x).view(*shape, -1)
        sums: Floats = torch.bmm(left, right).squeeze(1).numpy()
        return sums
    starts = np.cumsum((0, *lengths[:-1]))
    filled = np.asarray(lengths) > 0
    pooled: Floats = np.add.reduceat(x * weights[:, None], starts[filled], axis=0)
    return pooled


@lru_cache(maxsize=64)
def _ranks(wanted: tuple[float, ...], count: int) -> tuple[NDArray[np.int64], NDArray[np.int64], F64]:
    """Return for each quantile the ranks of its two neighbours among `count`, and the weight of the upper one."""
    positions = np.asarray(wanted) * (count - 1)
    below = np.floor(positions).astype(np.int64)
    return below, np.minimum(below + 1, count - 1), positions - below


def _sampled(out: F64, x: Floats, scaled: Floats, reading: Reading) -> None:
    """Write the columns of FULL: kurtosis from `scaled`, a power of two times `x`, the rest from `x` itself."""
    step = stride(x.size, x.shape[-1])
    sample = np.ascontiguousarray(x.reshape(-1)[::step])
    below, above, weight = _ranks(QUANTILES, sample.size)
    values, exponents = order_statistics(sample, np.concatenate((below, above)))
    lower, upper = values.astype(np.float64).reshape(2, -1)
    out[COLUMN["n_sample"]] = sample.size
    out[COLUMN["kurtosis"]] = _kurtosis(sample if scaled is x else np.ascontiguousarray(scaled.reshape(-1)[::step]))
    out[QUANTILE_SPAN] = lower * (1 - weight) + upper * weight
    out[HISTOGRAM_SPAN] = histogram = _histogram(sample, exponents)
    if reading.outliers:
        _outliers(out, x, sample, histogram)


def order_statistics(x: Floats, ranks: NDArray[np.int64]) -> tuple[Floats, NDArray[np.int64]]:
    """Return the entries of `x` (n,), finite, that have these ranks (0 = least), and the counts by biased exponent.

    Entries are counted by their leading bits; only those that share them with a wanted one are sorted.
    """
    bits = BITS[x.dtype]
    leading = (x.view(bits.unsigned) >> bits.unsigned(bits.shift)).astype(np.int64)
    kinds = 1 << (bits.exponent + bits.leading)
    counts = np.bincount(leading, minlength=2 * kinds)
    ascending = np.concatenate((counts[kinds:][::-1], counts[:kinds]))  # most negative first
    ends = np.cumsum(ascending)
    bins = np.searchsorted(ends, ranks, side="right")
    wanted = np.zeros(2 * kinds, bool)
    wanted[bins] = True
    skipped = np.cumsum(np.where(wanted, 0, ascending))[bins]
    chosen = np.sort(x[np.concatenate((wanted[kinds:], wanted[:kinds][::-1]))[leading]])
    return chosen[ranks - skipped], counts.reshape(2, -1, 1 << bits.leading).sum((0, 2))


def _kurtosis(sample: Floats) -> float:
    """Return E[(x−mean)⁴]/std⁴ of the sample; NaN where all its entries are equal."""
    mean = _mean(_sums(_lanes(sample, tokens=False)), sample.size)
    spread = sample - sample.dtype.type(mean)
    variance = _mean(_square_sums(_lanes(spread, tokens=False)), sample.size)
    if variance == 0:
        return math.nan
    spread *= sample.dtype.type(1 / math.sqrt(variance))
    spread *= spread
    return _mean(_square_sums(_lanes(spread, tokens=False)), sample.size)


def _histogram(sample: Floats, exponents: NDArray[np.int64]) -> F64:
    """Return the counts of HISTOGRAM_BINS, (279,), of the sample from those by biased exponent."""
    bits = BITS[sample.dtype]
    last = HISTOGRAM_HIGH - HISTOGRAM_LOW
    counts = np.zeros(len(HISTOGRAM_BINS))
    places = np.clip(np.arange(1, len(exponents)) - bits.bias - HISTOGRAM_LOW, 0, last)
    np.add.at(counts, places, exponents[1:])
    if exponents[0]:  # zeros, and what is subnormal in the entries' own dtype
        rest = sample[np.abs(sample) < np.finfo(sample.dtype).tiny]
        rest = rest[rest != 0]
        np.add.at(counts, np.clip(np.frexp(rest)[1] - 1 - HISTOGRAM_LOW, 0, last), 1)
        counts[-2] = exponents[0] - rest.size
    return counts


def _outliers(out: F64, x: Floats, sample: Floats, histogram: F64) -> None:
    """Write median_abs where an outlier is possible at all, and the outliers."""
    zeros = histogram[-2]
    skip_zeros = zeros >= OUTLIER_ZEROS * sample.size
    rank = 0.5 * (sample.size - zeros) if skip_zeros else 0.5 * sample.size - zeros
    place = int(np.searchsorted(np.cumsum(histogram[:-2]), rank))  # the bin of the median; the first has no lower end
    size = max(out[COLUMN["max"]], -out[COLUMN["min"]])
    if place and size < OUTLIER_RATIO * 2.0 ** (place + HISTOGRAM_LOW):
        return
    sizes = np.abs(sample)
    median = float(np.median(sizes[sizes > 0] if skip_zeros else sizes))
    flat = x.reshape(-1)
    magnitude = np.abs(flat)
    kept = min(OUTLIERS, flat.size)
    top = np.argpartition(magnitude, flat.size - kept)[flat.size - kept:]
    top = top[np.argsort(-magnitude[top], kind="stable")]
    top = top[magnitude[top] >= OUTLIER_RATIO * median]
    out[COLUMN["median_abs"]] = median
    out[INDEX_SPAN][: len(top)] = top
    out[VALUE_SPAN][: len(top)] = flat[top]
