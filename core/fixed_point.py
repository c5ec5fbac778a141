"""LayerNorm in whole numbers, as phones compute it: int8 in, int8 out, no floating point between.

An input is q = ⌊x/s⌉ within b bits, s the step. The mean is kept with F fractional bits, squares are summed in 32 bits,
and the root is one of whole numbers. γ = 1 and β = 0; otherwise they go into the last multiplier. Numbers only.

Sources: I-BERT (Kim et al. 2021, arXiv:2101.01321) takes the root of the sum of squares by Newton's method in whole
numbers, √n folded into the output's scale; a table instead of the root is NN-LUT's (Yu et al. 2022, arXiv:2112.02191)
idea, here without its training; the multiplier and its shift are those of Jacob et al. 2018 (arXiv:1712.05877).

Shapes: n entries, M steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.formats import F64

I64 = NDArray[np.int64]

EPSILON = 1e-5
"""What is added to the variance, as in LayerNorm."""

REACH = 8.0
"""The output's numbers go from −REACH to REACH."""

ACCUMULATOR_BITS = 31
"""A sum of squares needs at most so many bits on a phone; beyond, it has wrapped around and is no number."""

INVERSE_BITS, TABLE_BITS, MULTIPLIER_BITS = 30, 15, 31
"""Fractional bits of 1/root and of a table's entries; bits of the last multiplier."""

WIDER = 2
"""A table has 2^(F + WIDER) addresses, of which the lowest quarter is not used."""


@dataclass(frozen=True)
class Scheme:
    """`bits`: of input and output, 2 … 8; `fraction`: F, fractional bits of the mean and root; `root`: in ROOTS."""

    bits: int = 8
    fraction: int = 4
    root: str = "newton"

    @property
    def top(self) -> int:
        """The largest whole number of input and output; the least is −top − 1."""
        return int(2 ** (self.bits - 1) - 1)

    @property
    def output_step(self) -> float:
        """What 1 stands for in the output."""
        return float(REACH / 2 ** (self.bits - 1))


@dataclass(frozen=True, eq=False)
class Outcome:
    """What came of an input at M steps. `y`: (M, n), NaN where the accumulator overflowed; `exact`: (n,), in float64.

    `saturated`, `output_saturated`: shares of the entries cut off, (M,); `accumulated`: bits of the sum of squares.

    `bound`: what the largest error cannot exceed, (M,), NaN where something saturated.
    """

    steps: F64
    y: F64
    exact: F64
    saturated: F64
    output_saturated: F64
    accumulated: I64
    bound: F64

    @property
    def largest_error(self) -> F64:
        """max |y − exact| over the entries, (M,)."""
        return np.asarray(np.abs(self.y - self.exact).max(-1))

    @property
    def rms_error(self) -> F64:
        """√mean (y − exact)², (M,)."""
        return np.asarray(np.sqrt(np.square(self.y - self.exact).mean(-1)))


def layernorm(x: F64) -> F64:
    """Return (x − μ)/√(σ² + ε) in float64, σ² biased."""
    centred = x - x.mean()
    return np.asarray(centred / np.sqrt(np.square(centred).mean() + EPSILON))


def integer_layernorm(x: F64, steps: F64, scheme: Scheme) -> Outcome:
    """Return what the integer LayerNorm makes of the entries `x` (n,), quantized with each of the `steps` (M,).

    Errors: ValueError for a scheme that is none, or steps that are not above 0.
    """
    if not 2 <= scheme.bits <= 8 or not 0 <= scheme.fraction <= 8 or not (steps > 0).all():
        raise ValueError(f"bits are {scheme.bits}, fractional bits {scheme.fraction}, steps from {steps.min():g}; "
                         "allowed: 2 to 8, 0 to 8, above 0")
    n, scale = len(x), 1 << scheme.fraction
    whole = np.rint(x / steps[:, None])
    q = np.clip(whole, -scheme.top - 1, scheme.top).astype(np.int64)  # (M, n)
    mean = _halves_up(q.sum(-1) * scale, n)
    centred = q * scale - mean[:, None]  # F fractional bits
    squares = np.square(centred).sum(-1) + np.rint(n * EPSILON / steps**2 * scale**2).astype(np.int64)
    inverse = ROOTS[scheme.root](squares, scheme.fraction)
    wide = requantized(centred * inverse[:, None], np.sqrt(n) / scheme.output_step)
    out = np.clip(wide, -scheme.top - 1, scheme.top)
    accumulated = _bit_length(squares)
    y = np.where(accumulated[:, None] > ACCUMULATOR_BITS, np.nan, out * scheme.output_step)
    cut = [(one != kept).mean(-1) for one, kept in ((whole, q), (wide, out))]
    bound = np.where(cut[0] + cut[1] > 0, np.nan, error_bound(x, steps, scheme))
    return Outcome(steps, y, layernorm(x), cut[0], cut[1], accumulated, bound)


