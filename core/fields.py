"""The kinds of field an experiment has, and the one sentence that refuses a bad value.

It knows pydantic and the shape of a JSON Schema; it does not know any particular field.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import AfterValidator, Field, ValidationError
from pydantic_core import PydanticCustomError


class ExperimentError(ValueError):
    """An experiment was refused; the message is one sentence: the field, what came, what is allowed.

    `key` names the kind of refusal and `values` what it is about, for those who say it in another language.
    """

    def __init__(self, message: str, key: str = "", **values: object) -> None:
        super().__init__(printable(message))
        self.key, self.values = key, values


def one_of(table: Mapping[str, object] | tuple[str, ...]) -> AfterValidator:
    """Return the mark of a text field whose values are the names in `table`, read anew at each check."""

    def check(name: str) -> str:
        if name not in table:
            raise PydanticCustomError("one_of", "not in the table")
        return name

    return _Names(check, table)


@dataclass(frozen=True)
class _Names(AfterValidator):
    """A validator whose JSON Schema is the enumeration of its table, entries added later included."""

    table: Mapping[str, object] | tuple[str, ...] = ()

    def __get_pydantic_json_schema__(self, _schema: object, _handler: object) -> dict[str, Any]:
        return {"type": "string", "enum": list(self.table)}


def within(low: float | None = None, high: float | None = None, *, above: float | None = None,
           below: float | None = None) -> Any:
    """Return the mark of a finite number within low…high, strictly over `above`, strictly under `below`."""
    return Field(ge=low, le=high, gt=above, lt=below, allow_inf_nan=False)


def refusal(where: str, value: object, allowed: str, key: str = "value", **values: object) -> ExperimentError:
    """Return the error that says field, value and what is allowed in one sentence."""
    message = f"{where} is {shown(value)}; allowed: {allowed}"
    return ExperimentError(message, key, field=where, value=shown(value), **values)


def shown(value: object, limit: int = 60) -> str:
    """Return `value` as it stands in JSON, cut to `limit` characters, on one line."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = repr(value)
    return printable(_cut(text, limit))


def printable(text: str) -> str:
    """Return `text` with line breaks and whatever else has no glyph escaped as in JSON: what came may hold anything."""
    return text if text.isprintable() else "".join(
        sign if sign.isprintable() else json.dumps(sign)[1:-1] for sign in text)


def _cut(text: str, limit: int = 60) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def sentence(error: ValidationError, schema: Mapping[str, Any]) -> ExperimentError:
    """Turn pydantic's first complaint into the one sentence; `schema` is the model's JSON Schema."""
    first = error.errors(include_url=False)[0]
    path = [str(part) for part in first["loc"]]
    if first["type"] == "json_invalid":
        return ExperimentError(f"the experiment is not valid JSON: {first['ctx']['error']}")
    if first["type"] == "extra_forbidden":
        siblings = _properties(schema, path[:-1])
        return ExperimentError(f"{_cut('.'.join(path))} is not a field; allowed: {', '.join(siblings)}")
    known, field = _walk(schema, path)
    return refusal(".".join(known) or "the experiment", first["input"], allowed(field, schema))


def allowed(field: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """Say in words what a field's JSON Schema allows."""
    field = _follow(field, schema)
    if "anyOf" in field:
        return " or ".join(allowed(option, schema) for option in field["anyOf"])
    if "enum" in field:
        return ", ".join(field["enum"])
    if "const" in field:
        return str(field["const"])
    kind = _KINDS.get(field.get("type", ""), _object)
    return kind(field, schema)


def _range(field: Mapping[str, Any], kind: str) -> str:
    words = {"minimum": "from {}", "exclusiveMinimum": "above {}", "maximum": "to {}", "exclusiveMaximum": "below {}"}
    parts = [text.format(_plain(field[key])) for key, text in words.items() if key in field]
    return " ".join([kind, *parts])


def _plain(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else str(value)


def _array(field: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    if "prefixItems" in field:
        return "[" + ", ".join(allowed(item, schema) for item in field["prefixItems"]) + "]"
    return f"a list, each {allowed(field['items'], schema)}"


def _object(field: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    values = field.get("additionalProperties")
    if not isinstance(values, Mapping):
        return "an object"
    return f"an object of {field.get('description', 'names')} to {allowed(values, schema)}"


_KINDS: dict[str, Callable[[Mapping[str, Any], Mapping[str, Any]], str]] = {
    "integer": lambda field, _: _range(field, "a whole number"),
    "number": lambda field, _: _range(field, "a finite number"),
    "string": lambda field, _: str(field.get("description", "a text")),
    "boolean": lambda _, __: "true, false",
    "null": lambda _, __: "null",
    "array": _array,
    "object": _object,
}


def _follow(field: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the definition that a reference stands for."""
    while "$ref" in field:
        definitions: dict[str, Mapping[str, Any]] = schema["$defs"]
        field = definitions[field["$ref"].rpartition("/")[2]]
    return field


def _properties(schema: Mapping[str, Any], path: list[str]) -> Mapping[str, Any]:
    field: Mapping[str, Any] = schema
    for part in path:
        field = _follow(field.get("properties", {}).get(part, {}), schema)
    found: Mapping[str, Any] = _follow(field, schema).get("properties", {})
    return found


def _walk(schema: Mapping[str, Any], path: list[str]) -> tuple[list[str], Mapping[str, Any]]:
    """Follow `path` as far as it names fields; pydantic appends the names of union branches, which are dropped."""
    known: list[str] = []
    field: Mapping[str, Any] = schema
    for part in path:
        properties = _follow(field, schema).get("properties", {})
        if part not in properties:
            break
        known.append(part)
        field = properties[part]
    return known, _follow(field, schema)
