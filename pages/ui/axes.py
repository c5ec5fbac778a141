"""The two axes of a sweep as controls: a field and its values each, held as ``field=value,value`` as links say them.

It knows fields and widgets; it does not know what becomes of the grid.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from core.arguments import assignment, values_of
from core.fields import ExperimentError
from pages.ui import fields
from pages.ui.places import SWEEP
from pages.ui.text import Words

NAMES = ("across", "down")
"""The axes: query parameters of the place, and keys of the session."""

NONE = ""
"""Stands for no field, which the second axis may have."""

SUGGESTED: Mapping[str, tuple[str, ...]] = {
    "model.n_layers": ("2", "4", "8", "16", "32"), "model.d_model": ("32", "64", "128", "256"),
    "model.n_heads": ("1", "2", "4", "8"), "model.init_gain": ("0.5", "1", "1.5", "2"),
    "model.qk_gain": ("0.5", "1", "2", "4", "8"), "model.init_std": ("0.01", "0.02", "0.05", "0.1"),
    "model.embed_std": ("0.02", "0.1", "1", "3"), "model.norm_eps": ("1e-8", "1e-5", "1e-3", "0.1"),
    "input.seq_len": ("16", "64", "256"), "input.batch": ("1", "2", "4", "8"), "protocol.seed": ("0", "1", "2", "3"),
    "protocol.lr": ("1e-4", "1e-3", "1e-2", "1e-1"), "protocol.steps": ("50", "100", "200"),
    "protocol.warmup": ("0", "10", "50"),
}
"""Field of numbers → values that it is often swept over."""


def choose(t: Words) -> None:
    """Draw the controls of both axes; what is chosen stands in the session under NAMES."""
    for name in NAMES:
        path, values = _held(name)
        st.session_state[f"axis.{name}"] = path
        st.session_state[f"axis.{name}.values"] = values
        field, chosen = st.columns([1, 2])
        field.selectbox(t(f"sweep.{name}"), _paths(name), key=f"axis.{name}", on_change=_take_field, args=(name,),
                        format_func=lambda path: fields.label(path, t) if path else t("sweep.no_field"))
        if path in fields.schemas():
            chosen.multiselect(t("sweep.values"), list(dict.fromkeys([*values, *suggested(path)])),
                               key=f"axis.{name}.values", on_change=_take_values, args=(name,), accept_new_options=True,
                               format_func=fields.spoken_value(path.partition(".")[2], t))


def axes() -> dict[str, list[Any]]:
    """Return the fields that are swept over, each with its values. Errors: ExperimentError when both are the same."""
    named = [assignment(text, values_of) for name in NAMES if (text := str(st.session_state[name]))]
    if len(named) > len(dict(named)):
        raise ExperimentError("both axes name the same field; allowed: two fields", "sweep_fields")
    return dict(named)


def suggested(path: str) -> tuple[str, ...]:
    """Return values of a field to choose from; one may type others."""
    if fields.kind(path) == "switch":
        return ("true", "false")
    return tuple(option or "null" for option in fields.options(path)) or SUGGESTED.get(path, ())


def _held(name: str) -> tuple[str, list[str]]:
    """Return the field and the values that an axis has now."""
    text = str(st.session_state[name])
    if not text:
        return NONE, []
    path, values = assignment(text, values_of)
    return path, [value if isinstance(value, str) else json.dumps(value) for value in values]


def _paths(name: str) -> list[str]:
    """Return the fields that an axis may have."""
    there = [path for path in fields.schemas() if path not in SWEEP.withheld and fields.kind(path) != "text"]
    held, _ = _held(name)
    known = there if held in there or not held else [held, *there]
    return [NONE, *known] if name == NAMES[-1] else known


def _take_field(name: str) -> None:
    path = st.session_state[f"axis.{name}"]
    _write(name, path, suggested(path)[:5] if path else ())


def _take_values(name: str) -> None:
    _write(name, _held(name)[0], st.session_state[f"axis.{name}.values"])


def _write(name: str, path: str, values: Sequence[str]) -> None:
    """Hold a field and its values; an axis that would have none keeps its own, a new field has that of the base."""
    if path and not values:
        values = _held(name)[1] if path == _held(name)[0] else [
            json.dumps(fields.value_of(path, st.session_state[path]))]
    st.session_state[name] = f"{path}={','.join(values)}" if path else ""
    st.session_state["cell"] = ""
