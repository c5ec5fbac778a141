"""The vocabulary of measurement: sites and statistics by name, each one entry.

Every number on a page, in an export or on the command line is one of these. The file says where a statistic applies and
how it is taken; the definitions in words and formulas are in ``assets/text`` under the same names, the code that
computes them in `core.statistics`. Standard library only.
"""

from __future__ import annotations

from dataclasses import dataclass

EMBED = -1
"""The layer of what stands before layer 0; what follows the stack has layer n_layers."""


@dataclass(frozen=True)
class Site:
    """One place where a tensor is read. `shape`: its axes; `where`: embed, block or head (after the stack).

    `over_time`: of a recurrent layer, which makes it one time step after another.
    """

    shape: str
    where: str = "block"
    stream: bool = False
    cosine: bool = False
    over_time: bool = False


SITES: dict[str, Site] = {
    "embed": Site("B T D", "embed", stream=True, cosine=True),
    "resid_pre": Site("B T D", stream=True, cosine=True),
    "norm1": Site("B T D", cosine=True),
    "q": Site("B H T K"),
    "k": Site("B H T K"),
    "v": Site("B H T K"),
    "attn_scores": Site("B H T T"),
    "attn_pattern": Site("B H T T"),
    "norm1_out": Site("B T D", cosine=True),
    "attn_out": Site("B T D", cosine=True),
    "attn_sum": Site("B T D", stream=True, cosine=True),
    "resid_mid": Site("B T D", stream=True, cosine=True),
    "norm2": Site("B T D", cosine=True),
    "mlp_pre": Site("B T F"),
    "mlp_act": Site("B T F"),
    "norm2_out": Site("B T D", cosine=True),
    "mlp_out": Site("B T D", cosine=True),
    "mlp_sum": Site("B T D", stream=True, cosine=True),
    "resid_post": Site("B T D", stream=True, cosine=True),
    **dict.fromkeys(("gate_i", "gate_f", "gate_g", "gate_o", "gate_r", "gate_z", "gate_n", "cell"),
                    Site("B T D", over_time=True)),
    "hidden": Site("B T D", stream=True, cosine=True, over_time=True),
    "final_norm": Site("B T D", "head", cosine=True),
    "logits": Site("B T V", "head"),
}
"""Every site in the order in which a forward pass meets it. `cosine`: token_cosine is taken there."""

STREAM = "resid_post"
"""The residual stream where it leaves a block: what drift is read of."""

RECURRENT_STREAM = "hidden"
"""What goes from layer to layer where there is no residual stream: it answers for STREAM there."""

STREAMS = (STREAM, RECURRENT_STREAM)

ATTENTION_SITE = "attn"
"""The site name of per-head measures in tables and exports."""

TOKEN_SHAPES = frozenset({"B T D", "B T F", "B T V", "B H T K"})
"""Shapes with one row of features a token; token_rms is taken there (over H and K together at q, k, v)."""


@dataclass(frozen=True)
class Statistic:
    """One number of a tensor.

    `detail`: the least detail that records it; `sampled`: from a sample beyond SAMPLE entries; `sites`: the only sites
    that have it (None: all); `forward`, `gradient`: taken of activations, of gradients (named ``grad_…``); `unit`: ""
    for that of the tensor itself, else count, share, ratio or cosine.
    """

    detail: str = "standard"
    sampled: bool = False
    sites: frozenset[str] | None = None
    gradient: bool = True
    forward: bool = True
    unit: str = ""


SAMPLE = 65_536
"""Tensors with more entries give the sampled statistics from a strided sample, labelled as such."""

TOKENS_KEPT = 1024
"""Of how many positions, from the first of the batch on, a snapshot keeps the RMS of the single token."""

IDS_KEPT = 65_536
"""Of how many positions it keeps the token's id."""

TIME_STATISTICS: tuple[str, ...] = ("mean", "rms", "absmax")
"""The statistics that the sites over time have at each time step, of activations and of gradients, in detail full."""

TIME_KEPT = 256
"""Of how many time steps they are kept: all, or as many that lie evenly between the first and the last."""

FLOAT16_MAX = 65504.0
"""The largest float16."""

_COSINE_SITES = frozenset(name for name, site in SITES.items() if site.cosine)
_TOKEN_SITES = frozenset(name for name, site in SITES.items() if site.shape in TOKEN_SHAPES)

