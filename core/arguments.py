"""What the command line's arguments describe: experiments, and fields with their values.

It reads files and text; it does not know the commands, and computes nothing.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from core.experiment import Experiment, parse, set_path
from core.fields import ExperimentError
from core.presets import preset


def experiment_of(options: argparse.Namespace) -> Experiment:
    """Return the experiment of the preset, the file over it, and each --set over both.

    Errors: ExperimentError.
    """
    if options.file is None and options.preset is None:
        raise ExperimentError("no experiment was given; allowed: FILE, - for standard input, or --preset NAME")
    document: dict[str, Any] = json.loads(preset(options.preset).model_dump_json()) if options.preset else {}
    for part, fields in (_document(options.file) if options.file else {}).items():
        if isinstance(fields, dict) and isinstance(document.get(part), dict):
            document[part].update(fields)
        else:
            document[part] = fields
    for text in options.set:
        path, value = assignment(text, value_of)
        set_path(document, path, value)
    return parse(document)


def _document(file: str) -> dict[str, Any]:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        document = json.loads(text)
    except OSError as error:
        raise ExperimentError(f"{file} cannot be read: {error.strerror}; allowed: a JSON file, or -") from None
    except (ValueError, RecursionError) as error:
        raise ExperimentError(f"{file} is not valid JSON: {error}; allowed: an object such as {{}}") from None
    if not isinstance(document, dict):
        raise ExperimentError(f"{file} holds {json.dumps(document)[:60]}; allowed: an object of model, input, protocol")
    return document


def assignment(text: str, read: Callable[[str], Any]) -> tuple[str, Any]:
    """Return field and value of ``field=value``, the value as `read` gives it. Errors: ExperimentError."""
    path, equals, value = text.partition("=")
    if not equals:
        raise ExperimentError(f"{text} has no value; allowed: field=value, for instance model.norm=rmsnorm")
    return path, read(value)


def value_of(text: str) -> Any:
    """Return a value as written on the command line: JSON, else a string."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def values_of(text: str) -> list[Any]:
    """Return comma-separated values; each is JSON, else a string."""
    try:
        values: list[Any] = json.loads(f"[{text}]")
    except (ValueError, RecursionError):
        values = [value_of(part) for part in _COMMA.split(text)]
    return values


_COMMA = re.compile(r",(?![^\[{]*[\]}])")
"""A comma that stands in no list or object."""
