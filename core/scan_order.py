"""Entries counted by their leading bits on the CPU, and those gathered that may have a wanted rank.

Leading bits (sign, exponent, first bits of the mantissa) put entries into bins that ascend as the entries do, but for
the sign. The file knows bits; it does not know quantiles.

Shapes: n entries, w ranks, 2·h bins, the first h of them of entries without a sign.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.compiled import compiled

Floats = NDArray[np.floating[Any]]
I64 = NDArray[np.int64]


@compiled("float32[::1](float32[::1], uint32[::1], int64[::1], int64[::1], int64[::1])",
          "float64[::1](float64[::1], uint64[::1], int64[::1], int64[::1], int64[::1])")
def gathered(x: Floats, bits: NDArray[np.unsignedinteger[Any]], widths: I64, wanted: I64, exponents: I64) -> Floats:
    """Return every entry of `x` (n,) in a bin that has a wanted rank.

    `bits`: the same entries; `widths`: of a bin's number and of its part below the exponent; `wanted` (w,), ascending:
    ranks, 0 the least, and on return those among the entries returned; `exponents`: 0, and on return the counts by
    exponent.
    """
    half, shift = 1 << (widths[0] - 1), bits.dtype.type(8 * bits.itemsize - widths[0])
    counts, chosen = np.zeros(2 * half, np.int32), np.zeros(2 * half, np.uint8)
    for i in range(bits.size):
        counts[bits[i] >> shift] += 1
    place = seen = passed = 0
    for step in range(2 * half):
        bin_ = 2 * half - 1 - step if step < half else step - half  # most negative first
        count = counts[bin_]
        if count:
            exponents[(bin_ & (half - 1)) >> widths[1]] += count
            seen += count
            while place < wanted.size and wanted[place] < seen:
                wanted[place] -= passed
                chosen[bin_] = 1
                place += 1
            passed += 0 if chosen[bin_] else count
    found, front = np.empty_like(x), 0
    for i in range(bits.size):
        found[front] = x[i]
        front += chosen[bits[i] >> shift]
    return found[:front]
