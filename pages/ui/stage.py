"""What stands between a question and its answer: the engine starts, the run is long, it is refused, it is on its way.

Pages hand it variants and get back what is measured; everything that stands in the way is said in its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import streamlit as st

from core import service
from core.fields import ExperimentError
from pages.ui import cache, explain, progress
from pages.ui.cache import Measured
from pages.ui.link import Variant
from pages.ui.text import Words

LAST = "stage.last."
"""What was measured last at a place, without its traces; it stays on screen while nothing newer is finished."""


@dataclass(frozen=True)
class Stage:
    """What there is to show: the finished variants in the asked order. `current`: they are those asked for.

    `places`: which of the asked variants each of them is.
    """

    finished: tuple[Measured, ...] = ()
    current: bool = True
    places: tuple[int, ...] = ()

    def among_finished(self, who: str) -> str:
        """Return which of the finished variants is the asked one of that number; the first where it is not finished."""
        return str(self.places.index(int(who))) if int(who) in self.places else "0"


def measured(variants: Sequence[Variant], t: Words, place: str) -> Stage:
    """Measure the variants; where that takes time or is not possible, say so and return what was measured last."""
    experiments = [one.experiment for one in variants]
    try:
        if not service.ready_to_ask():
            progress.engine(t)
        elif cache.must_ask(experiments):
            progress.offer(experiments, t)
            return _earlier(place)
        else:
            return _watched(cache.measure(variants), t, place)
    except ExperimentError as error:
        st.error(explain.refused(error, t), icon=":material/block:")
    return Stage()


def _watched(measured: Sequence[Measured], t: Words, place: str) -> Stage:
    progress.watch(measured, t)
    finished = tuple(one for one in measured if one.trace)
    if not finished:
        return _earlier(place)
    st.session_state[LAST + place] = [replace(one, trace=None) for one in finished]
    return Stage(finished, places=tuple(place for place, one in enumerate(measured) if one.trace))


def _earlier(place: str) -> Stage:
    kept = tuple(cache.kept(st.session_state.get(LAST + place, [])))
    return Stage(kept, current=False, places=tuple(range(len(kept))))
