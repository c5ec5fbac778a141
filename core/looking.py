"""How looks are taken while a run is played, and the first of them: the weights of one attention head.

A taker stands beside the stack, is told of each recorded step before it is played, and has what it found afterwards.
Of a head's weights, rows are queries and columns keys, as they are before dropout; no T×T tensor is held for long T:
rows of scores are made and reduced PIECE at a time. What is wanted is a `core.look.Look`; who keeps it is not the
file's business.

Shapes: B batch, H heads, T positions, K head dimension, C cells along an axis, Q rows of a piece.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import pad

from core.attentions import softmax_pattern, uniform_pattern
from core.corpus import Batch
from core.drift import over
from core.look import NOTHING, Found, HeadLook, Look, block
from core.model import Output, Stack, build
from core.passes import dropout_draws
from core.sites import Heads
from core.tables import fetch

PIECE = 1 << 20
"""Scores held at a time."""


class Taker:
    """Takes one look at `stack` while its ``with`` block runs, and leaves the steps that are played in it as they are.

    `found`: what it found at the last recorded one.
    """

    def __init__(self, stack: Stack, look: Look) -> None:
        self.stack, self.look = stack, look
        self.found: Found = {}

    def __enter__(self) -> Self:
        """Begin to look."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        """Look no longer."""

    def before(self, data: Batch, step: int) -> None:
        """Take what has to be taken before `step` is played with `data`."""


def twin(stack: Stack) -> Stack:
    """Return a second stack with the weights and buffers of `stack`, which nobody watches."""
    made = build(stack.experiment)
    made.load_state_dict(stack.state_dict())
    return made.to(next(stack.parameters()).device).train(stack.training)


def streams(stack: Stack, data: Batch, step: int) -> tuple[list[Tensor], Output]:
    """Return the stream after each layer, (B, T, D) each in float32 at least, and the output of a gradientless pass."""
    found: list[Tensor] = []
    handles = [layer.register_forward_hook(lambda _layer, _given, x: found.append(_wide(x))) for layer in stack.layers]
    try:
        with torch.no_grad(), dropout_draws(stack.experiment, data.inputs.device, step):
            output = stack(data.inputs, data.mask)
    finally:
        for handle in handles:
            handle.remove()
    return found, output


def rms(x: Tensor, real: Tensor | None = None) -> float:
    """Return the RMS of x (B, T, D) over its real (B, T) tokens, of all without a mask; in float64 inside."""
    return float((x if real is None else x[real]).double().square().mean().sqrt())


def moved(x: Tensor, reference: Tensor, real: Tensor | None = None) -> float:
    """Return RMS(x − reference)/RMS(reference) over real (B, T) tokens: 0 where nothing has moved, ∞ away from 0."""
    change = rms(x.double() - reference.double(), real)
    return over(change, rms(reference, real)) if change else 0.0


def _wide(x: Tensor) -> Tensor:
    return x.detach().to(torch.promote_types(x.dtype, torch.float32))


def taker(stack: Stack, look: Look) -> Taker:
    """Return what takes `look` at `stack`."""
    made: Taker = fetch(look.taker)(stack, look)
    return made


class HeadWeights(Taker):
    """Takes the weights of one head.

    `found`: ``weights`` (C, C) float32: what the queries of a row's block give to the keys of a column's block, the
    mean over those queries, so that a row sums to 1; NaN where scores are not finite, NOTHING where no query of the row
    sees a key of the column.
    """

    def __enter__(self) -> Self:
        """Begin to look."""
        assert isinstance(self.look, HeadLook)
        heads = self.stack.get_submodule(f"layers.{self.look.layer}.heads")
        self._handle = heads.register_forward_pre_hook(self._take)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        """Look no longer."""
        self._handle.remove()

    def _take(self, heads: nn.Module, given: Any) -> None:
        assert isinstance(heads, Heads)
        assert isinstance(self.look, HeadLook)
        q, k, mask = given
        place = self.look.sequence, self.look.head
        self.found = {"weights": weights(q[place], k[place], None if mask is None else mask[place[0]], heads)}


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
