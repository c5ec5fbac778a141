"""Which runs each visit of this server waits for, so that a waiting run nobody wants any more leaves the queue.

A moved slider asks for many states and wants the last. The file knows visits and run ids; it asks nothing and cancels
nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from threading import Lock

VISITS_KEPT = 4096
"""Visits that ended are never announced; the oldest are forgotten."""

_LOCK = Lock()
_WANTED: OrderedDict[str, frozenset[str]] = OrderedDict()


def moves_to(visit: str, runs: Collection[str]) -> frozenset[str]:
    """Note that `visit` wants these runs from now on; return those it wanted until now and nobody wants any more."""
    with _LOCK:
        left = _WANTED.pop(visit, frozenset()) - set(runs)
        _WANTED[visit] = frozenset(runs)
        while len(_WANTED) > VISITS_KEPT:
            _WANTED.popitem(last=False)
        return left.difference(*_WANTED.values())
