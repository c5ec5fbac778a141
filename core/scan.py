"""One pass over a tensor on the CPU: counts, extremes, mean and std, the norms of tokens and the cosine between them.

The entries come from memory once: all that is taken of a block of them is taken while they are in the cache. Sums are
in the entries' own dtype within a block or a token, in float64 beyond. Entries are counted and compared by their bits,
as integers that ascend as the entries do: so NaN and Inf are found, and the compiler needs no promise that there are
none. Where a sum may have lost digits the pass says so; what to do then is for `core.fast_moments`. The file knows
entries in a row; it does not know the columns of a table.

Shapes: n entries, W of them a token, R = n/W tokens, B sequences.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.compiled import AS_WRITTEN, compiled

Floats = NDArray[np.floating[Any]]
Bits = NDArray[np.signedinteger[Any]]
F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

BLOCK = 4096
"""Entries read together: few enough to stay in a core's first cache."""

FLUSH = 32
"""Directions summed in the entries' own dtype before the sum goes to float64, for rounding adds up."""

LEAST_VARIANCE = 0.1
"""Share of the mean square that the variance must have for Σx² to give it; else it is taken about the mean."""

COMFORTABLE = (1e-12, 1e12)
"""Squares of a tensor whose largest magnitude lies outside may leave the range of its dtype."""

LEAST_SQUARE = 1e-30
"""A token whose mean square is below may have lost entries to underflow."""

NOT_FINITE, OUT_OF_RANGE, UNEVEN = 1, 2, 4
"""What may be wrong with the sums: an entry is not finite; the tensor is not COMFORTABLE; some token, though not zero,
is below LEAST_SQUARE, so that its norm and the cosine are wrong."""

COUNT, N_NAN, POSINF, NEGINF, ZEROS, SUBNORMAL, OVERFLOW, LOW, HIGH, MEAN, STD = range(11)
COSINE = 14
"""Where `scan` writes what it finds; the three numbers before the cosine are for the quantiles of tokens."""


@compiled()
def _size(bit: Any, bits: Bits) -> Any:
    """Return the bits of |x| from those of x."""
    kind = bits.dtype.type
    return kind(bit & kind(~(kind(1) << kind(8 * bits.itemsize - 1))))


@compiled()
def _ascending(bit: Any, bits: Bits) -> Any:
    """Return the bits of x as an integer that ascends as floats do; and from such an integer, the bits."""
    kind = bits.dtype.type
    return kind(bit ^ _size(kind(bit >> kind(8 * bits.itemsize - 1)), bits))


@compiled()
def _read(x: Floats, bits: Bits, limits: Bits, extremes: Bits, counts: I64) -> Any:
    """Return Σx of a block; bring up to date the least and largest entry, and how many are small, and zero."""
    kind, total = bits.dtype.type, x.dtype.type(0)
    low, high = extremes
    small = zeros = kind(0)
    for i in range(x.size):
        total += x[i]
        size, place = _size(bits[i], bits), _ascending(bits[i], bits)
        low = place if place < low else low
        high = place if place > high else high
        small = kind(small + kind(size < limits[0]))
        zeros = kind(zeros + kind(size == kind(0)))
    extremes[0], extremes[1] = low, high
    counts[0] += small
    counts[1] += zeros
    return total


@compiled()
def _norms(x: Floats, width: int, squares: Floats) -> int:
    """Write Σx² of each token of a block; return UNEVEN where one has lost it to underflow, else 0."""
    wrong = 0
    for row in range(squares.size):
        token, square = x[row * width: (row + 1) * width], x.dtype.type(0)
        for i in range(token.size):
            square += token[i] * token[i]
        squares[row] = square
        if square < LEAST_SQUARE * width:
            for i in range(token.size):
                wrong |= UNEVEN * (token[i] != 0)
    return wrong


