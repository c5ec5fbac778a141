"""Films: the recorded steps of runs, thinned to as many as a picture can show, read from the store as they come.

Every loss is in it, and of the snapshots every 2ⁿ-th, the newest two, and the first that is not finite with the one
before it. Whoever watches a run shares its film, which only ever reads what it has not seen. It knows the store and
traces; it computes no statistic and draws nothing.

Axes: N recorded steps.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from core.stops import NON_FINITE
from core.store import RunView, Store
from core.trace import F64, GROUPS, MEASURES, Snapshot, Trace

FRAMES, LEAST_FRAMES = 240, 24
"""So many snapshots at most are kept of a run, beside the newest; of a deep stack fewer, but at least the second."""

REEL_BYTES, FILMS_BYTES = 16 * 2**20, 256 * 2**20
"""About so much is kept of one run, and of all."""

UNCOUNTED = 8
"""By so many snapshots a film may differ from when its bytes were counted last: that takes as long as reading one."""

RECENT_S = 10.0
"""A film that was looked at so lately stays, whatever the others take: somebody is watching it."""


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

    def look(self, store: Store, run_ids: Sequence[str]) -> list[Film]:
        """Return the films of runs as they are now. The runs are looked at first: what they say is done was recorded.

        Errors: StoreError when one is not in the store.
        """
        films = [self._reel(run.id).look(store, run) for run in store.views(run_ids)]
        with self._lock:
            while sum(one.bytes for one in self._reels.values()) > FILMS_BYTES:
                oldest = next(iter(self._reels))
                if time.monotonic() - self._reels[oldest].looked < RECENT_S:
                    break
                del self._reels[oldest]
        return films

    def _reel(self, run_id: str) -> _Reel:
        with self._lock:
            reel = self._reels.setdefault(run_id, _Reel())
            self._reels.move_to_end(run_id)
            return reel

    def clear(self) -> None:
        """Forget every film."""
        with self._lock:
            self._reels.clear()


class _Reel:
    """What was read of one run so far."""

    def __init__(self) -> None:
        self.bytes = 0
        self.looked = time.monotonic()
        self._frames = FRAMES
        self._lock = threading.Lock()
        self._steps = np.empty(0, np.int64)
        self._losses = np.empty(0)
        self._events: list[tuple[int, str]] = []
        self._kept: dict[int, Snapshot] = {}
        self._every = 1
        self._counted = -UNCOUNTED

    def look(self, store: Store, run: RunView) -> Film:
        """Read what is new since `run` was looked at."""
        with self._lock:
            self.looked = time.monotonic()
            self._append(store.steps(run.id, int(self._steps[-1]) if self._steps.size else -1))
            while len(self._steps) > self._frames * self._every:
                self._every *= 2
            wanted = self._wanted()
            self._kept = {step: snapshot for step, snapshot in self._kept.items() if step in wanted}
            for step, content in store.snapshots_at(run.id, sorted(wanted - self._kept.keys())):
                newest = next(reversed(self._kept.values()), None)
                self._kept[step] = light(Snapshot.from_bytes(content), newest)
                self._frames = min(self._frames, max(LEAST_FRAMES, REEL_BYTES // bytes_of([self._kept[step]])))
            if abs(len(self._kept) - self._counted) > UNCOUNTED:
                self._counted, self.bytes = len(self._kept), bytes_of(list(self._kept.values()))
            trace = Trace(tuple(self._kept[step] for step in sorted(self._kept))) if self._kept else None
            return Film(run, self._steps, self._losses, trace, self._every, tuple(self._events))

    def _append(self, new: Sequence[tuple[int, float, str | None]]) -> None:
        """Take note of new steps; films that were handed out keep their arrays."""
        if new:
            steps, losses, events = zip(*new, strict=True)
            self._steps = np.concatenate([self._steps, np.array(steps, np.int64)])
            self._losses = np.concatenate([self._losses, np.array(losses, np.float64)])
            self._events += [(step, event) for step, event in zip(steps, events, strict=True) if event]

    def _wanted(self) -> set[int]:
        broken = next((step for step, event in self._events if event == NON_FINITE), None)
        until = 0 if broken is None else int(np.searchsorted(self._steps, broken)) + 1
        parts = (self._steps[::self._every], self._steps[-2:], self._steps[max(0, until - 2):until])
        return {step for part in parts for step in part.tolist()}


def light(snapshot: Snapshot, other: Snapshot | None = None) -> Snapshot:
    """Return the snapshot without what no picture over steps shows: histograms, outliers and single tokens.

    Arrays that `other` has too, such as counts that never change, are its own: they are held once.
    """
    shared = {} if other is None else {group: _shared(getattr(snapshot, group), getattr(other, group))
                                       for group in MEASURES}
    return replace(snapshot, histograms={}, outliers=(), token_rms=np.empty((0, 0), np.float32),
                   tokens=np.empty(0, np.int32), **shared)  # type: ignore[arg-type]


def _shared(mine: Mapping[str, F64], others: Mapping[str, F64]) -> dict[str, F64]:
    return {name: others[name] if name in others and np.array_equal(array, others[name], equal_nan=True) else
            array.copy() for name, array in mine.items()}


def bytes_of(snapshots: Sequence[Snapshot]) -> int:
    """Return the size of the snapshots' arrays, each counted once."""
    held = {id(array): array.nbytes for one in snapshots for group in GROUPS for array in getattr(one, group).values()}
    return sum(held.values())
