"""What a trace says about drift: measures of the stream over depth, and verdict codes with their thresholds.

Torch-free and wordless: codes and numbers leave this file, sentences are made of them elsewhere. Depth x counts the
blocks passed: the stream after layer l has x = l + 1; for gradients, which flow backward, from the last layer down.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from core.columns import OUTLIER_RATIO
from core.experiment import Experiment
from core.fits import NO_FIT, Fit, exponential, law, power
from core.rules import is_recurrent, layer_norms
from core.trace import F64, Trace
from core.vocabulary import EMBED, FLOAT16_MAX, STREAM

THRESHOLDS: dict[str, float] = {
    "steady_growth": 1.25,
    "exploding_slope": 0.05,
    "vanishing_slope": -0.05,
    "alarm_growth": 10.0,
    "collapsed_cosine": 0.95,
    "float16_max": FLOAT16_MAX,
    "lost_share16": 0.01,
    "norm_off": 0.1,
    "overwritten_cosine": 0.5,
    "idle_cosine": 0.999,
    "dominant_ratio": 2.0,
    "faint_ratio": 0.01,
    "gaussian_kurtosis": 4.0,
    "alarm_kurtosis": 100.0,
    "outlier_ratio": OUTLIER_RATIO,
    "massive_value": 100.0,
    "massive_ratio": 1000.0,
    "even_tokens": 2.0,
    "token_stands_out": 10.0,
    "saturated_entropy": 0.3,
    "uniform_entropy": 0.98,
    "small_scores": 0.5,
    "many_heads": 0.25,
}
"""steady: the stream stays within this factor of its own start, both ways. exploding, vanishing: slope of ln rms per
block (0.05: doubling within 14 blocks), which is an alarm once the growth over all layers passes alarm_growth, or its
inverse. collapsed: mean cosine between different tokens after the last block. lost_share16: share of a site's entries
below the normal float16. norm_off: share by which the RMS of a norm's output misses 1.
overwritten, idle: mean cosine into and out of one block. dominant, faint: rms of a branch
over that of the stream it is added to. kurtosis: a Gaussian's is 3, that of models with outlier features in the
hundreds and thousands (Bondarenko et al. 2023, arXiv:2306.12929). massive: of one entry, value and value over median
(Sun et al. 2024, arXiv:2402.17762). even, stands out: rms of the largest token over that of the median token.
saturated, uniform: normalized entropy of a head. small_scores: spread of the scores of tokens that have nothing in
common. many_heads: share of all heads."""

FAR_DEPTHS = 100
"""An overflow this many depths of the stack away is no limit of it."""


@dataclass(frozen=True)
class Drift:
    """Drift of one site over depth, in the direction of flow.

    `growth`: rms(last)/rms(embed) for the stream; for other sites rms(last layer)/rms(first layer); for gradients,
    whose embedding is left out, rms(first layer)/rms(last layer).
    `log_slope`: least-squares slope of ln rms per block; `doubling_depth`: ln 2 / log_slope in blocks (< 0: halving).
    `law`: flat, exponential, power (rms² grows linearly with depth) or undetermined, as `core.fits.law` says;
    `square_slope`: growth of rms² per block under the power law; `exponential_error`, `power_error`: root mean square
    residual of each fit in ln rms. `overflow16_layer`: layer at which the extrapolated absmax passes 65504 (inf: never;
    NaN for gradients). `first_non_finite`: the first layer in the direction of flow with a non-finite entry, or None.
    """

    growth: float
    log_slope: float
    doubling_depth: float
    law: str
    square_slope: float
    exponential_error: float
    power_error: float
    overflow16_layer: float
    first_non_finite: int | None

    def numbers(self) -> dict[str, float]:
        """Return the measures that are numbers, by name."""
        return {name: float(value) for name, value in vars(self).items() if isinstance(value, int | float)}


@dataclass(frozen=True)
class Verdict:
    """A judgement as a code, with its numbers and the thresholds it compared them to.

    `alarm`: something is wrong; `expected`: code of what this configuration should show; `law`: as in Drift; `site`:
    the site it speaks of, or the parameter, where it is about one (its layer is a number); `token`: a token's symbol;
    `format`: the number format that it is about.
    """

    code: str
    alarm: bool
    numbers: dict[str, float]
    thresholds: dict[str, float]
    expected: str = ""
    law: str = ""
    site: str = ""
    token: str = ""
    format: str = ""


def drift(trace: Trace, site: str = STREAM, gradient: bool = False, step: int = -1) -> Drift:
    """Return how the rms of `site` drifts over depth at the `step`-th recorded step.

    Errors: ValueError when the configuration does not have the site.
    """
    layers, rms = rms_over_depth(trace, site, gradient, step)
    if not layers:
        raise ValueError(f"site {site} is absent from this configuration; present: {sorted(_names(trace))}")
    measured, fit = _fitted(*in_flow(trace, layers, rms, gradient), start_rms(trace, site, gradient, step))
    return replace(measured, first_non_finite=_first_non_finite(trace, site, gradient, step),
                   overflow16_layer=math.nan if gradient else _overflow_layer(trace, site, step, fit))


def rms_over_depth(trace: Trace, site: str, gradient: bool = False, step: int = -1) -> tuple[Sequence[int], F64]:
    """Return the layers of `site` and the RMS in each; of a gradient without the embedding's own row.

    That row is ``resid_pre`` of layer 0, the very tensor of ``embed``; its gradient measures 1/std of the embedding.
    """
    layers, rms = trace.profile(site, "rms", gradient, step)
    own = gradient and site == "resid_pre" and len(layers) > 1
    return (layers[1:], rms[1:]) if own else (layers, rms)


def over_depth(depth: F64, rms: F64, start: float) -> Drift:
    """Return the drift of a series `rms` over `depth`, in the direction of flow; growth is against `start`."""
    return _fitted(depth, rms, start)[0]


def _fitted(depth: F64, rms: F64, start: float) -> tuple[Drift, Fit]:
    """Return the drift of a series, and the fit of the law that it follows."""
    usable = np.isfinite(rms) & (rms > 0)
    fits = {name: fit(depth[usable], rms[usable]) for name, fit in (("exponential", exponential), ("power", power))}
    slope = fits["exponential"].slope
    measured = Drift(
        growth=_ratio(rms[-1], start), log_slope=slope, doubling_depth=math.log(2) / slope if slope else math.inf,
        law=law(rms[usable], fits["exponential"], fits["power"], THRESHOLDS["steady_growth"]),
        square_slope=fits["power"].slope, exponential_error=fits["exponential"].error, power_error=fits["power"].error,
        overflow16_layer=math.nan, first_non_finite=None,
    )
    return measured, fits.get(measured.law, NO_FIT)


def in_flow(trace: Trace, layers: Sequence[int], values: F64, gradient: bool) -> tuple[F64, F64]:
    """Return the blocks passed and the values there, in the direction of flow."""
    order = slice(None, None, -1) if gradient else slice(None)
    passed = np.asarray(layers, float)[order]
    return (trace.layout.n_layers - passed if gradient else passed + 1), values[order]


def verdict(trace: Trace, experiment: Experiment, gradient: bool = False, step: int = -1) -> Verdict:
    """Return the judgement on the drift of the stream; its code is a key of VERDICTS."""
    measured = drift(trace, gradient=gradient, step=step)
    code = code_of(measured)
    ends = {"start_rms": start_rms(trace, STREAM, gradient, step), "last_rms": last_rms(trace, STREAM, gradient, step)}
    return Verdict(code, code in ALARMS, measured.numbers() | ends, thresholds_of(code), expected(experiment, gradient),
                   measured.law)


def code_of(measured: Drift) -> str:
    """Return the verdict's code, the first of VERDICTS that holds."""
    return next(name for name, holds in VERDICTS.items() if holds(measured))


