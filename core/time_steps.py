"""A recorded step over time: a few statistics of every gate and state of recurrent layers at each time step.

Taken in detail full, of TIME_KEPT time steps at most, so that a snapshot stays small. Padding is left out. The file
knows which sites run over time; it does not know hooks, nor what a gate is for.

Shapes: B batch, T time steps, D features, M kept time steps, R rows (sites over time), S = len(TIME_STATISTICS).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from core.moments import working_dtype
from core.rows import RealTokens
from core.shapes import LEAST
from core.trace import FORWARD, GRADIENT
from core.vocabulary import SITES, TIME_KEPT, TIME_STATISTICS

Floats = NDArray[np.float32] | NDArray[np.float64]

DIRECTIONS = (FORWARD, GRADIENT)


class TimeSteps:
    """What one step showed over time. `sites`: (layer, name) of each row of the record; `real`: the real tokens."""

    def __init__(self, sites: Sequence[tuple[int, str]], real: RealTokens) -> None:
        over_time = [row for row, (_, name) in enumerate(sites) if SITES[name].over_time]
        self._places = {row: place for place, row in enumerate(over_time)}
        self._real = real
        self._found: dict[tuple[int, int], Tensor] = {}
        self._kept: NDArray[np.int32] = np.empty(0, np.int32)

    def take(self, direction: str, row: int, x: Tensor) -> None:
        """Take the statistics of what passed at a row, (B, T, D); nothing where it does not run over time."""
        if row not in self._places:
            return
        lengths = self._real.lengths(x.shape)
        self._kept = kept_steps(max(lengths))
        at = torch.from_numpy(self._kept).to(x.device, torch.int64)
        mask = self._real.mask
        real = None if mask is None else torch.from_numpy(mask[:, self._kept]).to(x.device)
        self._found[DIRECTIONS.index(direction), self._places[row]] = statistics_over_time(
            x.detach().index_select(1, at), real)

    @property
    def steps(self) -> NDArray[np.int32]:
        """The kept time steps, (M,); empty where nothing runs over time."""
        return self._kept

    def table(self) -> Floats:
        """Return what was taken, (2, R, S, M), forward and gradients; NaN where nothing was seen. One transfer."""
        if not self._found:
            return np.empty((0, 0, 0, 0), np.float32)
        tensors = list(self._found.values())
        stacked = torch.stack([one.to(tensors[0].device) for one in tensors]).cpu().numpy()
        shape = (len(DIRECTIONS), len(self._places), len(TIME_STATISTICS), len(self._kept))
        table = np.full(shape, np.nan, stacked.dtype)
        for place, values in zip(self._found, stacked, strict=True):
            table[place] = values
        return table


def kept_steps(length: int) -> NDArray[np.int32]:
    """Return the time steps that are kept of `length`: all, or TIME_KEPT that lie evenly from the first to the last."""
    return np.linspace(0, length - 1, min(length, TIME_KEPT)).round().astype(np.int32)


def statistics_over_time(x: Tensor, real: Tensor | None = None) -> Tensor:
    """Return TIME_STATISTICS of each time step of `x` (B, M, D) over its real tokens and features, (S, M).

    `real`: (B, M), true at real tokens, of which every time step has one; None where all are. In float64 inside, each
    time step brought to its largest entry, so that what is finite neither overflows nor vanishes; NaN where an entry is
    not finite. The result is float32, float64 for an x in float64.
    """
    wide = x.to(working_dtype(x))
    if real is not None:
        wide = wide.masked_fill(~real[..., None], 0.0)
    tokens = torch.full_like(wide[0, :, 0], x.shape[0]) if real is None else real.sum(0)
    count = tokens * x.shape[-1]  # (M,)
    absmax = wide.abs().amax((0, 2))
    unit = wide / absmax.masked_fill(absmax == 0, 1.0)[:, None]
    mean, square = unit.sum((0, 2)) / count, unit.square().sum((0, 2)) / count
    kept, least = (torch.float64, LEAST["float64"]) if x.dtype == torch.float64 else (torch.float32, LEAST["float32"])
    found = torch.stack((absmax * mean, absmax * square.sqrt().clamp(max=1.0), absmax))
    found = found.masked_fill(~torch.isfinite(absmax), torch.nan).to(kept)
    sizes = found[1]
    found[1] = torch.where(absmax > 0, sizes.clamp(min=least), sizes)
    return found