STATISTICS: dict[str, Statistic] = {
    "n": Statistic(unit="count"),
    "n_sample": Statistic(unit="count"),
    "n_nan": Statistic(unit="count"),
    "n_posinf": Statistic(unit="count"),
    "n_neginf": Statistic(unit="count"),
    "mean": Statistic(),
    "std": Statistic(),
    "rms": Statistic(),
    "absmax": Statistic(),
    "min": Statistic(),
    "max": Statistic(),
    "norm": Statistic(forward=False),
    "zero_frac": Statistic(unit="share", sampled=True),
    "overflow_frac16": Statistic(unit="share"),
    "subnormal_frac16": Statistic(unit="share"),
    "token_rms_p05": Statistic(sites=_TOKEN_SITES),
    "token_rms_p50": Statistic(sites=_TOKEN_SITES),
    "token_rms_p95": Statistic(sites=_TOKEN_SITES),
    "token_cosine": Statistic(sites=_COSINE_SITES, unit="cosine"),
    "layer_cosine": Statistic(sites=frozenset({"resid_post"}), gradient=False, unit="cosine"),
    "branch_ratio": Statistic(sites=frozenset({"attn_out", "mlp_out"}), gradient=False, unit="ratio"),
    "kurtosis": Statistic("full", sampled=True, unit="ratio"),
    "q01": Statistic("full", sampled=True),
    "q05": Statistic("full", sampled=True),
    "q25": Statistic("full", sampled=True),
    "q50": Statistic("full", sampled=True),
    "q75": Statistic("full", sampled=True),
    "q95": Statistic("full", sampled=True),
    "q99": Statistic("full", sampled=True),
}
"""The per-site statistics that are one number. In detail full zero_frac is exact at every size. `n` counts all real
entries, non-finite ones included; `n_sample` those that the sampled statistics used. log2_hist and outliers, which are
more than one number, have their own fields in a Snapshot."""

NON_FINITE = ("n_nan", "n_posinf", "n_neginf")
"""The statistics that count entries which are not finite."""

HISTOGRAM_LOW, HISTOGRAM_HIGH = -149, 127
"""log2_hist counts by exponent floor(log2|x|) from LOW to HIGH (277 bins, the ends hold what lies beyond), then zero,
then non-finite."""

HISTOGRAM_BINS: tuple[str, ...] = (*(str(e) for e in range(HISTOGRAM_LOW, HISTOGRAM_HIGH + 1)), "zero", "nonfinite")
"""The bins' names, as in ``log2_hist[-3]``: 279 of them."""

ENTROPY_QUANTILES: dict[str, float] = {
    "entropy_norm_p05": 0.05,
    "entropy_norm_p25": 0.25,
    "entropy_norm_p50": 0.50,
    "entropy_norm_p75": 0.75,
    "entropy_norm_p95": 0.95,
}
"""The quantiles over a head's queries of their normalized entropy, ascending: name → share of the queries below it."""

HEAD_MEASURES: dict[str, Statistic] = {
    "entropy": Statistic(unit="nats"),
    "entropy_norm": Statistic(unit="share"),
    "max_prob": Statistic(unit="share"),
    "saturated_frac": Statistic(unit="share"),
    "score_std": Statistic(),
    "score_absmax": Statistic(),
    "softmax_gain": Statistic(unit="share"),
    "q_rms": Statistic(),
    "k_rms": Statistic(),
    "qk_cosine": Statistic(unit="cosine"),
    **dict.fromkeys(ENTROPY_QUANTILES, Statistic("full", unit="share")),
}
"""The measures of one attention head in one layer, those that detail full adds last."""

HEADS_STANDARD: tuple[str, ...] = tuple(name for name, one in HEAD_MEASURES.items() if one.detail == "standard")
"""Those of every detail."""

SATURATED = 0.99
"""A query whose largest weight is above is saturated."""

PARAMETER_STATISTICS: tuple[str, ...] = ("weight_norm", "weight_rms", "param_grad_norm", "update_ratio")
"""The measures of one parameter tensor; update_ratio exists from the first optimizer step on."""

TOTALS: tuple[str, ...] = ("grad_total_norm", "clip_factor")
"""The measures of the whole model in one step."""
