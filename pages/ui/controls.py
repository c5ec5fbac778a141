"""The controls of a comparison: a preset, the single dials, all other settings folded away, and the variants.

Widgets hold what the visitor typed; a `View` is what was accepted of it. Values that are refused stay in their widget
beside the reason, and the last good view stays on screen. It knows Streamlit's session and query, and no numbers; what
a page may ask for is in `pages.ui.places`.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping, Sequence
from dataclasses import replace
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from core import rules, service
from core.experiment import Experiment
from core.fields import ExperimentError
from core.presets import GROUPS
from pages.ui import explain, fields, held, language, link, shown
from pages.ui import query as address
from pages.ui.link import Changes, Variant, View
from pages.ui.places import Place
from pages.ui.text import Words, escaped

DEPTHS = (1, 2, 3, 4, 6, 8, 12, 16, 18, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
ROWS, TOPIC = "controls.rows", "controls.topic"

State = MutableMapping[Any, Any]


class Controls:
    """The controls of one page in one run of its script.

    `only_runs`: a link was taken just now that names stored runs and says no settings of its own.
    """

    def __init__(self, place: Place, t: Words) -> None:
        self._place, self._t = place, t
        self._state: State = st.session_state
        self._view_key, self._query_key = f"{place.name}.view", f"{place.name}.query"
        self._notices_key = f"{place.name}.notices"
        self._parameters = frozenset({*_SETTINGS, *place.shown, link.RUNS})
        self.only_runs = False

    @property
    def view(self) -> View:
        """What was accepted last."""
        found: View = self._state[self._view_key]
        return found

    def settle(self) -> list[link.Notice]:
        """Take the view from the link when it is a new one, else from this visit; fill every widget that is empty.

        Returns what of the link was refused, until the visitor moves a widget: a script may run again by itself.
        """
        query = address.read(self._parameters)
        another = address.is_another(query, self._state.get(self._query_key), self._touched)
        if another or self._touched():
            self._state[self._notices_key] = []
        self.only_runs = another and link.RUNS in query and not query.keys() & _SETTINGS
        if another:
            self._state[self._view_key], self._state[self._notices_key] = link.read(query, self._place)
        self._fill(self.view, force=another or language.is_new())  # widgets keep the words they were made with
        notices: list[link.Notice] = self._state.setdefault(self._notices_key, [])
        return notices

    def take(self, view: View) -> None:
        """Show this view from now on, in every widget."""
        self._state[self._view_key] = view
        self._fill(view, force=True)

    def mirror(self, view: View) -> None:
        """Keep the view and write it into the URL."""
        self._state[self._view_key] = view
        self._state[self._query_key] = query = link.write(view, self._place)
        address.write(query, self._parameters)

    def base(self) -> None:
        """Draw the preset and the single dials, made for the side of a page."""
        t, chosen = self._t, self._state["preset"]
        topic = st.selectbox(t("drift.topic"), list(GROUPS), key=TOPIC,
                             format_func=lambda name: t(f"preset_group.{name}"))
        listed = list(dict.fromkeys([*([] if chosen in GROUPS[topic] else [chosen]), *GROUPS[topic]]))
        st.selectbox(t("drift.preset"), listed, key="preset", format_func=lambda name: t(f"preset.{name}"),
                     help=t(f"preset_help.{chosen}"), on_change=self._take_preset)
        depth = self._state["model.n_layers"]
        st.select_slider(t("field.n_layers"), sorted({*DEPTHS, depth}), key="model.n_layers", help=t("help.n_layers"))
        idle = self._without_effect() | self._place.withheld
        offered = {dial: names for dial, names in link.CHOICES.items() if link.DIALS[dial] not in idle}
        columns = [st.container(), *st.columns(max(1, len(offered) - 1))] if offered else []
        for column, (dial, names) in zip(columns, offered.items(), strict=False):
            column.selectbox(t(f"field.{dial}"), list(names), key=link.DIALS[dial], help=t(f"help.{dial}"),
                             format_func=fields.spoken_value(dial, t))

    def variants(self) -> tuple[Changes, ...]:
        """Draw the variants' rows; return what each changes of the base. What cannot be read is said beside its row."""
        t = self._t
        st.markdown(f"**{t('drift.compare')}**", help=t("drift.variant_help"))
        rows: int = self._state[ROWS]
        found = []
        for row in range(rows):
            with st.container(horizontal=True, vertical_alignment="center", gap="small", wrap=False):
                chosen = st.multiselect(
                    t("drift.variant_label", number=row + 1), self._menu(row), key=f"variant.{row}",
                    format_func=lambda code: fields.spoken(code, t), accept_new_options=True,
                    placeholder=t("drift.variant_placeholder"), label_visibility="collapsed")
                st.button(t("drift.remove_variant", number=row + 1), icon=":material/close:", key=f"remove.{row}",
                          help=t("drift.remove_variant", number=row + 1), type="tertiary",  # a sign: document.css
                          on_click=self._remove, args=(row,))
            found.append(self._changes(chosen))
        st.button(t("drift.add_variant"), icon=":material/add:", on_click=self._add, disabled=rows >= self._place.most)
        return tuple(changes for changes in found if changes)

    def at_hand(self, paths: Sequence[str]) -> None:
        """Draw the fields of the base that this page is most about, in one row."""
        offered = [path for path in paths if path not in self._without_effect()]
        if offered:
            for column, path in zip(st.columns(len(paths)), offered, strict=False):
                with column:
                    fields.widget(path, self._t)

    def settings(self, first: Sequence[str] = ()) -> DeltaGenerator:
        """Draw all other fields but `first`, folded away: a tab a part, a widget a field; folded, they cost nothing.

        What has no effect on the chosen family is not offered.

        Returns the place beside them where a refusal is said.
        """
        t = self._t
        fold = st.expander(t("drift.settings"), icon=":material/tune:", key="settings", on_change="rerun")
        beside = fold.container()
        if not fold.open:
            return beside
        with fold:
            tabs = st.tabs([t(f"part.{part}") for part in Experiment.model_fields])
            for part, tab in zip(Experiment.model_fields, tabs, strict=True):
                columns = tab.columns(4)
                rest = [path for path in self._paths() if path.startswith(f"{part}.")
                        and path not in _DIAL_PATHS and path not in first and path not in self._without_effect()]
                for index, path in enumerate(rest):
                    with columns[index % 4]:
                        fields.widget(path, t)
        return beside

    def described(self) -> tuple[Experiment, ExperimentError | None]:
        """Return the base that the widgets describe; where they describe none, the last good one and why."""
        values = {path: fields.value_of(path, self._state[path]) for path in self._paths()}
        try:
            experiment = self._place.origin(self._state["preset"]).with_values(values)
            if values["input.text"]:
                experiment = experiment.with_values(_hashed({"input.text": values["input.text"]}))
            return experiment, None
        except ExperimentError as error:
            return self.view.base, error

    def looked(self) -> str:
        """Draw the ways to look at what was measured; return the chosen one."""
        t, words = self._t, f"{self._place.name}_view"
        st.segmented_control(t("drift.view"), self._place.views, key="view", required=True,
                             label_visibility="collapsed", format_func=lambda name: t(f"{words}.{name}"))
        view = shown.chosen("view", self._place)
        st.caption(t(f"{words}_help.{view}"))
        return view

    def shown(self, asks: Sequence[str], variants: Sequence[Variant]) -> dict[str, str]:
        """Draw the controls of a view in one row; return what all views show, by the names of the place's `shown`."""
        return shown.draw(asks, self._place, variants, self._t)

    def _paths(self) -> list[str]:
        """Return the fields that can be changed on this page."""
        return [path for path in fields.schemas() if path not in self._place.withheld]

    def _without_effect(self) -> frozenset[str]:
        """Return the fields that change nothing in the base as its family is chosen now."""
        return rules.without_effect(self._state["model.family"])

    def _touched(self) -> bool:
        """Return whether the visitor moved a widget: the address is then an old one, not one gone back to."""
        return held.moved(self._held(self.view))

    def _held(self, view: View) -> dict[str, Any]:
        """Return what every widget holds when it shows `view`, by key."""
        values: dict[str, Any] = {"preset": view.preset, **view.shown, ROWS: len(view.variants)}
        paths = view.base.paths()
        values |= {path: fields.held(path, paths[path]) for path in self._paths()}
        return values | {f"variant.{row}": fields.codes(changes) for row, changes in enumerate(view.variants)}

    def _fill(self, view: View, force: bool) -> None:
        """Give every widget the value that the view has for it; without `force` only those that have none."""
        held.fill(self._held(view), force)
        if force or TOPIC not in self._state:
            self._state[TOPIC] = next(name for name, presets in GROUPS.items() if view.preset in presets)

    def _take_preset(self) -> None:
        """Let every dial and setting jump to the chosen preset."""
        name = self._state["preset"]
        place = self._place
        untouched = self.view.variants == link.default_variants(self.view.preset, place)
        changes = link.default_variants(name, place) if untouched else self.view.variants
        self._fill(View(name, place.origin(name), changes, self.view.shown), force=True)

    def _add(self) -> None:
        self._state[f"variant.{self._state[ROWS]}"] = []
        self._state[ROWS] += 1

    def _remove(self, row: int) -> None:
        last = self._state[ROWS] - 1
        for index in range(row, last):
            self._state[f"variant.{index}"] = self._state[f"variant.{index + 1}"]
        del self._state[f"variant.{last}"]
        if int(self._state["who"]) > row + 1:  # the one that is looked at has moved up
            self._state["who"] = str(int(self._state["who"]) - 1)
        self._state[ROWS] = last

    def _menu(self, row: int) -> list[str]:
        """Return the changes to choose from: every named value of every field, and what this row holds already."""
        known = [code for code in fields.all_codes()
                 if fields.paths()[code.partition("=")[0]] not in self._place.withheld]
        return [*known, *(code for code in self._state.get(f"variant.{row}", []) if code not in known)]

    def _changes(self, codes: list[str]) -> dict[str, Any]:
        """Read a row's changes; what names no field of this page is said and left out."""
        changes: dict[str, Any] = {}
        for code in codes:
            found = fields.change(code)
            if not found or found.keys() & self._place.withheld:
                st.error(self._t("drift.no_change", value=escaped(code)), icon=":material/block:")
                continue
            changes |= found
        try:
            return _hashed(changes)
        except ExperimentError as error:
            st.error(explain.refused(error, self._t), icon=":material/block:")
            return {}