@compiled()
def _add_directions(x: Floats, squares: Floats, total: Floats) -> int:
    """Add x/‖x‖ of each token of a block to `total` (W,); return how many have a direction."""
    directed = 0
    weights = np.empty(squares.size, x.dtype)
    for row in range(squares.size):
        weights[row] = x.dtype.type(1) / np.sqrt(squares[row])
    for row in range(squares.size):
        if squares[row] > 0:
            token, weight = x[row * total.size: (row + 1) * total.size], weights[row]
            for i in range(total.size):
                total[i] += token[i] * weight
            directed += 1
    return directed


@compiled()
def _alignment(part: Floats, whole: F64, last: bool) -> float:
    """Move `part` into `whole`, both (W,); return ‖whole‖² where it is the last part, and begin anew."""
    square = 0.0
    for i in range(part.size):
        whole[i] += part[i]
        part[i] = 0
    if last:
        for i in range(part.size):
            square += whole[i] * whole[i]
            whole[i] = 0
    return square


@compiled()
def _above(bits: Bits, limit: Any) -> int:
    """Return how many magnitudes are `limit` or more."""
    count = 0
    for i in range(bits.size):
        count += _size(bits[i], bits) >= limit
    return count


@compiled(freedom=AS_WRITTEN)
def _less(x: Any, y: Any) -> Any:
    """Return x − y, this difference before any sum: taken in another order it would lose what it is there to keep."""
    return x - y


@compiled()
def _about(x: Floats, shift: Any) -> Any:
    """Return Σ(x − shift) and Σ(x − shift)² of a block."""
    total = square = x.dtype.type(0)
    for i in range(x.size):
        away = _less(x[i], shift)
        total += away
        square += away * away
    return total, square


@compiled()
def _spread(x: Floats, near: float) -> Any:
    """Return mean and variance, taken about a value near the mean."""
    shift, total, square = x.dtype.type(near), 0.0, 0.0
    for start in range(0, x.size, BLOCK):
        sums = _about(x[start: start + BLOCK], shift)
        total += sums[0]
        square += sums[1]
    offset = total / x.size
    return shift + offset, max(square / x.size - offset * offset, 0.0)


@compiled()
def _moments(x: Floats, total: float, squares: Floats, found: F64) -> None:
    """Write mean and std; `found` has the extremes."""
    square = 0.0
    for row in range(squares.size):
        square += squares[row]
    mean, mean_square = total / x.size, square / x.size
    variance = mean_square - mean * mean
    if not variance > LEAST_VARIANCE * mean_square:
        mean, variance = _spread(x, mean)
    equal = found[LOW] == found[HIGH]
    found[MEAN], found[STD] = found[LOW] if equal else mean, 0.0 if equal else math.sqrt(variance)


@compiled()
def _extremes(x: Floats, bits: Bits, limits: Bits, extremes: Bits, found: F64) -> int:
    """Write the least and the largest entry, and the count that they call for; return what is wrong with them."""
    pair = np.empty(2, bits.dtype)
    for i in range(2):
        pair[i] = _ascending(extremes[i], bits)
        found[LOW + i] = pair.view(x.dtype)[i]
    largest, size = max(_size(pair[0], bits), _size(pair[1], bits)), max(-found[LOW], found[HIGH])
    found[OVERFLOW] = _above(bits, limits[1]) if largest >= limits[1] else 0
    if largest >= limits[2]:
        return NOT_FINITE
    return 0 if size == 0 or COMFORTABLE[0] < size < COMFORTABLE[1] else OUT_OF_RANGE


@compiled()
def _fourth(x: Floats, shift: Any, rest: Any, weight: Any) -> Any:
    """Return Σ((x − shift − rest)·weight)⁴ of a block."""
    total = x.dtype.type(0)
    for i in range(x.size):
        square = _less(_less(x[i], shift), rest) * weight
        square *= square
        total += square * square
    return total


@compiled()
def _products(x: Floats, y: Floats) -> Any:
    """Return Σx², Σy² and Σxy."""
    square_x = square_y = product = x.dtype.type(0)
    for i in range(x.size):
        square_x += x[i] * x[i]
        square_y += y[i] * y[i]
        product += x[i] * y[i]
    return square_x, square_y, product


