"""Which runs each visit of this server waits for, so that a waiting run nobody wants any more leaves the queue.

A moved slider asks for many states and wants the last. The file knows visits and run ids; it asks nothing and cancels
nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from threading import Lock

PLACES_KEPT = 4096
"""Visits that ended are never announced; what the oldest wanted is forgotten."""

_LOCK = Lock()
_WANTED: OrderedDict[tuple[str, str], frozenset[str]] = OrderedDict()
"""Visit, and place on its page, → runs."""


def moves_to(visit: str, place: str, runs: Collection[str]) -> frozenset[str]:
    """Note that `visit` wants these runs at `place` from now on; return those it wanted there that nobody wants now."""
    with _LOCK:
        left = _WANTED.pop((visit, place), frozenset()) - set(runs)
        _WANTED[visit, place] = frozenset(runs)
        while len(_WANTED) > PLACES_KEPT:
            _WANTED.popitem(last=False)
        return left.difference(*_WANTED.values())


def leaves(visit: str) -> frozenset[str]:
    """Note that `visit` wants nothing any more of what it wanted so far; return what nobody wants now."""
    with _LOCK:
        places = [key for key in _WANTED if key[0] == visit]
        left: frozenset[str] = frozenset().union(*(_WANTED.pop(key) for key in places))
        return left.difference(*_WANTED.values())
