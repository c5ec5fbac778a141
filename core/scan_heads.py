"""One pass over the queries and keys of attention on the CPU, in float32: sums per head, and no T×T tensor.

A row of scores is made in the cache and read twice there: for its extremes and its sum, then for its softmax, below the
row's own top, and its spread. Sums over a row are in float32, over rows in float64. Where something is not finite or
leaves the range of float32 the pass says so. The file knows queries and keys; it does not know masks, nor what the sums
become.

Shapes: B batch, T positions, H heads, K head dimension; n visible keys of a row.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.compiled import AS_WRITTEN, compiled

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
Number = np.float32
Bit = np.int32

LARGE, SMALL = 1e30, 1e-30
"""Scores from LARGE on, and rows whose scores differ by less than SMALL, are beyond what the pass measures well."""

SMALL_SQUARE = 1e-24
"""Norms whose square is not above have no direction here."""

LOG2_E = Number(1.4426950408889634)
LN_2 = Number(0.693359375), Number(-2.12194440e-4)
"""ln 2 in two parts, the first with few enough digits that its product with a whole number is exact."""

EXP = (Number(1.9875691500e-4), Number(1.3981999507e-3), Number(8.3334519073e-3), Number(4.1665795894e-2),
       Number(1.6666665459e-1), Number(5.0000001201e-1))
"""e^r = 1 + r + r²·p(r) for |r| ≤ ln 2 / 2: the coefficients of p, highest power first (Moshier, Cephes, expf)."""

SUMS = ("entropy", "max_prob", "entropy_norm", "saturated_frac", "softmax_gain", "score_std", "score_absmax", "q_rms",
        "k_rms", "qk_cosine", "pairs")
"""What `add_heads` sums by head: over rows, but for score_absmax, which is the largest; Σq² and Σk²; cos(q, k) over
visible pairs, and how many those are."""


@compiled(freedom=AS_WRITTEN)
def _exp(t: Any) -> Any:
    """Return e^t to one unit in the last place for t ≤ 0; about 1e-38 below −87."""
    t = max(t, Number(-87))
    power = np.floor(t * LOG2_E + Number(0.5))
    r = t - power * LN_2[0] - power * LN_2[1]
    p = EXP[0]
    p = p * r + EXP[1]
    p = p * r + EXP[2]
    p = p * r + EXP[3]
    p = p * r + EXP[4]
    p = p * r + EXP[5]
    p = p * (r * r) + r + Number(1)
    return p * Bit(Bit(Bit(power) + Bit(127)) << Bit(23)).view(np.float32)


@compiled(freedom=AS_WRITTEN)
def _less(x: Any, y: Any) -> Any:
    """Return x − y, before any sum."""
    return x - y


@compiled()
def _ascending(bit: Any) -> Any:
    """Return a float's bits as an integer that ascends as floats do; from such an integer, the bits."""
    return Bit(bit ^ Bit(Bit(bit >> Bit(31)) & Bit(0x7FFFFFFF)))


@compiled()
def _read(x: F32) -> Any:
    """Return Σx, the least and the largest entry of a row."""
    bits, total = x.view(np.int32), Number(0)
    low = high = _ascending(bits[0])
    for i in range(x.size):
        total += x[i]
        place = _ascending(bits[i])
        low = place if place < low else low
        high = place if place > high else high
    return total, Bit(_ascending(low)).view(np.float32), Bit(_ascending(high)).view(np.float32)


@compiled()
def _weigh(x: F32, top: Any, mean: Any, scale: Any) -> Any:
    """Return Σe^t, Σe^t·t, Σe^2t for t = x − top, and Σd, Σd² for d = (x − mean)·scale."""
    weights = moments = squares = away = spread = Number(0)
    for i in range(x.size):
        t = _less(x[i], top)
        weight = _exp(t)
        weights += weight
        moments += weight * t
        squares += weight * weight
        d = _less(x[i], mean) * scale
        away += d
        spread += d * d
    return weights, moments, squares, away, spread


@compiled()
def _add_row(x: F32, saturated: float, sums: F64, share: F32) -> int:
    """Add what one row of visible scores shows to `sums` (11,); return whether it cannot be measured so.

    `share`: (1,) takes the row's entropy over the most it can be, where it has a choice; (0,) where nobody asks.
    """
    total, low, top = _read(x)
    span, largest = top - low, max(abs(low), abs(top))
    if not largest < LARGE or 0 < span < SMALL:
        return 1
    scale = Number(1) / span if span > 0 else Number(1)
    weights, moments, squares, away, spread = _weigh(x, top, total / Number(x.size), scale)
    entropy = math.log(weights) - moments / weights
    sums[0] += entropy
    sums[1] += 1 / weights
    if x.size > 1:
        part = entropy / math.log(x.size)
        sums[2] += part
        if share.size:
            share[0] = part
        sums[3] += 1 / weights > saturated
        sums[4] += 1 - squares / weights / weights
        sums[5] += math.sqrt(max(spread / x.size - (away / x.size) ** 2, 0.0)) * span
        sums[6] = max(sums[6], largest)
    return 0


