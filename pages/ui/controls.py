"""The controls of a comparison: a preset, the single dials, all other settings folded away, and the variants.

Widgets hold what the visitor typed; a `View` is what was accepted of it. Values that are refused stay in their widget
beside the reason, and the last good view stays on screen. It knows Streamlit's session and query, and no numbers.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import replace
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from core import service
from core.experiment import Experiment
from core.fields import ExperimentError
from core.presets import GROUPS, preset
from core.vocabulary import EMBED
from pages.ui import explain, fields, language, link
from pages.ui.link import Changes, Variant, View
from pages.ui.text import Words, escaped

DEPTHS = (1, 2, 3, 4, 6, 8, 12, 16, 18, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
VIEW, QUERY, ROWS, SLIDER, TOPIC = "drift.view", "drift.query", "drift.rows", "drift.layer", "drift.topic"


def settle() -> list[link.Notice]:
    """Take the view from the link when it is a new one, else from this visit; fill every widget that is empty."""
    query = {name: value for name, value in st.query_params.items() if name in _PARAMETERS}
    known = st.session_state.get(QUERY)
    another = known is None or (query != known and (bool(query) or language.stayed()) and not _touched())
    notices: list[link.Notice] = []
    if another:
        st.session_state[VIEW], notices = link.read(query)
    _fill(st.session_state[VIEW], force=another or language.is_new())  # widgets keep the words they were made with
    return notices


def mirror(view: View) -> None:
    """Keep the view and write it into the URL."""
    st.session_state[VIEW] = view
    st.session_state[QUERY] = query = link.write(view)
    whole = {name: value for name, value in st.query_params.items() if name not in _PARAMETERS} | query
    if whole != st.query_params.to_dict():
        st.query_params.from_dict(whole)  # at once: each change is an entry in the browser's history


def base(t: Words) -> None:
    """Draw the preset and the single dials, made for the side of a page."""
    chosen = st.session_state["preset"]
    topic = st.selectbox(t("drift.topic"), list(GROUPS), key=TOPIC, format_func=lambda name: t(f"preset_group.{name}"))
    listed = list(dict.fromkeys([*([] if chosen in GROUPS[topic] else [chosen]), *GROUPS[topic]]))
    st.selectbox(t("drift.preset"), listed, key="preset", format_func=lambda name: t(f"preset.{name}"),
                 help=t(f"preset_help.{chosen}"), on_change=_take_preset)
    depth = st.session_state["model.n_layers"]
    st.select_slider(t("field.n_layers"), sorted({*DEPTHS, depth}), key="model.n_layers", help=t("help.n_layers"))
    for column, (dial, names) in zip([st.container(), *st.columns(2)], link.CHOICES.items(), strict=True):
        column.selectbox(t(f"field.{dial}"), list(names), key=link.DIALS[dial], help=t(f"help.{dial}"),
                         format_func=fields.spoken_value(dial, t))


def variants(t: Words) -> tuple[Changes, ...]:
    """Draw the variants' rows; return what each changes of the base. What cannot be read is said beside its row."""
    st.markdown(f"**{t('drift.compare')}**", help=t("drift.variant_help"))
    rows: int = st.session_state[ROWS]
    found = []
    for row in range(rows):
        with st.container(horizontal=True, vertical_alignment="center", gap="small", wrap=False):
            chosen = st.multiselect(t("drift.variant_label", number=row + 1), _menu(row), key=f"variant.{row}",
                                    format_func=lambda code: fields.spoken(code, t), accept_new_options=True,
                                    placeholder=t("drift.variant_placeholder"), label_visibility="collapsed")
            st.button("", icon=":material/close:", key=f"remove.{row}", help=t("drift.remove_variant"), type="tertiary",
                      on_click=_remove, args=(row,))
        found.append(_changes(chosen, t))
    st.button(t("drift.add_variant"), icon=":material/add:", on_click=_add, disabled=rows >= link.MAX_VARIANTS)
    return tuple(changes for changes in found if changes)


