"""The measures of parameter tensors: how large they are, and how large their gradients.

One transfer for all of them on a GPU that holds them. A norm that float32 lost to overflow or underflow is taken again
in float64. The file knows tensors by name; it does not know optimizers, and takes update_ratio from none.

Shapes: P parameters.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from core import scan
from core.moments import working_dtype
from core.vocabulary import EMBED

F64 = NDArray[np.float64]

_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")

SAFE = (1e-13, 1e17)
"""Root mean squares outside may have lost entries to underflow or overflow in float32."""


@dataclass(frozen=True)
class ParameterMeasures:
    """`statistics`: name → (P,), NaN where there is no gradient; `grad_total_norm`: √Σ param_grad_norm².

    `observed`: whether a gradient is there, (P,). `non_finite`, `broken`: position of the first parameter whose
    gradient, or whose weight, is not finite, and its kind (nan or inf); gradients count from the last parameter on.
    """

    statistics: Mapping[str, F64]
    grad_total_norm: float
    observed: NDArray[np.bool_]
    non_finite: tuple[int, str] | None
    broken: tuple[int, str] | None = None


def layer_of(name: str, n_layers: int) -> int:
    """Return the layer of the parameter `name`: ``layers.3.…`` → 3, ``embed.…`` → −1, others n_layers."""
    if found := _LAYER.search(name):
        return int(found[1])
    return EMBED if name.startswith("embed.") else n_layers


def parameter_measures(parameters: Sequence[Tensor], loss_scale: float = 1.0) -> ParameterMeasures:
    """Return weight_norm, weight_rms and param_grad_norm of every parameter.

    weight_norm = ‖w‖₂, weight_rms = ‖w‖₂/√N, param_grad_norm = ‖∂loss/∂w‖₂, the gradients that are there divided by
    `loss_scale`. A gradient with Inf or NaN in it has norm Inf or NaN; grad_total_norm is NaN without any gradient.
    """
    sizes = np.array([parameter.numel() for parameter in parameters], np.float64)
    weights = norms([parameter.detach() for parameter in parameters])
    seen = [place for place, parameter in enumerate(parameters) if parameter.grad is not None]
    grads = np.full(len(parameters), np.nan)
    grads[seen] = norms([_dense(parameters[place].grad) for place in seen]) / loss_scale
    with np.errstate(all="ignore"):
        rms = weights / np.sqrt(sizes)
    measured = {"weight_norm": weights, "weight_rms": rms, "param_grad_norm": grads}
    observed = np.array([parameter.grad is not None for parameter in parameters], bool)
    return ParameterMeasures(measured, _together(grads[seen]), observed, _first(grads, seen[::-1]),
                             _first(weights, range(len(weights))))


def total_norm(parameters: Sequence[Tensor], loss_scale: float = 1.0) -> float:
    """Return grad_total_norm alone: √Σ‖∂loss/∂w‖² over the gradients that are there, divided by `loss_scale`."""
    return _together(norms([_dense(one.grad) for one in parameters if one.grad is not None]) / loss_scale)


def _first(sizes: F64, order: Iterable[int]) -> tuple[int, str] | None:
    """Return the first place in this order whose norm is not finite, and the kind."""
    found = next((place for place in order if not np.isfinite(sizes[place])), None)
    return None if found is None else (found, "nan" if np.isnan(sizes[found]) else "inf")


def norms(tensors: Sequence[Tensor]) -> F64:
    """Return ‖x‖₂ of each tensor; Inf or NaN where an entry is.

    By one torch._foreach_norm for all of a kind, but for large tensors on the CPU, where that adds up to 1e-3 of
    rounding.
    """
    tensors = [tensor if tensor.dtype in _WIDE else tensor.float() for tensor in tensors]
    sizes = [tensor.numel() for tensor in tensors]
    measured, kinds = np.zeros(len(tensors)), defaultdict(list)
    for place, (tensor, size) in enumerate(zip(tensors, sizes, strict=True)):
        if size > LARGE and tensor.device.type == "cpu":
            measured[place] = math.sqrt(scan.square_sum(tensor.reshape(-1).numpy()))
        elif size:
            kinds[tensor.device, tensor.dtype].append(place)
    for places in kinds.values():
        found = torch.stack(torch._foreach_norm([tensors[place] for place in places]))
        measured[places] = found.cpu().numpy()
    rms = measured / np.sqrt(np.maximum(sizes, 1))
    for place in np.flatnonzero(~((SAFE[0] < rms) & (rms < SAFE[1]))).tolist():
        measured[place] = _careful(tensors[place])
    return measured


LARGE = 1 << 17
_WIDE = (torch.float32, torch.float64)


def _careful(tensor: Tensor) -> float:
    """Return ‖x‖₂, scaled by the largest magnitude; that itself where it is 0, Inf or NaN."""
    largest = float(tensor.abs().amax()) if tensor.numel() else 0.0
    if largest == 0 or not np.isfinite(largest):
        return largest
    wide = tensor.to(working_dtype(tensor)) / largest
    return float(torch.linalg.vector_norm(wide)) * largest


def _together(norms_: F64) -> float:
    """Return √Σ norm²; NaN without any."""
    if not len(norms_):
        return float("nan")
    largest = norms_.max()
    if largest == 0 or not np.isfinite(largest):
        return float(largest)
    return float(np.sqrt(((norms_ / largest) ** 2).sum()) * largest)


def _dense(grad: Tensor | None) -> Tensor:
    assert grad is not None
    dense = grad.detach()
    return dense.to_dense() if dense.is_sparse else dense
