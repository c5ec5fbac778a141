"""The tape of theory: products of tokens that remember what they were made of, so that gradients' products flow back.

Gradients' products Γ_ij = E g_i·g_j / width, g = ∂loss/∂x, are to the way back what G_ij = E x_i·x_j / width are to the
way there. Ways that go through independent weights add, for their cross products vanish on average (the weights of the
way back are taken as independent of those of the way there: Yang 2020, arXiv:2006.14548). It knows no layer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]

Pull = Callable[[F64], F64]
"""From the products of what comes back to a result, (T, T), to what of it comes back to one thing it was made of."""


@dataclass(eq=False)
class Tokens:
    """Tokens at one place. `products`: G, (T, T); `sources`: what they were made of; `gradient`: Γ, after `pull_back`.
    """

    products: F64
    sources: Sequence[tuple[Tokens, Pull]] = ()
    gradient: F64 = field(default_factory=lambda: np.zeros(()))

    def times(self, there: float, back: float) -> Tokens:
        """Return tokens whose mean square is `there` times theirs, and whose gradient comes back `back` times."""
        return Tokens(self.products * there, [(self, lambda gradient: gradient * back)])

    def __add__(self, other: Tokens) -> Tokens:
        """Return the sum of two tokens that have nothing in common: of a stream and a branch."""
        return Tokens(self.products + other.products, [(self, _same), (other, _same)])


def pull_back(top: Tokens, gradient: F64) -> None:
    """Give `gradient`, (T, T), to `top`, and to all that it was made of what comes back to it."""
    top.gradient = gradient
    for one in reversed(_in_order(top, {})):
        for source, pull in one.sources:
            source.gradient = source.gradient + pull(one.gradient)


def _in_order(tokens: Tokens, found: dict[int, Tokens]) -> list[Tokens]:
    """Return tokens and all that they were made of, sources first."""
    if id(tokens) not in found:
        for source, _ in tokens.sources:
            _in_order(source, found)
        found[id(tokens)] = tokens
    return list(found.values())


def _same(gradient: F64) -> F64:
    return gradient
