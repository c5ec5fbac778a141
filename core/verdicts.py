"""Judgements beside those on the stream's drift: any site over depth, what feeds the branches, blocks, ranges, tokens.

Torch-free and wordless: a trace and its experiment come in, a Verdict (code, numbers, thresholds) goes out; never an
error for what was not measured. Codes that say there is nothing to judge start with ``nothing_``, those of gradients
with ``gradient_``. `site` and `layer` name the place that decided.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from core.branch_input import BranchInput, branch_inputs
from core.drift import (
    ALARMS,
    THRESHOLDS,
    Verdict,
    code_of,
    drift,
    last_rms,
    over,
    over_depth,
    rms_over_depth,
    start_rms,
    thresholds_of,
    verdict,
    verdicts,
)
from core.expectations import of_input, of_ratio, of_site, of_tails, of_turn
from core.experiment import Experiment
from core.float16_range import saving_scale, worst_over, worst_under
from core.landscape import BRANCH_OUTPUTS, NEVER_ZERO, where_to_look
from core.massive import massive, observed
from core.token_table import above_median, place, symbol
from core.trace import F64, Trace
from core.vocabulary import STATISTICS, STREAM


def all_of(trace: Trace, experiment: Experiment, step: int = -1) -> tuple[Verdict, ...]:
    """Return every judgement on a run: where to look, the stream, what feeds the branches, blocks, ranges, tokens."""
    return (where_to_look(trace, step=step), *verdicts(trace, experiment, step), *branch_feed(trace, experiment, step),
            *(judge(trace, experiment, step=step) for judge in (
                block_turn, branch_share, tails, float16_range, massive_activations, token_sizes)))


def site_drift(trace: Trace, experiment: Experiment, site: str = STREAM, gradient: bool = False,
               step: int = -1) -> Verdict:
    """Return the judgement on the RMS of any site over depth, or on its gradient's.

    The stream's is drift.verdict. Else site_<code of drift.VERDICTS>; site_zero: every entry is 0 in every layer, an
    alarm at the sites of landscape.NEVER_ZERO; site_single: the site stands in one layer.
    """
    if nothing := _nothing(trace, site, "n", gradient, step):
        return nothing
    prefix, site = "gradient_" if gradient else "", trace.layout.answering(site)
    if site == trace.layout.answering(STREAM):
        found = verdict(trace, experiment, gradient, step)
        return replace(found, code=prefix + found.code, site=site)
    return _off_stream(trace, experiment, site, gradient, step)


def _off_stream(trace: Trace, experiment: Experiment, site: str, gradient: bool, step: int) -> Verdict:
    layers, rms = rms_over_depth(trace, site, gradient, step)
    ends = {"start_rms": start_rms(trace, site, gradient, step), "last_rms": last_rms(trace, site, gradient, step)}
    if len(layers) < 2 or (rms == 0).all():
        code, measured, used = "single" if len(layers) < 2 else "zero", None, {}
    else:
        measured = drift(trace, site, gradient, step)
        code = code_of(measured)
        used = thresholds_of(code)
    first, last = (layers[-1], layers[0]) if gradient else (layers[0], layers[-1])
    numbers = {**(measured.numbers() if measured else {}), **ends, "first_layer": float(first),
               "last_layer": float(last)}
    silent = code == "zero" and not gradient and site in NEVER_ZERO
    return Verdict(f"{'gradient_' if gradient else ''}site_{code}", silent or code in ALARMS, numbers, used,
                   "" if gradient else of_site(experiment, site), measured.law if measured else "", site)


def branch_feed(trace: Trace, experiment: Experiment, step: int = -1) -> tuple[Verdict, ...]:
    """Return a judgement on what feeds each kind of branch over depth, attention first; `site`: attention or mlp.

    input_flat: within steady_growth over all layers; input_uneven: only its ends are; input_zero: all is 0; else
    input_<code of drift.VERDICTS>. `level`: the median RMS.
    """
    expected = of_input(experiment)
    return tuple(replace(_feed(one), expected=expected) for one in branch_inputs(trace, step=step))


def _feed(fed: BranchInput) -> Verdict:
    if not fed.observed.any():
        return Verdict("nothing_not_observed", False, {}, {}, site=fed.sublayer)
    bad = np.flatnonzero(fed.non_finite)
    measured = over_depth(np.asarray(fed.layers) + 1.0, fed.values, float(fed.values[0]))
    if bad.size:
        measured = replace(measured, first_non_finite=fed.layers[bad[0]])
    code = code_of(measured)
    if (fed.values == 0).all():
        code = "zero"
    elif code == "steady":
        code = "flat" if fed.values.max() <= THRESHOLDS["steady_growth"] * fed.values.min() else "uneven"
    finite = fed.values[np.isfinite(fed.values)]
    numbers = {"level": float(np.median(finite)) if finite.size else math.nan, "start_rms": float(fed.values[0]),
               "last_rms": float(fed.values[-1])}
    return Verdict(f"input_{code}", code in ALARMS or code == "zero", {**measured.numbers(), **numbers},
                   thresholds_of(code), law=measured.law, site=fed.sublayer)


def block_turn(trace: Trace, experiment: Experiment, step: int = -1) -> Verdict:
    """Return the judgement on how far blocks turn the stream (layer_cosine): the block that turns it furthest decides.

    turn_overwrites is an alarm where there is a residual; turn_idle: no block turns it at all; turn_calm.
    """
    if nothing := _nothing(trace, STREAM, "layer_cosine", False, step):
        return nothing
    layers, cosine = trace.profile(STREAM, "layer_cosine", step=step)
    least = int(np.nanargmin(cosine))
    code = ("turn_overwrites" if cosine[least] < THRESHOLDS["overwritten_cosine"]
            else "turn_idle" if cosine[least] >= THRESHOLDS["idle_cosine"] else "turn_calm")
    numbers = {"cosine": float(cosine[least]), "layer": float(layers[least]), "level": float(np.nanmedian(cosine))}
    return Verdict(code, code == "turn_overwrites" and experiment.model.residual, numbers,
                   _used("overwritten_cosine", "idle_cosine"), of_turn(experiment), site=trace.layout.answering(STREAM))


def branch_share(trace: Trace, experiment: Experiment, step: int = -1) -> Verdict:
    """Return the judgement on how much the branches write beside the stream they are added to (branch_ratio).

    share_branch: a branch dominates somewhere, an alarm; share_first: only the very first does, beside an embedding
    that is small; share_stream: all are faint; share_both; share_none: without a residual there is no stream to add to.
    `rest`: the largest ratio but for the very first branch's.
    """
    if not experiment.model.residual:
        return Verdict("share_none", False, {}, {})
    found = [(value, layer, site) for site in BRANCH_OUTPUTS
             for layer, value in zip(*_measured(trace, site, "branch_ratio", False, step), strict=True)]
    if not found:
        return _nothing(trace, "mlp_out", "branch_ratio", False, step) or Verdict("nothing_undefined", True, {}, {})
    first = min(found, key=lambda branch: branch[1])
    rest = max((branch for branch in found if branch is not first), default=first)
    most = max(found)
    code = _first(rest[0], {"share_both": "dominant_ratio"}, "share_branch")
    if code == "share_both" and most[0] > THRESHOLDS["dominant_ratio"]:
        code = "share_first"
    elif most[0] < THRESHOLDS["faint_ratio"]:
        code = "share_stream"
    ratio, layer, site = rest if code == "share_branch" else most
    numbers = {"ratio": ratio, "layer": float(layer), "least": min(found)[0], "rest": rest[0]}
    return Verdict(code, code == "share_branch", numbers, _used("dominant_ratio", "faint_ratio"), of_ratio(experiment),
                   site=site)


def tails(trace: Trace, experiment: Experiment, site: str = STREAM, gradient: bool = False, step: int = -1) -> Verdict:
    """Return the judgement on the tails of the distribution at a site: the layer of the largest kurtosis decides.

    tails_gaussian: not much heavier than a Gaussian's; tails_heavy; tails_extreme: an alarm of activations, not of
    gradients, which sit on a few tokens and at the logits on the target's entry alone. `crest`: largest |x| in units of
    the standard deviation there.
    """
    if nothing := _nothing(trace, site, "kurtosis", gradient, step):
        return nothing
    layers, kurtosis = trace.profile(site, "kurtosis", gradient, step)
    worst = int(np.nanargmax(kurtosis))
    code = _first(float(kurtosis[worst]), {"tails_gaussian": "gaussian_kurtosis", "tails_heavy": "alarm_kurtosis"},
                  "tails_extreme")
    absmax, std = (trace.profile(site, name, gradient, step)[1][worst] for name in ("absmax", "std"))
    numbers = {"kurtosis": float(kurtosis[worst]), "layer": float(layers[worst]), "crest": over(absmax, std)}
    expected = "" if gradient else of_tails(experiment, site)
    return Verdict(f"{'gradient_' if gradient else ''}{code}", code == "tails_extreme" and not gradient, numbers,
                   _used("gaussian_kurtosis", "alarm_kurtosis"), expected, site=site)


def float16_range(trace: Trace, experiment: Experiment, gradient: bool = False, step: int = -1) -> Verdict:
    """Return the judgement on which numbers float16 would lose, at the worst of all sites.

    range_overflows: entries beyond its largest (or infinite already); range_small: more than lost_share16 of the
    entries below its least normal number, where digits are lost (float16_range.SMALL_BY_NATURE apart); range_fits.
    `share`: of the entries there. A gradient is an alarm only where it is computed in float16 with no loss scale.
    `loss_scale`: the least power of two that brings all sites within, NaN where none does or no histogram is;
    range_scalable: it is known.
    """
    snapshot = trace.snapshots[step]
    over, under = worst_over(snapshot, gradient), worst_under(snapshot, gradient)
    if over is None or under is None:
        seen = bool(snapshot.measured(gradient))
        return Verdict("nothing_undefined" if seen else "nothing_not_observed", seen, {}, {})
    code, (share, layer, site) = (("range_overflows", over) if over[0] > 0 else ("range_small", under)
                                  if under[0] > THRESHOLDS["lost_share16"] else ("range_fits", under))
    scale = saving_scale(snapshot) if gradient else math.nan
    if code == "range_small" and not math.isnan(scale):
        code = "range_scalable"
    exposed = not gradient or (experiment.protocol.dtype == "float16" and experiment.protocol.loss_scale is None)
    numbers = {"share": share, "layer": float(layer), "loss_scale": scale}
    return Verdict(f"{'gradient_' if gradient else ''}{code}", exposed and code != "range_fits", numbers,
                   _used("lost_share16", "float16_max"), site=site)


def massive_activations(trace: Trace, experiment: Experiment, step: int = -1) -> Verdict:
    """Return the judgement on entries of the stream that stand far above the rest; the largest ratio decides.

    massive_found: one is massive, an alarm; massive_some: some stand out; massive_none.
    """
    snapshot, stream = trace.snapshots[step], trace.layout.answering(STREAM)
    if not observed(snapshot):
        return Verdict("nothing_not_taken", False, {}, {}, site=stream)
    rows = massive(snapshot, experiment.input.source)
    used = _used("outlier_ratio", "massive_ratio", "massive_value")
    if not rows:
        return _nothing(trace, STREAM, "rms", False, step) or Verdict("massive_none", False, {}, used, site=stream)
    worst = next((row for row in rows if row.massive), rows[0])
    numbers = {"count": float(sum(row.massive for row in rows) or len(rows)), "value": worst.value,
               "ratio": worst.ratio, "layer": float(worst.layer), "dim": float(worst.dim), "depth": float(worst.depth),
               "sequence": float(worst.sequence), "position": float(worst.position)}
    return Verdict("massive_found" if worst.massive else "massive_some", worst.massive, numbers, used,
                   site=worst.site, token=worst.symbol)


def token_sizes(trace: Trace, experiment: Experiment, step: int = -1) -> Verdict:
    """Return the judgement on how far the largest token of the stream stands above the median one.

    The layer where it does most decides, the embedding included. sizes_even; sizes_differ; sizes_first: what stands out
    is the first token, in more than half of the sequences, as attention sinks do (Xiao et al. 2023, arXiv:2309.17453);
    sizes_stand_out. Both of these are alarms.
    """
    snapshot, stream = trace.snapshots[step], trace.layout.answering(STREAM)
    if not snapshot.token_rms.size:
        return Verdict("nothing_not_taken", False, {}, {}, site=stream)
    ratios = above_median(snapshot)  # (L+1, M)
    if np.isnan(ratios).all():
        return Verdict("nothing_undefined", True, {}, {}, site=stream)
    row, token = divmod(int(np.nanargmax(ratios)), ratios.shape[1])
    sequence, position = place(snapshot, token)
    code = _first(float(ratios[row, token]), {"sizes_even": "even_tokens", "sizes_differ": "token_stands_out"},
                  "sizes_first" if _first_stands_out(ratios[row], snapshot.batch_shape[1]) else "sizes_stand_out")
    numbers = {"ratio": float(ratios[row, token]), "layer": float(row - 1), "token": float(token),
               "sequence": float(sequence), "position": float(position),
               "kept": float((~np.isnan(ratios)).any(0).sum())}
    return Verdict(code, code in ("sizes_first", "sizes_stand_out"), numbers, _used("token_stands_out", "even_tokens"),
                   site=stream if row else "embed", token=symbol(snapshot, experiment.input.source, token))


def _first_stands_out(ratios: F64, length: int) -> bool:
    """Say whether the first token stands out in more than half of the sequences of `length`."""
    firsts = ratios[::length] if length > 1 else ratios[:0]
    return bool(firsts.size and (firsts > THRESHOLDS["token_stands_out"]).mean() > 0.5)


def _first(value: float, limits: Mapping[str, str], beyond: str) -> str:
    """Return the first code whose threshold, by name, `value` does not exceed, else `beyond`."""
    return next((code for code, name in limits.items() if value <= THRESHOLDS[name]), beyond)


def _used(*names: str) -> dict[str, float]:
    return {name: THRESHOLDS[name] for name in names}


def _measured(trace: Trace, site: str, statistic: str, gradient: bool, step: int) -> tuple[list[int], list[float]]:
    """Return the layers of a site where a statistic is defined, and its values there."""
    layers, values = trace.profile(site, statistic, gradient, step)
    kept = [(layer, value) for layer, value in zip(layers, values.tolist(), strict=True) if not math.isnan(value)]
    return [layer for layer, _ in kept], [value for _, value in kept]


def _nothing(trace: Trace, site: str, statistic: str, gradient: bool, step: int) -> Verdict | None:
    """Return why there is nothing to judge, or None when a layer has a value of the statistic."""
    site, only = trace.layout.answering(site), STATISTICS[statistic].sites
    layers, counted = trace.profile(site, "n", gradient, step)
    reasons = {"absent": not layers, "not_here": only is not None and site not in only,
               "not_observed": bool(np.isnan(counted).all()),
               "not_taken": statistic not in trace.snapshots[step].measured(gradient),
               "undefined": bool(np.isnan(trace.profile(site, statistic, gradient, step)[1]).all())}
    reason = next((name for name, holds in reasons.items() if holds), None)
    return None if reason is None else Verdict(f"nothing_{reason}", reason == "undefined", {}, {}, site=site)