def settings(t: Words) -> DeltaGenerator:
    """Draw all other fields, folded away: a tab a part, a widget a field. Folded, they cost a visit nothing.

    Returns the place beside them where a refusal is said.
    """
    fold = st.expander(t("drift.settings"), icon=":material/tune:", key="settings", on_change="rerun")
    beside = fold.container()
    if not fold.open:
        return beside
    with fold:
        tabs = st.tabs([t(f"part.{part}") for part in Experiment.model_fields])
        for part, tab in zip(Experiment.model_fields, tabs, strict=True):
            columns = tab.columns(4)
            rest = [path for path in fields.schemas() if path.startswith(f"{part}.") and path not in _DIAL_PATHS]
            for index, path in enumerate(rest):
                with columns[index % 4]:
                    fields.widget(path, t)
    return beside


def described() -> tuple[Experiment, ExperimentError | None]:
    """Return the base that the widgets describe; where they describe none, the last good one and why."""
    values = {path: fields.value_of(path, st.session_state[path]) for path in fields.schemas()}
    try:
        experiment = preset(st.session_state["preset"]).with_values(values)
        if values["input.text"]:
            experiment = experiment.with_values(_hashed({"input.text": values["input.text"]}))
        return experiment, None
    except ExperimentError as error:
        last: View = st.session_state[VIEW]
        return last.base, error


def view(t: Words) -> str:
    """Draw the ways to look at what was measured; return the chosen one."""
    st.segmented_control(t("drift.view"), link.VIEWS, key="view", required=True, label_visibility="collapsed",
                         format_func=lambda name: t(f"view.{name}"))
    st.caption(t(f"view_help.{st.session_state['view']}"))
    return str(st.session_state["view"])


def shown(asks: Sequence[str], variants: Sequence[Variant], t: Words) -> dict[str, str]:
    """Draw the controls of a view in one row; return what all views show, by the names of `link.SHOWN`."""
    _fit(variants)
    with st.container(horizontal=True, vertical_alignment="bottom", wrap=True):
        for name in asks:
            _SHOWN[name](name, variants, t)
    return {name: str(st.session_state[name]) for name in link.SHOWN}


def _fit(variants: Sequence[Variant]) -> None:
    """Bring the looked-at variant and layer into what there is: variants and layers may be fewer than before."""
    state = st.session_state
    state["who"] = str(min(int(state["who"]), len(variants) - 1))
    if state["layer"] != link.LAST and int(state["layer"]) >= _depth(variants) - 1:
        state["layer"] = link.LAST


def _depth(variants: Sequence[Variant]) -> int:
    return variants[int(st.session_state["who"])].experiment.model.n_layers


def _choose(name: str, _variants: Sequence[Variant], t: Words) -> None:
    spoken = {"stat": lambda value: t(f"statistic.{value}"), "site": lambda value: f"{value} · {t(f'site.{value}')}"}
    st.selectbox(t(f"drift.{name}"), link.SHOWN[name], key=name, format_func=spoken[name])


def _switch(name: str, _variants: Sequence[Variant], t: Words) -> None:
    st.segmented_control(t(f"drift.{name}"), link.SHOWN[name], key=name, required=True,
                         format_func=lambda value: t(f"drift.{name}_{value}"))


def _who(name: str, variants: Sequence[Variant], t: Words) -> None:
    st.selectbox(t("drift.variant"), [str(number) for number in range(len(variants))], key=name,
                 format_func=lambda number: variants[int(number)].name)


def _layer(name: str, variants: Sequence[Variant], t: Words) -> None:
    """Draw the slider over the layers; the state says `link.LAST` where it stands at its end."""
    chosen, last = st.session_state[name], str(_depth(variants) - 1)
    st.session_state[SLIDER] = last if chosen == link.LAST else chosen
    st.select_slider(t("chart.layer"), [str(layer) for layer in range(EMBED, int(last) + 1)], key=SLIDER, width=320,
                     format_func=lambda layer: t("chart.embed") if layer == str(EMBED) else layer,
                     on_change=_take_layer, args=(last,))


def _take_layer(last: str) -> None:
    chosen = st.session_state[SLIDER]
    st.session_state["layer"] = link.LAST if chosen == last else chosen


