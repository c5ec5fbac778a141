"""Placements: where the norm stands around a branch, each one expression; and the sublayer it is written in.

A sublayer is an attention or an MLP with what stands around it. It knows norms, scales and sites as modules handed to
it; it does not know how many layers there are, nor what its branch computes.

Shapes: every tensor is (B, T, D).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from core.attentions import View


@dataclass(frozen=True)
class Placement:
    """`wire`: the expression of stream x, sublayer s and view v; `slots`: the norms it uses (before, inside, after)."""

    slots: tuple[str, ...]
    wire: Callable[[Tensor, Sublayer, View], Tensor]


@dataclass(eq=False)
class Sublayer:
    """One branch f and what stands around it.

    `norms`: the norm in each of the placement's slots; `divisor`: of the output of the norm before the branch;
    `dropout`, `scale`: of the branch; `alpha`: of the stream, None without a residual; `see`: the sites, by what is
    shown there (before, inside, out, after).
    """

    placement: Placement
    branch_module: nn.Module
    norms: Mapping[str, nn.Module]
    divisor: float
    dropout: nn.Module
    scale: nn.Module
    alpha: float | None
    see: Mapping[str, nn.Module]

    def __call__(self, x: Tensor, view: View) -> Tensor:
        """Return the stream after this sublayer."""
        return self.placement.wire(x, self, view)

    def before(self, x: Tensor, view: View) -> Tensor:
        """Return what the branch sees: n(x), divided by √layer with depth scaling."""
        y = self.norms["before"](x, view.mask)
        shown: Tensor = self.see["before"](y if self.divisor == 1.0 else y / self.divisor)
        return shown

    def branch(self, x: Tensor, view: View) -> Tensor:
        """Return f(x)."""
        y: Tensor = self.branch_module(x, view)
        return y

    def inside(self, y: Tensor, view: View) -> Tensor:
        """Return n(y) of the branch's output y."""
        shown: Tensor = self.see["inside"](self.norms["inside"](y, view.mask))
        return shown

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """Return α·x + s·y, s·y alone without a residual; s·y, dropout applied, is what the site ``…_out`` shows."""
        added: Tensor = self.see["out"](self.scale(self.dropout(y)))
        return added if self.alpha is None else torch.add(added, x, alpha=self.alpha)

    def after(self, total: Tensor, view: View) -> Tensor:
        """Return n of the sum."""
        y: Tensor = self.norms["after"](self.see["after"](total), view.mask)
        return y


pre = Placement(("before",), lambda x, s, v: s.add(x, s.branch(s.before(x, v), v)))
"""α·x + s·f(n(x)) (Xiong et al. 2020, arXiv:2002.04745)."""

post = Placement(("after",), lambda x, s, v: s.after(s.add(x, s.branch(x, v)), v))
"""n(α·x + s·f(x)) (Vaswani et al. 2017, arXiv:1706.03762)."""

sandwich = Placement(("before", "inside"), lambda x, s, v: s.add(x, s.inside(s.branch(s.before(x, v), v), v)))
"""α·x + s·n'(f(n(x))): norms around the branch (Ding et al. 2021, arXiv:2105.13290; Kim et al. 2025, 2502.02732)."""

branch = Placement(("inside",), lambda x, s, v: s.add(x, s.inside(s.branch(x, v), v)))
"""α·x + s·n(f(x)): the norm on the branch's output alone (Liu et al. 2022, arXiv:2111.09883)."""
