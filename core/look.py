"""A look at one attention head: which weights of which head a run keeps beside its statistics. No torch here.

A run keeps means over queries of every head; the weights themselves, T×T, are asked for one head at a time. The file
knows how a look is written and what it may name; the weights are taken in `core.looking`.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from core.experiment import Experiment
from core.fields import ExperimentError
from core.rules import attends

CELLS = 64
"""A look has at most so many rows and columns; of longer sequences each cell is a block of tokens."""


@dataclass(frozen=True)
class Look:
    """Which head is looked at: of which layer, in which sequence of the batch."""

    layer: int
    head: int
    sequence: int = 0

    @classmethod
    def of(cls, code: str) -> Look:
        """Return the look that `code` was written from. Errors: ValueError for any other text."""
        if not re.fullmatch(r"[0-9]{1,5}(\.[0-9]{1,5}){2}", code):
            raise ValueError(f'a look is "{code[:40]}"; allowed: layer.head.sequence, as in 3.0.1')
        return cls(*map(int, code.split(".")))

    @property
    def code(self) -> str:
        """The look as one short word."""
        return f"{self.layer}.{self.head}.{self.sequence}"

    def key(self, experiment_key: str) -> str:
        """Return the key of a run of the experiment with this key that keeps this look."""
        return hashlib.sha256(f"{experiment_key}.{self.code}".encode()).hexdigest()

    def check(self, experiment: Experiment) -> None:
        """Find out whether the experiment has this head, at initialization.

        Errors: ExperimentError with what is allowed.
        """
        model = experiment.model
        wrong = {"layer": (self.layer, model.n_layers), "head": (self.head, model.n_heads),
                 "sequence": (self.sequence, experiment.input.batch)}
        for name, (value, count) in wrong.items():
            if not 0 <= value < count:
                raise ExperimentError(f"the look's {name} is {value}; allowed: 0 … {count - 1}")
        if not attends(experiment):
            raise ExperimentError("the look names a head, but with this model.family and model.sublayers no layer "
                                  "attends")
        if experiment.protocol.steps:
            raise ExperimentError(f"the look is at initialization, but protocol.steps is {experiment.protocol.steps}; "
                                  "allowed: 0")


def block(length: int) -> int:
    """Return how many tokens a cell of a look at sequences of this length stands for, along each axis."""
    return -(-length // CELLS)