_DIAL_PATHS = frozenset(link.DIALS.values())
_SETTINGS = frozenset({"preset", "x", *link.DIALS})


def _hashed(values: dict[str, Any]) -> dict[str, Any]:
    """Put a visitor's own text into the store and its hash into its place: links and experiments carry the hash.

    Errors: ExperimentError for a text that is too long.
    """
    text = values.get("input.text")
    return values if not text else values | {"input.text": service.put_text(text)}


FEW_FIELDS = 2
"""So many changed fields stand in the name of every variant."""


def named(variants: Sequence[Variant], t: Words) -> list[Variant]:
    """Return the variants with names: the values of the fields that are changed, so that all say the same things.

    Where different variants change many different fields, a name is what each changes of the base.
    """
    changed = list(dict.fromkeys(path for one in variants for path in one.changes)) or ["model.norm"]
    alike = len(changed) <= FEW_FIELDS or all(list(one.changes) == changed for one in variants if one.changes)
    named = [(one, changed if alike else one.changes or ("model.norm", "model.placement")) for one in variants]
    names = [_spoken(one, _telling(one, paths), t) for one, paths in named]
    if len(set(names)) < len(names):
        names = [_spoken(one, paths, t) for one, paths in named]
    return [replace(one, name=name) for (one, _), name in zip(named, names, strict=True)]


def _telling(one: Variant, paths: Iterable[str]) -> list[str]:
    """Return those of the fields that say something of a variant: where no norm stands is nothing."""
    bare = one.experiment.model.norm == "none"
    return [path for path in paths if not (bare and path == "model.placement")] or list(paths)


def _spoken(one: Variant, paths: Iterable[str], t: Words) -> str:
    values = one.experiment.paths()
    return " · ".join(fields.spoken(code, t) for code in fields.codes({path: values[path] for path in paths}))
