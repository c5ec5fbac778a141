"""What was measured, kept without its numbers until somebody asks for them again.

A page keeps what may be handed out from it for as long as it is open; traces stay in the store.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from core import service
from pages.ui import feed
from pages.ui.cache import Measured
from pages.ui.watching import Watched

Recall = Callable[[], Measured]
"""Returns what was measured, read anew from the store. Errors: StoreError."""


def keep(one: Measured) -> Recall:
    """Return what brings it back."""
    if isinstance(one, Watched):
        run, variant = one.run.id, one.variant
        return lambda: feed.watch([(run, variant)])[0]
    light = replace(one, trace=None)
    return lambda: replace(light, trace=service.trace(light.run.id))
