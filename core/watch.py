"""A worker's watch: a thread beside the runs that it plays, which keeps their heartbeats and sees cancellation.

It knows claims and this process; it does not know what is computed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from core.claims import Cancelled, Claim, LostClaim
from core.logs import note

LOG = logging.getLogger("driftscope.worker")

BEAT_S = 1.0
LOOK_S = 0.2
GRACE_S, TRAINING_GRACE_S = 0.6, 5.0
"""A cancelled run that has not ended after this long is deaf: a single step takes longer. The process ends. A training
is given more, and at least as many of its steps' time: it ends between two steps, where it leaves a checkpoint."""

PACES = 3

DEAF_EXIT = 17

Progress = Callable[[], tuple[int, float | None]]
"""The last step that a run has played, −1 for none, and how many seconds one takes."""


class Watch:
    """A thread that keeps the heartbeats of the claims it follows, and ends the process for a deaf cancelled one."""

    def __init__(self, leave: Callable[[int], None]) -> None:
        self._leave = leave
        self._claims: dict[str, tuple[Claim, Progress]] = {}
        self._cancelled: dict[str, float] = {}
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="driftscope-watch")

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._thread.join()

    def follow(self, mine: Claim, progress: Progress) -> None:
        """Keep the heartbeat of a claim, and say how far it got."""
        with self._lock:
            self._cancelled.pop(mine.run, None)
            self._claims[mine.run] = mine, progress

    def forget(self, mine: Claim) -> None:
        """Let go of a claim that is about to end."""
        with self._lock:
            self._claims.pop(mine.run, None)

    def _run(self) -> None:
        beaten = time.monotonic()
        while not self._over.wait(LOOK_S):
            due = time.monotonic() - beaten >= BEAT_S
            beaten = time.monotonic() if due else beaten
            try:
                self._look(due)
            except Exception as error:  # a store that is busy for long: the next look tries again
                note(LOG, "heartbeat failed", logging.ERROR, error)

    def _look(self, beat: bool) -> None:
        with self._lock:
            followed = list(self._claims.values())
        for mine, progress in followed:
            if beat:
                mine.beat(*progress())
            try:
                mine.check()
            except (LostClaim, Cancelled):
                self._cancelled.setdefault(mine.run, time.monotonic())
        deaf = [mine for mine, progress in followed if self._is_deaf(mine, progress()[1] or 0.0)]
        if deaf:
            self._end_process(deaf)

    def _is_deaf(self, mine: Claim, pace: float) -> bool:
        patience = GRACE_S if mine.steps_total == 1 else max(TRAINING_GRACE_S, PACES * pace)
        return time.monotonic() - self._cancelled.get(mine.run, time.monotonic()) > patience

    def _end_process(self, deaf: list[Claim]) -> None:
        """Write what becomes of the claims and leave; the nanny starts a fresh process."""
        with self._lock:
            claims = [mine for mine, _ in self._claims.values() if mine not in deaf]
            deaf = [mine for mine in deaf if mine.run in self._claims]
        if not deaf:
            return
        for mine in deaf:
            mine.finish("cancelled")
        for mine in claims:
            mine.surrender()
        note(LOG, "worker ends", logging.WARNING, reason="a cancelled run did not listen",
             run=" ".join(mine.run for mine in deaf))
        self._leave(DEAF_EXIT)
