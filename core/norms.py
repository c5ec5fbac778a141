"""The norms, each one module, and what they share: the learned γ and β, and the precision they are computed in.

A norm maps x (B, T, D) to the same shape and knows its width, its settings and which tokens are real; it does not know
where in a block it stands, nor what is recorded.

Shapes: B batch, T positions, D features, G groups, N real tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from core.experiment import Model
from core.tables import NORMS, load


@dataclass(frozen=True)
class NormSettings:
    """How norms are computed: the fields ``norm_…``, ``bn_…`` of an experiment's model.

    `naive`: in the dtype of x, step by step, instead of float32 at least; `cast_first`: cast back to the dtype of x
    before γ and β are applied, not after; `pooled`: batchnorm counts the padding too; `dtype`: that of the parameters.
    """

    eps: float = 1e-5
    affine: bool = True
    naive: bool = False
    cast_first: bool = False
    groups: int = 4
    pooled: bool = False
    momentum: float = 0.1
    dtype: torch.dtype = torch.float32

    @classmethod
    def of(cls, model: Model, dtype: torch.dtype) -> NormSettings:
        """Return the settings that an experiment's model describes, with parameters of `dtype`."""
        return cls(model.norm_eps, model.norm_affine, model.norm_dtype == "compute", model.norm_cast == "before",
                   model.norm_groups, model.bn_padding == "pooled", model.bn_momentum, dtype)


class NoNorm(nn.Module):
    """The identity: no parameters, and the very tensor that came."""

    def __init__(self, _width: int, _settings: NormSettings) -> None:
        super().__init__()

    def forward(self, x: Tensor, _mask: Tensor | None = None) -> Tensor:
        """Return `x` itself."""
        return x


class Norm(nn.Module):
    """What all norms share: γ·n(x) + β, in which precision, and when it is cast back.

    A subclass writes its formula n(x) in `formula`; one that torch has a fused kernel for overrides `kernel` too, which
    is used unless the settings ask for the naive norm. `gains`, `shifts`: which parameters an affine norm learns.
    """

    gains: ClassVar[bool] = True
    shifts: ClassVar[bool] = True

    def __init__(self, width: int, settings: NormSettings) -> None:
        super().__init__()
        self.width, self.settings = width, settings
        learned = settings.affine
        self.weight = self._parameter(self.gain_width(), 1.0) if learned and self.gains else None
        self.bias = self._parameter(width, 0.0) if learned and self.shifts else None

    def gain_width(self) -> int:
        """Return the number of entries of γ."""
        return self.width

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the normalized x, in the shape and dtype of x.

        `x`: (B, T, D), or any shape that ends in D; `mask`: (B, T), true at real tokens (None: all are), which only
        batchnorm looks at. The work is done in float32 or the dtype of x, whichever is wider, unless naive.
        """
        settings = self.settings
        wide = x if settings.naive else x.to(torch.promote_types(x.dtype, torch.float32))
        late = not settings.cast_first or wide.dtype == x.dtype
        weight, bias = (self.weight, self.bias) if late else (None, None)
        compute = self.naive if settings.naive else self.kernel
        y = compute(wide, mask, weight, bias).to(x.dtype)
        return y if late else _affine(y, self.weight, self.bias)

    def formula(self, x: Tensor) -> Tensor:
        """Return n(x), written out, in the dtype of x."""
        raise NotImplementedError

    def naive(self, x: Tensor, _mask: Tensor | None, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        """Return weight·n(x) + bias step by step in the dtype of x: float16 squares overflow from |x| = 256 on."""
        return _affine(self.formula(x), weight, bias)

    def kernel(self, x: Tensor, mask: Tensor | None, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        """Return weight·n(x) + bias, by torch's fused kernel where there is one."""
        return self.naive(x, mask, weight, bias)

    def _parameter(self, width: int, value: float) -> nn.Parameter:
        return nn.Parameter(torch.full((width,), value, dtype=self.settings.dtype))


