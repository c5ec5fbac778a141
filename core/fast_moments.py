"""The row of a tensor on the CPU: the fast way of what `core.moments` defines.

One pass (`core.scan`) gives nearly all of it. Where that says that its sums may have lost digits, more is done, and
only there: a vanishing or exploding tensor is read again scaled by a power of two, which is exact; entries that are not
finite are counted and left out; token measures of tokens that are finite in part, or so small beside others that their
squares vanish, are left to the general way.

Shapes: R rows (tokens, or 1), W features of a row (or all n entries), n = R·W, B sequences.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from core import fast_order, moments
from core.columns import (
    COLUMN,
    COLUMNS,
    FLOAT16_NORMAL,
    FLOAT16_OVERFLOW,
    HISTOGRAM_SPAN,
    INDEX_SPAN,
    N_STANDARD,
    QUANTILE_SPAN,
    TOKEN_SPAN,
    VALUE_SPAN,
    Reading,
)
from core.fast_order import BITS, F64, I64, Floats
from core.fast_tokens import TokenSizes
from core.scan import (
    BLOCK,
    COMFORTABLE,
    COSINE,
    COUNT,
    HIGH,
    LOW,
    MEAN,
    N_NAN,
    NOT_FINITE,
    OUT_OF_RANGE,
    STD,
    UNEVEN,
    ZEROS,
    kurtosis,
    scan,
)


def row(x: Floats, reading: Reading, out: F64 | None = None, sizes: TokenSizes | None = None) -> F64:
    """Return the row of `x` (R, W), contiguous, float32 or float64, as COLUMNS, (C,); what is undefined is NaN.

    `out`: where to write it, all NaN, at least the columns asked for; `sizes`: takes the norms of tokens, whose
    quantiles then stand in the row when it is told to write them.
    """
    out = np.full(len(COLUMNS), np.nan) if out is None else out
    if x.size == 0:
        return _nothing(out, reading)
    waiting = TokenSizes() if sizes is None else sizes
    _standard(out, x, reading, waiting)
    if reading.full:
        _sampled(out, x, reading)
    if sizes is None:
        waiting.write()
    return out


def _nothing(out: F64, reading: Reading) -> F64:
    out[: COLUMN["min"]] = 0
    if reading.full:
        out[COLUMN["n_sample"]], out[HISTOGRAM_SPAN] = 0, 0
    return out


def _standard(out: F64, x: Floats, reading: Reading, sizes: TokenSizes) -> None:
    """Write all but the columns of FULL."""
    wrong, squares = _pass(out, x, reading)
    if wrong == 0 and reading.tokens:
        sizes.add(out, squares, math.sqrt(x.shape[1]))
    elif wrong & NOT_FINITE:
        _finite_part(out, x, reading)
    elif wrong & OUT_OF_RANGE:
        _scaled(out, x, reading, sizes)
    elif wrong & UNEVEN:
        _general_tokens(out, x, reading)


def _pass(out: F64, x: Floats, reading: Reading) -> tuple[int, Floats]:
    """Return what may be wrong with what it wrote, and Σx² of each token."""
    width = x.shape[1] if reading.tokens else BLOCK
    squares = np.empty(-(-x.size // width), x.dtype)
    return scan(x, width, reading.sequences, _LIMITS[x.dtype], squares, out), squares


_LIMITS = {dtype: np.array([FLOAT16_NORMAL, FLOAT16_OVERFLOW, math.inf], dtype).view(bits.signed)
           for dtype, bits in BITS.items()}


def _scaled(out: F64, x: Floats, reading: Reading, sizes: TokenSizes) -> None:
    """Write anew what squares take part in, from `x` scaled by a power of two."""
    factor = _factor(max(out[HIGH], -out[LOW]), x.dtype)
    again = np.full(N_STANDARD, np.nan)
    wrong, squares = _pass(again, x * x.dtype.type(factor), reading)
    out[MEAN], out[STD], out[COSINE] = again[MEAN] / factor, again[STD] / factor, again[COSINE]
    vanished = again[ZEROS] > out[ZEROS]  # scaled down, the smallest tokens may have lost all
    if reading.tokens and (wrong & UNEVEN or vanished):
        _general_tokens(out, x, reading)
    elif reading.tokens:
        sizes.add(out, squares, math.sqrt(x.shape[1]) * factor)


def _factor(size: float, dtype: np.dtype[Any]) -> float:
    """Return the power of two that brings a tensor of absmax `size` where its squares are safe."""
    limit = BITS[dtype].bias - 7
    return float(2.0 ** max(-limit, min(limit, -math.frexp(size)[1])))


def _general_tokens(out: F64, x: Floats, reading: Reading) -> None:
    """Write the token measures the general way."""
    if reading.tokens:
        measured = moments.row(torch.from_numpy(x), Reading(False, True, reading.lengths)).numpy()
        out[TOKEN_SPAN], out[COSINE] = measured[TOKEN_SPAN], measured[COSINE]


def _finite_part(out: F64, x: Floats, reading: Reading) -> None:
    """Write all but the columns of FULL for a tensor with entries that are not finite."""
    finite: NDArray[np.bool_] = np.isfinite(x)
    kinds = np.isnan(x), x == np.inf, x == -np.inf
    out[:N_STANDARD] = row(x[finite][None], Reading(full=False))[:N_STANDARD]
    out[N_NAN:ZEROS] = [np.count_nonzero(kind) for kind in kinds]
    out[COUNT] = x.size
    whole = np.asarray(finite.all(1))
    if finite[~whole].any():
        _general_tokens(out, x, reading)
    elif reading.tokens:
        kept = row(x[whole], Reading(False, True, _lengths_of(reading.lengths, whole)))
        out[TOKEN_SPAN], out[COSINE] = kept[TOKEN_SPAN], kept[COSINE]


def _lengths_of(lengths: tuple[int, ...], kept: NDArray[np.bool_]) -> tuple[int, ...]:
    """Return how many of the `kept` tokens, (R,), each sequence has."""
    sequence = np.repeat(np.arange(len(lengths)), lengths)
    return tuple(np.bincount(sequence[kept], minlength=len(lengths)).tolist()) if lengths else ()


def _sampled(out: F64, x: Floats, reading: Reading) -> None:
    """Write the columns of FULL from the strided sample, all entries up to SAMPLE of them."""
    sample = np.ascontiguousarray(x.reshape(-1)[:: moments.stride(x.size, x.shape[-1])])
    taken = sample.size
    if not math.isfinite(out[MEAN]) or out[N_NAN:ZEROS].any():
        sample = sample[np.isfinite(sample)]
    out[COLUMN["n_sample"]], out[HISTOGRAM_SPAN] = taken, 0
    if sample.size:
        out[QUANTILE_SPAN], histogram = fast_order.quantiles_and_histogram(sample)
        out[HISTOGRAM_SPAN] = histogram
        size = max(out[HIGH], -out[LOW])
        if out[LOW] < out[HIGH]:
            out[COLUMN["kurtosis"]] = _kurtosis(sample, size)
        if reading.outliers:
            _write_outliers(out, x, fast_order.outliers(x, sample, histogram, size))
    out[HISTOGRAM_SPAN.stop - 1] = taken - sample.size


def _write_outliers(out: F64, x: Floats, found: tuple[float, I64] | None) -> None:
    if found is not None:
        out[COLUMN["median_abs"]], index = found
        out[INDEX_SPAN][: len(index)] = index
        out[VALUE_SPAN][: len(index)] = x.reshape(-1)[index]


def _kurtosis(sample: Floats, size: float) -> float:
    """Return E[(x−mean)⁴]/std⁴ of the finite sample; NaN where its entries are equal. `size`: about its absmax."""
    comfortable = COMFORTABLE[0] < size < COMFORTABLE[1]
    return kurtosis(sample if comfortable else sample * sample.dtype.type(_factor(size, sample.dtype)))
