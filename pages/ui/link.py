"""The state of a page that compares as a link, both ways: a View to query parameters and back.

A link says the preset, the single dials in which the base differs from it, what the chart shows, and, in one compact
versioned parameter, all other differences and the variants. Reading never fails: what is refused is replaced and
becomes a Notice. No Streamlit here, and no words: a notice is a text key and its values.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import zlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from core.experiment import Experiment
from core.fields import ExperimentError
from core.presets import PRESETS, preset
from core.tables import INITS, NORMS, PLACEMENTS
from pages.ui.places import DEPTH, DRIFT, Form, Place

Changes = Mapping[str, Any]
"""Dotted path → JSON value."""

DIALS: dict[str, str] = {
    "layers": "model.n_layers", "norm": "model.norm", "placement": "model.placement", "init": "model.init",
}
"""Query parameter of a single dial → the field it sets."""

CHOICES: dict[str, Mapping[str, object]] = {"norm": NORMS, "placement": PLACEMENTS, "init": INITS}
"""Dial → its names; the dial that is missing here is a number."""

RUNS = "run"
"""Query parameter of stored runs: their ids, joined by points."""

VERSION = "1"
MAX_BYTES = 65_536
"""An unpacked parameter larger than this is refused: links come from strangers."""

DEFAULT_PRESET = "pre_layernorm"

@dataclass(frozen=True)
class Notice:
    """Something in a link that was refused: a text key, the values of its placeholders, and the engine's reason."""

    key: str
    values: Mapping[str, str]
    error: ExperimentError | None = None


@dataclass(frozen=True)
class Variant:
    """One experiment of a comparison: what it changes of the base, and what the visitor reads as its name.

    `known`: its key where its changes are not at hand.
    """

    changes: Changes
    experiment: Experiment
    name: str = ""
    known: str = ""

    @property
    def key(self) -> str:
        """What stays the same when base and language change; the base has the empty key."""
        return self.known or describe(self.changes)


@dataclass(frozen=True)
class View:
    """What a page shows: a base experiment, what each variant changes of it, the charts' settings, and stored runs.

    `runs`: those that were started for it; the first is the base's.
    """

    preset: str = DEFAULT_PRESET
    base: Experiment = field(default_factory=lambda: preset(DEFAULT_PRESET))
    variants: tuple[Changes, ...] = field(default_factory=lambda: default_variants(DEFAULT_PRESET))
    shown: Mapping[str, str] = field(default_factory=lambda: dict(DRIFT.defaults))
    runs: tuple[str, ...] = ()

    @classmethod
    def of(cls, place: Place, name: str = DEFAULT_PRESET) -> View:
        """Return what a page shows at first, of the preset called `name`."""
        return cls(name, place.origin(name), default_variants(name, place), dict(place.defaults))


def default_variants(name: str, place: Place = DRIFT) -> tuple[Changes, ...]:
    """Return what the preset called `name` is compared with on a page: those other norms that it can have."""
    origin = place.origin(name)
    return tuple({"model.norm": norm} for norm in place.norms if norm != origin.model.norm and _takes(origin, norm))


def _takes(origin: Experiment, norm: str) -> bool:
    """Say whether an experiment goes together with a norm."""
    try:
        origin.with_values({"model.norm": norm})
    except ExperimentError:
        return False
    return True


def write(view: View, place: Place = DRIFT) -> dict[str, str]:
    """Return the query parameters of `view`; what is as by default is left out."""
    origin = place.origin(view.preset)
    changes = view.base.differences(origin)
    query = {"preset": view.preset} if view.preset != DEFAULT_PRESET else {}
    query |= {dial: str(changes.pop(path)) for dial, path in DIALS.items() if path in changes}
    rest: dict[str, Any] = {"base": changes} if changes else {}
    if view.variants != default_variants(view.preset, place):
        rest["variants"] = [dict(variant) for variant in view.variants]
    if rest:
        query["x"] = pack(rest)
    if view.runs:
        query[RUNS] = ".".join(view.runs)
    return query | {name: value for name, value in view.shown.items() if value != place.defaults[name]}


def read(query: Mapping[str, str], place: Place = DRIFT) -> tuple[View, list[Notice]]:
    """Return the view that `query` describes, and a notice for each part of it that was refused and replaced."""
    notices: list[Notice] = []
    name = _choice(query, "preset", PRESETS, DEFAULT_PRESET, notices)
    packed = _unpacked(query.get("x"), notices)
    base = _base(place, name, query, packed.get("base", {}), notices)
    variants = (_variants(base, place, packed["variants"], notices) if "variants" in packed
                else default_variants(name, place))
    shown = {key: _choice(query, key, values, place.defaults[key], notices) for key, values in place.shown.items()}
    return View(name, base, variants, shown, _runs(query, place, notices)), notices


def _runs(query: Mapping[str, str], place: Place, notices: list[Notice]) -> tuple[str, ...]:
    """Return the runs that a link names, which are ids: words of letters and digits."""
    given = query.get(RUNS, "")
    found = run_ids(given, place.most + 1)
    if found is None:
        notices.append(Notice("link.runs", {"value": given[:40]}))
    return found or ()


def run_ids(text: str, most: int) -> tuple[str, ...] | None:
    """Return the ids that a link joins by points, each once; None where they cannot be ids, or are too many."""
    named = dict.fromkeys(text.split(".")) if text else {}
    are_ids = len(named) <= most and all(re.fullmatch("[0-9a-f]{1,32}", one) for one in named)
    return tuple(named) if are_ids else None