def thresholds_of(code: str) -> dict[str, float]:
    """Return the thresholds that decide about a code of VERDICTS."""
    return {name: THRESHOLDS[name] for name in _USED_THRESHOLDS.get(code, ("steady_growth",))}


def verdicts(trace: Trace, experiment: Experiment, step: int = -1) -> tuple[Verdict, ...]:
    """Return every judgement on a run: the stream, its gradients where observed, float16 range, rank of the tokens."""
    found = [verdict(trace, experiment, step=step)]
    if trace.snapshots[step].gradients:
        gradient = verdict(trace, experiment, gradient=True, step=step)
        found.append(replace(gradient, code=f"gradient_{gradient.code}"))
    return (*found, *_float16(trace, step), token_rank(trace, step))


VERDICTS: dict[str, Callable[[Drift], bool]] = {
    "non_finite": lambda drift: drift.first_non_finite is not None,
    "undefined": lambda drift: not math.isfinite(drift.growth),
    "exploding": lambda drift: (drift.law == "exponential" and drift.log_slope >= THRESHOLDS["exploding_slope"]
                                and drift.growth >= THRESHOLDS["alarm_growth"]),
    "vanishing": lambda drift: drift.growth == 0 or (drift.log_slope <= THRESHOLDS["vanishing_slope"]
                                                     and drift.growth <= 1 / THRESHOLDS["alarm_growth"]),
    "steady": lambda drift: 1 / THRESHOLDS["steady_growth"] <= drift.growth <= THRESHOLDS["steady_growth"],
    "growing": lambda drift: drift.growth > 1,
    "shrinking": lambda _: True,
}
"""Verdict code → whether it holds; the first that holds is the verdict."""

ALARMS = frozenset({"non_finite", "exploding", "vanishing", "undefined"})

_USED_THRESHOLDS: dict[str, tuple[str, ...]] = {
    "exploding": ("exploding_slope", "alarm_growth"), "vanishing": ("vanishing_slope", "alarm_growth"),
    "non_finite": (), "undefined": (),
}


