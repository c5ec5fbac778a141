"""Order statistics, histogram and outliers on the CPU.

Entries are counted by their leading bits (sign, exponent, first bits of the mantissa); histogram and ranks come from
that one count (`core.scan_order`), and only entries that share their leading bits with a wanted rank are sorted.
Several times faster than a sort, and exact. The file knows finite entries; it does not know where they stand.

Shapes: n entries of a sample.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from core.columns import OUTLIER_RATIO, OUTLIER_ZEROS, OUTLIERS, QUANTILES
from core.fast_tokens import ranks
from core.scan_order import gathered
from core.vocabulary import HISTOGRAM_BINS, HISTOGRAM_HIGH, HISTOGRAM_LOW

Floats = NDArray[np.floating[Any]]
F64 = NDArray[np.float64]
I64 = NDArray[np.int64]


class Bits(NamedTuple):
    """How a float dtype is laid out, and how many leading bits of its mantissa are looked at first."""

    unsigned: type[np.unsignedinteger[Any]]
    signed: type[np.signedinteger[Any]]
    exponent: int
    leading: int

    @property
    def bias(self) -> int:
        """What a biased exponent is above the true one."""
        return int((1 << (self.exponent - 1)) - 1)


BITS: dict[np.dtype[Any], Bits] = {
    np.dtype(np.float32): Bits(np.uint32, np.int32, 8, 5),
    np.dtype(np.float64): Bits(np.uint64, np.int64, 11, 4),
}


def quantiles_and_histogram(sample: Floats) -> tuple[F64, F64]:
    """Return QUANTILES by linear interpolation, (7,), and the counts of HISTOGRAM_BINS, (279,), of n ≥ 1 entries."""
    wanted, places, weight = _quantile_ranks(sample.size)
    values, exponents = order_statistics(sample, wanted)
    lower, upper = values.astype(np.float64)[places]
    return lower * (1 - weight) + upper * weight, _histogram(sample, exponents)


@lru_cache(maxsize=64)
def _quantile_ranks(count: int) -> tuple[I64, I64, F64]:
    """Return the ranks that QUANTILES need, ascending, where among them their lower and upper neighbours are, (2, 7),
    and the weight of the upper ones."""
    below, above, weight = ranks(QUANTILES, count)
    wanted, places = np.unique(np.stack((below, above)), return_inverse=True)
    return wanted, places.reshape(2, -1), weight


def order_statistics(x: Floats, wanted: I64) -> tuple[Floats, I64]:
    """Return the entries of `x` (n,), finite, that have these ranks, and the counts by biased exponent.

    `wanted`: 0 the least entry, ascending.
    """
    bits = BITS[x.dtype]
    exponents, among = np.zeros(1 << bits.exponent, np.int64), wanted.copy()
    widths = np.array([1 + bits.exponent + bits.leading, bits.leading])
    candidates = np.sort(gathered(x, x.view(bits.unsigned), widths, among, exponents))
    return candidates[among], exponents


def _histogram(sample: Floats, exponents: I64) -> F64:
    """Return the counts of HISTOGRAM_BINS, (279,), of the sample from those by biased exponent."""
    bits = BITS[sample.dtype]
    last = HISTOGRAM_HIGH - HISTOGRAM_LOW
    places = np.clip(np.arange(1, len(exponents)) - bits.bias - HISTOGRAM_LOW, 0, last)
    counts: F64 = np.bincount(places, exponents[1:], len(HISTOGRAM_BINS)).astype(np.float64)
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
    median = _median(np.abs(sample), int(zeros) if leave_out else 0)
    if size < OUTLIER_RATIO * median:
        return median, np.empty(0, np.int64)
    flat = np.abs(x.reshape(-1))
    found = np.flatnonzero(flat >= x.dtype.type(0.999 * OUTLIER_RATIO * median))  # in their own dtype: a little more
    sizes = flat[found].astype(np.float64)
    far = (sizes >= OUTLIER_RATIO * median) & (sizes < np.inf)
    largest_first = np.argsort(-sizes[far], kind="stable")
    return median, found[far][largest_first[:OUTLIERS]]


def _median(sizes: Floats, passed: int) -> float:
    """Return the median of magnitudes without `passed` of the least."""
    last = passed + len(sizes) - 1
    middle = np.unique([last // 2, (last + 1) // 2])
    found = order_statistics(sizes, middle)[0].astype(np.float64).tolist()
    return float(found[0] + (found[-1] - found[0]) / 2)  # their sum could be beyond float64
