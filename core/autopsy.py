"""The autopsy of a run that met a value which is not finite: where it was made, of what, by which operation, and why.

Torch-free and wordless: codes and numbers leave this file. It knows what was recorded and which site is made of which
(`core.lineage`); why an operation gave what it gave is judged in `core.causes`. A value is *made* where everything that
was recorded of what goes in is finite; elsewhere it has *spread*.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from core.causes import Case, How, how, turning
from core.evidence import Evidence, Making
from core.experiment import Experiment
from core.lineage import LOSS, Place, lineage
from core.rules import is_recurrent
from core.shapes import Shape, dtype_of, shape_of
from core.trace import NonFinite, Snapshot, Trace
from core.vocabulary import EMBED, SITES

CELLS = ("absent", "not_observed", "finite", "made", "spread")
"""What a cell of a map is: the configuration has no such site there; it was not seen; all its entries are finite; some
are not, though all that goes in is; some are not, and neither is something that goes in."""

ORIGINS = ("at_start", "made_here", "from_weights")
"""Step 0: the initialization makes it; a step of training makes it; the weights were not finite before the step."""


@dataclass(frozen=True, eq=False)
class CellMap:
    """What became of every site in one direction: `states` (sites, layers), names in CELLS.

    `sites`, `layers`: rows and columns as in `core.landscape`.
    """

    sites: tuple[str, ...]
    layers: tuple[int, ...]
    states: NDArray[np.str_]

    def state(self, place: Place) -> str:
        """Return the state of a cell."""
        layer, site = place
        return str(self.states[self.sites.index(site), self.layers.index(layer)])

    def places(self, state: str) -> list[Place]:
        """Return the places in this state, site by site."""
        return [(self.layers[column], self.sites[row]) for row, column in np.argwhere(self.states == state).tolist()]


@dataclass(frozen=True)
class History:
    """One place at the recorded steps before: `absmax` and `rms` over the finite entries, NaN where nothing was seen.

    Of a parameter they are NaN and weight_rms, of its gradient NaN and param_grad_norm. `growing_since`: the step from
    which the size (absmax, else rms) grew at every recorded step up to the last one before; None where it did not.
    """

    steps: tuple[int, ...]
    absmax: tuple[float, ...]
    rms: tuple[float, ...]

    @property
    def growing_since(self) -> int | None:
        """The first step of the unbroken growth that ends at the last recorded step before."""
        sizes = self.rms if all(map(math.isnan, self.absmax)) else self.absmax
        since = None
        for step, (before, after) in zip(reversed(self.steps[:-1]), reversed(list(pairwise(sizes))), strict=True):
            if not after > before:
                break
            since = step
        return since


@dataclass(frozen=True)
class Turn:
    """Where an Inf became the first NaN, and how: a code of `core.causes.TURNS`, or unknown."""

    making: Making
    how: str


@dataclass(frozen=True)
class Update:
    """The update that led to these weights: what step − 1 recorded of a parameter's gradient and of its own size."""

    step: int
    grad_norm: float
    grad_total_norm: float
    clip_factor: float
    lr: float


@dataclass(frozen=True, eq=False)
class Autopsy:
    """The first value of a run that is not finite.

    `direction`: weights, forward or gradient; `kind`: nan or inf; `origin`: a name in ORIGINS; `making`: the operation
    that made it, what went in and what came out; `how`: by which mechanism, with its numbers; `shape`: sizes by name;
    `dtype`: of the tensor there. `update`: the update that made weights not finite, None where step − 1 was not
    recorded, or for another direction; `first_read`: then the first site that shows it. `turn`: None unless an Inf was
    made first and a NaN came of it later in the same pass.
    """

    step: int
    layer: int
    site: str
    direction: str
    kind: str
    origin: str
    making: Making
    how: How
    shape: Shape
    dtype: str
    forward: CellMap
    gradient: CellMap
    earlier: History
    turn: Turn | None
    update: Update | None
    first_read: Making | None


def autopsy(trace: Trace, experiment: Experiment) -> Autopsy | None:
    """Return the autopsy of the first step with a value that is not finite; None without one.

    A step that a loss scale overflowed in, whose update was skipped, is none.
    """
    found = next((index for index, snapshot in enumerate(trace.snapshots) if is_case(snapshot)), None)
    return None if found is None else examine(trace, experiment, found)


