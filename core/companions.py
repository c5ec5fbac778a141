"""What a sequence's own numbers owe to what stands beside it: to the other sequences of its batch, and to padding.

The file plays parts of a batch, and the same real tokens with more padding, and keeps how far the numbers of the same
tokens move; what that means is in `core.batch_verdicts`.

Shapes: S sizes or shares that are played, B sequences, T positions, D features, L layers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from core.corpus import Batch
from core.evaluation import counted
from core.look import PADDED, batches, kept
from core.looking import Taker, moved, rms, streams, twin
from core.model import Stack
from core.norms import BatchNorm, Norm


class Played(NamedTuple):
    """One pass: `norm` (B, T, D), what the first norm of layer 0 returns, or None; `streams`: after each layer.

    `means`, `variances`: layer → (D,), what the first batchnorm of a layer saw, the variance biased.
    """

    norm: Tensor | None
    streams: list[Tensor]
    means: dict[int, Tensor]
    variances: dict[int, Tensor]


class Companions(Taker):
    """Plays the first 1, 2, 4, … sequences of the batch, and all of them; the first sequence is in every part.

    `found`: ``sizes`` (S,); ``norm`` (S,): RMS over the first sequence's real tokens of the change of the first norm's
    output, against its output in the whole batch, over the RMS of that; ``streams`` (S, L): the same of the stream
    after each layer; ``norm_rms``, ``norm_largest`` (S,): RMS and largest |entry| of the first norm's output, of all
    real tokens; ``stream_rms`` (S, L). NaN where there is no norm, and where the part is refused: a single token has no
    variance to divide by.
    """

    def before(self, data: Batch, step: int) -> None:
        """Play the parts."""
        sizes = batches(len(data.inputs))
        passes = [played(twin(self.stack), _first(data, size), step) for size in sizes]
        masks = [_first(data, size).mask for size in sizes]
        own = _real(data)[:1]
        whole = passes[-1]
        assert whole is not None
        layers = range(len(whole.streams))
        self.found = {
            "sizes": np.array(sizes, np.float64),
            "norm": np.array([_moved(one and one.norm, whole.norm, own) for one in passes]),
            "streams": np.array([[_moved(one and one.streams[layer], whole.streams[layer], own) for layer in layers]
                                 for one in passes]),
            "norm_rms": np.array([_rms(one and one.norm, mask) for one, mask in zip(passes, masks, strict=True)]),
            "norm_largest": np.array([_largest(one and one.norm, mask)
                                      for one, mask in zip(passes, masks, strict=True)]),
            "stream_rms": np.array([[_rms(one and one.streams[layer], mask) for layer in layers]
                                    for one, mask in zip(passes, masks, strict=True)]),
        }


class Padding(Taker):
    """Plays the first tokens of every sequence, `core.look.kept` of them, with more and more padding behind them.

    `found`: ``shares`` (S,), of the padding among all tokens, the first being the least there can be; ``norm`` (S,):
    RMS over the real tokens of the change of the first norm's output, against its output with the least padding, over
    the RMS of that; ``streams`` (S, L): the same of the stream after each layer; ``mean_shift``, ``padded_variance``
    (S, L): of what the first batchnorm of each layer counts, RMS over features of (mean − mean with the least
    padding)/σ of that, and median over features of variance/variance with the least padding. NaN where there is no such
    norm, and where the pass is refused.
    """

    def before(self, data: Batch, step: int) -> None:
        """Play the shares."""
        length = data.inputs.shape[1]
        lengths = [kept(int(count)) for count in _real(data).sum(1)]
        least = max(lengths)
        widths = [min(length, round(least / (1 - share))) for share in PADDED]
        passes = [played(twin(self.stack), _padded(data, lengths, width), step) for width in widths]
        real = _real(_padded(data, lengths, least))
        start = passes[0]
        layers = range(len(self.stack.layers))
        self.found = {
            "shares": np.array([1 - sum(lengths) / (len(lengths) * width) for width in widths]),
            "norm": np.array([_moved(one and one.norm, start and start.norm, real) for one in passes]),
            "streams": np.array([[_moved(one and one.streams[layer], start and start.streams[layer], real)
                                  for layer in layers] for one in passes]),
            "mean_shift": np.array([[_mean_shift(one, start, layer) for layer in layers] for one in passes]),
            "padded_variance": np.array([[_padded_variance(one, start, layer) for layer in layers] for one in passes]),
        }


def played(stack: Stack, data: Batch, step: int) -> Played | None:
    """Return what a pass of the batch shows; None where a batchnorm refuses it: in training, one token is none."""
    if stack.training and _tokens(stack, data) < 2:
        return None
    made = Played(None, [], {}, {})
    with _seen(stack, made) as outputs:
        found, _ = streams(stack, data, step)
    return made._replace(norm=outputs[0] if outputs else None, streams=found)


def _tokens(stack: Stack, data: Batch) -> float:
    """Return how many tokens batchnorm takes its statistics over; ∞ where there is none to ask for them."""
    norm = next((module for module in stack.modules() if isinstance(module, BatchNorm)), None)
    everywhere = data.mask is None or (norm is not None and norm.settings.pooled)
    tokens = data.inputs.shape[:2].numel() if everywhere or data.mask is None else int(data.mask.sum())
    return math.inf if norm is None else tokens


@contextmanager
def _seen(stack: Stack, made: Played) -> Iterator[list[Tensor]]:
    """Yield the outputs of the first norm of layer 0, as they come, and let `made` take what batchnorms count."""
    outputs: list[Tensor] = []

    def reading(layer: int) -> Any:
        def read(norm: nn.Module, given: Any) -> None:
            assert isinstance(norm, BatchNorm)
            tokens = counted(norm, *given).double()
            made.means[layer], made.variances[layer] = tokens.mean(0), tokens.var(0, correction=0)

        return read

    first = next((module for module in stack.layers[0].modules() if isinstance(module, Norm)), None)
    handles: list[RemovableHandle] = []
    if first is not None:
        handles.append(first.register_forward_hook(lambda _norm, _given, y: outputs.append(y.detach())))
    for layer, block in enumerate(stack.layers):
        norm = next((module for module in block.modules() if isinstance(module, BatchNorm)), None)
        if norm is not None:
            handles.append(norm.register_forward_pre_hook(reading(layer)))
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()


def _rms(x: Tensor | None, real: Tensor | None) -> float:
    return math.nan if x is None else rms(x, real)


def _moved(x: Tensor | None, reference: Tensor | None, real: Tensor) -> float:
    """Return how far the tokens of `reference` that are `real` moved, over their RMS.

    `real`: (R, C); the two are compared in its first R sequences and C positions, and both have as many at least.
    """
    if x is None or reference is None:
        return math.nan
    rows, columns = real.shape
    return moved(x[:rows, :columns], reference[:rows, :columns], real)


def _real(data: Batch) -> Tensor:
    """Return which tokens are no padding, (B, T)."""
    everywhere = torch.ones(data.inputs.shape[:2], dtype=torch.bool, device=data.inputs.device)
    return everywhere if data.mask is None else data.mask


def _largest(x: Tensor | None, real: Tensor | None) -> float:
    return math.nan if x is None else float((x if real is None else x[real]).abs().amax())


def _mean_shift(one: Played | None, start: Played | None, layer: int) -> float:
    if one is None or start is None or layer not in one.means:
        return math.nan
    shift = (one.means[layer] - start.means[layer]) / start.variances[layer].sqrt()
    return float(shift.square().mean().sqrt())


def _padded_variance(one: Played | None, start: Played | None, layer: int) -> float:
    if one is None or start is None or layer not in one.variances:
        return math.nan
    return float((one.variances[layer] / start.variances[layer]).median())


def _first(data: Batch, size: int) -> Batch:
    """Return the first `size` sequences."""
    return Batch(*(None if part is None else part[:size] for part in data))  # type: ignore[arg-type]


def _padded(data: Batch, lengths: list[int], width: int) -> Batch:
    """Return the first tokens of every sequence, as many as `lengths` says, in `width` positions; the rest is 0."""
    inputs = data.inputs[:, :width]
    places = torch.arange(width, device=inputs.device)
    real = places < torch.tensor(lengths, device=inputs.device)[:, None]
    wide = real.view(*real.shape, *[1] * (inputs.dim() - 2))
    return Batch(inputs.masked_fill(~wide, 0), None, real)
