"""Pairing: the fingerprint by which two runs are seen to start from the same weights, the same draws, or neither.

The only place that knows how weights and data are hashed; who compares two fingerprints is `core.comparison`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from core.corpus import Batch
from core.inits import is_drawn, unit_normals
from core.model import Stack


def fingerprint(stack: Stack, *batches: Batch) -> dict[str, Any]:
    """Return what the run starts from, as JSON-able hashes.

    ``data``: one hash over the batches' inputs, targets and masks. ``tensors``: name of each drawn parameter → [hash of
    the unit normals it was drawn from, hash of its weights as they are]. Two tensors of one name have the same first
    hash when the same draws were scaled, the same second one when the weights are equal. Parameters that start constant
    (biases, a norm's own) belong to the variants' difference, not to their pairing, and are left out.
    """
    seed = stack.experiment.protocol.seed
    tensors = {
        name: [_hash([unit_normals(seed, name, tuple(weight.shape))]), _hash([weight])]
        for name, weight in stack.named_parameters() if is_drawn(name)
    }
    return {"data": _hash(part for batch in batches for part in batch), "tensors": tensors}


def _hash(parts: Iterable[Tensor | None]) -> str:
    """Return SHA-256 (hex, 16 digits) over dtypes, shapes and entries."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(repr(None if part is None else (part.dtype, tuple(part.shape))).encode())
        if part is not None:
            digest.update(part.detach().cpu().contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]