_SHOWN: dict[str, Callable[[str, Sequence[Variant], Words], None]] = {
    "stat": _choose, "site": _choose, "of": _switch, "scale": _switch, "who": _who, "layer": _layer,
}
"""Name in `link.SHOWN` → its control."""

_DIAL_PATHS = frozenset(link.DIALS.values())
_PARAMETERS = frozenset({"preset", "x", *link.DIALS, *link.SHOWN})


def _touched() -> bool:
    """Return whether the visitor moved a widget: the address is then an old one, not one gone back to."""
    held = _held(st.session_state[VIEW])
    return any(st.session_state[key] != value for key, value in held.items() if key in st.session_state)


def _held(view: View) -> dict[str, Any]:
    """Return what every widget holds when it shows `view`, by key."""
    values: dict[str, Any] = {"preset": view.preset, **view.shown, ROWS: len(view.variants)}
    values |= {path: fields.held(path, value) for path, value in view.base.paths().items() if path in fields.schemas()}
    return values | {f"variant.{row}": fields.codes(changes) for row, changes in enumerate(view.variants)}


def _fill(view: View, force: bool) -> None:
    """Give every widget the value that the view has for it; without `force` only those that have none."""
    state: MutableMapping[Any, Any] = st.session_state
    for key, value in _held(view).items():
        if force or key not in state:
            state[key] = value
    if force or TOPIC not in state:
        state[TOPIC] = next(name for name, presets in GROUPS.items() if view.preset in presets)


def _take_preset() -> None:
    """Let every dial and setting jump to the chosen preset."""
    last: View = st.session_state[VIEW]
    name = st.session_state["preset"]
    untouched = last.variants == link.default_variants(last.preset)
    _fill(View(name, preset(name), link.default_variants(name) if untouched else last.variants, last.shown), force=True)


def _add() -> None:
    st.session_state[f"variant.{st.session_state[ROWS]}"] = []
    st.session_state[ROWS] += 1


def _remove(row: int) -> None:
    last = st.session_state[ROWS] - 1
    for index in range(row, last):
        st.session_state[f"variant.{index}"] = st.session_state[f"variant.{index + 1}"]
    del st.session_state[f"variant.{last}"]
    if int(st.session_state["who"]) > row + 1:  # the one that is looked at has moved up
        st.session_state["who"] = str(int(st.session_state["who"]) - 1)
    st.session_state[ROWS] = last


def _menu(row: int) -> list[str]:
    """Return the changes to choose from: every named value of every field, and what this row holds already."""
    known = fields.all_codes()
    return [*known, *(code for code in st.session_state.get(f"variant.{row}", []) if code not in known)]


def _changes(codes: list[str], t: Words) -> dict[str, Any]:
    """Read a row's changes; what names no field is said and left out."""
    changes: dict[str, Any] = {}
    for code in codes:
        found = fields.change(code)
        if not found:
            st.error(t("drift.no_change", value=escaped(code)), icon=":material/block:")
        changes |= found
    try:
        return _hashed(changes)
    except ExperimentError as error:
        st.error(explain.refused(error, t), icon=":material/block:")
        return {}


def _hashed(values: dict[str, Any]) -> dict[str, Any]:
    """Put a visitor's own text into the store and its hash into its place: links and experiments carry the hash.

    Errors: ExperimentError for a text that is too long.
    """
    text = values.get("input.text")
    return values if not text else values | {"input.text": service.put_text(text)}


def named(variants: Sequence[Variant], t: Words) -> list[Variant]:
    """Return the variants with names: the values of the fields that all change, else what each changes of the base."""
    changed = list(dict.fromkeys(path for one in variants for path in one.changes)) or ["model.norm"]
    alike = all(list(one.changes) == changed for one in variants if one.changes)
    named = [(one, changed if alike else one.changes or ("model.norm", "model.placement")) for one in variants]
    return [replace(one, name=" · ".join(fields.spoken(code, t) for code in fields.codes(
        {path: one.experiment.paths()[path] for path in paths}))) for one, paths in named]
