"""The experiment's fields as widgets and as words: made from its JSON Schema, so a new field needs no line here.

A widget holds names, switches and numbers as they are, and everything else as a line of text that is read as JSON. A
change is written as a code, ``norm=none``; `spoken` says it in the visitor's language.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import streamlit as st

from core.experiment import Experiment, json_schema
from core.rules import TEXT_HASH
from pages.ui.text import Words

STEPS: dict[str, float] = {"protocol.lr": 0.001, "model.norm_eps": 1e-5, "model.init_std": 0.01}
"""By how much the buttons of a number change it, where that is not 0.1."""

AUTO = ""
"""What a widget holds for null."""

Schema = Mapping[str, Any]


@cache
def schemas() -> Mapping[str, Schema]:
    """Return the JSON Schema of every field, by its dotted path."""
    whole = json_schema()
    parts = {part: whole["$defs"][part.capitalize()]["properties"] for part in Experiment.model_fields}
    return {f"{part}.{name}": field for part, fields in parts.items() for name, field in fields.items()}


@cache
def paths() -> Mapping[str, str]:
    """Return field name → dotted path; names are unique over the parts."""
    return {path.partition(".")[2]: path for path in schemas()}


def widget(path: str, t: Words) -> None:
    """Draw the widget of one field; its key is the path."""
    name = path.partition(".")[2]
    _DRAW[kind(path)](path, t, t(f"field.{name}"), t(f"help.{name}"))


def label(path: str, t: Words) -> str:
    """Return what a visitor reads as the name of a field; what is no field is said as it is."""
    key = f"field.{path.partition('.')[2]}"
    return t(key) if key in t else path


def kind(path: str) -> str:
    """Return how a field is asked for: menu, switch, number, text or line."""
    schema = schemas()[path]
    if options(path):
        return "menu"
    if path == "input.text":
        return "text"
    return {"boolean": "switch", "integer": "number", "number": "number"}.get(schema.get("type", ""), "line")


def options(path: str) -> list[str]:
    """Return the names a field may have; AUTO stands for null. Empty when it takes anything but names."""
    found: list[str] = []
    for schema in schemas()[path].get("anyOf", [schemas()[path]]):
        names = _NAMES.get(schema.get("type", ""), schema.get("enum"))
        if names is None:
            return []
        found += names
    return sorted(found, key=AUTO.__ne__) if found != _NAMES["boolean"] else []


_NAMES: dict[str, list[str]] = {"null": [AUTO], "boolean": ["true", "false"]}


def allowed(path: str, t: Words) -> str:
    """Say what a field may be."""
    return t("allowed.or").join(_allowed(option, path, t) for option in schemas()[path].get("anyOf", [schemas()[path]]))


def _allowed(schema: Schema, path: str, t: Words) -> str:
    if "enum" in schema or "const" in schema:
        return t("allowed.and").join(schema.get("enum", [schema.get("const")]))
    if "description" in schema and schema["type"] == "string" and path != "input.text":
        return str(schema["description"])
    said = {"integer": "whole", "number": "number", "null": "empty", "object": "layers", "string": "text",
            "boolean": "switch"}
    if schema["type"] == "array":
        return t("allowed.list", each=_allowed(schema.get("items") or schema["prefixItems"][0], path, t))
    limits = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "to", "exclusiveMaximum": "below"}
    ends = [t(f"allowed.{word}", limit=f"{schema[end]:g}") for end, word in limits.items() if end in schema]
    return " ".join([t(f"allowed.{said[schema['type']]}"), *ends])


def held(path: str, value: Any) -> Any:
    """Return a field's JSON value as its widget holds it."""
    if kind(path) in ("switch", "number"):
        return value
    return AUTO if value in (None, {}) else value if isinstance(value, str) else json.dumps(value)


def value_of(path: str, holds: Any) -> Any:
    """Return what a widget holds as the field's JSON value."""
    if kind(path) == "text":
        return holds or None
    if not isinstance(holds, str):
        return holds
    return json_or_text(holds.strip()) if holds.strip() else {} if path == "model.layer_norms" else None


def json_or_text(text: str) -> Any:
    """Read text as JSON, else as itself."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def change(code: str) -> dict[str, Any]:
    """Read a code as a change; empty where it names no field."""
    name, equals, value = code.partition("=")
    path = paths().get(name.strip())
    if not equals or path is None:
        return {}
    return {path: value if kind(path) == "text" else json_or_text(value.strip())}


def codes(changes: Mapping[str, Any]) -> list[str]:
    """Return changes as codes: ``norm=none``."""
    return [f"{path.partition('.')[2]}={value if isinstance(value, str) else json.dumps(value)}"
            for path, value in changes.items()]


@cache
def all_codes() -> tuple[str, ...]:
    """Return every change whose value has a name."""
    return tuple(f"{name}={value or 'null'}" for name, path in paths().items()
                 for value in (["true", "false"] if kind(path) == "switch" else options(path)))


def spoken(code: str, t: Words) -> str:
    """Say a change so that it is understood alone: a name of its own (``norm=none`` → no norm), else with its field.

    What names no field is said as it is.
    """
    name, _, value = code.partition("=")
    if name in paths() and f"{name}.{value}" in t:
        return t(f"{name}.{value}")
    return f"{t(f'field.{name}')}{t('drift.colon')}{spoken_value(name, t)(value)}" if name in paths() else code


def spoken_value(name: str, t: Words) -> Callable[[str], str]:
    """Return what says the values of one field."""
    def say(value: str) -> str:
        if kind(paths()[name]) == "text" and value.startswith(TEXT_HASH):
            return value.removeprefix(TEXT_HASH)[:8]
        if value in (AUTO, "null"):
            none = f"value.{name}_null"
            return t(none if none in t else "value.auto")
        code = f"value.{name}_{value}".lower().replace("/", "")
        keys = (code, f"{name}.{value}", f"norm.{value}" if name == "qk_norm" else "")
        return next((t(key) for key in keys if key in t), value)

    return say


def _menu(path: str, t: Words, label: str, help_text: str) -> None:
    name = path.partition(".")[2]
    st.selectbox(label, options(path), key=path, help=help_text, format_func=spoken_value(name, t))


def _number(path: str, _t: Words, label: str, help_text: str) -> None:
    """Draw a number's box. It has no bounds: the browser would keep what is out of them, and an older value count."""
    whole = schemas()[path]["type"] == "integer"
    settings: dict[str, Any] = {"step": 1} if whole else {"format": "%g", "step": STEPS.get(path, 0.1)}
    st.number_input(label, key=path, value=None, help=help_text, **settings)  # emptied, it holds None


_DRAW: dict[str, Callable[[str, Words, str, str], object]] = {
    "menu": _menu,
    "number": _number,
    "text": lambda path, t, label, help_text: st.text_area(label, key=path, help=help_text,
                                                           placeholder=t("drift.text_placeholder")),
    "switch": lambda path, _t, label, help_text: st.toggle(label, key=path, help=help_text),
    "line": lambda path, t, label, help_text: st.text_input(
        label, key=path, help=help_text, placeholder=spoken_value(path.partition(".")[2], t)(AUTO)),
}
