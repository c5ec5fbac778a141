"""Pools: which entries of a tensor share a statistic, as a label for each entry.

It knows shapes; it does not know what is made of the entries that share one.

Shapes: B batch, T positions, D features, G groups.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Labels = NDArray[np.intp]
Shape = tuple[int, int, int]


@dataclass(frozen=True)
class Pool:
    """Which entries share a statistic. `label`: shape and groups → a number for each entry,
    (B, T, D), equal where two do.

    `axes`: along which a statistic varies; `count`, `index`: how many entries share it and what runs over them, LaTeX.
    Errors of `label`: ValueError when the features do not split into the groups that the pool asks for.
    """

    label: Callable[[Shape, int], Labels]
    axes: str
    count: str = ""
    index: str = ""


def _numbered(shape: Shape, *kept: int) -> Labels:
    """Return 0, 1, 2, … along the axes `kept`, repeated along the others."""
    own = [size if axis in kept else 1 for axis, size in enumerate(shape)]
    return np.broadcast_to(np.arange(np.prod(own)).reshape(own), shape)


def _grouped(shape: Shape, groups: int) -> Labels:
    if groups < 1 or shape[2] % groups:
        raise ValueError(f"{shape[2]} features do not split into {groups} groups; allowed: a divisor of {shape[2]}")
    return _numbered(shape, 0, 1) * groups + np.arange(shape[2]) // (shape[2] // groups)


POOLS: dict[str, Pool] = {
    "token": Pool(lambda shape, _: _numbered(shape, 0, 1), "B T", "D", "d"),
    "feature": Pool(lambda shape, _: _numbered(shape, 2), "D", "BT", "b,t"),
    "position": Pool(lambda shape, _: _numbered(shape, 1, 2), "T D", "B", "b"),
    "group": Pool(_grouped, "B T G", "D/G", r"d \in g"),
    "entry": Pool(lambda shape, _: _numbered(shape, 0, 1, 2), "B T D"),
}
"""A token over its features; a feature over all tokens, or over the samples at its position; a token's group; only
itself."""
