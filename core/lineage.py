"""Which tensor is made of which: for every site of a stack, the operation that makes it, its inputs and its parameters.

It is read off the wiring (`core.wiring`), which is the block's own expression played with symbols, so a new placement
has its lineage by itself; only what an attention and an MLP do inside is written here. The file knows names; it does
not know what a step has shown.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from core.experiment import Experiment
from core.plan import PARTS
from core.vocabulary import EMBED
from core.wiring import Node, wiring

Place = tuple[int, str]
"""A layer and a site in it, as in `core.trace.Layout.sites`; or n_layers and LOSS."""

LOSS = "loss"

STEPS = ("tokens", "vectors", "positions", "projection", "qk_norm", "turn", "scores", "softcap", "pattern", "mix",
         "activation", "gate", "norm", "divide", "dropout", "scale", "learned_scale", "add", "head", "loss")
"""What a step can be, in the order in which a stack takes them. projection: x·Wᵀ + b; turn: rotary positions; scores:
q·k·scale; pattern: the weights of the keys; mix: pattern·v; gate: the product of a gated activation."""


@dataclass(frozen=True)
class Step:
    """One step of arithmetic. `kind`: a name in STEPS; `node`: of the wiring, where it is taken.

    `reads`: what the names of its parameters start with; `about`: codes and numbers, by kind, as in a wiring's node.
    """

    kind: str
    node: str
    reads: tuple[str, ...] = ()
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Operation:
    """What makes the tensor at `output` of those at `inputs`: its `steps` one after another, none for the very tensor.

    `node`: the name of the wiring's node that shows it; `kind`: that of its first step; "same" for the very tensor,
    attention or mlp where sites that would show what is inside were not observed.
    """

    output: Place
    node: str
    kind: str
    inputs: tuple[Place, ...]
    steps: tuple[Step, ...]

    @property
    def reads(self) -> tuple[str, ...]:
        """What the names of its parameters start with."""
        return tuple(prefix for step in self.steps for prefix in step.reads)


@dataclass(frozen=True)
class Lineage:
    """The operations of a stack by what they make, in the order of the forward pass; the last one makes the loss."""

    operations: Mapping[Place, Operation]

    @cached_property
    def users(self) -> Mapping[Place, tuple[Operation, ...]]:
        """The operations that carry a place to the loss, in forward order: its gradient comes through them."""
        found: dict[Place, tuple[Operation, ...]] = {}
        for operation in reversed(list(self.operations.values())):
            if operation.output in found or operation.output[1] == LOSS:
                for place in operation.inputs:
                    found[place] = (operation, *found.get(place, ()))
        return found

    def maker(self, place: Place, seen: Collection[Place]) -> Operation:
        """Return what makes `place` of places in `seen`: through those that were not seen, back to some that were."""
        own = self.operations[place]
        met, inputs = self._walk([own], seen, lambda operation: [
            (before, [self.operations[before]]) for before in operation.inputs])
        branches = [_KINDS[operation.node] for operation in met if operation.node in _KINDS]
        kind = branches[0] if branches and len(met) > 1 else own.kind
        steps = [step for operation in met for step in operation.steps]
        return Operation(place, own.node, kind, tuple(inputs), tuple(steps))

    @cached_property
    def _order(self) -> Mapping[Place, int]:
        return {place: number for number, place in enumerate(self.operations)}

    def followers(self, place: Place, seen: Collection[Place]) -> tuple[list[Operation], list[Place]]:
        """Return the operations that the gradient of `place` comes through, and the places in `seen` it comes from."""
        return self._walk(self.users.get(place, ()), seen, lambda operation: [
            (operation.output, self.users.get(operation.output, ()))])

    def _walk(self, start: Iterable[Operation], seen: Collection[Place],
              onward: Callable[[Operation], Iterable[tuple[Place, Iterable[Operation]]]],
              ) -> tuple[list[Operation], list[Place]]:
        """Follow operations past places that were not seen; return them in forward order, and where it ended."""
        waiting, met, ends = list(start), dict[Place, Operation](), dict[Place, None]()
        while waiting:
            operation = waiting.pop(0)
            met[operation.output] = operation
            for place, following in onward(operation):
                if place in seen:
                    ends[place] = None
                else:
                    waiting += [other for other in following if other.output not in met]
        return sorted(met.values(), key=lambda one: self._order[one.output]), sorted(ends, key=self._order.__getitem__)

    def readers(self, parameter: str) -> list[Operation]:
        """Return the operations that use the parameter of this name."""
        return [operation for operation in self.operations.values()
                if any(parameter.startswith(prefix) for prefix in operation.reads)]


def lineage(experiment: Experiment) -> Lineage:
    """Return the lineage of every site that the experiment's stack has, and of the loss."""
    canonical, found = experiment.resolved(), _Found()
    depth = canonical.model.n_layers
    around = wiring(experiment, 0)
    place = found.follow(around.before, EMBED, None, "embed.")
    for layer in range(depth):
        place = found.follow(wiring(experiment, layer).nodes, layer, place, f"layers.{layer}.")
    place = found.follow(around.after, depth, place, "")
    if canonical.protocol.loss == "projection" and (depth, "logits") in found.operations:
        place = found.operations[depth, "logits"].inputs[0]  # the loss reads what the head reads
    found.note((depth, LOSS), LOSS, (place,), (Step(LOSS, LOSS, about={"loss": canonical.protocol.loss}),))
    return Lineage(found.operations)


