"""Placements: where the norm stands around a branch, each one expression; and the sublayer it is written in.

A sublayer is an attention or an MLP with what stands around it. It is played by whoever hands it the parts: a block
plays it with tensors (`core.blocks`), a wiring diagram with symbols (`core.wiring`), so both are the same expression.
The file knows the order of the steps; it does not know what a stream is made of, how many layers there are, nor what a
branch computes. No torch here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Generic, TypeVar

X = TypeVar("X")
"""A stream: a tensor (B, T, D), or a symbol."""

V = TypeVar("V")
"""What all sublayers of one pass share; only handed on."""


@dataclass(eq=False)
class Sublayer(Generic[X, V]):
    """One branch f and what stands around it.

    `placement`: the expression; `norms`: the norm in each of its slots; `divide`: of what the norm before the branch
    gives; `dropout`, `scale`: of the branch; `join`: stream and branch → α·x + y, or y alone without a residual; `see`:
    what is shown, by slot, and ``out`` for what is added.
    """

    placement: Placement
    branch_part: Callable[[X, V], X]
    norms: Mapping[str, Callable[[X, V], X]]
    divide: Callable[[X], X]
    dropout: Callable[[X], X]
    scale: Callable[[X], X]
    join: Callable[[X, X], X]
    see: Mapping[str, Callable[[X], X]]

    def __call__(self, x: X, view: V) -> X:
        """Return the stream after this sublayer."""
        y: X = self.placement.wire(x, self, view)
        return y

    def before(self, x: X, view: V) -> X:
        """Return what the branch sees: n(x), divided by √layer with depth scaling."""
        return self.see["before"](self.divide(self.norms["before"](x, view)))

    def branch(self, x: X, view: V) -> X:
        """Return f(x)."""
        return self.branch_part(x, view)

    def inside(self, y: X, view: V) -> X:
        """Return n(y) of the branch's output y."""
        return self.see["inside"](self.norms["inside"](y, view))

    def add(self, x: X, y: X) -> X:
        """Return α·x + s·y, s·y alone without a residual; s·y, dropout applied, is what the site ``…_out`` shows."""
        return self.join(x, self.see["out"](self.scale(self.dropout(y))))

    def after(self, total: X, view: V) -> X:
        """Return n of the sum."""
        return self.norms["after"](self.see["after"](total), view)


@dataclass(frozen=True)
class Slot:
    """One place of a norm: the pattern of its module's name, and of the site that shows it."""

    module: str
    site: str


SLOTS: dict[str, Slot] = {
    "before": Slot("norm{n}", "norm{n}"),
    "inside": Slot("norm{n}_out", "norm{n}_out"),
    "after": Slot("norm{n}", "{part}_sum"),
}
"""Where a placement may put a norm: on the branch's input, on its output, after the sum (its site shows the sum)."""


@dataclass(frozen=True)
class Placement:
    """`wire`: the expression of stream x, sublayer s and view v. Everything else follows from it."""

    wire: Callable[[Any, Sublayer[Any, Any], Any], Any]

    @cached_property
    def slots(self) -> tuple[str, ...]:
        """The norms it uses (before, inside, after), in the order in which they act; found by playing it."""
        used: list[str] = []
        norms = {slot: partial(_noted, used, slot) for slot in SLOTS}
        see = dict.fromkeys((*SLOTS, "out"), _same)
        Sublayer(self, _handed_on, norms, _same, _same, _same, _handed_on, see)(None, None)
        return tuple(used)

    @property
    def final_norm(self) -> bool:
        """Whether the stack ends in a norm unless told otherwise: yes, where the stream leaves a block unnormalized."""
        return "after" not in self.slots

    @property
    def scales_depth(self) -> bool:
        """Whether a norm feeds the branch, so that depth_scaling has something to scale."""
        return "before" in self.slots


def _same(x: X) -> X:
    return x


def _handed_on(x: X, _other: object) -> X:
    return x


def _noted(used: list[str], slot: str, x: X, _view: object) -> X:
    used.append(slot)
    return x


pre = Placement(lambda x, s, v: s.add(x, s.branch(s.before(x, v), v)))
"""α·x + s·f(n(x)) (Xiong et al. 2020, arXiv:2002.04745)."""

post = Placement(lambda x, s, v: s.after(s.add(x, s.branch(x, v)), v))
"""n(α·x + s·f(x)) (Vaswani et al. 2017, arXiv:1706.03762)."""

sandwich = Placement(lambda x, s, v: s.add(x, s.inside(s.branch(s.before(x, v), v), v)))
"""α·x + s·n'(f(n(x))): norms around the branch (Ding et al. 2021, arXiv:2105.13290; Kim et al. 2025, 2502.02732)."""

branch = Placement(lambda x, s, v: s.add(x, s.inside(s.branch(x, v), v)))
"""α·x + s·n(f(x)): the norm on the branch's output alone (Liu et al. 2022, arXiv:2111.09883)."""
