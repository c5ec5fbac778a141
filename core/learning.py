"""What a training's losses say: it learns, stands still, rises, got out of hand, or met a value that is not finite.

Torch-free and wordless: a verdict code and its numbers leave this file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.drift import Verdict
from core.experiment import Experiment
from core.stops import NON_FINITE, event
from core.trace import F64, Trace

CHANGE = 0.05
"""By this share of itself the loss has to change to count as learning, or as rising."""

BETTER = 0.02
"""By this share a loss has to be below that of a uniform guess to be better than it."""

EXPLODED = 2.0
"""A loss got out of hand where it passed its start, and a uniform guess, by this factor."""

LEAST, WINDOW = 10, 0.1
"""Below so many finite losses nothing is said; the end is the median of the last tenth of them."""


@dataclass(frozen=True)
class _Course:
    """How a loss went. `high`: the highest of its first tenth; `chance`: ln V, the loss of a uniform guess; −∞ where
    no tokens are predicted.
    """

    start: float
    high: float
    last: float
    peak: float
    chance: float

    def change(self, since: float) -> float:
        """Return by which share of `since` the end differs from it."""
        change = self.last - since
        return change / abs(since) if since else math.copysign(math.inf, change) if change else 0.0

    @property
    def guessing(self) -> bool:
        """Whether the end is no better than a uniform guess."""
        return self.last > self.chance * (1 - BETTER) > -math.inf


_COURSES: Mapping[str, tuple[Callable[[_Course], bool], float, bool]] = {
    "exploded": (lambda it: it.guessing and it.peak > EXPLODED * max(it.start, it.chance), BETTER, True),
    "rises": (lambda it: it.change(it.high) > CHANGE, CHANGE, True),
    "to_chance": (lambda it: it.guessing and it.change(it.start) < -CHANGE, BETTER, False),
    "chance": (lambda it: it.guessing, BETTER, False),
    "falls": (lambda it: it.change(it.start) < -CHANGE, CHANGE, False),
    "flat": (lambda _: True, CHANGE, False),
}
"""Code → when it holds, the first that does; its threshold; whether it is an alarm."""

UNDECIDED = frozenset({"learning_early", "learning_flat", *(f"learning_{code}_tokens" for code in
                                                            ("flat", "chance", "to_chance"))})
"""Verdicts that say neither that all is well nor that something is wrong."""


def learning(steps: NDArray[np.integer], losses: F64, events: Sequence[tuple[int, str]],
             experiment: Experiment) -> Verdict:
    """Return the verdict on a training so far.

    `steps`, `losses`: (N,), all that were recorded; `events`: as in `core.films.Film`. The end is the median of the
    last tenth of the finite losses. The start is the first loss where tokens are predicted, for a training may have
    learned most within a tenth of it, or have exploded by then; else the median of the first tenth, for single values
    of a projection scatter. It rises when the end is above all of the first tenth: few tokens scatter too.
    """
    broken = next((step for step, event in events if event == NON_FINITE), None)
    if broken is not None:
        return Verdict("learning_non_finite", True, {"step": float(broken)}, {})
    steps, losses = steps[np.isfinite(losses)], losses[np.isfinite(losses)]
    if len(losses) < LEAST:
        return Verdict("learning_early", False, {"count": float(len(losses))}, {"recorded": float(LEAST)})
    window, chance = max(1, round(len(losses) * WINDOW)), _chance(experiment)
    start, last = np.median(losses[:window if chance is None else 1]), np.median(losses[-window:])
    course = _Course(float(start), float(losses[:window].max()), float(last), float(losses.max()),
                     -math.inf if chance is None else chance)
    code, threshold, alarm = next((code, threshold, alarm) for code, (holds, threshold, alarm) in _COURSES.items()
                                  if holds(course))
    numbers = {"start_loss": course.start, "last_loss": course.last, "step": float(steps[-1]), "window": float(window)}
    if chance is not None:
        numbers |= {"chance": chance, "peak": course.peak, "peak_step": float(steps[losses.argmax()])}
    return Verdict(f"learning_{code}" + "_tokens" * (chance is not None), alarm, numbers, {"share": threshold})


def of_trace(trace: Trace, experiment: Experiment) -> Verdict:
    """Return the verdict on a training whose every recorded step is in its trace."""
    events = [(one.step, name) for one in trace.snapshots if (name := event(experiment, one)) is not None]
    return learning(np.array(trace.steps), np.array([one.loss for one in trace.snapshots]), events, experiment)


def _chance(experiment: Experiment) -> float | None:
    """Return the loss of a uniform guess, where tokens are predicted."""
    canonical = experiment.resolved()
    return math.log(canonical.input.vocab or 1) if canonical.protocol.loss == "next_token" else None
