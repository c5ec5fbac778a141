"""What mathematics predicts of a stack at initialization: the stream, its tokens' likeness and the attention, by layer.

Mean field: a wide layer with independent Gaussian weights maps tokens to tokens whose products G_ij = E x_i·x_j / D
follow from those before it alone. The placement's own expression is played with these matrices instead of tensors
(`core.plan.play`), so wiring, residual scaling and overrides are the model's. It starts at the measured embedding, all
pairs of tokens alike, and needs no weights. What it cannot say is a NoPrediction with a code, never a guess.

Sources: Poole et al. 2016 (arXiv:1606.05340), Schoenholz et al. 2017 (1611.01232), Noci et al. 2022 (2206.03126); the
softmax is taken whole, by `core.gaussian_softmax`, not to first order.

Assumptions: D, K and F large; scores Gaussian, those of two queries as correlated as the queries; weights of the
softmax independent of the values they mix (W_q, W_k and W_v are). Shapes: T positions of one sequence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from core import gaussian_activation
from core.experiment import Experiment, Model
from core.init_scales import Fan, gain
from core.mean_pattern import PATTERNS, Counts, Pattern, mixed
from core.placements import Sublayer
from core.plan import PARTS, Part, Plan, plan, play
from core.products import cosines, scaled
from core.tables import GATED_ACTIVATIONS, INITS, TURNED_POSITIONS
from core.vocabulary import EMBED

F64 = NDArray[np.float64]

MOST_WORK = 2**22
"""L·T² beyond which nothing is predicted: a page would wait for it."""


def largest_entropy(length: int, causal: bool) -> float:
    """Return the most that a head's mean entropy over queries can be, in nats: ln T, causal ln(T!)/T."""
    return math.lgamma(length + 1) / length if causal else math.log(length)


