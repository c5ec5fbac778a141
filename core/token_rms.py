"""The single tokens of a step: their ids, and the size of each in the residual stream, layer by layer.

Taken in detail full, for the first positions of the batch only, so that a snapshot stays small. The file knows the
stream's sites; it does not know hooks, nor what a token's id stands for.

Shapes: B batch, T positions, D features, L layers, M kept positions.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from core.rows import RealTokens
from core.vocabulary import IDS_KEPT, TOKENS_KEPT

Floats = NDArray[np.float32] | NDArray[np.float64]


class StreamTokens:
    """The tokens of one step.

    `ids`: (B, T), their numbers, None for a model that reads vectors; `real`: which are real.
    Errors: ValueError when the ids are not whole numbers, or do not fit the mask.
    """

    def __init__(self, ids: Tensor | None, real: RealTokens) -> None:
        if ids is not None:
            _check(ids, real)
            ids = ids.detach().reshape(-1)[:IDS_KEPT].to(torch.int32, copy=True)
        self._ids, self._real = ids, real
        self._sizes: dict[int, Tensor] = {}
        self._shape = (0, 0)

    def take(self, layer: int, x: Tensor) -> None:
        """Take the RMS of the tokens of `x` (B, T, D), the stream as it leaves `layer` (−1: the embedding)."""
        self._shape = (math.prod(x.shape[:-2]), x.shape[-2])
        self._sizes[layer] = token_rms(x.detach().reshape(-1, x.shape[-1])[:TOKENS_KEPT])

    @property
    def shape(self) -> tuple[int, int]:
        """(B, T); (0, 0) while the stream was not seen."""
        return self._shape

    def ids(self) -> NDArray[np.int32]:
        """Return the ids of the first IDS_KEPT positions, −1 at padding; empty where none were given."""
        if self._ids is None:
            return np.empty(0, np.int32)
        ids: NDArray[np.int32] = self._ids.cpu().numpy()
        return ids if self._real.mask is None else np.where(self._real.mask.reshape(-1)[:IDS_KEPT], ids, np.int32(-1))

    def sizes(self, n_layers: int) -> Floats:
        """Return the RMS of the first TOKENS_KEPT tokens, (L+1, M): the embedding, then the stream after each layer.

        NaN at padding, at tokens that are not finite, and where the stream was not seen. On a device this is the one
        transfer.
        """
        if not self._sizes:
            return np.empty((0, 0), np.float32)
        kept = max(len(sizes) for sizes in self._sizes.values())
        wide = [torch.nn.functional.pad(sizes, (0, kept - len(sizes)), value=math.nan)
                for sizes in self._sizes.values()]
        measured = torch.stack([sizes.to(wide[0].device) for sizes in wide]).cpu().numpy()
        table = np.full((n_layers + 1, kept), np.nan, measured.dtype)
        table[[layer + 1 for layer in self._sizes]] = measured
        if self._real.mask is not None:
            table[:, ~self._real.mask.reshape(-1)[:kept]] = np.nan
        return table


def token_rms(x: Tensor) -> Tensor:
    """Return √(mean_D x²) of each token of `x` (M, D), (M,), on its device; NaN where an entry is not finite.

    In float64 inside (float32 on MPS, which has no other), each token brought to its largest entry where that is no
    wider than x: what is finite neither overflows nor vanishes. The result is float32, float64 for an x in float64;
    a size below the least of its dtype becomes that, so only zeros give zero.
    """
    work = torch.float32 if x.device.type == "mps" else torch.float64
    wide, root = x.to(work), math.sqrt(x.shape[-1])
    if x.dtype == work:
        scale = wide.abs().amax(-1)
        unit = wide / scale.masked_fill(scale == 0, 1.0)[:, None]
        sizes = scale * (torch.linalg.vector_norm(unit, dim=-1) / root).clamp(max=1.0)
        sizes = torch.where(scale > 0, sizes.clamp(min=_LEAST[work]), sizes)
    else:
        sizes = torch.linalg.vector_norm(wide, dim=-1) / root
    kept = torch.float64 if x.dtype == torch.float64 else torch.float32
    found = sizes.masked_fill(~torch.isfinite(sizes), math.nan).to(kept)
    return torch.where(sizes > 0, found.clamp(min=_LEAST[kept]), found)


_LEAST = {torch.float32: 2.0**-149, torch.float64: 2.0**-1074}


def _check(ids: Tensor, real: RealTokens) -> None:
    if ids.is_floating_point() or ids.is_complex():
        raise ValueError(f"the tokens given to begin() hold {ids.dtype}; allowed: whole numbers, (B, T), or None")
    if real.mask is not None and tuple(ids.shape) != real.mask.shape:
        raise ValueError(f"the tokens given to begin() are {tuple(ids.shape)}, the mask is {real.mask.shape}; "
                         "allowed: both (B, T)")