@compiled("int64(float32[:, ::1], int64, int64[::1], int32[::1], float32[::1], float64[::1])",
          "int64(float64[:, ::1], int64, int64[::1], int64[::1], float64[::1], float64[::1])")
def scan(table: Floats, width: int, lengths: I64, limits: Bits, squares: Floats, found: F64) -> int:
    """Write Σx² of each token to `squares` (R,), the rest to `found`; return what may be wrong, flags added up.

    `table`: (…, …), n ≥ 1 entries, read as tokens of `width`, the last maybe shorter where no cosine is wanted;
    `lengths`: the tokens of each sequence, Σ = R, where it is, else (0,); `limits`: the bits of the least normal
    magnitude of float16, of the least that overflows there, and of Inf.
    """
    x = table.ravel()
    bits, counts, extremes = x.view(limits.dtype), np.zeros(2, np.int64), np.empty(2, limits.dtype)
    part, whole = np.zeros(width, x.dtype), np.zeros(width)  # directions summed
    extremes[:] = _ascending(bits[0], bits)
    row, total, aligned, pairs, wrong = 0, 0.0, 0.0, 0.0, 0
    for sequence in range(max(lengths.size, 1)):
        stop = row + lengths[sequence] if lengths.size else squares.size
        directed, flush = 0, row + FLUSH if lengths.size else stop
        while row < stop:
            last = min(row + max(BLOCK // width, 1), stop, flush)
            block, of_block = x[row * width: last * width], squares[row:last]
            total += _read(block, bits[row * width: last * width], limits, extremes, counts)
            wrong |= _norms(block, width, of_block)
            if lengths.size:
                directed += _add_directions(block, of_block, part)
            if last in (flush, stop):
                aligned += _alignment(part, whole, last == stop)
                flush = last + FLUSH
            row = last
        aligned -= directed
        pairs += directed * (directed - 1.0)
    found[COUNT], found[N_NAN], found[POSINF], found[NEGINF] = x.size, 0, 0, 0
    found[ZEROS], found[SUBNORMAL], found[COSINE] = counts[1], counts[0] - counts[1], \
        aligned / pairs if pairs > 0 else math.nan
    wrong |= _extremes(x, bits, limits, extremes, found)
    _moments(x, total, squares, found)
    return wrong


@compiled("float64(float32[::1])", "float64(float64[::1])")
def kurtosis(x: Floats) -> float:
    """Return E[(x−mean)⁴]/std⁴ of `x` (n,), n ≥ 1; NaN where all entries are equal."""
    total = 0.0
    for start in range(0, x.size, BLOCK):
        total += _about(x[start: start + BLOCK], x.dtype.type(0))[0]
    mean, variance = _spread(x, total / x.size)
    shift = x.dtype.type(mean)
    rest, weight, total = x.dtype.type(mean - shift), x.dtype.type(1 / math.sqrt(variance)), 0.0
    for start in range(0, x.size, BLOCK):
        total += _fourth(x[start: start + BLOCK], shift, rest, weight)
    return total / x.size if variance > 0 else math.nan


@compiled("float64(float32[::1])", "float64(float64[::1])")
def square_sum(x: Floats) -> float:
    """Return Σx²; Inf or NaN where an entry is, or where the dtype of `x` cannot hold the sum of a block."""
    total = 0.0
    for start in range(0, x.size, BLOCK):
        total += _about(x[start: start + BLOCK], x.dtype.type(0))[1]
    return total


@compiled("float64(float32[:, ::1], float32[:, ::1])", "float64(float64[:, ::1], float64[:, ::1])")
def mean_cosine(x: Floats, y: Floats) -> float:
    """Return the mean over rows of cos(x, y), x, y (R, W); NaN where a norm is too small or too large for that."""
    total, least = 0.0, LEAST_SQUARE * x.shape[1]
    for row in range(x.shape[0]):
        square_x, square_y, product = _products(x[row], y[row])
        if not (least < min(square_x, square_y) and max(square_x, square_y) < 1 / least):
            return math.nan
        total += product / (math.sqrt(square_x) * math.sqrt(square_y))
    return total / len(x)