class NoPrediction(Exception):
    """Nothing is predicted; `code` says why: a key of REASONS, or ``start``."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True, eq=False)
class Prediction:
    """What is predicted: rms and token_cosine by (layer, site), and measures of the heads by layer, means over queries.

    `heads`: measure (entropy, entropy_norm, softmax_gain, score_std, q_rms, k_rms) → (L,), NaN in layers without
    attention; every head of a layer is predicted alike.
    """

    rms: Mapping[tuple[int, str], float]
    token_cosine: Mapping[tuple[int, str], float]
    heads: Mapping[str, F64]

    def over_depth(self, statistic: str, site: str, layers: NDArray[np.int64]) -> F64:
        """Return rms or token_cosine at a site for each layer, NaN where it is not predicted."""
        known = {"rms": self.rms, "token_cosine": self.token_cosine}.get(statistic, {})
        return np.array([known.get((int(layer), site), math.nan) for layer in layers])


def predict(experiment: Experiment, rms: float, token_cosine: float) -> Prediction:
    """Return the prediction for an experiment whose embedding has this rms and token_cosine.

    Errors: NoPrediction.
    """
    canonical = experiment.resolved()
    for code, applies in REASONS.items():
        if applies(canonical):
            raise NoPrediction(code)
    length = canonical.input.seq_len
    if not (0 < rms < math.inf and (length == 1 or -1 <= token_cosine <= 1)):
        raise NoPrediction("start")
    start = np.full((length, length), rms**2 * (token_cosine if length > 1 else 1.0))
    np.fill_diagonal(start, rms**2)
    return _Play(canonical).run(start)


REASONS: dict[str, Callable[[Experiment], bool]] = {
    "trained": lambda experiment: experiment.protocol.steps > 0,
    "norm": lambda experiment: any(plan(experiment, layer).norm not in NORMS
                                   for layer in range(experiment.model.n_layers)),
    "positions": lambda experiment: experiment.model.positions in TURNED_POSITIONS
    and experiment.model.sublayers != "mlp" and experiment.model.pattern == "softmax",
    "softcap": lambda experiment: experiment.model.attn_softcap is not None,
    "dropout": lambda experiment: experiment.model.dropout > 0 and experiment.protocol.mode == "train",
    "lengths": lambda experiment: experiment.input.lengths is not None,
    "size": lambda experiment: experiment.model.n_layers * experiment.input.seq_len**2 > MOST_WORK,
}
"""Code → when the assumptions do not hold."""

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
class _Play:
    """One play of a canonical experiment's stack with products of tokens."""

    experiment: Experiment
    rms: dict[tuple[int, str], float] = field(default_factory=dict)
    cosine: dict[tuple[int, str], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.model = self.experiment.model
        self.heads = {name: np.full(self.model.n_layers, math.nan) for name in PREDICTED}

    def run(self, tokens: F64) -> Prediction:
        self._see(EMBED, "embed", tokens)
        for layer in range(self.model.n_layers):
            planned = plan(self.experiment, layer)
            see = {name: partial(self._see, layer, name) for name in planned.sites}
            sublayers = {name: self._sublayer(part, planned) if name in planned.parts else _skip
                         for name, part in PARTS.items()}
            tokens = play(tokens, None, sublayers, {**dict.fromkeys(("resid_pre", "resid_mid", "resid_post"), _same),
                                                    **see})
        return Prediction(self.rms, self.cosine, self.heads)

    def _sublayer(self, part: Part, planned: Plan) -> Sublayer[F64, None]:
        norm = partial(_normed, planned.norm, self.model)
        branch = {"attn": self._attention, "mlp": self._mlp}[part.name]
        see = {shown: partial(self._see, planned.layer, site) if site in planned.sites else _same
               for shown, site in planned.sees(part).items()}
        return Sublayer(planned.placement, partial(branch, planned.layer), dict.fromkeys(planned.placement.slots, norm),
                        lambda x: x / planned.divisor**2, _same, lambda y: y * planned.scale.value**2,
                        partial(_joined, planned.alpha), see)

    def _see(self, layer: int, site: str, tokens: F64) -> F64:
        self.rms[layer, site] = math.sqrt(np.diag(tokens).mean())
        self.cosine[layer, site] = _mean_cosine(tokens)
        return tokens

    def _gain(self, role: str, inputs: int, outputs: int) -> float:
        """Return what a matrix multiplies a mean square with: in·std²."""
        fan = Fan(role, inputs, outputs, self.model.n_layers, self.model.init_std)
        return float(inputs * (INITS[self.model.init].std(fan) * gain(self.model, role)) ** 2)

    def _mlp(self, layer: int, x: F64, _view: None) -> F64:
        model, hidden = self.model, self.model.d_ff or 0
        gated = model.activation in GATED_ACTIVATIONS
        read = self._see(layer, "mlp_pre", x * self._gain("gate" if gated else "in", model.d_model, hidden))
        active = gaussian_activation.gram(read, model.activation)
        if gated:
            active = active * x * self._gain("in", model.d_model, hidden)
        return self._see(layer, "mlp_act", active) * self._gain("out", hidden, model.d_model)

    def _attention(self, layer: int, x: F64, _view: None) -> F64:
        model, width = self.model, self.model.n_heads * (self.model.head_dim or 0)
        shared = (model.n_kv_heads or 0) * (model.head_dim or 0)
        q, k = (_qk_normed(x * self._gain(role, model.d_model, outputs), model)
                for role, outputs in (("q", width), ("k", shared)))
        v = x * self._gain("v", model.d_model, shared)
        for name, tokens in (("q", q), ("k", k), ("v", v)):
            self._see(layer, name, tokens)
        pattern = PATTERNS[model.pattern](q, k, model)
        self._see_heads(layer, q, k, pattern)
        return mixed(v, pattern) * self._gain("o", width, model.d_model)

    def _see_heads(self, layer: int, q: F64, k: F64, pattern: Pattern) -> None:
        choice = pattern.n >= 2
        n = pattern.n[choice]
        found = {"entropy": pattern.entropy, "entropy_norm": pattern.entropy[choice] / np.log(n),
                 "softmax_gain": 1 - pattern.squares[choice], "score_std": pattern.std[choice] * _of_few(n)}
        for name, values in found.items():
            self.heads[name][layer] = values.mean() if values.size else math.nan
        self.heads["q_rms"][layer], self.heads["k_rms"][layer] = (math.sqrt(np.diag(one).mean()) for one in (q, k))


PREDICTED = ("entropy", "entropy_norm", "softmax_gain", "score_std", "q_rms", "k_rms")
"""The measures of a head that are predicted."""


def _of_few(n: Counts) -> F64:
    """Return the mean of the population std of n Gaussian numbers over their σ: √(2/n)·Γ(n/2)/Γ((n−1)/2)."""
    return np.array([math.sqrt(2 / one) * math.exp(math.lgamma(one / 2) - math.lgamma((one - 1) / 2)) for one in n])


def _mean_cosine(tokens: F64) -> float:
    count = len(tokens)
    return float((cosines(tokens).sum() - count) / (count * (count - 1))) if count > 1 else math.nan


def _normed(norm: str, model: Model, tokens: F64, _view: None) -> F64:
    return scaled(tokens, NORMS[norm](np.diag(tokens), model))


def _qk_normed(tokens: F64, model: Model) -> F64:
    return tokens if model.qk_norm == "none" else _normed(model.qk_norm, model, tokens, None)


def _joined(alpha: float | None, x: F64, y: F64) -> F64:
    return y if alpha is None else alpha**2 * x + y


def _same(x: F64) -> F64:
    return x


def _skip(x: F64, _view: None) -> F64:
    return x
