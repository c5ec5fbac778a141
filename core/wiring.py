"""The wiring of a stack as a small graph: what stands where in a block, which sites are read there, and its formulas.

A block's graph is made by playing the block's own expression (`core.plan.play`, `core.placements`) with symbols, from
the plan that the block itself is built from; its formula is the graph read back. So the picture, the formula and the
model cannot disagree, and a new placement has its picture by itself. Codes and numbers leave this file, not sentences.
No torch here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from core import rules
from core.experiment import Experiment
from core.placements import SLOTS, Sublayer
from core.plan import PARTS, Part, Plan, plan, play
from core.tables import ADDED_POSITIONS, GATED_ACTIVATIONS, TURNED_POSITIONS, VECTOR_SOURCES

X = TypeVar("X")

KINDS = ("tokens", "vectors", "positions", "stream", "norm", "divide", "attention", "mlp", "dropout", "scale",
         "learned_scale", "add", "head", "softcap")
"""What a node can be."""


@dataclass(frozen=True)
class Node:
    """One step.

    `name`: the module's name where it is one; `inputs`: names of nodes, of an add the stream first, then the branch;
    `sites`: those that show what it gives; `inside`: those in it; `parameters`: codes and numbers, by kind.
    """

    name: str
    kind: str
    inputs: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()
    inside: tuple[str, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Edge:
    """From node to node; `residual`: along the stream, past a branch."""

    source: str
    target: str
    residual: bool = False


@dataclass(frozen=True)
class Wiring:
    """The `layers` of a stack of `depth` that are wired alike: what stands before the blocks, one block, what follows.

    `nodes` starts with the stream that comes in; every other node comes after its inputs.
    """

    layers: tuple[int, ...]
    depth: int
    before: tuple[Node, ...]
    nodes: tuple[Node, ...]
    after: tuple[Node, ...]

    @property
    def edges(self) -> tuple[Edge, ...]:
        """The block's edges, in the order of their targets."""
        return tuple(Edge(source, node.name, node.kind == "add" and place == 0)
                     for node in self.nodes for place, source in enumerate(node.inputs))

    @property
    def output(self) -> Node:
        """The node that gives the stream that leaves the block."""
        return next(node for node in self.nodes if "resid_post" in node.sites)

    def sites(self) -> frozenset[str]:
        """Return the names of the sites that the block has."""
        return frozenset(site for node in self.nodes for site in (*node.sites, *node.inside))


def wiring(experiment: Experiment, layer: int) -> Wiring:
    """Return the wiring of one layer, counted from 0, and of what stands around the blocks.

    Errors: ValueError for a recurrent stack, whose layers are no blocks.
    """
    if rules.is_recurrent(experiment):
        raise ValueError(f"model.family is {experiment.model.family}, whose layers are no blocks; allowed: transformer")
    canonical = experiment.resolved()
    return Wiring((layer,), canonical.model.n_layers, _chain(_before(canonical)), _block(canonical, layer),
                  _chain(_after(canonical)))


def wirings(experiment: Experiment) -> tuple[Wiring, ...]:
    """Return a wiring for each group of layers that are wired alike but for the divisor of depth_scaling.

    A group shows its last layer, which has a divisor if any of the group has.
    """
    groups: dict[str, list[int]] = {}
    for layer, norm in enumerate(rules.layer_norms(experiment)):
        groups.setdefault(norm, []).append(layer)
    return tuple(replace(wiring(experiment, layers[-1]), layers=tuple(layers)) for layers in groups.values())


def follow(nodes: Sequence[Node], step: Callable[[Node, Sequence[X]], X], start: X) -> dict[str, X]:
    """Return what every node gives, by name, when `start` comes in and `step` says what a node makes of its inputs."""
    given: dict[str, X] = {}
    for node in nodes:
        inputs = [given[name] for name in node.inputs] or [start]
        given[node.name] = start if node.kind == "stream" else step(node, inputs)
    return given


