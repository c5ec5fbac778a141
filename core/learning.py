"""What a training's losses say: it learns, stands still, rises, or met a value that is not finite.

Torch-free and wordless: a verdict code and its numbers leave this file.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from core.drift import Verdict
from core.experiment import Experiment
from core.stops import NON_FINITE
from core.trace import F64

CHANGE = 0.05
"""By this share of itself the loss has to change to count as learning, or as rising."""

LEAST, WINDOW = 10, 0.1
"""Below so many recorded losses nothing is said; the first and the last tenth of them are compared."""


def learning(steps: NDArray[np.integer], losses: F64, events: Sequence[tuple[int, str]],
             experiment: Experiment) -> Verdict:
    """Return the verdict on a training so far.

    `steps`, `losses`: (N,), all that were recorded; `events`: as in `core.films.Film`. The start is the mean of the
    first tenth of the losses, the end that of the last tenth; `chance`: ln V, the loss of a uniform guess.
    """
    broken = next((step for step, event in events if event == NON_FINITE), None)
    if broken is not None:
        return Verdict("learning_non_finite", True, {"step": float(broken)}, {})
    if len(losses) < LEAST:
        return Verdict("learning_early", False, {"count": float(len(losses))}, {"recorded": float(LEAST)})
    window = max(1, round(len(losses) * WINDOW))
    start, end = float(np.mean(losses[:window])), float(np.mean(losses[-window:]))
    change = (end - start) / abs(start) if start else math.copysign(math.inf, end) if end else 0.0
    code = "learning_falls" if change < -CHANGE else "learning_rises" if change > CHANGE else "learning_flat"
    numbers = {"start_loss": start, "last_loss": end, "step": float(steps[-1]), "window": float(window)}
    chance = _chance(experiment)
    if chance is not None:
        code, numbers = f"{code}_tokens", {**numbers, "chance": chance}
    return Verdict(code, code.startswith("learning_rises"), numbers, {"share": CHANGE})


def _chance(experiment: Experiment) -> float | None:
    """Return the loss of a uniform guess, where tokens are predicted."""
    canonical = experiment.resolved()
    return math.log(canonical.input.vocab or 1) if canonical.protocol.loss == "next_token" else None