def requantized(value: I64, factor: float) -> I64:
    """Return value·factor/2^INVERSE_BITS to the nearest whole number, by one whole multiplier and a shift.

    `value`: of up to INVERSE_BITS bits; `factor`: from 1/2 on. The product has 64 bits.
    """
    mantissa, exponent = np.frexp(factor)
    multiplier = int(np.rint(mantissa * 2**MULTIPLIER_BITS))
    shift = INVERSE_BITS + MULTIPLIER_BITS - int(exponent)
    return (value * multiplier + (1 << (shift - 1))) >> shift


def newton_root(value: I64) -> I64:
    """Return ⌊√value⌋ by Newton's method in whole numbers, from above: r ← ⌊(r + ⌊value/r⌋)/2⌋ until it stops falling.
    """
    root = np.left_shift(1, (_bit_length(value) + 1) // 2)  # at least √value, and at least 1
    while True:
        lower = np.maximum((root + value // root) >> 1, 1)
        if not (lower < root).any():
            return np.where(value == 0, 0, root)
        root = np.minimum(lower, root)


def _by_newton(squares: I64, _fraction: int) -> I64:
    return np.asarray((1 << INVERSE_BITS) // np.maximum(newton_root(squares), 1))


def _by_table(squares: I64, fraction: int) -> I64:
    """Return 2^INVERSE_BITS/√squares from a table of 1/√m, m in [1/4, 1) by its first bits; the rest is a shift."""
    address = fraction + WIDER
    table = np.rint(2**TABLE_BITS / np.sqrt((np.arange(2**address) + 0.5) / 2**address)).astype(np.int64)
    even = (_bit_length(squares) + 1) // 2 * 2
    index = np.where(even >= address, squares >> np.maximum(even - address, 0),
                     squares << np.maximum(address - even, 0))
    found = (table[index] << (INVERSE_BITS - TABLE_BITS)) >> (even // 2)
    return np.where(squares == 0, 0, found)


ROOTS: dict[str, Callable[[I64, int], I64]] = {"newton": _by_newton, "table": _by_table}
"""Name → what makes 2^INVERSE_BITS/√squares of a sum of squares (M,)."""

ROOT_ERRORS: dict[str, Callable[[int], float]] = {
    "newton": lambda _: 0.0, "table": lambda fraction: float(2.0 ** -(fraction + WIDER) + 2.0**-TABLE_BITS)}
"""Name → the relative error of its inverse root beyond that of a root rounded down."""


def error_bound(x: F64, steps: F64, scheme: Scheme) -> F64:
    """Return what |y − exact| cannot exceed at each step where nothing saturates, (M,); Inf where nothing can be said.

    In steps: an entry moves by at most 1/2, the mean by 1/2 and 2^−(F+1), which is e. With B = √(σ² + ε)/s the root
    moves by at most e + 2·2^−F/√n; then |y' − y| ≤ (e + |y|·that)/(B − that), and half an output step.
    """
    n, unit = len(x), 2.0**-scheme.fraction
    level = np.sqrt(x.var() + EPSILON) / steps
    entry = 1.0 + unit / 2
    root = entry + 2 * unit / np.sqrt(n)
    most = np.abs(layernorm(x)).max()
    with np.errstate(divide="ignore", invalid="ignore"):
        moved = np.where(level > root, (entry + most * root) / (level - root), np.inf)
    rest = (most + moved) * (ROOT_ERRORS[scheme.root](scheme.fraction) + 2.0**-12)
    return np.asarray(moved + rest + scheme.output_step / 2)


def _halves_up(value: I64, by: int) -> I64:
    """Return value/by to the nearest whole number, halves up."""
    return (2 * value + by) // (2 * by)


def _bit_length(value: I64) -> I64:
    return np.frexp(value.astype(np.float64))[1].astype(np.int64)
