"""Finite but wrong: a norm whose output is not what norms promise, though what it read was in order, and no NaN warns.

Torch-free and wordless. A norm promises an output of RMS 1 (γ = 1, as at initialization; less where ε counts, and
divided where depth is scaled). A naive float16 norm squares in float16: from |x| = 256 on a square is Inf, x/√Inf is 0.

The norms whose input is a site are judged: before a branch, after a sum, after the stack. What a norm on a branch's
output reads is no site.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from core.drift import THRESHOLDS, Verdict
from core.experiment import Experiment
from core.plan import plan
from core.trace import Snapshot, Trace

READS: dict[str, str] = {
    "norm1": "resid_pre", "norm2": "resid_mid", "resid_mid": "attn_sum", "resid_post": "mlp_sum",
    "final_norm": "resid_post",
}
"""Site of a norm's output → the site that it reads; a post-norm's output is the stream after its sum."""

UNIT_NORMS = frozenset({"layernorm", "rmsnorm", "groupnorm", "scalenorm", "layernorm_std_eps", "layernorm_unbiased",
                        "batchnorm"})
"""Norms that promise an RMS of 1. BatchNorm does so in training alone; dyt promises none."""

CENTRED = UNIT_NORMS - {"rmsnorm", "scalenorm"}
"""Those that rightly turn what is constant into zeros."""

STATES = ("kept", "off", "part", "zero", "not_finite", "unjudged")
"""The promise is kept; the RMS is off by more than norm_off; more than lost_share16 of the entries are exact zeros; all
are; NaN or Inf, which is no silence; nothing is promised, or was observed, or ε counts for as much as the input."""

SILENT = frozenset({"off", "part", "zero"})

EPSILON_COUNTS = 100.0
"""Where the mean square of the input is not this far above ε, the output is smaller than 1 by right."""


@dataclass(frozen=True)
class Finding:
    """One norm: where its output stands, what it came to (RMS, share of exact zeros), what was promised and read."""

    layer: int
    site: str
    read: str
    state: str
    rms: float
    promised: float
    read_rms: float
    zeros: float


def findings(trace: Trace, experiment: Experiment, step: int = -1) -> tuple[Finding, ...]:
    """Return what became of every norm whose input is a site, in the order of computation."""
    snapshot = trace.snapshots[step]
    rows = {place: row for row, place in enumerate(snapshot.layout.sites)}
    last = snapshot.layout.n_layers
    found = []
    for layer, site in snapshot.layout.sites:
        read = (layer - (layer == last), READS.get(site, ""))
        if read in rows:
            found.append(_finding(snapshot, experiment, (layer, site), (rows[layer, site], rows[read])))
    return tuple(found)


def _finding(snapshot: Snapshot, experiment: Experiment, place: tuple[int, str], rows: tuple[int, int]) -> Finding:
    values, (layer, site) = snapshot.activations, place
    rms, zeros = (float(values[name][rows[0]]) for name in ("rms", "zero_frac"))
    read_rms, read_std = (float(values[name][rows[1]]) for name in ("rms", "std"))
    promised = _promised(experiment, layer, site, read_rms if _norm(experiment, layer) not in CENTRED else read_std)
    bad = snapshot.not_finite()[list(rows)]
    state = "not_finite" if bad.any() else "unjudged" if math.isnan(promised + rms) else _state(rms / promised, zeros)
    return Finding(layer, site, READS[site], state, rms, promised, read_rms, zeros)


def _state(kept: float, zeros: float) -> str:
    """Return the state of an output with this share of the promised RMS and this share of zeros."""
    if kept == 0:
        return "zero"
    if zeros > THRESHOLDS["lost_share16"]:
        return "part"
    return "off" if abs(kept - 1) > THRESHOLDS["norm_off"] else "kept"


def _norm(experiment: Experiment, layer: int) -> str:
    """Return the name of a layer's norm, or of the one after the stack."""
    return plan(experiment, layer).norm if layer < experiment.model.n_layers else experiment.model.norm


def _promised(experiment: Experiment, layer: int, site: str, read: float) -> float:
    """Return the RMS that a norm promises of an input of this RMS, or spread; NaN where it promises none."""
    name, model = _norm(experiment, layer), experiment.model
    frozen = name == "batchnorm" and experiment.protocol.mode == "eval"
    if name not in UNIT_NORMS or frozen or not read**2 > EPSILON_COUNTS * model.norm_eps:
        return math.nan
    return 1.0 / plan(experiment, layer).divisor if site in ("norm1", "norm2") else 1.0


def judge(trace: Trace, experiment: Experiment, step: int = -1) -> Verdict:
    """Return the judgement on silent failures of norms; the first silent one decides.

    silent_zero, silent_part, silent_off: its state, an alarm; silent_loud: none is silent, but values are not finite;
    silent_kept: every judged norm keeps its promise; silent_nothing: none could be judged. `count`: so many are silent,
    `total`: of so many judged.
    """
    found = findings(trace, experiment, step)
    counts = Counter(one.state for one in found)
    silent = [one for one in found if one.state in SILENT]
    used = {name: THRESHOLDS[name] for name in ("norm_off", "lost_share16")}
    judged = {"count": float(len(silent)), "total": float(len(found) - counts["unjudged"])}
    if silent:
        first = silent[0]
        numbers = {**judged, "value": first.rms, "level": first.read_rms, "layer": float(first.layer),
                   "share": first.zeros, "ratio": first.promised}
        return Verdict(f"silent_{first.state}", True, numbers, used, site=first.site,
                       format=experiment.protocol.dtype)
    code = "loud" if counts["not_finite"] else "kept" if counts["kept"] else "nothing"
    return Verdict(f"silent_{code}", code == "loud", judged, used, format=experiment.protocol.dtype)
