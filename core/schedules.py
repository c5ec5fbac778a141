"""When a training does what: the learning rate of each update, and which steps are recorded.

It knows the protocol's numbers; it does not know models or optimizers, and needs no torch. A new schedule is one
entry of SCHEDULES and its words. Update u, counted from 0, leads from the weights of step u to those of step u + 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from core.experiment import Protocol

SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda _: 1.0,
    "cosine": lambda gone: 0.5 * (1.0 + math.cos(math.pi * gone)),  # Loshchilov, Hutter 2017, arXiv:1608.03983
}
"""What the rate is multiplied with after the warm-up, when this share of the updates that follow it is gone."""


def rate(protocol: Protocol, update: int) -> float:
    """Return the learning rate of one update.

    lr · min(1, (u + 1)/warmup) · s((u − warmup)/(steps − warmup)), s the schedule, 1 during the warm-up.
    """
    rising = min(1.0, (update + 1) / protocol.warmup) if protocol.warmup else 1.0
    gone = max(0, update - protocol.warmup) / max(1, protocol.steps - protocol.warmup)
    return protocol.lr * rising * SCHEDULES[protocol.schedule](gone)


def is_recorded(protocol: Protocol, step: int) -> bool:
    """Say whether a step is recorded: the first, the last, and those of the interval; log: 0, 1, 2, 4, 8, …"""
    every = protocol.record_every
    due = step & (step - 1) == 0 if isinstance(every, str) else step % every == 0
    return due or step == protocol.steps


def recorded_steps(protocol: Protocol) -> int:
    """Return how many steps are recorded, when nothing ends the training early."""
    every, steps = protocol.record_every, protocol.steps
    due = 1 + steps.bit_length() if isinstance(every, str) else 1 + steps // every
    last_is_due = steps == 0 or (steps & (steps - 1) == 0 if isinstance(every, str) else steps % every == 0)
    return due + (not last_is_due)
