"""Why an attention head's entropy is what it is: the cause of each head, with the evidence beside it.

Torch-free and wordless: a trace and its experiment come in, names of CAUSES and a Verdict go out. The rules and their
thresholds stand here and in `core.drift.THRESHOLDS`, nowhere else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.branch_input import branch_input
from core.drift import THRESHOLDS, Verdict
from core.experiment import Experiment
from core.rules import attends
from core.trace import F64, Trace
from core.vocabulary import ATTENTION_SITE

Evidence = Mapping[str, float]
"""EVIDENCE of one head."""

EVIDENCE = ("entropy_norm", "score_std", "score_scale", "token_cosine", "q_rms", "k_rms", "qk_cosine", "saturated_frac")
"""What a cause is told from and shown with: measures of the head; score_scale = |scale|·√K·q_rms·k_rms, the spread that
its scores would have if tokens had nothing in common; token_cosine of what attention reads in that layer."""

CAUSES: dict[str, Callable[[Evidence], bool]] = {
    "undefined": lambda head: math.isnan(head["entropy_norm"]) or math.isnan(head["score_std"]),
    "saturated": lambda head: head["entropy_norm"] <= THRESHOLDS["saturated_entropy"],
    "small_scores": lambda head: head["entropy_norm"] >= THRESHOLDS["uniform_entropy"]
    and head["score_scale"] < THRESHOLDS["small_scores"],
    "collapsed": lambda head: head["entropy_norm"] >= THRESHOLDS["uniform_entropy"]
    and head["token_cosine"] > THRESHOLDS["collapsed_cosine"],
    "healthy": lambda _: True,
}
"""Cause → whether it is one head's; the first that holds is meant.

undefined: not finite, or no query has a choice. saturated: nearly one-hot, so that hardly any gradient passes. Uniform
for one of two reasons: small_scores, where queries and keys are too short to tell even different tokens apart; else
collapsed, where they are long enough, but the tokens are all alike.
"""

ALARMS = frozenset({"saturated", "collapsed", "undefined"})
"""Small scores are none: attention that starts uniform is normal, and trains fine."""


@dataclass(frozen=True, eq=False)
class Causes:
    """The cause of every head. `layers`: those that attend; `names`: (R, H); `evidence`: name of EVIDENCE → (R, H)."""

    layers: tuple[int, ...]
    names: NDArray[np.str_]
    evidence: Mapping[str, F64]

    def count(self, cause: str) -> int:
        """Return how many heads have this cause."""
        return int((self.names == cause).sum())


def entropy_causes(trace: Trace, experiment: Experiment, step: int = -1) -> Causes:
    """Return the causes of all heads in one snapshot; no layer where no layer attends, or the pattern is no softmax."""
    fed = branch_input(trace, "attention", "token_cosine", step=step)
    model, rows = experiment.resolved().model, list(fed.layers)
    heads = {name: values[rows] for name, values in trace.snapshots[step].heads.items()}
    if not rows or model.pattern != "softmax":
        return Causes((), np.empty((0, trace.layout.n_heads), np.str_), {name: np.empty((0, 0)) for name in EVIDENCE})
    scale = abs(float(model.attention_scale or 0.0)) * math.sqrt(model.head_dim or 0)
    derived = {"score_scale": scale * heads["q_rms"] * heads["k_rms"],
               "token_cosine": np.repeat(fed.values[:, None], heads["q_rms"].shape[1], 1)}
    evidence = {name: {**heads, **derived}[name] for name in EVIDENCE}
    names = [[_cause({name: float(values[row, head]) for name, values in evidence.items()})
              for head in range(trace.layout.n_heads)] for row in range(len(rows))]
    return Causes(fed.layers, np.array(names), evidence)


def attention_verdict(trace: Trace, experiment: Experiment, step: int = -1) -> Verdict:
    """Return the judgement on all heads: attention_<cause>, that of most heads that are not healthy, where they are
    more than a quarter of all; else attention_healthy. attention_given: the pattern is no softmax; attention_absent.

    Numbers: `count` of `total` heads, the first `layer` that has one, and the medians of their evidence.
    """
    found = entropy_causes(trace, experiment, step)
    if not found.layers:
        code = "attention_given" if attends(experiment) else "attention_absent"
        return Verdict(code, False, {}, {}, site=ATTENTION_SITE)
    counts = {cause: found.count(cause) for cause in CAUSES if cause != "healthy"}
    cause, most = max(counts.items(), key=lambda item: item[1])
    if most <= found.names.size * THRESHOLDS["many_heads"]:
        cause = "healthy"
    where = found.names == cause
    layer = found.layers[int(np.flatnonzero(where.any(1))[0])] if where.any() else math.nan
    numbers = {"count": float(where.sum()), "total": float(found.names.size), "layer": float(layer),
               **{name: _median(values[where]) for name, values in found.evidence.items()}}
    used = {name: THRESHOLDS[name] for name in USED[cause]}
    expected = "small_scores" if cause == "small_scores" else ""
    return Verdict(f"attention_{cause}", cause in ALARMS, numbers, used, expected, site=ATTENTION_SITE)


USED: dict[str, tuple[str, ...]] = {
    "undefined": (), "saturated": ("saturated_entropy",), "small_scores": ("uniform_entropy", "small_scores"),
    "collapsed": ("uniform_entropy", "collapsed_cosine"), "healthy": ("saturated_entropy", "uniform_entropy"),
}
"""Cause → the thresholds that decided."""


def _cause(head: Evidence) -> str:
    return next(name for name, holds in CAUSES.items() if holds(head))


def _median(values: F64) -> float:
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if finite.size else math.nan