def expected(experiment: Experiment, gradient: bool = False) -> str:
    """Return the code of what the configuration's stream should do over depth."""
    found, model = set(layer_norms(experiment)), experiment.resolved().model
    if is_recurrent(experiment):  # nothing simple is expected where only some of the layers have norms
        code = "" if {"none"} < found else "recurrent" if found == {"none"} else "recurrent_with_norm"
        return f"gradient_{code}" if code and gradient else code
    norms = "none" if found == {"none"} else model.placement
    residual = "" if model.residual else "_without_residual"
    code = "scaled" if has_factors(experiment) and model.residual and norms != "post" else f"{norms}{residual}"
    code = "mixed" if "none" in found and norms != "none" else code
    return ("gradient_" if gradient else "") + ("running" if runs_on_statistics(experiment) else code)


def has_factors(experiment: Experiment) -> bool:
    """Say whether the stream or a branch carries a factor before they are added."""
    return (experiment.model.branch_scale, experiment.model.residual_alpha) != (1.0, 1.0)


def runs_on_statistics(experiment: Experiment) -> bool:
    """Say whether the norm of every layer is a BatchNorm in evaluation, which untrained lets the stream through."""
    return set(layer_norms(experiment)) == {"batchnorm"} and experiment.protocol.mode == "eval"


def _float16(trace: Trace, step: int) -> tuple[Verdict, ...]:
    """Return the judgement on float16's range; none for a stream that is not finite without having passed it."""
    layer = drift(trace, step=step).overflow16_layer
    _, absmax = trace.profile(STREAM, "absmax", step=step)
    largest = float(np.nanmax(absmax)) if np.isfinite(absmax).any() else math.nan
    reached = layer <= trace.layout.n_layers - 1  # measured: what is extrapolated lies beyond the last layer
    if not reached and _first_non_finite(trace, STREAM, False, step) is not None:
        return ()
    headroom = FLOAT16_MAX / largest if largest else math.inf
    numbers = {"overflow16_layer": layer, "largest_absmax": largest, "headroom": headroom}
    near = layer <= FAR_DEPTHS * trace.layout.n_layers
    code = "float16_overflows" if reached else "float16_limited" if near else "float16_fits"
    return (Verdict(code, reached, numbers, {"float16_max": FLOAT16_MAX}),)


def token_rank(trace: Trace, step: int = -1) -> Verdict:
    """Return the judgement on how alike the tokens are after the last block (rank collapse)."""
    _, cosine = trace.profile(STREAM, "token_cosine", step=step)
    last = float(cosine[-1])
    collapsed = last > THRESHOLDS["collapsed_cosine"]
    code = "tokens_undefined" if math.isnan(last) else "tokens_collapsed" if collapsed else "tokens_differ"
    return Verdict(code, collapsed, {"token_cosine": last}, {"collapsed_cosine": THRESHOLDS["collapsed_cosine"]})


def _overflow_layer(trace: Trace, site: str, step: int, fit: Fit) -> float:
    """Return the first layer whose absmax passes 65504: measured where one does, else by the law fitted to the rms."""
    layers, absmax = trace.profile(site, "absmax", step=step)
    _, rms = trace.profile(site, "rms", step=step)
    infinite = sum(trace.profile(site, name, step=step)[1] for name in ("n_posinf", "n_neginf"))
    over = np.flatnonzero((absmax > FLOAT16_MAX) | (infinite > 0))
    if over.size:
        return float(layers[over[0]])
    usable = np.flatnonzero(np.isfinite(rms) & (rms > 0))
    if not usable.size:
        return math.inf
    crest = absmax[usable[-1]] / rms[usable[-1]]
    return max(fit.reaches(FLOAT16_MAX / crest) - 1, float(layers[-1] + 1))  # no measured layer passes it


def _first_non_finite(trace: Trace, site: str, gradient: bool, step: int) -> int | None:
    layers, rows = trace.layout.rows(site)
    counts = trace.snapshots[step].not_finite(gradient)[rows]
    found = [layer for layer, count in zip(layers, counts, strict=True) if count > 0]
    return (found[-1] if gradient else found[0]) if found else None


def start_rms(trace: Trace, site: str, gradient: bool, step: int) -> float:
    """Return the RMS at the start of the flow: the embedding's for the stream, else that of the site's first layer."""
    if trace.layout.answering(site) == trace.layout.answering(STREAM) and not gradient:
        layers, rms = trace.profile("embed", "rms", step=step)
        return float(rms[0]) if layers == [EMBED] else math.nan
    return float(rms_over_depth(trace, site, gradient, step)[1][-1 if gradient else 0])


def last_rms(trace: Trace, site: str, gradient: bool, step: int) -> float:
    """Return the RMS at the end of the flow."""
    return float(rms_over_depth(trace, site, gradient, step)[1][0 if gradient else -1])


def over(value: float, base: float) -> float:
    """Return value / base, ∞ over 0 and NaN for 0 over 0."""
    return float(value / base) if base else math.inf if value else math.nan


def _ratio(value: float, base: float) -> float:
    return float(value) / float(base) if base else math.nan


def _names(trace: Trace) -> set[str]:
    return {name for _, name in trace.layout.sites}