class LayerNorm(Norm):
    """(x − μ)/√(σ² + ε) per token over D, σ² biased (Ba, Kiros, Hinton 2016, arXiv:1607.06450)."""

    def formula(self, x: Tensor) -> Tensor:
        """Return (x − μ)/√(σ² + ε)."""
        centred = x - x.mean(-1, keepdim=True)
        return centred / (centred.square().mean(-1, keepdim=True) + self.settings.eps).sqrt()

    def kernel(self, x: Tensor, _mask: Tensor | None, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        """Return the same by F.layer_norm."""
        return F.layer_norm(x, (self.width,), weight, bias, self.settings.eps)


class LayerNormStdEps(Norm):
    """(x − μ)/(σ + ε) per token over D, σ biased: ε outside the root, as in much teaching code."""

    correction: ClassVar[int] = 0

    def formula(self, x: Tensor) -> Tensor:
        """Return (x − μ)/(σ + ε)."""
        centred = x - x.mean(-1, keepdim=True)
        variance = centred.square().mean(-1, keepdim=True) * (self.width / (self.width - self.correction))
        return centred / (_root(variance) + self.settings.eps)


class LayerNormUnbiased(LayerNormStdEps):
    """(x − μ)/(σ + ε) per token over D, σ with D − 1 (torch.std's default)."""

    correction: ClassVar[int] = 1


class RMSNorm(Norm):
    """x/√(mean x² + ε) per token over D, no β (Zhang, Sennrich 2019, arXiv:1910.07467)."""

    shifts: ClassVar[bool] = False

    def formula(self, x: Tensor) -> Tensor:
        """Return x/√(mean x² + ε)."""
        return x / (x.square().mean(-1, keepdim=True) + self.settings.eps).sqrt()

    def kernel(self, x: Tensor, _mask: Tensor | None, weight: Tensor | None, _bias: Tensor | None) -> Tensor:
        """Return the same by F.rms_norm."""
        return F.rms_norm(x, (self.width,), weight, self.settings.eps)


class GroupNorm(Norm):
    """LayerNorm of each token over each of G groups of D/G features, never over T (Wu, He 2018, arXiv:1803.08494).

    Errors: ValueError when D does not split into G groups.
    """

    def __init__(self, width: int, settings: NormSettings) -> None:
        super().__init__(width, settings)
        if width % settings.groups:
            raise ValueError(f"{width} features do not split into {settings.groups} groups; allowed: a divisor of "
                             f"{width}")

    def formula(self, x: Tensor) -> Tensor:
        """Return (x − μ)/√(σ² + ε), μ and σ² of the feature's group."""
        grouped = self._grouped(x)
        centred = grouped - grouped.mean(-1, keepdim=True)
        return (centred / (centred.square().mean(-1, keepdim=True) + self.settings.eps).sqrt()).flatten(-2)

    def kernel(self, x: Tensor, _mask: Tensor | None, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        """Return the same by F.layer_norm over each group."""
        grouped = self._grouped(x)
        return _affine(F.layer_norm(grouped, grouped.shape[-1:], eps=self.settings.eps).flatten(-2), weight, bias)

    def _grouped(self, x: Tensor) -> Tensor:
        return x.reshape(*x.shape[:-1], self.settings.groups, -1)  # (B, T, G, D/G)


class ScaleNorm(Norm):
    """g·√D·x/‖x‖ per token, one learned g (Nguyen, Salazar 2019, arXiv:1910.05895); a token of zeros stays zeros.

    There is no ε. Outside the naive mode a token is brought to the scale of its largest entry first, which changes
    nothing but that its squares neither overflow nor vanish.
    """

    shifts: ClassVar[bool] = False

    def gain_width(self) -> int:
        """Return 1: one scale for all features."""
        return 1

    def formula(self, x: Tensor) -> Tensor:
        """Return x/(‖x‖/√D)."""
        if not self.settings.naive:
            x = x / _or_one(x.detach().abs().amax(-1, keepdim=True))
        return x / _or_one(_root(x.square().mean(-1, keepdim=True)))


class DyT(Norm):
    """γ·tanh(α·x) + β with one learned α, 0.5 at first: no statistics at all (Zhu et al. 2025, arXiv:2503.10622).

    α is learned even when the norm is not affine.
    """

    alpha_at_init: ClassVar[float] = 0.5

    def __init__(self, width: int, settings: NormSettings) -> None:
        super().__init__(width, settings)
        self.alpha = self._parameter(1, self.alpha_at_init)

    def formula(self, x: Tensor) -> Tensor:
        """Return tanh(α·x)."""
        return torch.tanh(self.alpha.to(x.dtype) * x)


class BatchNorm(Norm):
    """(x − μ)/√(σ² + ε) per feature over the N real tokens of B·T, σ² biased (Ioffe, Szegedy 2015, arXiv:1502.03167).

    In evaluation μ and σ² are the running estimates: r ← (1 − momentum)·r + momentum·batch, the variance with N − 1,
    as in torch. `pooled` counts the padding as tokens too.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, width: int, settings: NormSettings) -> None:
        super().__init__(width, settings)
        self.register_buffer("running_mean", torch.zeros(width, dtype=settings.dtype))
        self.register_buffer("running_var", torch.ones(width, dtype=settings.dtype))

    def naive(self, x: Tensor, mask: Tensor | None, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        """Return weight·(x − μ)/√(σ² + ε) + bias, μ and σ² per feature; in training the running estimates move."""
        if self.training:
            mean, variance = self._batch_moments(x, mask)
        else:
            mean, variance = self.running_mean.to(x.dtype), self.running_var.to(x.dtype)
        return _affine((x - mean) / (variance + self.settings.eps).sqrt(), weight, bias)

    def kernel(self, x: Tensor, mask: Tensor | None, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        """Return the same, by F.batch_norm where every token counts; torch has none without ε."""
        settings = self.settings
        if self.training and (settings.eps == 0 or (mask is not None and not settings.pooled)):
            return self.naive(x, mask, weight, bias)
        flat = F.batch_norm(x.reshape(-1, self.width), self.running_mean, self.running_var, weight, bias,
                            self.training, settings.momentum, settings.eps)
        return flat.view(x.shape)

    def _batch_moments(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return μ and σ² per feature over the tokens that count, (D,) each, and let the estimates follow."""
        real = x.new_ones(x.shape[:-1], dtype=torch.bool) if mask is None or self.settings.pooled else mask
        mean = _token_mean(x, real)
        variance = _token_mean((x - mean).square(), real)
        with torch.no_grad():
            count = real.sum()
            unbiased = variance.to(self.running_var.dtype) * (count / (count - 1).clamp(min=1))
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.settings.momentum)
            self.running_var.lerp_(unbiased.to(self.running_var.dtype), self.settings.momentum)
        return mean, variance


def normalize(name: str, x: Any, eps: float = 1e-5, groups: int = 4) -> Tensor:
    """Return the norm `name`, without γ and β, of a given array whose last axis holds the features.

    `x`: nested lists, an array or a tensor; whole numbers become float64, autograd goes through. batchnorm normalizes
    as in training, over all leading axes. Errors: KeyError when NORMS has no such name; ValueError when the features do
    not split into `groups`, or batchnorm is given a single token.
    """
    values = torch.as_tensor(x)
    values = values if values.is_floating_point() else values.double()
    settings = NormSettings(eps=eps, affine=False, groups=groups,
                            dtype=torch.promote_types(values.dtype, torch.float32))
    result: Tensor = load(NORMS, name)(values.shape[-1], settings)(values)
    return result


def _affine(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """Return weight·x + bias in the dtype of x; None leaves a part out."""
    if weight is not None:
        x = x * weight.to(x.dtype)
    return x if bias is None else x + bias.to(x.dtype)


def _or_one(size: Tensor) -> Tensor:
    """Return `size`, or 1 where it is 0."""
    return torch.where(size == 0, 1, size)


def _root(x: Tensor) -> Tensor:
    """Return √x with gradient 0 at x = 0, where the derivative of the root would turn a constant token into NaN."""
    nothing = x == 0
    return x.masked_fill(nothing, 1).sqrt().masked_fill(nothing, 0)


def _token_mean(x: Tensor, real: Tensor) -> Tensor:
    """Return the mean of x (B, T, D) over real (B, T) tokens, (D,): summed in float32 at least, rounded as x is."""
    wide = torch.promote_types(x.dtype, torch.float32)
    total = x.masked_fill(~real.unsqueeze(-1), 0).sum(tuple(range(x.dim() - 1)), dtype=wide)
    return (total / real.sum()).to(x.dtype)
