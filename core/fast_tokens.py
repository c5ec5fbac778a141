"""The quantiles of tokens of many tensors, taken together.

Sorting is cheap, but not one tensor after another: what is done between a model's own operations starts from a cold
cache. So a tensor leaves the squared norms of its tokens here, and all are sorted at the end of the step. The file does
not know how the norms were made.

Shapes: S tensors, R tokens of each, W entries of a token.
"""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.columns import TOKEN_QUANTILES, TOKEN_SPAN

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]


class TokenSizes:
    """The tensors that wait for the quantiles of their tokens."""

    def __init__(self) -> None:
        self._waiting: dict[int, list[tuple[F64, NDArray[np.floating[Any]], float]]] = defaultdict(list)

    def add(self, out: F64, squares: NDArray[np.floating[Any]], scale: float) -> None:
        """Note that `out` (C,), a tensor's row, waits for quantiles of √`squares`/`scale`; `squares` (R,), R ≥ 1."""
        self._waiting[len(squares)].append((out, squares, scale))

    def write(self) -> None:
        """Write the columns of TOKEN_SPAN of every row that waits."""
        for count, tensors in self._waiting.items():
            below, above, weight = ranks(TOKEN_QUANTILES, count)
            ordered = np.sort(np.stack([squares for _, squares, _ in tensors]), axis=1)  # (S, R)
            lower, upper = (np.sqrt(ordered[:, places], dtype=np.float64) for places in (below, above))
            found = (lower * (1 - weight) + upper * weight) / np.array([[scale] for _, _, scale in tensors])
            for (out, _, _), quantiles in zip(tensors, found, strict=True):
                out[TOKEN_SPAN] = quantiles
        self._waiting.clear()


@lru_cache(maxsize=64)
def ranks(wanted: tuple[float, ...], count: int) -> tuple[I64, I64, F64]:
    """Return for each quantile the ranks of its two neighbours among `count`, and the weight of the upper one."""
    positions = np.asarray(wanted) * (count - 1)
    below = np.floor(positions).astype(np.int64)
    return below, np.minimum(below + 1, count - 1), positions - below
