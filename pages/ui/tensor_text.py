"""A tensor as a visitor writes it: nested lists, NumPy's or torch's own way, or a table, one token a line.

Nothing that is written is ever run: lists are read as literals. What is refused becomes a Notice that says why. The
file knows neither Streamlit nor words.

Shapes: B batch, T positions, D features.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from core.worked import F64
from pages.ui.link import Notice

LEAST, MOST, LARGEST = (1, 1, 2), (6, 8, 16), 1e30
"""Of B, T and D at least and at most so many, and no entry larger in size; NaN and ±Inf are entries too."""

LETTERS = 24_000

NUMBER = re.compile(r"[-+]?(?:(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|inf|infinity|∞|nan)", re.IGNORECASE)

_NAMES = re.compile(r"\b(?:np|numpy|torch)\.|\b(?:array|asarray|tensor|float(?:16|32|64))\b"
                    r"|,\s*(?:dtype|device|requires_grad)\s*=\s*[\w.:'\"]+")
"""What NumPy and torch write around the brackets."""

_GAP = re.compile(r"(?<=[\w.\]])\s+(?=-?[\w.\[])")
"""What stands between two numbers, or lists, that are printed without commas."""


class _Refused(Exception):
    """A text that is no tensor; `notice` says why."""

    def __init__(self, key: str, **values: object) -> None:
        super().__init__(key)
        self.notice = Notice(f"tensor.refused_{key}", {name: str(value) for name, value in values.items()})


def tensor_of(text: str) -> tuple[F64 | None, Notice | None]:
    """Return the tensor (B, T, D) that a text says, or why it says none. One axis is a token, two are one sample."""
    try:
        if len(text) > LETTERS:
            raise _Refused("long", count=len(text), limit=LETTERS)
        plain = text.replace("−", "-")
        return _tensor(_literal(plain) if re.search(r"[\[(]", plain) else _table(plain)), None
    except _Refused as refused:
        return None, refused.notice


def numbers_of(text: str) -> tuple[tuple[float, ...] | None, Notice | None]:
    """Return the finite numbers that a text lists, at least one, or why there are none."""
    try:
        found = tuple(_number(part) for part in _parts(text.replace("−", "-")))
        for value in found:
            if not math.isfinite(value):
                raise _Refused("number", value=value, limit=_limit())
    except _Refused as refused:
        return None, refused.notice
    return (found, None) if found else (None, _Refused("empty").notice)


def entry_of(text: str) -> tuple[float | None, Notice | None]:
    """Return the one entry that a text says, or why it says none."""
    try:
        return _number(text.strip().replace("−", "-")), None
    except _Refused as refused:
        return None, refused.notice


def said(value: float) -> str:
    """Write an entry so that it reads the same."""
    return repr(float(value)).removesuffix(".0").replace("e+", "e")


def spelled(x: F64) -> str:
    """Write a tensor for an address: ``_`` between features, ``~`` between tokens, ``~~`` between samples."""
    return "~~".join("~".join("_".join(map(said, token)) for token in sample) for sample in x.tolist())


def unspelled(text: str) -> tuple[F64 | None, Notice | None]:
    """Return the tensor that an address says."""
    return tensor_of(text.replace("_", ",").replace("~", "\n"))


def _literal(text: str) -> Any:
    """Return nested lists of numbers; None stands for NaN."""
    bare = _NAMES.sub("", text)
    bare = bare if "," in bare else _GAP.sub(", ", bare)
    bare = re.sub(r"\binf(?:inity)?\b|∞", "1e999", re.sub(r"\bnan\b", "None", bare, flags=re.I), flags=re.I)
    try:
        return ast.literal_eval(bare.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise _Refused("literal") from None


def _table(text: str) -> list[list[list[float]]]:
    """Return numbers, one token a line, a blank line between samples."""
    samples = [sample.splitlines() for sample in re.split(r"\n[ \t\r]*\n\s*", text.strip())]
    return [[[_number(part) for part in _parts(line)] for line in sample] for sample in samples if sample]


def _parts(line: str) -> list[str]:
    bare = line.strip().rstrip(",;，；")
    return re.split(r"\s*[,;，、；]\s*|\s+", bare) if bare else []


def _number(text: str) -> float:
    if not NUMBER.fullmatch(text):
        raise _Refused("number", value=text[:40], limit=_limit())
    return _entry(float(text.replace("∞", "inf")))


def _entry(value: object) -> float:
    """Return one entry of nested lists as a number of a size that is allowed."""
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _Refused("number", value=repr(value)[:40], limit=_limit())
    if abs(value) > LARGEST and not (isinstance(value, float) and math.isinf(value)):
        raise _Refused("number", value=repr(value)[:40], limit=_limit())
    return float(value)


def _limit() -> str:
    return said(LARGEST)


def _depth(nested: Any) -> int:
    """Return how deep lists are nested, one to three."""
    depth = 0
    while isinstance(nested, list | tuple) and nested:
        depth, nested = depth + 1, nested[0]
    if not 1 <= depth <= 3:
        raise _Refused("depth", count=depth) if depth else _Refused("empty")
    return depth


def _list(value: Any) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        raise _Refused("nested", value=repr(value)[:40])
    return value


def _tensor(nested: Any) -> F64:
    """Return nested lists as an array, or say which of them has another length, or what shape it would have."""
    for _ in range(3 - _depth(nested)):
        nested = [nested]
    samples = [[_list(token) for token in _list(sample)] for sample in nested]
    length, width = len(samples[0]), len(samples[0][0])
    for b, sample in enumerate(samples):
        if len(sample) != length:
            raise _Refused("tokens", sample=b, count=len(sample), expected=length)
        for t, token in enumerate(sample):
            if len(token) != width:
                raise _Refused("features", sample=b, token=t, count=len(token), expected=width)
    shape = (len(samples), length, width)
    if any(not low <= size <= high for low, size, high in zip(LEAST, shape, MOST, strict=True)):
        limits = [f"{low} … {high}" for low, high in zip(LEAST, MOST, strict=True)]
        raise _Refused("shape", shape="×".join(map(str, shape)), batch=limits[0], length=limits[1], width=limits[2])
    return np.array([[[_entry(value) for value in token] for token in sample] for sample in samples])
