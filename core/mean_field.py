"""One layer of a stack played with products of tokens instead of tensors, there and, on its tape, back.

The placement's own expression is played (`core.plan.play`), so wiring, residual scaling and overrides are the model's.
What a norm, a matrix, an activation and a pattern make of products on the way there, and of gradients' products on the
way back, stands side by side. It does not know where a play starts, nor what is made of it.

Assumptions: D, K and F large; scores Gaussian, those of two queries as correlated as the queries; weights of the
softmax independent of the values they mix (W_q, W_k and W_v are); gradients independent of what they are gradients of.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from core import gaussian_activation
from core.experiment import Experiment, Model
from core.init_scales import Fan, gain
from core.mean_pattern import PATTERNS, Pattern, keys_pull, mixed, queries_pull, values_pull
from core.placements import Sublayer
from core.plan import PARTS, Part, plan, play
from core.products import scaled
from core.tables import GATED_ACTIVATIONS, INITS
from core.tape import Tokens

F64 = NDArray[np.float64]

Norm = Callable[[F64, Model], F64]
"""From the mean square of tokens before a norm, (T,), to their size before over that after."""

NORMS: dict[str, Norm] = {
    "none": lambda square, _: np.ones_like(square),
    "layernorm": lambda square, model: np.sqrt(square + model.norm_eps),
    "rmsnorm": lambda square, model: np.sqrt(square + model.norm_eps),
    "groupnorm": lambda square, model: np.sqrt(square + model.norm_eps),
    "scalenorm": lambda square, _: np.sqrt(square),
    "layernorm_std_eps": lambda square, model: np.sqrt(square) + model.norm_eps,
    "layernorm_unbiased": lambda square, model: (np.sqrt(square) + model.norm_eps) / math.sqrt(1 - 1 / model.d_model),
}
"""The norms that set a token's size; features' means are as good as 0. Those that do not, and batchnorm, whose tokens
share one, are not predicted."""


@dataclass
class Layer:
    """One layer of a canonical experiment, played from the products of the tokens that enter it.

    `bottom`, `top`: the stream before and after it; `sites`: tokens by site; `pattern`: of its heads, all alike, None
    without attention.
    """

    experiment: Experiment
    layer: int
    products: F64
    sites: dict[str, Tokens] = field(default_factory=dict)
    pattern: Pattern | None = None

    def __post_init__(self) -> None:
        self.model, self.planned = self.experiment.model, plan(self.experiment, self.layer)
        self.bottom = Tokens(self.products)
        sublayers = {name: self._sublayer(part) if name in self.planned.parts else _skip
                     for name, part in PARTS.items()}
        see = {name: self._seer(name) for name in ("resid_pre", "resid_mid", "resid_post")}
        self.top = play(self.bottom, None, sublayers, see)

    def _sublayer(self, part: Part) -> Sublayer[Tokens, None]:
        planned, branch = self.planned, {"attn": self._attention, "mlp": self._mlp}[part.name]
        norm = partial(_normed, planned.norm, self.model)
        see = {shown: self._seer(site) for shown, site in planned.sees(part).items()}
        return Sublayer(planned.placement, branch, dict.fromkeys(planned.placement.slots, norm),
                        partial(_scaled, 1 / planned.divisor), _same, partial(_scaled, planned.scale.value),
                        partial(_joined, planned.alpha), see)

    def _seer(self, site: str) -> Callable[[Tokens], Tokens]:
        return partial(self._see, site) if site in self.planned.sites else _same

    def _see(self, site: str, tokens: Tokens) -> Tokens:
        self.sites[site] = tokens
        return tokens

    def _matrix(self, role: str, x: Tokens, outputs: int, uses: int = 1) -> Tokens:
        """Return what a matrix makes of x: in·std² times its mean square, out·std² back, from each of its `uses`."""
        inputs = self._width(role)
        fan = Fan(role, inputs, outputs, self.model.n_layers, self.model.init_std)
        square = float(INITS[self.model.init].std(fan) * gain(self.model, role)) ** 2
        return x.times(inputs * square, outputs * uses * square)

    def _width(self, role: str) -> int:
        model = self.model
        own = {"o": model.n_heads * (model.head_dim or 0), "out": model.d_ff or 0}
        return own.get(role, model.d_model)

    def _mlp(self, x: Tokens, _view: None) -> Tokens:
        model, hidden = self.model, self.model.d_ff or 0
        gated = model.activation in GATED_ACTIVATIONS
        read = self._see("mlp_pre", self._matrix("gate" if gated else "in", x, hidden))
        active = _active(read, model.activation)
        if gated:
            active = _product(active, self._matrix("in", x, hidden))
        return self._matrix("out", self._see("mlp_act", active), model.d_model)

    def _attention(self, x: Tokens, _view: None) -> Tokens:
        model = self.model
        head_dim, shared = model.head_dim or 0, model.n_kv_heads or 0
        made = {role: self._matrix(role, x, heads * head_dim, model.n_heads // heads)
                for role, heads in (("q", model.n_heads), ("k", shared), ("v", shared))}
        q, k = (self._see(name, _qk_normed(made[name], model)) for name in ("q", "k"))
        v = self._see("v", made["v"])
        self.pattern = PATTERNS[model.pattern](q.products, k.products, model)
        return self._matrix("o", _attended(q, k, v, self.pattern), model.d_model)


def _attended(q: Tokens, k: Tokens, v: Tokens, pattern: Pattern) -> Tokens:
    """Return what a pattern mixes of values; the gradient comes back through them, and through the scores."""
    three = (q.products, k.products, v.products)
    return Tokens(mixed(v.products, pattern), [
        (v, partial(values_pull, pattern)), (q, partial(queries_pull, pattern, three)),
        (k, partial(keys_pull, pattern, three))])


def _active(h: Tokens, activation: str) -> Tokens:
    return Tokens(gaussian_activation.gram(h.products, activation),
                  [(h, lambda gradient: gradient * gaussian_activation.slope_gram(h.products, activation))])


def _product(one: Tokens, other: Tokens) -> Tokens:
    """Return the products of two tokens that are multiplied feature by feature."""
    return Tokens(one.products * other.products, [(one, lambda gradient: gradient * other.products),
                                                  (other, lambda gradient: gradient * one.products)])


def _normed(norm: str, model: Model, tokens: Tokens, _view: None) -> Tokens:
    """Return normalized tokens; of what comes back, all but a share 1/D, that along x, is divided by their sizes."""
    sizes = NORMS[norm](np.diag(tokens.products), model)
    return Tokens(scaled(tokens.products, sizes), [(tokens, lambda gradient: scaled(gradient, sizes))])


def _qk_normed(tokens: Tokens, model: Model) -> Tokens:
    return tokens if model.qk_norm == "none" else _normed(model.qk_norm, model, tokens, None)


def _scaled(factor: float, x: Tokens) -> Tokens:
    return x.times(factor**2, factor**2)


def _joined(alpha: float | None, x: Tokens, y: Tokens) -> Tokens:
    return y if alpha is None else _scaled(alpha, x) + y


def _same(x: Tokens) -> Tokens:
    return x


def _skip(x: Tokens, _view: None) -> Tokens:
    return x
