"""Training: an experiment played step by step, its recorded steps as Snapshots; step 0 is the initialization.

It puts model, data, loss, optimizer and recorder together, and can stop at any step and go on later, bit for bit. It
does not know where snapshots and checkpoints go, nor who reads them.

Shapes: P parameters.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from core import checkpoints
from core.corpus import Batch, Texts, batch, with_own_text
from core.devices import check_precision, pick_device, surroundings
from core.experiment import Experiment
from core.look import Look
from core.looking import taker
from core.model import build
from core.optimizers import LossScale, Updates
from core.pairing import fingerprint
from core.parameters import total_norm
from core.passes import step
from core.recorder import Recorder
from core.schedules import is_recorded, rate
from core.stops import is_overflow_step, stop
from core.trace import NonFinite, Snapshot

EXTRA = 64
"""So many steps at most are recorded beyond the interval because something in them is not finite."""


class Training(Iterator[Snapshot]):
    """The snapshots of a run, oldest first.

    `provenance`: the surroundings as JSON-able facts, there from the start; `step`: the next step that `play` plays;
    `stopped`: the non-finite value that ended a training, if one did (a probe is always whole).
    """

    def __init__(self, experiment: Experiment, texts: Texts | None = None, checkpoint: bytes | None = None,
                 look: Look | None = None) -> None:
        device = pick_device(experiment.protocol.device)
        self.experiment = experiment.resolved(device.type)
        check_precision(self.experiment, device)
        self.step, self.over = 0, False
        self.stopped: NonFinite | None = None
        self._read, self._device = with_own_text(experiment, texts), device
        self._met, self._extra, self._total, self._finite_loss = False, 0, 0.0, True
        self._stack = build(self.experiment)
        self.provenance: dict[str, Any] = {**surroundings(self.experiment, device),
                                           "pairing": fingerprint(self._stack, self._batch())}
        self._stack.to(device).train(self.experiment.protocol.mode == "train")
        self._parameters = list(self._stack.parameters())
        self._updates = Updates(self._parameters, self.experiment.protocol)
        self._scale = LossScale.of(self.experiment.protocol)
        if checkpoint is not None:
            self._restore(checkpoint)
        self._open = ExitStack()
        self._recorder = self._open.enter_context(
            Recorder(self._stack, residual=self.experiment.model.residual))
        self._taker = None if look is None else self._open.enter_context(taker(self._stack, look))

    def __next__(self) -> Snapshot:
        """Play up to the next recorded step."""
        while not self.over:
            snapshot = self.play()
            if snapshot is not None:
                return snapshot
        raise StopIteration

    def play(self) -> Snapshot | None:
        """Play one step and the update that follows it; return what was recorded, None at a step that is not.

        Errors: whatever the step raises; the training is over then.
        """
        try:
            data = self._batch().to(self._device)
            snapshot = self._pass(data) if is_recorded(self.experiment.protocol, self.step) else self._unrecorded(data)
            if snapshot is not None and self.experiment.protocol.steps:
                self.stopped = stop(self.experiment, snapshot)
            self.over = self.stopped is not None or self.step == self.experiment.protocol.steps
            if not self.over:
                self._update(snapshot)
        except BaseException:
            self.over = True
            raise
        finally:
            if self.over:
                self.close()
        self.step += 1
        return snapshot

    def close(self) -> None:
        """Let go of the model's hooks; the training cannot go on afterwards."""
        self.over = True
        self._open.close()

    def checkpoint(self) -> bytes:
        """Return what a later training needs to go on before `step`."""
        return checkpoints.to_bytes(self._stack, self._updates.optimizer, {
            "step": self.step, "met": self._met, "extra": self._extra, "scale": asdict(self._scale),
            "ratio": None if self._updates.ratio is None else self._updates.ratio.tolist()})

    def _restore(self, checkpoint: bytes) -> None:
        facts = checkpoints.restore(checkpoint, self._stack, self._updates.optimizer)
        self.step, self._met, self._extra = facts["step"], facts["met"], facts["extra"]
        self._scale = LossScale(**facts["scale"])
        self._updates.ratio = None if facts["ratio"] is None else np.array(facts["ratio"], np.float64)
        self.provenance["resumed_at"] = self.step

    def _batch(self) -> Batch:
        return batch(self._read, self.step)

    def _unrecorded(self, data: Batch) -> Snapshot | None:
        """Play a step without recording it; where it meets a non-finite value it is played again and recorded.

        Once that was no mere overflow, everything that follows is not finite either, and keeps to the interval.
        """
        buffers = [buffer.clone() for buffer in self._stack.buffers()]
        loss = self._bare(data)
        self._total, self._finite_loss = total_norm(self._parameters, self._scale.value), bool(torch.isfinite(loss))
        if self._met or self._extra == EXTRA or (np.isfinite(self._total) and self._finite_loss):
            return None
        self._extra += 1
        for buffer, before in zip(self._stack.buffers(), buffers, strict=True):
            buffer.copy_(before)
        return self._pass(data)

    def _bare(self, data: Batch) -> Tensor:
        for parameter in self._parameters:
            parameter.grad = None
        return step(self._stack, data, self.step, self._scale.value)

    def _pass(self, data: Batch) -> Snapshot:
        """Play a step and return what it showed."""
        if self._taker is not None:
            self._taker.before(data, self.step)
        self._recorder.begin(data.mask, self._scale.value, detail=self._detail(),
                             tokens=None if data.targets is None else data.inputs)
        loss = self._bare(data)
        snapshot = self._recorder.snapshot(self.step, float(loss))
        self._total = snapshot.totals["grad_total_norm"]
        overflow = is_overflow_step(self.experiment, snapshot)
        self._met = self._met or (snapshot.non_finite is not None and not overflow)
        if self._taker is not None:
            snapshot = replace(snapshot, looks=self._taker.found)
        return self._with_update(snapshot, overflow)

    def _detail(self) -> str:
        ends = self.step in (0, self.experiment.protocol.steps)
        return self.experiment.protocol.detail or ("full" if ends else "standard")

    def _with_update(self, snapshot: Snapshot, overflow: bool) -> Snapshot:
        """Return the snapshot with what is known of the update before it and of the one after it."""
        protocol, scale = self.experiment.protocol, self._scale
        totals = {**snapshot.totals, "clip_factor": self._updates.clip_factor(self._total)}
        if self.step < protocol.steps:
            totals["lr"] = rate(protocol, self.step)
        if protocol.loss_scale is not None:
            totals |= {"loss_scale": scale.value, "overflow": float(overflow),
                       "overflow_steps": float(scale.overflows + overflow)}
        ratio, parameters = self._updates.ratio, dict(snapshot.parameters)
        if ratio is not None:
            parameters["update_ratio"] = ratio
        return replace(snapshot, totals=totals, parameters=parameters)

    def _update(self, snapshot: Snapshot | None) -> None:
        """Update the weights; a step that overflowed under a loss scale is left out."""
        protocol = self.experiment.protocol
        measured = is_recorded(protocol, self.step + 1)
        overflowed = protocol.loss_scale is not None and not np.isfinite(self._total) and (
            self._finite_loss and not self._met if snapshot is None else is_overflow_step(self.experiment, snapshot))
        if overflowed:
            self._updates.skip(measured)
        else:
            self._updates.make(rate(protocol, self.step), self._scale.value, self._total, measured)
        self._scale.after(overflowed)


def train(experiment: Experiment, texts: Texts | None = None, checkpoint: bytes | None = None,
          look: Look | None = None) -> Training:
    """Return the run of `experiment`, an iterator of its snapshots.

    `texts`: gives the visitor's own text that ``input.text`` names by its hash; `checkpoint`: where an earlier training
    of the same experiment left off; `look`: what its snapshots hold besides.
    Errors: ExperimentError when that text is missing, or the device or precision is not to be had here;
    CheckpointError.
    """
    return Training(experiment, texts, checkpoint, look)
