"""The sizes and the dtype of every tensor of a stack, by name, from its description alone: sites, parameters, loss.

Exact, and without torch. Sizes carry the letters of `core.vocabulary`: B batch, T positions, D features, H heads, K
head dimension, F hidden features, V vocabulary; HK and GK: all features of queries, and of keys and values.
"""

from __future__ import annotations

from collections.abc import Callable

from core import rules
from core.experiment import Experiment
from core.formats import FORMATS
from core.plan import plan
from core.tables import NORMS
from core.vocabulary import SITES

Shape = tuple[tuple[str, int], ...]
"""Named sizes, outermost first; empty for a single number."""

LARGEST: dict[str, float] = {name: one.largest for name, one in FORMATS.items()}
"""The largest finite number of each dtype."""

LEAST: dict[str, float] = {name: one.least for name, one in FORMATS.items()}
"""The least positive number of each dtype; what is not above half of it is rounded to 0."""


def sizes(canonical: Experiment) -> dict[str, int]:
    """Return the size behind each letter."""
    model, source = canonical.model, canonical.input
    head_dim = model.head_dim or 0
    return {"B": source.batch, "T": source.seq_len, "D": model.d_model, "H": model.n_heads, "K": head_dim,
            "F": model.d_ff or 0, "V": source.vocab or 0, "HK": model.n_heads * head_dim,
            "GK": (model.n_kv_heads or 0) * head_dim}


def shape_of(name: str, canonical: Experiment) -> Shape:
    """Return the shape of a site, or of a parameter (and its gradient); empty for the loss.

    Errors: KeyError when the stack has no such tensor.
    """
    if name == "loss":
        return ()
    letters = SITES[name].shape if name in SITES else _axes(name, canonical)
    known = sizes(canonical)
    return tuple((letter, known[letter]) for letter in letters.split())


def dtype_of(name: str, canonical: Experiment) -> str:
    """Return the dtype of a tensor: sites are in the compute dtype, all else in float32, or float64 for float64."""
    dtype = canonical.protocol.dtype
    return dtype if name in SITES or dtype == "float64" else "float32"


def _axes(name: str, canonical: Experiment) -> str:
    """Return the letters of a parameter's axes; none for a single number, whose axis has length 1."""
    *path, module, kind = name.split(".")
    if module in _MATRICES:
        out, inputs = _MATRICES[module].split()
        return f"{out} {inputs}" if kind == "weight" else out
    if kind == "alpha":
        return ""
    layer = int(path[1]) if path and path[0] == "layers" else -1
    single = [test for pattern, test in _SINGLE.items() if module.startswith(pattern)]
    if single and kind == "weight" and single[0](canonical, layer):
        return ""
    return _QK_NORMS[canonical.model.qk_norm_scope].get(module, "D")


def _one_gain(canonical: Experiment, layer: int) -> bool:
    name = rules.layer_norms(canonical)[layer] if layer >= 0 else canonical.model.norm
    return bool(NORMS[name].scalars)


_SINGLE: dict[str, Callable[[Experiment, int], bool]] = {
    "norm": _one_gain, "final_norm": _one_gain,
    "scale": lambda canonical, layer: plan(canonical, layer).scale.width == 1,
}
"""A module whose gain may be a single number, and whether it is."""

_MATRICES: dict[str, str] = {
    "token": "V D", "position": "T D", "head": "V D", "q": "HK D", "k": "GK D", "v": "GK D", "o": "D HK",
    "in": "F D", "gate": "F D", "out": "D F",
}
"""Module → the axes of its matrix, (out, in); a bias has the first."""

_QK_NORMS: dict[str, dict[str, str]] = {
    "head": {"q_norm": "K", "k_norm": "K"},
    "full": {"q_norm": "HK", "k_norm": "GK"},
}
"""Scope of QK-norm → what its modules normalize over."""
