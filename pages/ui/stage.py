"""What stands between a question and its answer: the engine starts, the run is long, it is refused, it is on its way.

Pages hand it variants and get back what is measured; everything that stands in the way is said in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import streamlit as st

from core import service
from core.experiment import Experiment
from core.fields import ExperimentError
from core.service import Look
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


def measured(variants: Sequence[Variant], t: Words, place: str, look: Look | None = None) -> Stage:
    """Measure the variants; where that takes time or is not possible, say so and return what was measured last.

    `look`: what their runs keep besides.
    """
    experiments = [one.experiment for one in variants]
    try:
        if not service.ready_to_ask():
            progress.engine(t)
        elif cache.must_ask(experiments, look):
            progress.offer(experiments, t, place, look)
            return _earlier(place)
        else:
            return _watched(cache.measure(variants, place, look), t, place)
    except ExperimentError as error:
        st.error(explain.refused(error, t), icon=":material/block:")
    return Stage()


def closer(stage: Stage, shown: Mapping[str, str], look: Callable[[Experiment, Mapping[str, str]], Look | None],
           t: Words, place: str) -> Stage:
    """Return the stage with a look at one head of the variant that `shown` is about; where that takes time, say so."""
    if not (stage.current and stage.finished):
        return stage
    who = int(stage.among_finished(shown["who"]))
    one = stage.finished[who]
    wanted = look(one.experiment, shown)
    if wanted is None:
        return stage
    if cache.must_ask([one.experiment], wanted):
        progress.offer([one.experiment], t, f"{place}.closer", wanted)
        return stage
    (looked,) = cache.measure([one.variant], place, wanted)
    progress.watch([looked], t, f"{place}.closer")
    if looked.trace is None:
        return stage
    seen = replace(one, closer=looked.trace.snapshots[-1])
    return replace(stage, finished=(*stage.finished[:who], seen, *stage.finished[who + 1:]))


def _watched(measured: Sequence[Measured], t: Words, place: str) -> Stage:
    progress.watch(measured, t, place)
    finished = tuple(one for one in measured if one.trace)
    if not finished:
        return _earlier(place)
    st.session_state[LAST + place] = [replace(one, trace=None) for one in finished]
    return Stage(finished, places=tuple(place for place, one in enumerate(measured) if one.trace))


def _earlier(place: str) -> Stage:
    kept = tuple(cache.kept(st.session_state.get(LAST + place, [])))
    return Stage(kept, current=False, places=tuple(range(len(kept))))
