"""Where a model can be read: identity modules that cost nothing and change nothing.

A `Site` stands in a ModuleDict named ``sites``: ``sites.embed``, ``layers.3.sites.resid_post``. Its path says layer and
name, which is how the recorder finds it. This file does not know what is recorded.
"""

from __future__ import annotations

import re
from typing import TypeVar

import torch
from torch import Tensor, nn

from core.vocabulary import EMBED, SITES

_PATH = re.compile(r"(?:layers\.(?P<layer>\d+)\.)?sites\.(?P<name>\w+)")


Shown = TypeVar("Shown", Tensor, tuple[Tensor, ...])


class Site(nn.Module):
    """The identity: returns the very tensor it was given, or the very time steps.

    A recurrent layer makes each time step of a site on its own: it shows them together, T tensors (B, D).
    """

    def forward(self, x: Shown) -> Shown:
        """Return `x` itself."""
        return x


class Heads(nn.Module):
    """The place where an attention shows its queries and keys, so that per-head measures need no T×T tensor.

    `scale` multiplies q·k; `softcap` c, or None, turns a score into c·tanh(score/c); `pattern` is a name in PATTERNS;
    `causal` hides later keys; `scores_in` is the dtype in which the attention holds its scores, where it writes them
    out: what overflows there has overflowed in the run.
    """

    def __init__(self, scale: float, softcap: float | None, pattern: str, causal: bool,
                 scores_in: torch.dtype | None = None) -> None:
        super().__init__()
        self.scale, self.softcap, self.pattern, self.causal = scale, softcap, pattern, causal
        self.scores_in = scores_in

    def forward(self, q: Tensor, k: Tensor, mask: Tensor | None) -> None:
        """Do nothing with q and k (B, H, T, K; k repeated over the heads) and mask (B, T), true at real tokens."""


def sites_of(model: nn.Module, n_layers: int) -> dict[tuple[int, str], Site]:
    """Return every site of `model` by (layer, name), in the order in which a forward pass meets them."""
    found = {}
    for path, module in model.named_modules():
        if isinstance(module, Site) and (match := _PATH.fullmatch(path)):
            outside = EMBED if SITES[match["name"]].where == "embed" else n_layers
            found[(int(match["layer"]) if match["layer"] else outside, match["name"])] = module
    order = {name: position for position, name in enumerate(SITES)}
    return dict(sorted(found.items(), key=lambda item: (item[0][0], order[item[0][1]])))
