"""The tables of names: what an experiment may say, and where the code behind each name stands.

An entry is the import path of its factory, ``module:attribute``, so that names can be listed, validated and drawn as
menus without importing torch; `load` fetches the factory when a model is really built. A placement and an init need no
torch: their entries are the expressions themselves. This file does not know what a factory does. A new entry here
appears in every menu, in the JSON Schema and in the tests by itself; its words are in ``assets/text``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from core import families, init_scales, placements
from core.families import Family
from core.init_scales import Init
from core.placements import Placement


@dataclass(frozen=True)
class Norm:
    """One norm: where its class stands, and how many parameters it learns over D features (for the cost estimate).

    `vectors` of D entries and `scalars` when it is affine, `always` single numbers in any case; `absent`: it is the
    identity, a layer with it has no norm; `over_tokens`: its statistics are taken over several tokens.
    """

    factory: str
    vectors: int = 0
    scalars: int = 0
    always: int = 0
    absent: bool = False
    over_tokens: bool = False


FAMILIES: dict[str, Family] = {
    "transformer": families.transformer,
    "lstm": families.lstm,
    "gru": families.gru,
}

NORMS: dict[str, Norm] = {
    "layernorm": Norm("core.norms:LayerNorm", vectors=2),
    "none": Norm("core.norms:NoNorm", absent=True),
    "rmsnorm": Norm("core.norms:RMSNorm", vectors=1),
    "batchnorm": Norm("core.norms:BatchNorm", vectors=2, over_tokens=True),
    "groupnorm": Norm("core.norms:GroupNorm", vectors=2),
    "scalenorm": Norm("core.norms:ScaleNorm", scalars=1),
    "dyt": Norm("core.norms:DyT", vectors=2, always=1),
    "layernorm_std_eps": Norm("core.norms:LayerNormStdEps", vectors=2),
    "layernorm_unbiased": Norm("core.norms:LayerNormUnbiased", vectors=2),
}

PLACEMENTS: dict[str, Placement] = {
    "pre": placements.pre,
    "post": placements.post,
    "sandwich": placements.sandwich,
    "branch": placements.branch,
}
"""The entries are the things themselves: a placement is an expression that needs no torch, and so is an init."""

ACTIVATIONS: dict[str, str] = {
    "gelu": "core.activations:gelu",
    "gelu_tanh": "core.activations:gelu_tanh",
    "relu": "core.activations:relu",
    "silu": "core.activations:silu",
    "tanh": "core.activations:tanh",
    "identity": "core.activations:identity",
    "swiglu": "core.activations:silu",
    "geglu": "core.activations:gelu",
    "reglu": "core.activations:relu",
}

GATED_ACTIVATIONS = frozenset({"swiglu", "geglu", "reglu"})

INITS: dict[str, Init] = {
    "xavier": Init(init_scales.xavier),
    "normal": Init(init_scales.normal),
    "lecun": Init(init_scales.lecun),
    "kaiming": Init(init_scales.kaiming),
    "torch_default": Init(init_scales.torch_default),
    "orthogonal": Init(init_scales.orthogonal, "core.inits:orthogonal"),
    "gpt2": Init(init_scales.gpt2, of_branches=True),
    "deepnorm": Init(init_scales.deepnorm, of_branches=True),
}

PATTERNS: dict[str, str] = {
    "softmax": "core.attentions:softmax_pattern",
    "uniform": "core.attentions:uniform_pattern",
    "identity": "core.attentions:identity_pattern",
}

POSITIONS: dict[str, str] = {
    "learned": "core.positions:Learned",
    "none": "core.positions:NoPositions",
    "sinusoidal": "core.positions:Sinusoidal",
    "rotary": "core.positions:Rotary",
}

ADDED_POSITIONS = frozenset({"learned", "sinusoidal"})
TURNED_POSITIONS = frozenset({"rotary"})

QK_NORMS: dict[str, Norm] = {name: NORMS[name] for name in ("none", "rmsnorm", "layernorm")}

SOURCES: dict[str, str] = {
    "text": "core.corpus:text",
    "gaussian": "core.corpus:gaussian",
    "scaled": "core.corpus:scaled",
    "tokens": "core.corpus:tokens",
    "markov": "core.corpus:markov",
}

OPTIMIZERS: dict[str, str] = {
    "adamw": "core.optimizers:adamw",
    "sgd": "core.optimizers:sgd",
    "adam": "core.optimizers:adam",
}

VECTOR_SOURCES = frozenset({"gaussian", "scaled"})


def load(table: Mapping[str, str] | Mapping[str, Norm] | Mapping[str, Family], name: str) -> Any:
    """Return the factory that `table` names `name`.

    Errors: KeyError when the table has no such entry.
    """
    entry = table[name]
    return fetch(entry if isinstance(entry, str) else entry.factory)


def fetch(path: str) -> Any:
    """Return what stands at an import path, ``module:attribute``."""
    module, attribute = path.split(":")
    return getattr(import_module(module), attribute)