def _base(place: Place, name: str, query: Mapping[str, str], changes: Changes, notices: list[Notice]) -> Experiment:
    """Return the preset with the dials and changes of a link; if they are refused together, each on its own."""
    origin = place.origin(name)
    for path in changes.keys() & place.withheld:
        notices.append(_field_notice(path, changes[path])(_plain(origin.paths()[path])))
    changes = {path: value for path, value in changes.items() if path not in place.withheld}
    said = {dial: path for dial, path in DIALS.items() if dial in query}
    for dial, path in said.items():
        if path in place.withheld:
            notices.append(_field_notice(path, query[dial])(_plain(origin.paths()[path])))
    dials = {path: _dial_value(query[dial], dial) for dial, path in said.items() if path not in place.withheld}
    try:
        return origin.with_values({**dials, **changes})
    except ExperimentError:
        pass
    base = origin
    for dial, path in DIALS.items():
        if path in dials:
            base = _changed(base, {path: dials[path]}, _dial_notice(query[dial], dial), notices)
    return _apply_each(base, changes, notices)


def compared(view: View) -> tuple[list[Variant], list[Notice]]:
    """Return the base (no changes) and its variants, each once, and a notice for each that is refused on this base."""
    notices: list[Notice] = []
    found = {view.base.canonical_json(): Variant({}, view.base)}
    for changes in view.variants:
        try:
            experiment = view.base.with_values(changes)
        except ExperimentError as error:
            notices.append(Notice("link.variant", {"value": describe(changes)}, error))
            continue
        if experiment.canonical_json() in found:
            notices.append(Notice("link.duplicate", {"value": describe(changes)}))
        found.setdefault(experiment.canonical_json(), Variant(changes, experiment))
    return list(found.values()), notices


def describe(changes: Changes) -> str:
    """Return changes as short code: ``norm=none, n_layers=24``."""
    return ", ".join(f"{path.partition('.')[2]}={_plain(value)}" for path, value in changes.items())


def pack(content: object) -> str:
    """Return JSON content as one compact, versioned parameter."""
    raw = json.dumps(content, separators=(",", ":"), ensure_ascii=False, sort_keys=True).encode()
    return f"{VERSION}.{base64.urlsafe_b64encode(zlib.compress(raw, 9)).decode().rstrip('=')}"


def unpack(text: str) -> Any:
    """Return the content of a packed parameter. ValueError when it is of another version, broken or too large."""
    version, _, body = text.partition(".")
    if version != VERSION:
        raise ValueError(f"version {version!r}")
    try:
        engine = zlib.decompressobj()
        raw = engine.decompress(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)), MAX_BYTES)
    except (zlib.error, binascii.Error) as error:
        raise ValueError(str(error)) from None
    if not engine.eof:
        raise ValueError("cut off or too large")
    content = json.loads(raw)
    json.dumps(content, ensure_ascii=False).encode()  # a lone surrogate is no text
    return content


def _unpacked(text: str | None, notices: list[Notice]) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        content = unpack(text)
    except (ValueError, RecursionError):
        content = None
    known = isinstance(content, dict) and content.keys() <= {"base", "variants"}
    if known and isinstance(content.get("base", {}), dict):
        return dict(content)
    notices.append(Notice("link.packed", {"value": text[:24]}))
    return {}


def _choice(query: Mapping[str, str], name: str, values: Collection[str], default: str,
            notices: list[Notice]) -> str:
    value = query.get(name, default)
    if value in values:
        return value
    if isinstance(values, Form):
        notices.append(Notice(f"link.form_{name}", {"value": value[:60], "used": default}))
        return default
    notices.append(Notice("link.choice", {"name": name, "value": value[:60], "allowed": _listed(tuple(values)),
                                          "used": default}))
    return default


def _listed(values: tuple[str, ...]) -> str:
    """Write the allowed values; of many only the ends."""
    return ", ".join(values if len(values) <= 40 else (*values[:3], "…", values[-1]))


def _dial_value(text: str, dial: str) -> Any:
    return int(text) if dial not in CHOICES and re.fullmatch(r"-?[0-9]{1,6}", text) else text


def _dial_notice(text: str, dial: str) -> Callable[[str], Notice]:
    allowed = ", ".join(CHOICES[dial]) if dial in CHOICES else f"{DEPTH['minimum']} … {DEPTH['maximum']}"
    return lambda used: Notice("link.choice", {"name": dial, "value": text[:60], "allowed": allowed, "used": used})


def _changed(base: Experiment, changes: Changes, notice: Callable[[str], Notice], notices: list[Notice]) -> Experiment:
    """Return `base` with the changes, or as it is with a notice that names the value kept instead."""
    try:
        return base.with_values(changes)
    except ExperimentError:
        notices.append(notice(", ".join(str(base.paths().get(path, "")) for path in changes)))
        return base


def _apply_each(base: Experiment, changes: Changes, notices: list[Notice]) -> Experiment:
    """Apply all changes together; if they are refused, one by one, so that the good ones are kept."""
    try:
        return base.with_values(changes)
    except ExperimentError:
        pass
    for path, value in changes.items():
        base = _changed(base, {path: value}, _field_notice(path, value), notices)
    return base


def _field_notice(path: str, value: object) -> Callable[[str], Notice]:
    return lambda used: Notice("link.field", {"name": path[:60], "value": _plain(value)[:60], "used": used})


def _variants(base: Experiment, place: Place, content: object, notices: list[Notice]) -> tuple[Changes, ...]:
    listed = [row for row in content if isinstance(row, dict)] if isinstance(content, list) else []
    known = base.paths().keys() - place.withheld
    kept = [{path: value for path, value in row.items() if path in known} for row in listed]
    if kept != content:
        notices.append(Notice("link.variants", {}))
    if len(kept) > place.most:
        notices.append(Notice("link.too_many", {"count": str(len(kept)), "limit": str(place.most)}))
    return tuple(row for row in kept[:place.most] if row)


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

