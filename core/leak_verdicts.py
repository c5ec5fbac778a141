"""What a leak probe says: who may change when a token is another, who has changed all the same, and how much.

Torch-free and wordless: the arrays of `core.leaks.Leak` come in, codes and numbers go out.

Shapes: L layers.
"""

from __future__ import annotations

import numpy as np

from core.drift import Verdict
from core.experiment import Experiment
from core.look import NOTHING, Found, Look, SampleLeak
from core.rules import layer_norms
from core.trace import F64


def forbidden(experiment: Experiment, look: Look) -> tuple[str, ...]:
    """Return the groups of tokens that the exchange must not change, whatever the layers do.

    Other sequences never; the tokens before it in its own sequence where attention is causal.
    """
    past = experiment.model.causal and not isinstance(look, SampleLeak)
    return ("earlier", "others") if past else ("others",)


def relative(found: Found, group: str) -> F64:
    """Return the largest change in a group after each layer over the stream's RMS there, (L,); NaN for nobody."""
    change = np.asarray(found[group], np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(change == NOTHING, np.nan, np.where(change == 0, 0.0, change / found["level"]))


def leak(found: Found, experiment: Experiment, look: Look) -> Verdict:
    """Return the verdict of a probe: the largest change in each forbidden group, over all layers.

    leak_none: exactly 0, in every layer; leak_past, leak_samples, leak_both: who has changed; leak_padding: nothing
    has, for the exchanged token is padding; leak_nobody: there is no token that must not change; leak_undefined: the
    stream is not finite.
    """
    changes = {group: found[group] for group in forbidden(experiment, look) if (found[group] != NOTHING).any()}
    numbers = {group: float(relative(found, group).max()) for group in changes}
    numbers["own"] = float(found["own"][-1])
    if not changes:
        return Verdict("leak_nobody", False, numbers, {}, _expected(experiment))
    if not all(np.isfinite(change).all() for change in changes.values()):
        return Verdict("leak_undefined", False, numbers, {}, _expected(experiment))
    leaking = tuple(group for group, change in changes.items() if (change > 0).any())
    unread = not leaking and (found["own"] == NOTHING).all()
    return Verdict("leak_padding" if unread else _CODES[leaking], bool(leaking), numbers, {}, _expected(experiment))


_CODES = {(): "leak_none", ("earlier",): "leak_past", ("others",): "leak_samples", ("earlier", "others"): "leak_both"}


def _expected(experiment: Experiment) -> str:
    """Return what this configuration should show."""
    if "batchnorm" not in layer_norms(experiment):
        return "leak_per_token"
    return "leak_pooled" if experiment.protocol.mode == "train" else "leak_running"
