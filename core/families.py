"""The families of stacks: what a layer of each is made of, and which fields of a model have no effect on it.

Each family is an entry of `core.tables.FAMILIES`. The file knows names and sizes; it does not know what a layer
computes. No torch here.

Shapes: D = d_model, the width of a layer's input and of its state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Family:
    """One family. `factory`: import path of the class of one layer.

    Of a recurrent one: `gates`: modules that hold a matrix W_x and a matrix W_h, (D, D), and a bias, (D,); `states`:
    what a time step hands to the next, the layer's output last; `norms`: module → its width in units of D; `biases`:
    how many of (D,) there are; `unused`: field of the model → what it is in canonical form, whatever it says.
    """

    factory: str
    gates: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    norms: Mapping[str, int] = field(default_factory=lambda: _NOTHING)
    biases: int = 0
    unused: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)

    @property
    def recurrent(self) -> bool:
        """Whether its layers read one time step after another, and have neither attention nor branches."""
        return bool(self.states)

    @property
    def steps(self) -> tuple[str, ...]:
        """The sites of a layer that are made time step by time step, in the order in which one makes them."""
        return (*self.gates, *self.states)


_UNUSED: Mapping[str, Any] = MappingProxyType({
    "n_heads": 4, "head_dim": None, "n_kv_heads": None, "d_ff": None, "activation": "gelu", "placement": "pre",
    "bn_padding": "masked", "bn_momentum": 0.1, "residual": False, "residual_alpha": 1.0, "branch_scale": 1.0,
    "layerscale_init": 0.1, "depth_scaling": "none", "qk_gain": 1.0, "value_gain": 1.0, "output_gain": 1.0,
    "pos_std": 0.02, "sublayers": "both", "pattern": "softmax", "attention_scale": None, "qk_norm": "none",
    "qk_norm_scope": "head", "attn_softcap": None, "positions": "none", "rope_theta": 10000.0,
})
"""What speaks of attention, of the MLP, of branches and their stream, and of positions, which time itself gives."""

transformer = Family("core.blocks:Block")

lstm = Family("core.recurrent:Lstm", ("gate_i", "gate_f", "gate_g", "gate_o"), ("cell", "hidden"),
              MappingProxyType({"norm_x": 4, "norm_h": 4, "norm_cell": 1}), 4, _UNUSED)
"""The norms: of the products of all four gates together, W_x x and W_h h apart, and of the cell's state where it is
read (Hochreiter, Schmidhuber 1997; norms as in Ba, Kiros, Hinton 2016, arXiv:1607.06450)."""

gru = Family("core.recurrent:Gru", ("gate_r", "gate_z", "gate_n"), ("hidden",),
             MappingProxyType({"norm_x": 2, "norm_h": 2, "norm_x_candidate": 1, "norm_h_candidate": 1}), 4, _UNUSED)
"""The norms: of the products of both gates together and of the candidate's (Cho et al. 2014, arXiv:1406.1078; norms as
in Ba, Kiros, Hinton 2016). The candidate has a bias on each of its two products."""
