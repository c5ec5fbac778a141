"""Which judgements belong to what is looked at, variant by variant, and how many of them stand in the open.

The engine judges, `pages.ui.explain` has the sentences; this file draws nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from core import drift
from core.drift import Verdict
from core.landscape import where_to_look
from core.learning import learning
from core.trace import Trace
from pages.ui.cache import Measured
from pages.ui.views import Viewpoint
from pages.ui.views.tokens import focus
from pages.ui.watching import Watched


@dataclass(frozen=True)
class Judged:
    """The judgements on one variant, the first `spoken` of them in the open."""

    name: str
    verdicts: Sequence[Verdict]
    spoken: int = 1


def of_view(looked: Viewpoint, measured: Sequence[Measured], shown: Mapping[str, str]) -> list[Judged]:
    """Return what the traces tell: of every variant, or of the one that the view looks at."""
    found = []
    for one in [focus(measured, shown)[0]] if looked.single else measured:
        assert one.trace is not None
        said = list(looked.judge(one.trace, one.experiment, shown))
        broken = first_broken(one.trace)
        if broken and not any(verdict.alarm for verdict in said[:looked.spoken]):
            said.insert(0, broken)  # what is judged here is the finite part of a run that is not finite
        found.append(Judged(one.name, said, looked.spoken + (said[0] is broken)))
    return found


def first_broken(trace: Trace) -> Verdict | None:
    """Return the judgement on where the forward pass is first not finite, or None where it is finite."""
    made = trace.snapshots[-1].non_finite
    return where_to_look(trace) if made is not None and made.direction == "forward" else None


def of_training(one: Watched) -> Judged:
    """Return what a training has come to, and how its stream drifts now."""
    film = one.film
    said = [learning(film.steps, film.losses, film.events, one.experiment)]
    if film.trace is not None:
        now = drift.verdicts(Trace(film.trace.snapshots[-1:]), one.experiment)
        said += [replace(verdict, expected="") for verdict in now]  # what is expected holds at initialization
    return Judged(one.name, said)