_Track = tuple[tuple[Place, ...], tuple[Step, ...]]
"""The last places that were shown, and the steps since."""


class _Found:
    """The operations that were met so far."""

    def __init__(self) -> None:
        self.operations: dict[Place, Operation] = {}

    def note(self, output: Place, node: str, inputs: Sequence[Place], steps: Sequence[Step]) -> _Track:
        """Note what is shown at `output`; what follows is made of it alone."""
        kind = steps[0].kind if steps else "same"
        self.operations[output] = Operation(output, node, kind, tuple(inputs), tuple(steps))
        return (output,), ()

    def follow(self, nodes: Sequence[Node], layer: int, start: Place | None, prefix: str) -> Place:
        """Follow the nodes from the place that comes in; return the place that goes out."""
        entry: _Track = ((start,) if start else (), ())
        given: dict[str, _Track] = {}
        last = entry
        for node in nodes:
            tracks = [given[name] for name in node.inputs] or [entry]
            places = tuple(dict.fromkeys(place for track in tracks for place in track[0]))
            last = _inside(node, self, layer, prefix)((places, tuple(step for track in tracks for step in track[1])))
            for site in node.sites:
                last = self.note((layer, site), node.name, *last)
            given[node.name] = last
        (place,) = last[0] or (start,)
        assert place is not None
        return place


def _inside(node: Node, found: _Found, layer: int, prefix: str) -> Callable[[_Track], _Track]:
    """Return what notes the sites inside a node and adds its steps to a track."""
    if node.kind in _BRANCHES:
        return lambda track: _BRANCHES[node.kind](_Branch(node, found, layer, f"{prefix}{node.name}."), track)
    return lambda track: (track[0], (*track[1], *_steps(node, prefix)))


def _steps(node: Node, prefix: str) -> Iterator[Step]:
    if node.kind != "stream":
        tied = node.kind == "head" and node.parameters["tied"]
        name = "embed.token." if tied else f"{prefix}{node.name.removeprefix('embed_')}."
        yield Step(node.kind, node.name, (name,), node.parameters)


@dataclass(frozen=True)
class _Branch:
    """An attention or an MLP whose inside is being noted."""

    node: Node
    found: _Found
    layer: int
    prefix: str

    def projection(self, name: str, width: str) -> Step:
        return self.step("projection", name, {"width": width})

    def step(self, kind: str, module: str = "", about: Mapping[str, Any] | None = None) -> Step:
        reads = (f"{self.prefix}{module}.",) if module else ()
        return Step(kind, self.node.name, reads, self.node.parameters if about is None else about)

    def note(self, site: str, inputs: Sequence[Place], *steps: Step) -> Place:
        self.found.note((self.layer, site), self.node.name, inputs, steps)
        return self.layer, site


def _attention(branch: _Branch, track: _Track) -> _Track:
    """Note q, k, v, the scores and the pattern; what goes on is made of the pattern and v."""
    about, (places, before) = branch.node.parameters, track
    turn = (branch.step("turn"),) if about["rotary"] else ()
    turned = {}
    for name in ("q", "k"):
        norm = (branch.step("qk_norm", f"{name}_norm", about["qk_norm"]),)
        normed = norm if about["qk_norm"]["norm"] != "none" else ()
        turned[name] = branch.note(name, places, *before, branch.projection(name, "D"), *normed, *turn)
    v = branch.note("v", places, *before, branch.projection("v", "D"))
    scores = branch.note("attn_scores", (turned["q"], turned["k"]), branch.step("scores"))
    cap = (branch.step("softcap", about={"cap": about["softcap"]}),) if about["softcap"] is not None else ()
    reads = (scores,) if about["pattern"] == "softmax" else ()  # any other pattern is a constant
    pattern = branch.note("attn_pattern", reads, *(cap if reads else ()), branch.step("pattern"))
    return (pattern, v), (branch.step("mix"), branch.projection("o", "HK"))


def _mlp(branch: _Branch, track: _Track) -> _Track:
    """Note both sides of the nonlinearity; the product of a gated one reads what comes in a second time."""
    (places, before), gated = track, branch.node.parameters["gated"]
    pre = branch.note("mlp_pre", places, *before, branch.projection("gate" if gated else "in", "D"))
    second = (*before, branch.projection("in", "D"), branch.step("gate")) if gated else ()
    act = branch.note("mlp_act", (pre, *places) if gated else (pre,), branch.step("activation"), *second)
    return (act,), (branch.projection("out", "F"),)


_BRANCHES: dict[str, Callable[[_Branch, _Track], _Track]] = {"attention": _attention, "mlp": _mlp}

_KINDS = {name: kind for name, kind in zip(PARTS, _BRANCHES, strict=True)}