class _Board:
    """Where the symbols of a block, which are names of nodes, become a graph."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}

    def put(self, node: Node, *inputs: str) -> str:
        """Add a node and return its symbol."""
        self.nodes[node.name] = replace(node, inputs=inputs)
        return node.name

    def show(self, site: str, x: str) -> str:
        """Note that a site shows `x`."""
        self.nodes[x] = replace(self.nodes[x], sites=(*self.nodes[x].sites, site))
        return x

    def step(self, node: Node | None, x: str, _view: object = None) -> str:
        """Return what `node` gives of `x`, `x` itself where there is no node."""
        return x if node is None else self.put(node, x)

    def join(self, node: Node | None, x: str, y: str) -> str:
        """Return the sum of stream x and branch y, y itself where there is no sum."""
        return y if node is None else self.put(node, x, y)


def _block(experiment: Experiment, layer: int) -> tuple[Node, ...]:
    """Return the nodes of one block, by playing it with symbols."""
    planned, board = plan(experiment, layer), _Board()
    see: dict[str, Callable[[str], str]] = {
        site: partial(board.show, site) if site in planned.sites else str for site in _all_sites()}
    sublayers: dict[str, Callable[[str, None], str]] = {
        name: _sublayer(part, planned, experiment, board, see) if name in planned.parts else _skip
        for name, part in PARTS.items()}
    play(board.put(Node("stream", "stream")), None, sublayers, see)
    return tuple(board.nodes.values())


def _skip(x: str, _view: None) -> str:
    return x


def _all_sites() -> Iterator[str]:
    yield from ("resid_pre", "resid_post")
    for part in PARTS.values():
        yield from part.behind
        yield from (part.named(slot.site) for slot in SLOTS.values())


def _sublayer(part: Part, planned: Plan, experiment: Experiment, board: _Board,
              see: Mapping[str, Callable[[str], str]]) -> Sublayer[str, None]:
    """Return one sublayer that puts nodes on the board."""
    about = _norm(experiment, planned.norm)
    norms = {slot: partial(board.step, Node(part.named(SLOTS[slot].module), "norm", parameters=about)
                           if planned.has_norm else None) for slot in planned.placement.slots}
    kind, parameters = BRANCHES[part.name]
    branch = Node(part.name, kind, inside=part.inside, parameters=parameters(experiment))
    rate = _dropout(experiment)
    steps = {
        "divide": Node(part.named("divide{n}"), "divide", parameters={"layer": planned.layer, "by": planned.divisor})
        if planned.divisor != 1.0 else None,
        "dropout": Node(part.named("dropout{n}"), "dropout", parameters={"rate": rate}) if rate else None,
        "scale": _scale(part, planned),
    }
    add = None if planned.alpha is None else Node(part.named("add{n}"), "add", parameters={"alpha": planned.alpha})
    return Sublayer(planned.placement, partial(board.step, branch), norms, partial(board.step, steps["divide"]),
                    partial(board.step, steps["dropout"]), partial(board.step, steps["scale"]),
                    partial(board.join, add), {shown: see[site] for shown, site in planned.sees(part).items()})


def _scale(part: Part, planned: Plan) -> Node | None:
    name, scale = part.named("scale{n}"), planned.scale
    if scale.width:
        return Node(name, "learned_scale", parameters={"value": scale.value, "width": scale.width})
    return Node(name, "scale", parameters={"value": scale.value}) if scale.value != 1.0 else None


def _dropout(experiment: Experiment) -> float:
    """Return the rate of dropout in the experiment's mode."""
    return experiment.model.dropout if experiment.protocol.mode == "train" else 0.0


def _norm(experiment: Experiment, norm: str, over: str = "D") -> dict[str, Any]:
    """Return the parameters of a norm over D features: its precision and the order of its cast are among them."""
    model, dtype = experiment.model, experiment.protocol.dtype
    wide = dtype if model.norm_dtype == "compute" or dtype == "float64" else "float32"
    return {"norm": norm, "eps": model.norm_eps, "affine": model.norm_affine, "dtype": dtype, "wide": wide,
            "cast": model.norm_cast, "groups": model.norm_groups, "padding": model.bn_padding,
            "training": experiment.protocol.mode == "train", "over": over}


def _attention(experiment: Experiment) -> dict[str, Any]:
    model = experiment.model
    return {"heads": model.n_heads, "kv_heads": model.n_kv_heads, "head_dim": model.head_dim, "causal": model.causal,
            "scale": model.attention_scale, "softcap": model.attn_softcap, "pattern": model.pattern,
            "qk_norm": _norm(experiment, model.qk_norm, {"head": "K", "full": "H·K"}[model.qk_norm_scope]),
            "rotary": model.positions in TURNED_POSITIONS, "bias": model.bias, "dropout": _dropout(experiment)}


def _mlp(experiment: Experiment) -> dict[str, Any]:
    model = experiment.model
    return {"activation": model.activation, "gated": model.activation in GATED_ACTIVATIONS, "d_ff": model.d_ff,
            "bias": model.bias}


BRANCHES: dict[str, tuple[str, Callable[[Experiment], dict[str, Any]]]] = {
    "attn": ("attention", _attention), "mlp": ("mlp", _mlp),
}
"""Part → the kind of its branch's node, and what says its parameters."""


def _chain(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Return nodes one after another, each fed by the one before."""
    return tuple(replace(node, inputs=(nodes[place - 1].name,) if place else ()) for place, node in enumerate(nodes))


def _before(experiment: Experiment) -> list[Node]:
    """Return what stands before layer 0; the last node gives the site ``embed``."""
    model = experiment.model
    if experiment.input.source in VECTOR_SOURCES:
        return [Node("embed", "vectors", sites=("embed",), parameters={"source": experiment.input.source})]
    nodes = [Node("token", "tokens", parameters={"vocab": experiment.input.vocab})]
    if model.embed_scale not in (None, 1.0):
        nodes.append(Node("embed_scale", "scale", parameters={"value": model.embed_scale}))
    if model.positions in ADDED_POSITIONS:
        nodes.append(Node("position", "positions", parameters={"positions": model.positions}))
    if model.embed_norm:
        nodes.append(Node("embed_norm", "norm", parameters=_norm(experiment, model.norm)))
    return [*nodes[:-1], replace(nodes[-1], sites=("embed",))]


def _after(experiment: Experiment) -> list[Node]:
    """Return what stands after the last layer."""
    model, nodes = experiment.model, []
    if model.final_norm:
        nodes.append(Node("final_norm", "norm", sites=("final_norm",), parameters=_norm(experiment, model.norm)))
    if experiment.input.source in VECTOR_SOURCES:
        return nodes
    head = Node("head", "head", sites=("logits",), parameters={"tied": model.tie_embeddings})
    if model.final_softcap is None:
        return [*nodes, head]
    cap = Node("final_softcap", "softcap", sites=("logits",), parameters={"cap": model.final_softcap})
    return [*nodes, replace(head, sites=()), cap]
