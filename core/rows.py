"""Which entries of a step's tensors are real, and how a tensor at a site becomes rows of them.

Padding and hidden pairs are left out here, before anything is measured. The file knows shapes and masks; it measures
nothing.

Shapes: B batch, T positions, D features, H heads, K head dimension; R real tokens, W features of a row.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property, lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from core.vocabulary import SITES

Mask = NDArray[np.bool_]


class RealTokens:
    """The real tokens of one step. `mask`: (B, T), true at real tokens; None where all are."""

    def __init__(self, mask: Tensor | None) -> None:
        array: Mask | None = None if mask is None else mask.detach().bool().cpu().numpy()
        self.mask = None if array is None or array.all() else array
        self._indices: dict[object, Tensor] = {}

    @cached_property
    def places(self) -> NDArray[np.int64] | None:
        """The index of every real token in the flattened batch, sequence · T + position; None where all are real."""
        return None if self.mask is None else np.flatnonzero(self.mask)

    def rows(self, x: Tensor, site: str, causal: bool) -> Tensor:
        """Return the real entries of `x` at `site`: (R, W), a row a token, or (1, n) at the pairs of attention.

        Errors: ValueError when the mask does not fit.
        """
        return ROWS[SITES[site].shape](self, x, causal)

    def lengths(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the number of real tokens of each sequence of a tensor of this shape, (…, T, D), Σ = R."""
        return _whole(shape) if self.mask is None else self._mask_lengths

    @cached_property
    def _mask_lengths(self) -> tuple[int, ...]:
        return () if self.mask is None else tuple(self.mask.sum(1).tolist())

    def features(self, x: Tensor, _causal: bool = False) -> Tensor:
        """Return `x` (B, T, D) as (R, D)."""
        flat = x.reshape(-1, x.shape[-1])
        if self.mask is None:
            return flat
        self._check(x, tuple(x.shape[:-1]))
        assert self.places is not None
        return flat.index_select(0, self._kept("tokens", x.device, lambda: self.places))

    def by_head(self, x: Tensor, _causal: bool = False) -> Tensor:
        """Return `x` (B, H, T, K) as (R, H·K), the features of all heads together."""
        return self.features(x.transpose(1, 2).flatten(2))

    def pairs(self, x: Tensor, causal: bool) -> Tensor:
        """Return the entries of `x` (B, H, T, T) at the visible keys of real queries, (1, n)."""
        length = x.shape[-1]
        if self.mask is None:
            if not causal:
                return x.reshape(1, -1)
            index = self._kept(("earlier", length), x.device, lambda: np.flatnonzero(np.tri(length, dtype=bool)))
            return x.reshape(-1, length * length).index_select(1, index).reshape(1, -1)
        self._check(x, (x.shape[0], length))
        index = self._kept(("visible", x.shape, causal), x.device, lambda: self._visible(x.shape[1], causal))
        return x.reshape(-1).index_select(0, index)[None]

    def _visible(self, heads: int, causal: bool) -> NDArray[np.int64]:
        """Return the flat indices of visible pairs of real queries in (B, H, T, T)."""
        assert self.mask is not None
        batch, length = self.mask.shape
        seen = self.mask[:, None, :, None] & self.mask[:, None, None, :]  # (B, 1, T, T)
        seen = seen & np.tri(length, dtype=bool) if causal else seen
        return np.flatnonzero(np.broadcast_to(seen, (batch, heads, length, length)))

    def _kept(self, key: object, device: torch.device, make: Callable[[], NDArray[np.int64] | None]) -> Tensor:
        """Return an index on `device`, made once a step."""
        if (key, device) not in self._indices:
            self._indices[key, device] = torch.from_numpy(make()).to(device, non_blocking=True)
        return self._indices[key, device]

    def _check(self, x: Tensor, tokens: tuple[int, ...]) -> None:
        assert self.mask is not None
        if tokens != self.mask.shape:
            raise ValueError(f"the mask given to begin() is {self.mask.shape}, a tensor is {tuple(x.shape)}; "
                             "allowed: one entry a token, (B, T)")


@lru_cache(maxsize=64)
def _whole(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the lengths of sequences without padding."""
    return tuple(shape[-2:-1]) * math.prod(shape[:-2])


ROWS: dict[str, Callable[[RealTokens, Tensor, bool], Tensor]] = {
    "B T D": RealTokens.features,
    "B T F": RealTokens.features,
    "B T V": RealTokens.features,
    "B H T K": RealTokens.by_head,
    "B H T T": RealTokens.pairs,
}
"""Shape of a site → how its tensor becomes rows."""
