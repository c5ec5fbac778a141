"""What a trace says about drift: measures of the stream over depth, and verdict codes with their thresholds.

Torch-free and wordless: codes and numbers leave this file, sentences are made of them elsewhere. Depth x counts the
blocks passed: the stream after layer l has x = l + 1; for gradients, which flow backward, from the last layer down.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from core.experiment import Experiment
from core.rules import layer_norms
from core.trace import F64, Trace
from core.vocabulary import EMBED

FLOAT16_MAX = 65504.0
STREAM = "resid_post"

THRESHOLDS: dict[str, float] = {
    "steady_growth": 1.25,
    "exploding_slope": 0.05,
    "vanishing_slope": -0.05,
    "alarm_growth": 10.0,
    "collapsed_cosine": 0.95,
    "float16_max": FLOAT16_MAX,
}
"""steady: the stream stays within this factor of its own start, both ways. exploding, vanishing: slope of ln rms per
block (0.05: doubling within 14 blocks), which is an alarm once the growth over all layers passes alarm_growth, or its
inverse. collapsed: mean cosine between different tokens after the last block."""


@dataclass(frozen=True)
class Drift:
    """Drift of one site over depth, in the direction of flow.

    `growth`: rms(last)/rms(embed) forward; gradients, whose embedding is left out: rms(first layer)/rms(last layer).
    `log_slope`: least-squares slope of ln rms per block; `doubling_depth`: ln 2 / log_slope in blocks (< 0: halving).
    `law`: flat, exponential, power (rms² grows linearly with depth) or undetermined (fewer than 3 finite layers);
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

    `alarm`: something is wrong; `expected`: code of what this configuration should show; `law`: as in Drift.
    """

    code: str
    alarm: bool
    numbers: dict[str, float]
    thresholds: dict[str, float]
    expected: str = ""
    law: str = ""


@dataclass(frozen=True)
class _Fit:
    """A law fitted to rms over depth: its prediction error in ln rms, its slope, and where it reaches a value."""

    error: float
    slope: float
    reaches: Callable[[float], float]


def drift(trace: Trace, site: str = STREAM, gradient: bool = False, step: int = -1) -> Drift:
    """Return how the rms of `site` drifts over depth at the `step`-th recorded step.

    Errors: ValueError when the configuration does not have the site.
    """
    layers, rms = trace.profile(site, "rms", gradient, step)
    if not layers:
        raise ValueError(f"site {site} is absent from this configuration; present: {sorted(_names(trace))}")
    depth, flow = np.arange(1.0, len(layers) + 1), rms[::-1] if gradient else rms
    usable = np.isfinite(flow) & (flow > 0)
    exponential, power = _exponential(depth[usable], flow[usable]), _power(depth[usable], flow[usable])
    start = flow[0] if gradient else _embed_rms(trace, step)
    slope = exponential.slope
    law = _law(flow[usable], exponential, power)
    fit = {"power": power, "exponential": exponential}.get(law, _NO_FIT)
    return Drift(
        growth=_ratio(flow[-1], start), log_slope=slope, doubling_depth=math.log(2) / slope if slope else math.inf,
        law=law, square_slope=power.slope, exponential_error=exponential.error, power_error=power.error,
        overflow16_layer=math.nan if gradient else _overflow_layer(trace, site, step, fit),
        first_non_finite=_first_non_finite(trace, site, gradient, step),
    )


def verdict(trace: Trace, experiment: Experiment, gradient: bool = False, step: int = -1) -> Verdict:
    """Return the judgement on the drift of the stream; its code is a key of VERDICTS."""
    measured = drift(trace, gradient=gradient, step=step)
    code = next(name for name, holds in VERDICTS.items() if holds(measured))
    used = {name: THRESHOLDS[name] for name in _USED_THRESHOLDS.get(code, ("steady_growth",))}
    ends = {"start_rms": _start_rms(trace, gradient, step), "last_rms": _last_rms(trace, gradient, step)}
    return Verdict(code, code in ALARMS, measured.numbers() | ends, used, expected(experiment, gradient), measured.law)


def verdicts(trace: Trace, experiment: Experiment, step: int = -1) -> tuple[Verdict, ...]:
    """Return every judgement on a run: the stream, its gradients where observed, float16 range, rank of the tokens."""
    found = [verdict(trace, experiment, step=step)]
    if trace.snapshots[step].gradients:
        gradient = verdict(trace, experiment, gradient=True, step=step)
        found.append(replace(gradient, code=f"gradient_{gradient.code}"))
    return (*found, _float16(trace, step), _tokens(trace, step))


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
    model = experiment.resolved().model
    norms = "none" if set(layer_norms(experiment)) == {"none"} else model.placement
    residual = "" if model.residual else "_without_residual"
    return f"{'gradient_' if gradient else ''}{norms}{residual}"


def _float16(trace: Trace, step: int) -> Verdict:
    layer = drift(trace, step=step).overflow16_layer
    _, absmax = trace.profile(STREAM, "absmax", step=step)
    largest = float(np.nanmax(absmax)) if np.isfinite(absmax).any() else math.nan
    reached = layer <= trace.layout.n_layers - 1  # measured: what is extrapolated lies beyond the last layer
    numbers = {"overflow16_layer": layer, "largest_absmax": largest, "headroom": _ratio(FLOAT16_MAX, largest)}
    code = "float16_overflows" if reached else "float16_limited" if math.isfinite(layer) else "float16_fits"
    return Verdict(code, reached, numbers, {"float16_max": FLOAT16_MAX})


def _tokens(trace: Trace, step: int) -> Verdict:
    _, cosine = trace.profile(STREAM, "token_cosine", step=step)
    last = float(cosine[-1])
    collapsed = last > THRESHOLDS["collapsed_cosine"]
    code = "tokens_undefined" if math.isnan(last) else "tokens_collapsed" if collapsed else "tokens_differ"
    return Verdict(code, collapsed, {"token_cosine": last}, {"collapsed_cosine": THRESHOLDS["collapsed_cosine"]})


def _exponential(depth: F64, rms: F64) -> _Fit:
    """Fit ln rms = a + b·x by least squares."""
    if len(depth) < 2:
        return _NO_FIT
    logs = np.log(rms)
    centre = depth.mean()
    slope = float(((depth - centre) * (logs - logs.mean())).sum() / ((depth - centre) ** 2).sum())
    offset = float(logs.mean() - slope * centre)
    error = _rms_error(logs, offset + slope * depth)
    return _Fit(error, slope, lambda value: (math.log(value) - offset) / slope if slope > 0 else math.inf)


def _power(depth: F64, rms: F64) -> _Fit:
    """Fit rms² = a + c·x, weighted so that relative errors count alike at every depth."""
    if len(depth) < 2:
        return _NO_FIT
    scale = float(rms.max())
    squares = (rms / scale) ** 2
    weights = 1 / np.maximum(squares, np.finfo(float).tiny)
    columns = np.stack([np.ones_like(depth), depth], axis=1) * weights[:, None]
    (offset, slope), *_ = np.linalg.lstsq(columns, squares * weights, rcond=None)
    fitted = offset + slope * depth
    error = _rms_error(np.log(squares) / 2, np.log(fitted) / 2) if (fitted > 0).all() else math.inf
    return _Fit(error, float(slope) * scale**2,
                lambda value: ((value / scale) ** 2 - offset) / slope if slope > 0 else math.inf)


_NO_FIT = _Fit(math.nan, math.nan, lambda _: math.inf)


def _rms_error(values: F64, fitted: F64) -> float:
    return float(np.sqrt(np.mean((values - fitted) ** 2)))


def _law(rms: F64, exponential: _Fit, power: _Fit) -> str:
    if len(rms) < 3:
        return "undetermined"
    if rms.max() / rms.min() <= THRESHOLDS["steady_growth"]:
        return "flat"
    return "power" if power.error < exponential.error else "exponential"


def _overflow_layer(trace: Trace, site: str, step: int, fit: _Fit) -> float:
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
    layers, nan = trace.profile(site, "n_nan", gradient, step)
    bad = nan + sum(trace.profile(site, name, gradient, step)[1] for name in ("n_posinf", "n_neginf"))
    found = [layer for layer, count in zip(layers, bad, strict=True) if count > 0]
    return (found[-1] if gradient else found[0]) if found else None


def _embed_rms(trace: Trace, step: int) -> float:
    layers, rms = trace.profile("embed", "rms", step=step)
    return float(rms[0]) if layers == [EMBED] else math.nan


def _start_rms(trace: Trace, gradient: bool, step: int) -> float:
    return float(trace.profile(STREAM, "rms", True, step)[1][-1]) if gradient else _embed_rms(trace, step)


def _last_rms(trace: Trace, gradient: bool, step: int) -> float:
    return float(trace.profile(STREAM, "rms", gradient, step)[1][0 if gradient else -1])


def _ratio(value: float, base: float) -> float:
    return float(value / base) if base else math.nan


def _names(trace: Trace) -> set[str]:
    return {name for _, name in trace.layout.sites}
