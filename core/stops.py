"""What ends a run before its last step: the first value that is not finite, of a kind that is to stop it.

NaN and Inf are asked for independently. It knows experiments and snapshots; codes leave it, and needs no torch.
"""

from __future__ import annotations

from core.experiment import Experiment
from core.trace import NonFinite, Snapshot


def is_overflow_step(experiment: Experiment, snapshot: Snapshot) -> bool:
    """Say whether under a loss scale the gradients alone are not finite: the update is skipped, and nothing stops."""
    scaled = experiment.protocol.loss_scale is not None
    return scaled and not snapshot.non_finite_kinds() and bool(snapshot.non_finite_kinds(gradient=True))


def event(experiment: Experiment, snapshot: Snapshot) -> str | None:
    """Return what is to be known of a step without reading it: overflow (under a loss scale), or non_finite."""
    if is_overflow_step(experiment, snapshot):
        return OVERFLOW
    return NON_FINITE if snapshot.non_finite is not None else None


OVERFLOW, NON_FINITE = "overflow", "non_finite"


def stop(experiment: Experiment, snapshot: Snapshot) -> NonFinite | None:
    """Return the value that ends the run at this step, or None where it goes on."""
    protocol = experiment.protocol
    wanted = {kind for kind, stops in (("nan", protocol.stop_on_nan), ("inf", protocol.stop_on_inf)) if stops}
    met = snapshot.non_finite_kinds() | snapshot.non_finite_kinds(gradient=True)
    return snapshot.non_finite if wanted & met and not is_overflow_step(experiment, snapshot) else None
