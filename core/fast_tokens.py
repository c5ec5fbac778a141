"""The token measures of a tensor on the CPU, with NumPy: token_rms, token_cosine and layer_cosine.

The file knows finite tokens and their squares; it does not know how those were made. Tokens whose squares vanish beside
others are measured apart; what cannot be done quickly and well is left to `core.moments`.

Shapes: R rows (tokens), W features of a row, B sequences.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from core import fast_order, moments
from core.columns import COLUMN, TOKEN_QUANTILES, TOKEN_SPAN, Reading
from core.fast_order import F64, I64, Floats

LEAST_RMS = 1e-15
"""A token whose rms (after scaling) is below this may have lost entries to underflow."""


class Entries(NamedTuple):
    """Finite entries (R, W), the same times `factor`, a power of two, and Σx² of each lane (row, if tokens)."""

    raw: Floats
    x: Floats
    factor: float
    squares: Floats


def write(out: F64, entries: Entries, lengths: tuple[int, ...]) -> None:
    """Write token_rms and token_cosine of finite tokens."""
    x, factor, squares = entries.x, entries.factor, entries.squares
    rms = np.sqrt(squares / x.dtype.type(x.shape[-1]))
    ordered: Floats = np.sort(rms)
    if ordered[0] < LEAST_RMS:
        return _uneven_tokens(out, entries, rms, lengths)
    out[TOKEN_SPAN] = _quantiles(ordered, factor)
    if lengths:
        out[COLUMN["token_cosine"]] = _cosine(x, squares, lengths)
    return None


def _uneven_tokens(out: F64, entries: Entries, rms: Floats, lengths: tuple[int, ...]) -> None:
    """Write them where some tokens are too small for the squares of their dtype, or zero."""
    small = rms < LEAST_RMS
    per_token = rms.astype(np.float64) / entries.factor
    per_token[small] = _small_rms(entries.raw[small])
    out[TOKEN_SPAN] = _quantiles(np.sort(per_token), 1.0)
    directed = per_token > 0
    if lengths and (small & directed).any():
        write_general(out, entries.raw, lengths, rms=False)
    elif lengths:
        kept = lengths_of(lengths, directed)
        out[COLUMN["token_cosine"]] = _cosine(entries.x[directed], entries.squares[directed], kept)


def _quantiles(ordered: Floats, factor: float) -> tuple[float, ...]:
    """Return TOKEN_QUANTILES of ascending values, divided by `factor`."""
    return tuple((ordered.item(below) * (1 - weight) + ordered.item(above) * weight) / factor
                 for below, above, weight in _token_ranks(len(ordered)))


@lru_cache(maxsize=64)
def _token_ranks(count: int) -> tuple[tuple[int, int, float], ...]:
    return tuple(zip(*(part.tolist() for part in fast_order.ranks(TOKEN_QUANTILES, count)), strict=True))


def _small_rms(x: Floats) -> F64:
    """Return √(mean x²) of tokens whose squares are too small for their dtype."""
    wide = x.astype(np.float64)
    size = np.abs(wide).max(1, keepdims=True)
    size[size == 0] = 1
    rms: F64 = np.sqrt(np.mean((wide / size) ** 2, 1)) * size[:, 0]
    return rms


def write_general(out: F64, x: Floats, lengths: tuple[int, ...], rms: bool) -> None:
    """Write the token measures the general way."""
    measured = moments.row(torch.from_numpy(x), Reading(full=False, tokens=True, lengths=lengths)).numpy()
    place = COLUMN["token_cosine"]
    out[place] = measured[place]
    if rms:
        out[TOKEN_SPAN] = measured[TOKEN_SPAN]


def lengths_of(lengths: tuple[int, ...], kept: NDArray[np.bool_]) -> tuple[int, ...]:
    """Return how many of the `kept` tokens, (R,), each sequence has."""
    sequence = np.repeat(np.arange(len(lengths)), lengths)
    return tuple(np.bincount(sequence[kept], minlength=len(lengths)).tolist()) if lengths else ()


def _cosine(x: Floats, squares: Floats, lengths: tuple[int, ...]) -> float:
    """Return the mean cosine of pairs of different tokens of one sequence, all of which have a direction."""
    pairs = _pairs(lengths)
    if not pairs:
        return math.nan
    sums = _direction_sums(x, 1 / np.sqrt(squares), lengths).reshape(-1)  # Σ_t x_t/‖x_t‖ of every sequence
    return (float(np.dot(sums, sums)) - len(x)) / pairs


@lru_cache(maxsize=64)
def _pairs(lengths: tuple[int, ...]) -> int:
    """Return the ordered pairs of different tokens of one sequence."""
    return sum(length * (length - 1) for length in lengths)


def _direction_sums(x: Floats, weights: Floats, lengths: tuple[int, ...]) -> Floats:
    """Return Σ_t x_t/‖x_t‖ of each sequence that has tokens, (B, W)."""
    if len(set(lengths)) == 1:
        shape = (len(lengths), lengths[0])
        left, right = torch.from_numpy(weights).view(shape[0], 1, shape[1]), torch.from_numpy(x).view(*shape, -1)
        sums: Floats = torch.bmm(left, right).squeeze(1).numpy()
        return sums
    starts: I64 = np.cumsum((0, *lengths[:-1]))[np.asarray(lengths) > 0]
    pooled: Floats = np.add.reduceat(x * weights[:, None], starts, axis=0)
    return pooled


@np.errstate(over="ignore", invalid="ignore")
def cosines(x: Floats, y: Floats) -> Floats | None:
    """Return cos(x, y) of each row of x, y (R, W), (R,); None where a norm is too small or large to be taken so."""
    squares = np.vecdot(x, x), np.vecdot(y, y)
    least = LEAST_RMS**2 * x.shape[-1]
    if not all(least < square.min() and square.max() < 1 / least for square in squares):
        return None
    result: Floats = np.vecdot(x, y) / (np.sqrt(squares[0]) * np.sqrt(squares[1]))
    return result
