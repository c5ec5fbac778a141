"""LayerNorm as it is often written wrong: short pieces of NumPy, what each gives, and how far that is from the right.

The code of an entry is what is shown and what is run, one text for both. It is ours alone: nothing that a visitor
writes is ever run. The file knows no words for what is wrong.

Shapes: B batch, T positions, D features.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from types import CodeType
from typing import Any

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]

RIGHT = """\
mu = x.mean(axis=-1, keepdims=True)
var = x.var(axis=-1, keepdims=True)
y = (x - mu) / np.sqrt(var + eps)"""
"""LayerNorm without γ and β: x (B, T, D) and eps → y."""

PITFALLS: dict[str, str] = {
    "no_eps": """\
mu = x.mean(axis=-1, keepdims=True)
var = x.var(axis=-1, keepdims=True)
y = (x - mu) / np.sqrt(var)""",
    "std_eps": """\
mu = x.mean(axis=-1, keepdims=True)
std = x.std(axis=-1, keepdims=True)
y = (x - mu) / (std + eps)""",
    "unbiased": """\
mu = x.mean(axis=-1, keepdims=True)
var = x.var(axis=-1, ddof=1, keepdims=True)
y = (x - mu) / np.sqrt(var + eps)""",
    "axis_0": """\
mu = x.mean(axis=0, keepdims=True)
var = x.var(axis=0, keepdims=True)
y = (x - mu) / np.sqrt(var + eps)""",
    "axis_1": """\
mu = x.mean(axis=1, keepdims=True)
var = x.var(axis=1, keepdims=True)
y = (x - mu) / np.sqrt(var + eps)""",
    "no_keepdims": """\
mu = x.mean(axis=-1)
var = x.var(axis=-1)
y = (x - mu) / np.sqrt(var + eps)""",
}
"""Pitfall → its code, in place of `RIGHT`."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a piece of code gives. `y`: None where NumPy refused, and `error` is then what it said.

    `difference`: the largest |y − right| over the entries in which both are finite, NaN where there is none or y has
    another shape; `ratio`: the largest |y| over the largest |right| among them; `lost`: how many entries are not finite
    in y and finite in the right one; `worst`: the token (b, t) with the most lost entries, then the largest difference.
    """

    y: F64 | None
    error: str = ""
    difference: float = math.nan
    ratio: float = math.nan
    lost: int = 0
    worst: tuple[int, int] = (0, 0)


def right(x: F64, eps: float) -> F64:
    """Return LayerNorm of x (B, T, D) over D, by `RIGHT`."""
    return _run(RIGHT, x, eps)


def outcome(name: str, x: F64, eps: float) -> Outcome:
    """Return what a pitfall gives for x (B, T, D), D at least 2. Errors: KeyError for an unknown pitfall."""
    code = PITFALLS[name]
    try:
        y = _run(code, x, eps)
    except ValueError as error:
        return Outcome(None, str(error).strip())
    if y.shape != x.shape:
        return Outcome(y)
    expected = right(x, eps)
    finite, lost = np.isfinite(y) & np.isfinite(expected), np.isfinite(expected) & ~np.isfinite(y)
    off = np.abs(np.where(finite, y - expected, 0.0))
    tokens = np.lexsort((-off.max(-1).ravel(), -lost.sum(-1).ravel()))
    worst = (int(tokens[0]) // x.shape[1], int(tokens[0]) % x.shape[1])
    if not finite.any():
        return Outcome(y, lost=int(lost.sum()), worst=worst)
    largest, usual = (float(np.abs(values[finite]).max()) for values in (y, expected))
    return Outcome(y, "", float(off.max()), largest / usual if usual else math.nan, int(lost.sum()), worst)


def preface(x: F64, eps: float, scale: float = 1.0) -> str:
    """Return the lines that make every piece of code run by itself, on x·scale."""
    head = "x = np.array([" if scale == 1 else f"x = {scale!r} * np.array(["
    between = ",\n" + " " * len(head)
    tokens = [[f"[{', '.join(map(repr, token))}]" for token in sample] for sample in x.tolist()]
    written = between.join(f"[{f'{between} '.join(sample)}]" for sample in tokens)
    return f"import numpy as np\nfrom numpy import inf, nan\n\n{head}{written}])\neps = {eps!r}"


def _run(code: str, x: F64, eps: float) -> F64:
    scope: dict[str, Any] = {"np": np, "x": x, "eps": eps}
    with np.errstate(all="ignore"):
        exec(_compiled(code), scope)
    return np.asarray(scope["y"])


@cache
def _compiled(code: str) -> CodeType:
    return compile(code, "<pitfall>", "exec")