def examine(trace: Trace, experiment: Experiment, index: int) -> Autopsy | None:
    """Return the autopsy of the recorded step at `index`, an overflow step too; None where all of it is finite.

    None of a recurrent stack, whose operations `core.lineage` does not know.
    """
    snapshot, earlier = trace.snapshots[index], trace.snapshots[:index]
    first = snapshot.non_finite
    if first is None or is_recurrent(experiment):
        return None
    evidence = Evidence(snapshot, experiment.resolved(), lineage(experiment))
    making = _making(first, evidence)
    update = _update(first, earlier)
    return Autopsy(
        first.step, first.layer, first.site, first.direction, first.kind,
        "from_weights" if first.direction == "weights" else "made_here" if first.step else "at_start",
        making, how(Case(first, making, evidence, update_numbers(update))), shape_of(first.site, evidence.experiment),
        dtype_of(first.site, evidence.experiment), _map(evidence, False), _map(evidence, True),
        history(earlier, (first.layer, first.site), first.direction), _turn(first, evidence),
        update, _first_read(evidence) if first.direction == "weights" else None)


def history(snapshots: Sequence[Snapshot], place: Place, direction: str) -> History:
    """Return the size of a place, a parameter or either's gradient at these recorded steps."""
    rows = [_size(snapshot, place, direction) for snapshot in snapshots]
    return History(tuple(snapshot.step for snapshot in snapshots), tuple(row[0] for row in rows),
                   tuple(row[1] for row in rows))


def update_numbers(update: Update | None) -> dict[str, float]:
    """Return the numbers of an update by name; none where it is not known."""
    return {} if update is None else {name: float(value) for name, value in vars(update).items()}


def is_case(snapshot: Snapshot) -> bool:
    """Say whether a step has a value that is not finite, and is no overflow step whose update was skipped."""
    return snapshot.non_finite is not None and snapshot.totals.get("overflow") != 1.0


def _making(first: NonFinite, evidence: Evidence) -> Making:
    place = first.layer, first.site
    if first.direction == "weights":
        return Making((), (), evidence.weights([first.site]), evidence.parameter(place, False))
    if first.direction == "forward":
        return evidence.forward(place)
    known = first.site == LOSS or first.site in SITES
    return evidence.backward(place) if known else evidence.of_parameter(place)


def _first_read(evidence: Evidence) -> Making | None:
    bad = next((place for place in evidence.places if not evidence.measured(place).finite), None)
    return None if bad is None else evidence.forward(bad)


def _turn(first: NonFinite, evidence: Evidence) -> Turn | None:
    """Return where NaN first came of an Inf in the direction in which it was made."""
    if first.kind != "inf" or first.direction == "weights":
        return None
    gradient = first.direction == "gradient"
    order: Iterable[Place] = evidence.places if not gradient else reversed(evidence.places[:-1])
    turned = next((place for place in order if evidence.measured(place, gradient).n_nan > 0), None)
    if turned is None:
        return None
    making = evidence.backward(turned) if gradient else evidence.forward(turned)
    return Turn(making, turning(making))


def _map(evidence: Evidence, gradient: bool) -> CellMap:
    layout = evidence.snapshot.layout
    present = {name for _, name in layout.sites}
    sites = tuple(name for name in SITES if name in present)
    layers = tuple(range(EMBED, layout.n_layers + 1))
    states = np.full((len(sites), len(layers)), "absent", f"<U{max(map(len, CELLS))}")
    for layer, site in layout.sites:
        states[sites.index(site), layer - EMBED] = _cell(evidence, (layer, site), gradient)
    return CellMap(sites, layers, states)


def _cell(evidence: Evidence, place: Place, gradient: bool) -> str:
    measured = evidence.measured(place, gradient)
    if not measured.observed:
        return "not_observed"
    if measured.finite:
        return "finite"
    making = evidence.backward(place) if gradient else evidence.forward(place)
    return "made" if making.inputs_finite and making.weights_finite else "spread"


def _update(first: NonFinite, earlier: Sequence[Snapshot]) -> Update | None:
    if first.direction != "weights" or not earlier or earlier[-1].step != first.step - 1:
        return None
    before, place = earlier[-1], (first.layer, first.site)
    norms = before.parameters.get("param_grad_norm")
    norm = math.nan if norms is None else float(norms[before.layout.parameters.index(place)])
    total, clip, lr = (before.totals.get(name, math.nan) for name in ("grad_total_norm", "clip_factor", "lr"))
    return Update(before.step, norm, total, clip, lr)


def _size(snapshot: Snapshot, place: Place, direction: str) -> tuple[float, float]:
    gradient = direction == "gradient"
    if place in snapshot.layout.parameters:
        row = snapshot.layout.parameters.index(place)
        values = snapshot.parameters.get("param_grad_norm" if gradient else "weight_rms")
        return math.nan, math.nan if values is None else float(values[row])
    if place[1] == LOSS:
        return abs(snapshot.loss), abs(snapshot.loss)
    row, group = snapshot.layout.sites.index(place), snapshot.measured(gradient)
    absmax, rms = (float(group[name][row]) if name in group else math.nan for name in ("absmax", "rms"))
    return absmax, rms

