"""Films: the recorded steps of runs, thinned to as many as a picture can show, read from the store as they come.

Every loss is in it, and of the snapshots every 2ⁿ-th, the newest two, and the first that is not finite with the one
before it. Whoever watches a run shares its film, which only ever reads what it has not seen. It knows the store and
traces; it computes no statistic and draws nothing.

Axes: N recorded steps.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import OrderedDict
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from core.stops import NON_FINITE
from core.store import RunView, Store
from core.trace import Snapshot, Trace

F64 = NDArray[np.float64]

FRAMES = 240
"""So many snapshots at most are kept of a run, beside the newest."""

FILMS_BYTES = 256 * 2**20


@dataclass(frozen=True, eq=False)
class Film:
    """A run as it is now.

    `steps`, `losses`: all that were recorded, (N,); `trace`: the kept ones, None before the first; `every`: it has
    every so-many-th recorded step; `events`: step and name of what happened (`core.stops.event`).
    """

    run: RunView
    steps: NDArray[np.int64]
    losses: F64
    trace: Trace | None
    every: int = 1
    events: tuple[tuple[int, str], ...] = ()


class Films:
    """The films watched lately, at most FILMS_BYTES of arrays; threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reels: OrderedDict[str, _Reel] = OrderedDict()

    def look(self, store: Store, run_id: str) -> Film:
        """Return the film of a run as it is now.

        Errors: StoreError when the run is not in the store.
        """
        with self._lock:
            reel = self._reels.setdefault(run_id, _Reel())
            self._reels.move_to_end(run_id)
        film = reel.look(store, run_id)
        with self._lock:
            while len(self._reels) > 1 and sum(one.bytes for one in self._reels.values()) > FILMS_BYTES:
                self._reels.popitem(last=False)
        return film

    def clear(self) -> None:
        """Forget every film."""
        with self._lock:
            self._reels.clear()


class _Reel:
    """What was read of one run so far."""

    def __init__(self) -> None:
        self.bytes = 0
        self._lock = threading.Lock()
        self._steps: list[int] = []
        self._losses: list[float] = []
        self._events: list[tuple[int, str]] = []
        self._kept: dict[int, Snapshot] = {}
        self._every = 1

    def look(self, store: Store, run_id: str) -> Film:
        """Read what is new. The run is looked at first: what it says is done has been recorded."""
        with self._lock:
            run = store.views([run_id])[0]
            for step, loss, event in store.steps(run_id, self._steps[-1] if self._steps else -1):
                self._steps.append(step)
                self._losses.append(loss)
                self._events += [(step, event)] if event else []
            while len(self._steps) > FRAMES * self._every:
                self._every *= 2
            wanted = self._wanted()
            self._kept = {step: snapshot for step, snapshot in self._kept.items() if step in wanted}
            for step, content in store.snapshots_at(run_id, sorted(wanted - self._kept.keys())):
                self._kept[step] = light(Snapshot.from_bytes(content))
            self.bytes = sum(size_of(one) for one in self._kept.values())
            trace = Trace(tuple(self._kept[step] for step in sorted(self._kept))) if self._kept else None
            return Film(run, np.array(self._steps, np.int64), np.array(self._losses), trace, self._every,
                        tuple(self._events))

    def _wanted(self) -> set[int]:
        broken = next((step for step, event in self._events if event == NON_FINITE), None)
        until = 0 if broken is None else bisect_left(self._steps, broken) + 1
        return {*self._steps[::self._every], *self._steps[-2:], *self._steps[max(0, until - 2):until]}


def light(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot without what no picture over steps shows: histograms, outliers and single tokens."""
    return replace(snapshot, histograms={}, outliers=(), token_rms=np.empty((0, 0), np.float32),
                   tokens=np.empty(0, np.int32))


def size_of(snapshot: Snapshot) -> int:
    """Return the size of a snapshot's arrays in bytes."""
    groups = (snapshot.activations, snapshot.gradients, snapshot.heads, snapshot.parameters, snapshot.histograms)
    return sum(array.nbytes for group in groups for array in group.values())