@compiled()
def _square(x: F32) -> Any:
    total = Number(0)
    for i in range(x.size):
        total += x[i] * x[i]
    return total


@compiled()
def _add_direction(x: F32, square: Any, total: F64) -> None:
    """Add x/‖x‖ to `total` (K,)."""
    weight = 1 / math.sqrt(square)
    for i in range(total.size):
        total[i] += x[i] * weight


@compiled()
def _along(x: F32, square: Any, total: F64) -> Any:
    """Return x/‖x‖ · total."""
    product = 0.0
    for i in range(total.size):
        product += x[i] * total[i]
    return product / math.sqrt(square)


@compiled()
def _add_alignment(q: F32, k: F32, head: int, causal: bool, sums: F64) -> int:
    """Add what queries and keys (T, H, K) of one head show to `sums` (11,); return how many norms are out of range."""
    wrong, length = 0, q.shape[0]
    keys, squares = np.zeros(q.shape[2]), np.empty((2, length), np.float32)  # directions of keys, summed
    for place in range(length):
        squares[0, place], squares[1, place] = _square(q[place, head]), _square(k[place, head])
        wrong += not min(squares[0, place], squares[1, place]) > SMALL_SQUARE
        wrong += not max(squares[0, place], squares[1, place]) < LARGE
        _add_direction(k[place, head], squares[1, place], keys)
        if causal and place > 0:
            sums[9] += _along(q[place, head], squares[0, place], keys)
            sums[10] += place + 1
    for place in range(length):
        if not causal and length > 1:
            sums[9] += _along(q[place, head], squares[0, place], keys)
            sums[10] += length
        sums[7] += squares[0, place]
        sums[8] += squares[1, place]
    return wrong


@compiled()
def _score(q: F32, keys: F32, scale: Any, scores: F32) -> None:
    """Write scale·q·k of the first keys to `scores` (n,); `keys` (K, T), by which many scores are made at once."""
    n, whole = scores.size, q.size - q.size % 4
    scores[:] = Number(0)
    for first in range(0, whole, 4):
        q0, q1, q2, q3 = q[first] * scale, q[first + 1] * scale, q[first + 2] * scale, q[first + 3] * scale
        k0, k1, k2, k3 = keys[first, :n], keys[first + 1, :n], keys[first + 2, :n], keys[first + 3, :n]
        for i in range(n):
            scores[i] += q0 * k0[i] + q1 * k1[i] + q2 * k2[i] + q3 * k3[i]
    for rest in range(whole, q.size):
        weight, key = q[rest] * scale, keys[rest, :n]
        for i in range(n):
            scores[i] += weight * key[i]


@compiled("int64(float32[:, :, :, ::1], float32[:, :, :, ::1], boolean, UniTuple(float64, 2), float64[:, ::1], "
          "float32[:, :, ::1])")
def add_heads(q: F32, k: F32, causal: bool, numbers: tuple[float, float], sums: F64, shares: F32) -> int:
    """Add what queries and keys (B, T, H, K) show to `sums` (H, 11), as SUMS; return how much cannot be measured so.

    With any, the sums are not to be used. Rows that see one key count for entropy and max_prob alone, and not at all
    for the cosine. `numbers`: the scale of scores, and what the largest p of a saturated row is above. `shares`:
    (H, B, T), takes the entropy of each row that sees two keys or more over the most it can be, and elsewhere stays as
    it is; (H, B, 0) where nobody asks.
    """
    length, wrong, (scale, saturated) = q.shape[1], 0, numbers
    keys, scores = np.empty((q.shape[3], length), np.float32), np.empty(length, np.float32)
    for sequence in range(q.shape[0]):
        for head in range(q.shape[2]):
            wrong += _add_alignment(q[sequence], k[sequence], head, causal, sums[head])
            for place in range(length):
                for i in range(q.shape[3]):
                    keys[i, place] = k[sequence, place, head, i]
            for place in range(length):
                row = scores[: place + 1 if causal else length]
                _score(q[sequence, place, head], keys, Number(scale), row)
                wrong += _add_row(row, saturated, sums[head], shares[head, sequence, place: place + 1])
            if wrong:
                return wrong
    return 0
