"""What was recorded of an operation: what went in, what came out, and the parameters that took part.

It joins the lineage of a stack with one snapshot of it, forward and backward; it judges nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from core.experiment import Experiment
from core.lineage import LOSS, Lineage, Operation, Place, Step
from core.trace import Snapshot

PASSED_ON = frozenset({"add", "same"})
"""Operations whose gradient goes on as it is: what they read has no part in it."""


@dataclass(frozen=True)
class Measured:
    """One tensor, or its gradient, as it was recorded: a site, the loss, or a parameter.

    `n`: its entries; `absmax`, `rms`: over the finite ones; `n_nan`, `n_posinf`, `n_neginf`: the others. Of a parameter
    only the norm is recorded: `rms` is weight_rms, or param_grad_norm for its gradient, and all else is NaN.
    """

    layer: int
    site: str
    gradient: bool
    finite: bool
    n: float = math.nan
    absmax: float = math.nan
    rms: float = math.nan
    std: float = math.nan
    n_nan: float = math.nan
    n_posinf: float = math.nan
    n_neginf: float = math.nan

    @property
    def observed(self) -> bool:
        """Whether the recorder saw it."""
        return not math.isnan(self.n)


@dataclass(frozen=True)
class Weights:
    """One parameter of an operation, at this step; `grad_norm` is NaN where no gradient came."""

    layer: int
    name: str
    weight_norm: float
    weight_rms: float
    grad_norm: float

    @property
    def finite(self) -> bool:
        """Whether every entry is finite."""
        return math.isfinite(self.weight_norm)


@dataclass(frozen=True)
class Making:
    """How a tensor came to be: of `inputs` and `weights`, by `operations`; by none where an update made it.

    Backward a gradient may come through several operations, and `inputs` are the gradients that came in, then the
    activations that had a part in it.
    """

    operations: tuple[Operation, ...]
    inputs: tuple[Measured, ...]
    weights: tuple[Weights, ...]
    output: Measured

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of its operations (`core.lineage.Operation`), or update."""
        return tuple(dict.fromkeys(operation.kind for operation in self.operations)) or ("update",)

    @property
    def kind(self) -> str:
        """The kind of the first operation that does more than hand a gradient on."""
        return next((kind for kind in self.kinds if kind not in PASSED_ON), self.kinds[0])

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps, one operation after another."""
        return tuple(step for operation in self.operations for step in operation.steps)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of the wiring's nodes that had a part in it."""
        shown = (operation.node for operation in self.operations)
        return tuple(dict.fromkeys([*(step.node for step in self.steps), *shown]))

    @property
    def inputs_finite(self) -> bool:
        """Whether all that went in was finite."""
        return all(measured.finite for measured in self.inputs)

    @property
    def weights_finite(self) -> bool:
        """Whether all parameters that took part were finite."""
        return all(weights.finite for weights in self.weights)

    @property
    def largest_input(self) -> float:
        """The largest |x| among all that went in; 0 where nothing did, NaN where it is not known."""
        return max((measured.absmax for measured in self.inputs), default=0.0)


class Evidence:
    """One snapshot of the stack of a canonical `experiment`."""

    def __init__(self, snapshot: Snapshot, experiment: Experiment, tree: Lineage) -> None:
        self.snapshot, self.experiment, self.tree = snapshot, experiment, tree
        self.loss_place: Place = snapshot.layout.n_layers, LOSS
        self.places: tuple[Place, ...] = (*snapshot.layout.sites, self.loss_place)
        self._rows = {place: row for row, place in enumerate(snapshot.layout.sites)}

    def measured(self, place: Place, gradient: bool = False) -> Measured:
        """Return what was recorded at a site, or of its gradient; of the loss, whose gradient is 1."""
        if place == self.loss_place:
            return self._loss(gradient)
        group, row = self.snapshot.measured(gradient), self._rows[place]
        numbers = [float(group[name][row]) if name in group else math.nan for name in _NUMBERS]
        return Measured(*place, gradient, not sum(numbers[-3:]) > 0, *numbers)

    def parameter(self, place: Place, gradient: bool) -> Measured:
        """Return what was recorded of a parameter, or of its gradient."""
        row = self.snapshot.layout.parameters.index(place)
        values = self.snapshot.parameters.get("param_grad_norm" if gradient else "weight_rms")
        size = math.nan if values is None else float(values[row])
        return Measured(*place, gradient, math.isfinite(size), rms=size)

    def weights(self, reads: Iterable[str]) -> tuple[Weights, ...]:
        """Return the parameters of these modules, each named with a dot at its end, or with these names."""
        rows = sorted(row for read in dict.fromkeys(reads) for row in self._modules.get(read, ()))
        columns = [self.snapshot.parameters.get(name) for name in ("weight_norm", "weight_rms", "param_grad_norm")]
        return tuple(Weights(*self.snapshot.layout.parameters[row], *(
            math.nan if column is None else float(column[row]) for column in columns)) for row in rows)

    @cached_property
    def _modules(self) -> dict[str, list[int]]:
        """The rows of the parameters by module, and by their own name."""
        found: dict[str, list[int]] = {}
        for row, (_, name) in enumerate(self.snapshot.layout.parameters):
            found.setdefault(f"{name.rpartition('.')[0]}.", []).append(row)
            found[name] = [row]
        return found

    def forward(self, place: Place) -> Making:
        """Return how the tensor at a place was made, of the recorded places before it."""
        made = self.tree.maker(place, self._seen)
        inputs = tuple(self.measured(one) for one in made.inputs)
        return Making((made,), inputs, self.weights(made.reads), self.measured(place))

    def backward(self, place: Place) -> Making:
        """Return how the gradient of a place was made, of the recorded gradients behind it."""
        through, ends = self.tree.followers(place, self._seen_backward)
        return self._carried(through, ends, self.measured(place, gradient=True))

    def of_parameter(self, place: Place) -> Making:
        """Return how a parameter's gradient was made, of the gradients of what it made and the activations there."""
        readers = self.tree.readers(place[1])
        ends: list[Place] = []
        for reader in readers:
            seen = reader.output in self._seen_backward
            ends += [reader.output] if seen else self.tree.followers(reader.output, self._seen_backward)[1]
        return self._carried(readers, ends, self.parameter(place, True))

    def _carried(self, met: Iterable[Operation], ends: Iterable[Place], output: Measured) -> Making:
        through = [self.tree.maker(operation.output, self._seen) for operation in met if operation.output in self._seen]
        read = dict.fromkeys(place for operation in through if operation.kind not in PASSED_ON
                             for place in (*operation.inputs, operation.output))
        inputs = [self.measured(place, gradient=True) for place in dict.fromkeys(ends)]
        inputs += [self.measured(place) for place in read if place in self._seen]
        weights = self.weights(prefix for operation in through for prefix in operation.reads)
        return Making(tuple(through), tuple(inputs), weights, output)

    def _loss(self, gradient: bool) -> Measured:
        value = 1.0 if gradient else self.snapshot.loss
        size = abs(value) if math.isfinite(value) else math.nan
        counts = map(float, (math.isnan(value), value == math.inf, value == -math.inf))
        return Measured(*self.loss_place, gradient, math.isfinite(value), 1.0, size, size, 0.0, *counts)

    @cached_property
    def _seen(self) -> frozenset[Place]:
        return frozenset(place for place in self.places if self.measured(place).observed)

    @cached_property
    def _seen_backward(self) -> frozenset[Place]:
        return frozenset(place for place in self.places if self.measured(place, gradient=True).observed)


_NUMBERS = ("n", "absmax", "rms", "std", "n_nan", "n_posinf", "n_neginf")
