"""The weights of one attention head, taken while a pass goes by: rows of queries, columns of keys.

No T×T tensor is held for long T: rows of scores are made and reduced PIECE at a time. The weights are those before
dropout. The file knows queries and keys; which head is wanted is a `core.look.Look`.

Shapes: B batch, H heads, T positions, K head dimension, C cells along an axis, Q rows of a piece.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import pad

from core.attentions import softmax_pattern, uniform_pattern
from core.look import Look, block
from core.sites import Heads

PIECE = 1 << 20
"""Scores held at a time."""

NOTHING = -1.0
"""Stands where there is no weight."""


class Looking:
    """Takes the weights of one head of `stack` in each pass while its ``with`` block runs; the pass stays what it is.

    `weights`: (C, C) float32 of the last pass: what the queries of a row's block give to the keys of a column's block,
    the mean over those queries, so that a row sums to 1; NaN where scores are not finite, NOTHING where no query of the
    row sees a key of the column.
    """

    def __init__(self, stack: nn.Module, look: Look) -> None:
        heads = stack.get_submodule(f"layers.{look.layer}.heads")
        assert isinstance(heads, Heads)
        self._heads, self._look = heads, look
        self.weights: NDArray[np.float32] = np.empty((0, 0), np.float32)

    def __enter__(self) -> Looking:
        """Begin to look."""
        self._handle = self._heads.register_forward_pre_hook(self._take)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        """Look no longer."""
        self._handle.remove()

    def _take(self, heads: nn.Module, given: Any) -> None:
        assert isinstance(heads, Heads)
        q, k, mask = given
        place = self._look.sequence, self._look.head
        self.weights = weights(q[place], k[place], None if mask is None else mask[place[0]], heads)


@torch.no_grad()
def weights(q: Tensor, k: Tensor, mask: Tensor | None, rule: Heads) -> NDArray[np.float32]:
    """Return the weights of one head, (C, C), of `q`, `k` (T, K); `mask`: (T,), true at real tokens, or None."""
    length, size = len(q), block(len(q))
    cells = -(-length // size)
    real = torch.ones(length, dtype=torch.bool, device=q.device) if mask is None else mask
    found = torch.zeros(2, cells * size, cells, dtype=torch.promote_types(q.dtype, torch.float32), device=q.device)
    rows = max(1, PIECE // length)
    for first in range(0, length, rows):
        places = torch.arange(first, min(first + rows, length), device=q.device)  # (Q,)
        seen = real & real[places, None]
        if rule.causal:
            seen = seen & (torch.arange(length, device=q.device) <= places[:, None])
        given = torch.where(seen, ROWS[rule.pattern](_scores(q[places], k, rule), seen, places), 0)  # (Q, T)
        both = torch.stack((given.to(found.dtype), seen.to(found.dtype)))
        found[:, places] = pad(both, (0, cells * size - length)).view(2, len(places), cells, size).sum(3)
    total, pairs = found.view(2, cells, size, cells).sum(2)  # (C, C)
    queries = pad(real, (0, cells * size - length)).view(cells, size).sum(1)
    mean = torch.where(pairs > 0, total / queries[:, None], NOTHING)
    return np.asarray(mean.float().cpu().numpy())


def _scores(q: Tensor, k: Tensor, rule: Heads) -> Tensor:
    """Return scores as the attention has them, (Q, T), in float32 or wider."""
    wide = torch.promote_types(q.dtype, torch.float32)
    scores = (q.to(wide) * rule.scale) @ k.to(wide).T
    if rule.scores_in is not None:
        scores = scores.to(rule.scores_in).to(wide)
    return scores if rule.softcap is None else rule.softcap * torch.tanh(scores / rule.softcap)


ROWS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "softmax": lambda scores, seen, _: softmax_pattern(scores, seen),
    "uniform": lambda scores, seen, _: uniform_pattern(scores, seen),
    "identity": lambda scores, _, places: (torch.arange(scores.shape[-1], device=scores.device) == places[:, None]),
}
"""Pattern → rows of weights (Q, T), of scores (Q, T), of what each query sees, and of the queries' places (Q,)."""
