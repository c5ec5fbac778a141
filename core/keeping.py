"""What a training leaves in the store as it goes: its snapshots, and a checkpoint now and then.

Workers and the command line write the same way. The file knows claims and trainings; it does not know who plays, nor
why a run ends.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from core.claims import Claim
from core.settings import checkpoint_seconds
from core.stops import event
from core.trace import Snapshot

if TYPE_CHECKING:
    from core.train import Training


class Keeping:
    """Writes one training into the run of one claim."""

    def __init__(self, mine: Claim, training: Training) -> None:
        self._claim, self._training = mine, training
        self._saved = time.monotonic()

    def keep(self, snapshot: Snapshot | None) -> None:
        """Write what the last step recorded, if anything, and a checkpoint when one is due.

        Errors: LostClaim, StoreError.
        """
        if snapshot is not None:
            self._claim.append(snapshot.step, snapshot.to_bytes(), snapshot.loss,
                               event(self._training.experiment, snapshot))
        if time.monotonic() - self._saved > checkpoint_seconds():
            self.save()

    def save(self) -> None:
        """Leave a checkpoint, where a step has been played and another is to come. Errors: StoreError."""
        if self._training.step and not self._training.over:
            self._claim.save(self._training.step, self._training.checkpoint())
            self._saved = time.monotonic()
