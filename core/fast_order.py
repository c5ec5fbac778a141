"""Order statistics, histogram and outliers on the CPU, with NumPy.

Entries are counted by their leading bits (sign, exponent, first bits of the mantissa); histogram and ranks come from
that one count, and only entries that share their leading bits with a wanted rank are sorted. Several times faster than
a sort, and exact. The file knows finite entries; it does not know where they stand.

Shapes: n entries of a sample.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from core.columns import OUTLIER_RATIO, OUTLIER_ZEROS, OUTLIERS, QUANTILES
from core.vocabulary import HISTOGRAM_BINS, HISTOGRAM_HIGH, HISTOGRAM_LOW

Floats = NDArray[np.floating[Any]]
F64 = NDArray[np.float64]
I64 = NDArray[np.int64]


class Bits(NamedTuple):
    """How a float dtype is laid out, and how many leading bits of its mantissa are looked at first."""

    unsigned: type[np.unsignedinteger[Any]]
    exponent: int
    mantissa: int
    leading: int

    @property
    def shift(self) -> int:
        """The bits that are not looked at."""
        return self.mantissa - self.leading

    @property
    def bias(self) -> int:
        """What a biased exponent is above the true one."""
        return int((1 << (self.exponent - 1)) - 1)


BITS: dict[np.dtype[Any], Bits] = {
    np.dtype(np.float32): Bits(np.uint32, 8, 23, 5), np.dtype(np.float64): Bits(np.uint64, 11, 52, 4),
}


def quantiles_and_histogram(sample: Floats) -> tuple[F64, F64]:
    """Return QUANTILES by linear interpolation, (7,), and the counts of HISTOGRAM_BINS, (279,), of n ≥ 1 entries."""
    below, above, weight = ranks(QUANTILES, sample.size)
    values, exponents = order_statistics(sample, np.concatenate((below, above)))
    lower, upper = values.astype(np.float64).reshape(2, -1)
    return lower * (1 - weight) + upper * weight, _histogram(sample, exponents)


@lru_cache(maxsize=64)
def ranks(wanted: tuple[float, ...], count: int) -> tuple[I64, I64, F64]:
    """Return for each quantile the ranks of its two neighbours among `count`, and the weight of the upper one."""
    positions = np.asarray(wanted) * (count - 1)
    below = np.floor(positions).astype(np.int64)
    return below, np.minimum(below + 1, count - 1), positions - below


def order_statistics(x: Floats, wanted: I64) -> tuple[Floats, I64]:
    """Return the entries of `x` (n,), finite, that have these ranks (0 = least), and the counts by biased exponent."""
    bits = BITS[x.dtype]
    leading = (x.view(bits.unsigned) >> bits.unsigned(bits.shift)).astype(np.int64)
    half = 1 << (bits.exponent + bits.leading)  # sign 0 below, sign 1 from here on
    counts = np.bincount(leading, minlength=2 * half)
    ascending = np.concatenate((counts[half:][::-1], counts[:half]))  # most negative first
    places = np.searchsorted(np.cumsum(ascending), wanted, side="right")
    chosen = np.zeros(2 * half, bool)
    chosen[places] = True
    passed_over = np.cumsum(np.where(chosen, 0, ascending))[places]
    by_leading = np.concatenate((chosen[half:], chosen[:half][::-1]))
    candidates = np.sort(x[by_leading[leading]])
    return candidates[wanted - passed_over], counts.reshape(2, -1, 1 << bits.leading).sum((0, 2))


def _histogram(sample: Floats, exponents: I64) -> F64:
    """Return the counts of HISTOGRAM_BINS, (279,), of the sample from those by biased exponent."""
    bits = BITS[sample.dtype]
    last = HISTOGRAM_HIGH - HISTOGRAM_LOW
    places = np.clip(np.arange(1, len(exponents)) - bits.bias - HISTOGRAM_LOW, 0, last)
    counts = np.zeros(len(HISTOGRAM_BINS))
    np.add.at(counts, places, exponents[1:])
    if exponents[0]:  # zeros, and what is subnormal in the entries' own dtype
        rest = sample[np.abs(sample) < sample.dtype.type(2.0 ** (1 - bits.bias))]
        rest = rest[rest != 0]
        np.add.at(counts, np.clip(np.frexp(rest)[1] - 1 - HISTOGRAM_LOW, 0, last), 1)
        counts[-2] = exponents[0] - rest.size
    return counts


def outliers(x: Floats, sample: Floats, histogram: F64, size: float) -> tuple[float, I64] | None:
    """Return median|x| of the sample and the flat indices of the outliers of `x`, the largest first, or None.

    `histogram`: of the sample, which says without a sort whether `size`, the largest magnitude of `x`, can be one. The
    median is over the non-zero entries from OUTLIER_ZEROS on. Entries of `x` that are not finite are passed over.
    """
    zeros = histogram[-2]
    leave_out = zeros >= OUTLIER_ZEROS * sample.size
    if zeros == sample.size:
        return None
    rank = 0.5 * (sample.size - zeros) if leave_out else 0.5 * sample.size - zeros
    place = int(np.searchsorted(np.cumsum(histogram[:-2]), rank))  # the bin of the median; the first has no lower end
    if place and size < OUTLIER_RATIO * 2.0 ** (place + HISTOGRAM_LOW):
        return None
    sizes = np.abs(sample)
    median = float(np.median(sizes[sizes > 0] if leave_out else sizes))
    flat = np.abs(x.reshape(-1)).astype(np.float64, copy=False)  # the threshold may be beyond float32
    found = np.flatnonzero((flat >= OUTLIER_RATIO * median) & (flat < np.inf))
    largest_first = np.argsort(-flat[found], kind="stable")
    return median, found[largest_first[:OUTLIERS]]
