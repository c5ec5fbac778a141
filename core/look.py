"""Looks: what a run may keep beside its statistics, each a kind of its own with the whole numbers that say where.

A look at one head, at what a token, companions or padding move, at what evaluation changes, at what norms cost. No
torch here: the file knows how a look is written and what it may name; each kind names by import path what takes it
while a run is played (`core.looking`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import astuple, dataclass, fields
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from core.experiment import Experiment
from core.fields import ExperimentError
from core.rules import attends
from core.tables import NORMS

MEASURED = tuple(name for name, norm in NORMS.items() if not norm.absent)
"""The norms whose costs are measured, in the order of the arrays' first axis."""

WAYS, DIRECTIONS = ("fused", "written"), ("forward", "backward")
"""Their second and third axis: torch's kernel where there is one, against one step after another; and the pass."""

Found = Mapping[str, NDArray[np.floating]]
"""What a look found, by name: arrays whose meaning its taker says."""

NOTHING = -1.0
"""Stands in a look's arrays where there is nothing to measure: no pair, no token, no real one."""

CELLS = 64
"""A map that a look keeps has at most so many rows and columns; of longer sequences each cell is a block of tokens."""


@dataclass(frozen=True)
class Look:
    """What is looked at; the fields of a kind are whole numbers. `taker`: import path of what takes it."""

    taker: ClassVar[str] = ""

    @staticmethod
    def of(code: str) -> Look:
        """Return the look that `code` was written from. Errors: ValueError for any other text."""
        kind, *parts = code[:80].split(".")
        made = LOOKS.get(kind)
        numbers = all(re.fullmatch(r"[0-9]{1,5}", part) for part in parts)
        if made is None or len(parts) != len(fields(made)) or not numbers:
            raise ValueError(f'a look is "{code[:40]}"; allowed: one of {", ".join(LOOKS)} and its numbers, as in '
                             "head.3.0.1")
        return made(*map(int, parts))

    @property
    def code(self) -> str:
        """The look as one short word."""
        kind = next(name for name, made in LOOKS.items() if made is type(self))
        return ".".join([kind, *map(str, astuple(self))])

    def key(self, experiment_key: str) -> str:
        """Return the key of a run of the experiment with this key that keeps this look."""
        return hashlib.sha256(f"{experiment_key}.{self.code}".encode()).hexdigest()

    def wrong(self, experiment: Experiment) -> str:
        """Return why the experiment has nothing of the kind to look at; nothing where it has."""
        raise NotImplementedError

    def check(self, experiment: Experiment) -> Self:
        """Return the look if the experiment has what it names. Errors: ExperimentError with what is allowed."""
        if reason := self.wrong(experiment):
            raise ExperimentError(reason)
        return self


@dataclass(frozen=True)
class HeadLook(Look):
    """The weights of one head of one layer, in one sequence of the batch, at initialization."""

    layer: int
    head: int
    sequence: int = 0

    taker: ClassVar[str] = "core.looking:HeadWeights"

    def wrong(self, experiment: Experiment) -> str:
        """Return which number is too large, or that no layer attends."""
        model = experiment.model
        if not attends(experiment):
            return "the look names a head, but with this model.family and model.sublayers no layer attends"
        return _beyond({"layer": (self.layer, model.n_layers), "head": (self.head, model.n_heads),
                        "sequence": (self.sequence, experiment.input.batch)}) or _at_start(experiment)


@dataclass(frozen=True)
class TokenLeak(Look):
    """What changes everywhere when one token of the input is another, at initialization."""

    sequence: int
    position: int

    taker: ClassVar[str] = "core.leaks:Leak"

    def wrong(self, experiment: Experiment) -> str:
        """Return which number is too large."""
        return _beyond({"sequence": (self.sequence, experiment.input.batch),
                        "position": (self.position, experiment.input.seq_len)}) or _at_start(experiment)


@dataclass(frozen=True)
class SampleLeak(Look):
    """What changes everywhere when every token of one sequence is another, at initialization."""

    sequence: int

    taker: ClassVar[str] = "core.leaks:Leak"

    def wrong(self, experiment: Experiment) -> str:
        """Return which number is too large."""
        return _beyond({"sequence": (self.sequence, experiment.input.batch)}) or _at_start(experiment)


@dataclass(frozen=True)
class EvaluationGap(Look):
    """How far evaluation is from training at the same weights and the same batch, at every recorded step."""

    taker: ClassVar[str] = "core.evaluation:Gap"

    def wrong(self, experiment: Experiment) -> str:
        """Return that the run is one of evaluation already."""
        if experiment.protocol.mode != "train":
            return "the look compares training with evaluation, but protocol.mode is eval; allowed: train"
        return ""


@dataclass(frozen=True)
class NormCosts(Look):
    """Time and memory traffic of every norm, forward and backward, on tokens such as the experiment's."""

    taker: ClassVar[str] = "core.norm_costs:Costs"

    def wrong(self, experiment: Experiment) -> str:
        """Return that a training is no place to measure in."""
        return _at_start(experiment)


@dataclass(frozen=True)
class CompanionShift(Look):
    """How far the first sequence's own numbers move as others of the batch are left out, at initialization."""

    taker: ClassVar[str] = "core.companions:Companions"

    def wrong(self, experiment: Experiment) -> str:
        """Return that a training is no place for it."""
        return _at_start(experiment)


@dataclass(frozen=True)
class PaddingShift(Look):
    """How far the same real tokens' numbers move as more padding stands behind them, at initialization."""

    taker: ClassVar[str] = "core.companions:Padding"

    def wrong(self, experiment: Experiment) -> str:
        """Return that a training is no place for it."""
        return _at_start(experiment)


LOOKS: Mapping[str, type[Look]] = {
    "head": HeadLook, "token": TokenLeak, "sample": SampleLeak, "evaluation": EvaluationGap, "costs": NormCosts,
    "companions": CompanionShift, "padding": PaddingShift,
}
"""First word of a look's code → its kind."""


def batches(whole: int) -> list[int]:
    """Return the sizes of the batches that a look at companions plays: powers of two, and the whole."""
    return [*(1 << power for power in range(whole.bit_length()) if 1 << power < whole), whole]


PADDED = tuple(tenth / 10 for tenth in range(9))
"""The shares of padding that a look at padding plays, as near as whole tokens come."""


def kept(length: int) -> int:
    """Return how many of so many tokens stay real in a look at padding, so that its largest share fits beside them."""
    return max(1, length // round(1 / (1 - PADDED[-1])))


def block(length: int) -> int:
    """Return how many tokens a cell of a look at sequences of this length stands for, along each axis."""
    return -(-length // CELLS)


def _beyond(named: Mapping[str, tuple[int, int]]) -> str:
    """Return which number is not below its count, by name; nothing where all are."""
    for name, (value, count) in named.items():
        if not 0 <= value < count:
            return f"the look's {name} is {value}; allowed: 0 … {count - 1}"
    return ""


def _at_start(experiment: Experiment) -> str:
    steps = experiment.protocol.steps
    return f"the look is at initialization, but protocol.steps is {steps}; allowed: 0" if steps else ""
