"""The leak probe: one token of a batch, or one whole sequence, is exchanged, and the streams say who else has changed.

A norm over one token's features can let nothing through to another token; one over the batch can. The file takes the
two passes and their difference; which changes are allowed, and what they mean, is in `core.leak_verdicts`.

Shapes: B sequences, T positions, D features, L layers, R and C rows and columns of a map.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from core.corpus import Batch
from core.look import NOTHING, SampleLeak, TokenLeak, block
from core.looking import Taker, rms, streams, twin


class Leak(Taker):
    """Exchanges what the look names, and keeps the largest |change| over features of the stream.

    `found`: ``own``, ``earlier``, ``later``, ``others`` (L,) after each layer: among the exchanged tokens, among the
    tokens before and after them in the same sequence, and in other sequences, NOTHING where there are none;
    ``level`` (L,): the stream's RMS, to compare with; ``map`` (R, C): after the last layer, a row a block of sequences,
    a column a block of positions, the largest in it, NOTHING where all is padding. Padding counts nowhere.
    """

    def before(self, data: Batch, step: int) -> None:
        """Play the batch twice, with and without the exchange."""
        stack = twin(self.stack)
        exchanged = _exchanged(self.look, data)
        before, _ = streams(stack, data, step)
        after, _ = streams(stack, data._replace(inputs=_another(data.inputs, exchanged, self._vocab())), step)
        real = torch.ones_like(exchanged) if data.mask is None else data.mask
        changes = [torch.where(real, (a - b).abs().amax(-1), NOTHING) for a, b in zip(after, before, strict=True)]
        groups = {name: group & real for name, group in _groups(exchanged).items()}
        self.found = {
            **{name: np.array([_largest(change, group) for change in changes]) for name, group in groups.items()},
            "level": np.array([rms(x, real) for x in before]),
            "map": _blocks(changes[-1]),
        }

    def _vocab(self) -> int:
        return self.stack.experiment.input.vocab or 0


def _exchanged(look: object, data: Batch) -> Tensor:
    """Return which tokens the look exchanges, (B, T)."""
    assert isinstance(look, TokenLeak | SampleLeak)
    found = torch.zeros(data.inputs.shape[:2], dtype=torch.bool, device=data.inputs.device)
    found[look.sequence, look.position if isinstance(look, TokenLeak) else slice(None)] = True
    return found


def _another(inputs: Tensor, exchanged: Tensor, vocab: int) -> Tensor:
    """Return the batch with another token at each exchanged place: half the vocabulary on, or the opposite vector."""
    if inputs.is_floating_point():
        return torch.where(exchanged.unsqueeze(-1), -inputs, inputs)
    return torch.where(exchanged, (inputs + max(1, vocab // 2)) % vocab, inputs)


def _groups(exchanged: Tensor) -> dict[str, Tensor]:
    """Return who the tokens are to the exchanged ones, (B, T) each."""
    here = exchanged.any(1, keepdim=True)  # (B, 1)
    begun = exchanged.long().cumsum(1) > 0
    return {"own": exchanged, "earlier": here & ~begun, "later": here & begun & ~exchanged,
            "others": ~here.expand_as(exchanged)}


def _largest(change: Tensor, group: Tensor) -> float:
    return float(change[group].amax()) if group.any() else NOTHING


def _blocks(change: Tensor) -> NDArray[np.float64]:
    """Return the largest change of each block of sequences and positions, (R, C)."""
    table = change.double().cpu().numpy()
    rows, columns = (block(size) for size in table.shape)
    halves = np.maximum.reduceat(table, np.arange(0, table.shape[0], rows), axis=0)
    return np.asarray(np.maximum.reduceat(halves, np.arange(0, table.shape[1], columns), axis=1))
