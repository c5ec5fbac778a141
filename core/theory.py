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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.experiment import Experiment
from core.mean_field import NORMS, Layer
from core.mean_pattern import Counts
from core.plan import plan
from core.products import cosines
from core.rules import attends, is_recurrent
from core.tables import TURNED_POSITIONS
from core.vocabulary import EMBED

F64 = NDArray[np.float64]

MOST_WORK, LONGEST = 2**22, 1024
"""L·T² and T beyond which nothing is predicted: a page would wait for it, and the server hold too many T×T tables."""


def largest_entropy(length: int, causal: bool) -> float:
    """Return the most that a head's mean entropy over queries can be, in nats: ln T, causal ln(T!)/T."""
    return math.lgamma(length + 1) / length if causal else math.log(length)


class NoPrediction(Exception):
    """Nothing is predicted; `code` says why: a key of REASONS, ``start``, or of the gradient."""

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


def predict(experiment: Experiment, size: float, token_cosine: float) -> Prediction:
    """Return the prediction for an experiment whose embedding has this rms (`size`) and token_cosine.

    Errors: NoPrediction.
    """
    canonical = experiment.resolved()
    start = checked_start(canonical, size, token_cosine)
    sizes, likeness = {(EMBED, "embed"): rms(start)}, {(EMBED, "embed"): mean_cosine(start)}
    heads = {name: np.full(canonical.model.n_layers, math.nan) for name in PREDICTED}
    for played in layers(canonical, start):
        for site, tokens in played.sites.items():
            place = (played.layer, site)
            sizes[place], likeness[place] = rms(tokens.products), mean_cosine(tokens.products)
        for name, value in _of_heads(played).items():
            heads[name][played.layer] = value
    return Prediction(sizes, likeness, heads)


REASONS: dict[str, Callable[[Experiment], bool]] = {
    "recurrent": is_recurrent,
    "trained": lambda experiment: experiment.protocol.steps > 0,
    "norm": lambda experiment: any(plan(experiment, layer).norm not in NORMS
                                   for layer in range(experiment.model.n_layers)),
    "positions": lambda experiment: experiment.model.positions in TURNED_POSITIONS
    and attends(experiment) and experiment.model.pattern == "softmax",
    "softcap": lambda experiment: experiment.model.attn_softcap is not None,
    "dropout": lambda experiment: experiment.model.dropout > 0 and experiment.protocol.mode == "train",
    "lengths": lambda experiment: experiment.input.lengths is not None,
    "size": lambda experiment: experiment.input.seq_len > LONGEST
    or experiment.model.n_layers * experiment.input.seq_len**2 > MOST_WORK,
}
"""Code → when the assumptions do not hold."""


def checked_start(canonical: Experiment, size: float, token_cosine: float) -> F64:
    """Return the products of an embedding's tokens, (T, T), all pairs alike. Errors: NoPrediction."""
    for code, applies in REASONS.items():
        if applies(canonical):
            raise NoPrediction(code)
    return all_alike(canonical.input.seq_len, size, token_cosine, "start")


def all_alike(length: int, size: float, token_cosine: float, code: str) -> F64:
    """Return the products of `length` tokens of this rms and token_cosine, (T, T).

    Errors: NoPrediction with `code`, where they have no likeness, or no size whose square is a number above 0.
    """
    square = size * size  # ** would raise where it overflows
    if not (0 < square < math.inf and (length == 1 or -1 <= token_cosine <= 1)):
        raise NoPrediction(code)
    start = np.full((length, length), square * (token_cosine if length > 1 else 1.0))
    np.fill_diagonal(start, square)
    return start


def layers(canonical: Experiment, start: F64) -> Iterator[Layer]:
    """Yield the layers, played one after another from the embedding's products; none keeps those before it."""
    for layer in range(canonical.model.n_layers):
        played = Layer(canonical, layer, start)
        start = played.top.products
        yield played


def _of_heads(played: Layer) -> dict[str, float]:
    """Return the measures of a layer's heads, none without attention."""
    pattern, sites = played.pattern, played.sites
    if pattern is None:
        return {}
    choice = pattern.n >= 2
    n = pattern.n[choice]
    found = {"entropy": pattern.entropy, "entropy_norm": pattern.entropy[choice] / np.log(n),
             "softmax_gain": 1 - pattern.squares[choice], "score_std": pattern.std[choice] * _of_few(n)}
    return {**{name: values.mean() if values.size else math.nan for name, values in found.items()},
            "q_rms": rms(sites["q"].products), "k_rms": rms(sites["k"].products)}


PREDICTED = ("entropy", "entropy_norm", "softmax_gain", "score_std", "q_rms", "k_rms")
"""The measures of a head that are predicted."""


def _of_few(n: Counts) -> F64:
    """Return the mean of the population std of n Gaussian numbers over their σ: √(2/n)·Γ(n/2)/Γ((n−1)/2)."""
    return np.array([math.sqrt(2 / one) * math.exp(math.lgamma(one / 2) - math.lgamma((one - 1) / 2)) for one in n])


def rms(products: F64) -> float:
    """Return the root mean square of tokens with these products."""
    return math.sqrt(np.diag(products).mean())


def mean_cosine(products: F64) -> float:
    """Return the mean cosine over pairs of different tokens, NaN for a single one."""
    count = len(products)
    return float((cosines(products).sum() - count) / (count * (count - 1))) if count > 1 else math.nan
