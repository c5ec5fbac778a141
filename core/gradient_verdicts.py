"""Judgements on gradients that are not of a site's drift: what the embedding adds to a ratio, parameters, clipping.

Torch-free and wordless, like `core.verdicts`.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from core.drift import (
    ALARMS,
    Verdict,
    code_of,
    expected,
    in_flow,
    last_rms,
    over,
    over_depth,
    rms_over_depth,
    start_rms,
    thresholds_of,
)
from core.experiment import Experiment
from core.roles import clipping
from core.roles import over_depth as role_over_depth
from core.trace import Trace
from core.vocabulary import RECURRENT_STREAM, STREAM

USUAL_LIMIT = 1.0
"""The threshold that most language models are trained with."""

WITH_EMBEDDING = {STREAM: "embed", RECURRENT_STREAM: "embed", "resid_pre": "resid_pre"}
"""Site whose line over depth begins with the embedding → the site that its first row is read at."""


def ratio(trace: Trace, site: str = STREAM, step: int = -1) -> Verdict | None:
    """Return how the gradient's RMS in the first layer compares with that in the last, the embedding left out.

    gradient_ratio: the line begins with the embedding, and ``with_embedding`` says what its row would make of the
    ratio; gradient_ratio_site: it does not. Neither is ever an alarm: whether it drifts is site_drift's to say. None
    where there are no two layers, or no gradient was observed in them.
    """
    site = trace.layout.answering(site)
    layers, rms = rms_over_depth(trace, site, True, step)
    if len(layers) < 2 or np.isnan(rms).all():
        return None
    first, last = last_rms(trace, site, True, step), start_rms(trace, site, True, step)
    numbers = {"growth": over(first, last)}
    if site not in WITH_EMBEDDING:
        return Verdict("gradient_ratio_site", False, numbers, {}, site=site)
    embedding = float(trace.profile(WITH_EMBEDDING[site], "rms", True, step)[1][0])
    return Verdict("gradient_ratio", False, {**numbers, "with_embedding": over(embedding, last)}, {}, site=site)


def role_drift(trace: Trace, experiment: Experiment, role: str, step: int = -1) -> Verdict:
    """Return the judgement on the gradient norm of one parameter role over depth, from the last layer down.

    gradient_role_<code of drift.VERDICTS>; gradient_role_zero: it is 0 in every layer, an alarm; gradient_role_single:
    one layer has it; nothing_absent, nothing_not_observed. `site`: the role.
    """
    found = role_over_depth(trace, role, "param_grad_norm", step)
    layers, norms = np.array(found.layers)[found.observed], found.values[found.observed]
    if not layers.size:
        return Verdict("nothing_not_observed" if found.layers else "nothing_absent", False, {}, {}, site=role)
    numbers = {"start_rms": float(norms[-1]), "last_rms": float(norms[0]), "first_layer": float(layers[-1]),
               "last_layer": float(layers[0])}
    if layers.size < 2 or (norms == 0).all():
        code = "zero" if (norms == 0).all() else "single"
        return Verdict(f"gradient_role_{code}", code == "zero", numbers, {}, site=role)
    measured = over_depth(*in_flow(trace, layers.tolist(), norms, gradient=True), numbers["start_rms"])
    bad = np.flatnonzero(~np.isfinite(norms))
    measured = replace(measured, first_non_finite=int(layers[bad[-1]]) if bad.size else None)
    code = code_of(measured)
    return Verdict(f"gradient_role_{code}", code in ALARMS, {**measured.numbers(), **numbers}, thresholds_of(code),
                   expected(experiment, gradient=True), measured.law, role)


def clip(trace: Trace, experiment: Experiment, step: int = -1) -> Verdict:
    """Return what clipping does: one factor for every gradient.

    clip_clips; clip_idle: the whole gradient is within the threshold; clip_off: there is no threshold, and USUAL_LIMIT
    would change the gradient by `would`; clip_off_idle: nor would that; clip_undefined, an alarm: the whole gradient is
    not finite, which no factor mends; nothing_not_observed: no gradient was.
    """
    found = clipping(trace, experiment, step)
    limit = USUAL_LIMIT if found.limit is None else found.limit
    numbers = {"total_norm": found.total, "factor": found.factor, "would": min(1.0, over(limit, found.total))}
    if not trace.snapshots[step].gradients and math.isnan(found.total):
        return Verdict("nothing_not_observed", False, {}, {})
    if not math.isfinite(found.total):
        return Verdict("clip_undefined", True, numbers, {})
    code = ("off" if found.total > limit else "off_idle") if found.limit is None else (
        "clips" if found.clips else "idle")
    return Verdict(f"clip_{code}", False, numbers, {"grad_clip": limit})
