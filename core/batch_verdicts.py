"""What the looks at companions, padding and evaluation say of a norm: whether its numbers are its token's own.

Torch-free and wordless: the arrays of `core.companions` and `core.evaluation` come in, codes and numbers go out.

Axes: S sizes or shares, L layers, N recorded steps.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from core.drift import Verdict
from core.experiment import Experiment
from core.look import Found
from core.rules import layer_norms
from core.tables import NORMS
from core.trace import F64, Trace

ROUNDING: Mapping[str, float] = {"float64": 1e-12, "float32": 1e-4, "bfloat16": 0.1, "float16": 0.02}
"""Relative changes up to this come from sums in another order: matrix products of another shape, through a stack."""

CLOSED = 0.05
"""Up to this gap evaluation is near training."""


def companions(found: Found, experiment: Experiment) -> list[Verdict]:
    """Return what a sequence's own numbers owe to the other sequences of its batch.

    companions_exact, companions_rounding, companions_tied: the stream of the last layer, in the smallest batch that is
    played, against the whole batch; companions_refused: a single token is refused; companions_two: two tokens in
    training, where every entry of the norm's output is ±1.
    """
    stream = found["streams"][:, -1]
    seen = np.flatnonzero(np.isfinite(stream))
    if not seen.size:
        return [Verdict("companions_undefined", False, {}, {}, _expected(experiment, "companions"))]
    largest = np.nanmax(np.append(stream, found["norm"]))
    numbers = {"size": float(found["sizes"][seen[0]]), "whole": float(found["sizes"][-1]),
               "distance": float(stream[seen[0]]), "largest": float(largest)}
    code = _code("companions", float(largest), experiment, "tied")
    said = [Verdict(code, code == "companions_tied", numbers, {}, _expected(experiment, "companions"))]
    if trains_on_batches(experiment) and experiment.input.seq_len == 1:
        refused = bool(found["sizes"][0] == 1 and np.isnan(stream[0]))
        said += [Verdict("companions_refused", True, {}, {})] * refused
        two = found["norm_largest"][found["sizes"] == 2]
        said += [Verdict("companions_two", True, {"value": float(value)}, {}) for value in two if np.isfinite(value)]
    return said


def padding(found: Found, experiment: Experiment) -> list[Verdict]:
    """Return how far padding moves the first norm's output on the same real tokens, and the batch's statistics.

    padding_none: there is no norm in the first layer; padding_undefined: it has refused, or met what is not finite;
    padding_exact, padding_rounding, padding_shifts; the numbers are those at the largest share.
    """
    expected = _expected(experiment, "padding")
    if np.isnan(found["norm"]).all():
        absent = NORMS[layer_norms(experiment)[0]].absent
        return [Verdict("padding_none" if absent else "padding_undefined", False, {}, {})]
    code = _code("padding", float(np.nanmax(found["norm"])), experiment, "shifts")
    numbers = {"share": float(found["shares"][-1]), "shift": float(found["norm"][-1]),
               "largest": float(np.nanmax(found["norm"])), "mean_shift": float(found["mean_shift"][-1, 0]),
               "padded_variance": float(found["padded_variance"][-1, 0])}
    return [Verdict(code, code == "padding_shifts", numbers, {}, expected)]


def gap(trace: Trace) -> list[Verdict]:
    """Return how far evaluation is from training at the first and the last recorded step.

    gap_none: exactly 0 at every step; gap_undefined: not finite; gap_closed, gap_open: the largest gap of any layer at
    the last step, against CLOSED, with the losses both ways at that step.
    """
    gaps = over_steps(trace, "gap")
    losses = over_steps(trace, "loss")
    numbers = {"start": float(gaps[0].max()), "last": float(gaps[-1].max()), "step": float(trace.steps[-1]),
               "training": float(losses[-1, 0]), "evaluation": float(losses[-1, 1])}
    if not (gaps > 0).any() and not np.isnan(gaps).any():
        return [Verdict("gap_none", False, numbers, {})]
    if not np.isfinite(gaps[-1]).all():
        return [Verdict("gap_undefined", True, numbers, {})]
    far = numbers["last"] > CLOSED
    return [Verdict("gap_open" if far else "gap_closed", far, numbers, {"closed_gap": CLOSED})]


def over_steps(trace: Trace, name: str) -> F64:
    """Return what a look found at every recorded step, (N, …)."""
    return np.stack([np.asarray(snapshot.looks[name], np.float64) for snapshot in trace.snapshots])


def trains_on_batches(experiment: Experiment) -> bool:
    """Return whether a norm takes its statistics over the batch."""
    return "batchnorm" in layer_norms(experiment) and experiment.protocol.mode == "train"


def _code(kind: str, largest: float, experiment: Experiment, moved: str) -> str:
    """Return what to call a largest change: exactly none, rounding, or what it is called where it is more."""
    if largest == 0:
        return f"{kind}_exact"
    return f"{kind}_rounding" if largest <= ROUNDING[experiment.protocol.dtype] else f"{kind}_{moved}"


def _expected(experiment: Experiment, kind: str) -> str:
    """Return what this configuration should show."""
    if "batchnorm" not in layer_norms(experiment):
        return f"{kind}_per_token"
    if experiment.protocol.mode == "eval":
        return f"{kind}_running"
    return f"{kind}_pooled" if kind == "companions" else f"padding_{experiment.model.bn_padding}"
