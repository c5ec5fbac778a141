"""The controls of what a view shows, in one row: one entry of a table each, used by every page that has views.

What the visitor chose is in the session under the query parameter's name. It knows no numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import streamlit as st

from core.experiment import Experiment
from core.families import Family
from core.tables import FAMILIES
from core.vocabulary import EMBED, RECURRENT_STREAM, SITES, STREAMS
from pages.ui.explain import number
from pages.ui.link import Variant
from pages.ui.places import ENDS, LAST, Place
from pages.ui.text import Words, escaped

SLIDER, CHOSEN, TYPED, LOOK_AT = "shown.layer", "shown.at", "shown.typed", "shown.look_at"
"""Session keys: three kinds of widgets, and the name of a variant that is to be looked at from now on."""


def draw(asks: Sequence[str], place: Place, variants: Sequence[Variant], t: Words) -> dict[str, str]:
    """Draw the controls called `asks` in one row; return what all views show, by the names of the place's `shown`.

    `variants`: those that there are to look at; none where a view shows no run.
    """
    if "who" in place.shown and variants:
        _fit(place, variants, t)
    with st.container(horizontal=True, vertical_alignment="bottom", wrap=True):
        for name in asks:
            _DRAW.get(f"{place.name}.{name}", _DRAW[name])(name, place, variants, t)
    return {name: chosen(name, place) for name in place.shown}


def chosen(name: str, place: Place) -> str:
    """Return what a control of a page holds; its default where it holds nothing.

    A browser may still send what a control said in another language, or on the page before: then it holds nothing.
    """
    held = st.session_state[name]
    return str(place.defaults[name] if held is None else held)


def _fit(place: Place, variants: Sequence[Variant], t: Words) -> None:
    """Bring the looked-at variant and layer into what there is: variants and layers may be fewer than before."""
    state = st.session_state
    wanted, names = state.pop(LOOK_AT, None), [one.name for one in variants]
    if wanted in names:
        state["who"] = str(names.index(wanted))
    state["who"] = str(min(int(state["who"]), len(variants) - 1))
    for name in {"layer", "depth"} & place.shown.keys():
        if state[name] != LAST and int(state[name]) >= _depth(variants) - 1:
            state[name] = LAST
    for name, count in _COUNTS.items():
        if name in place.shown and int(asked := state[name]) >= count(variants):
            state[name] = str(count(variants) - 1)
            st.warning(t(f"link.form_{name}", value=asked, used=state[name]), icon=":material/link_off:")
    if "at" in place.shown and state["at"] != ENDS:
        _fit_layers(max(one.experiment.model.n_layers for one in variants), t)


def _fit_layers(depth: int, t: Words) -> None:
    """Keep the layers that there are, and say which are not."""
    asked, kept = (list(map(int, st.session_state["at"].split("."))), layers_of(st.session_state["at"], depth))
    if missing := [layer for layer in dict.fromkeys(asked) if layer not in kept]:
        st.session_state["at"] = ".".join(map(str, kept))
        st.warning(t("link.layers", value=", ".join(map(str, missing)), used=", ".join(map(str, kept))),
                   icon=":material/link_off:")


def _looked_at(variants: Sequence[Variant]) -> Experiment:
    return variants[int(st.session_state["who"])].experiment


def _depth(variants: Sequence[Variant]) -> int:
    return _looked_at(variants).model.n_layers


_COUNTS: dict[str, Callable[[Sequence[Variant]], int]] = {
    "head": lambda variants: _looked_at(variants).model.n_heads,
    "sequence": lambda variants: _looked_at(variants).input.batch,
    "sample": lambda variants: min(one.experiment.input.batch for one in variants),
    "position": lambda variants: min(one.experiment.input.seq_len for one in variants),
}
"""What is counted from 0 → how many there are, of the variant that is looked at, or in every one."""


_SPOKEN: dict[str, Callable[[str, Words], str]] = {
    "stat": lambda value, t: t(f"statistic.{value}"),
    "site": lambda value, t: f"{value} · {t(f'site.{value}')}",
    "gate": lambda value, t: f"{value} · {t(f'site.{value}')}",
    "moment": lambda value, t: t(f"statistic.{value}"),
    "measure": lambda value, t: t(f"head.{value}"),
    "weight": lambda value, t: t(f"weight.{value}"),
    "role": lambda value, _t: value,
    "outcome": lambda value, t: t(f"outcome.{value}"),
    "number": lambda value, t: t(f"bench.number_{value}"),
    "by": lambda value, t: t(f"bench.by_{value}"),
    "after": lambda value, t: t("bench.steps", count=value) if value != "0" else t("bench.no_steps"),
}
"""Menu → what says one of its values."""


def _choose(name: str, place: Place, variants: Sequence[Variant], t: Words) -> None:
    st.selectbox(t(f"drift.{name}"), _offered(name, place, variants), key=name,
                 format_func=lambda value: _SPOKEN[name](value, t))


def _offered(name: str, place: Place, variants: Sequence[Variant]) -> list[str]:
    """Return the values that a menu has: those that a stack of these families may have, and what is chosen.

    What stands for the same in another family is chosen instead: the stream, or a parameter.
    """
    values, state = list(place.shown[name]), st.session_state
    if name not in _OF_FAMILIES:
        return values
    families = {one.experiment.model.family for one in variants}
    there = [value for value in values if any(_OF_FAMILIES[name](FAMILIES[family], value) for family in families)]
    if state[name] not in there and (alike := [value for value in _ALIKE[name] if value in there]):
        state[name] = alike[0] if state[name] in _ALIKE[name] else state[name]
    return [value for value in values if value in there or value == state[name]]


def _has_site(family: Family, site: str) -> bool:
    around = SITES[site].where != "block"
    return site in family.steps or around or not (family.recurrent or SITES[site].over_time)


def _has_role(family: Family, role: str) -> bool:
    module = role.partition(".")[0]
    return module in (*family.gates, *family.norms) if family.recurrent else module in _BLOCK_MODULES


_BLOCK_MODULES = frozenset({"attn", "mlp", "norm1", "norm2", "norm1_out", "norm2_out"})

_OF_FAMILIES: dict[str, Callable[[Family, str], bool]] = {"site": _has_site, "gate": _has_site, "role": _has_role}
"""Menu → whether a stack of a family may have one of its values."""

_ALIKE: dict[str, tuple[str, ...]] = {
    "site": STREAMS, "gate": (RECURRENT_STREAM, "gate_i", "gate_r"),
    "role": ("mlp.out.weight", "gate_i.h.weight", "gate_r.h.weight")}


def _switch(name: str, place: Place, _variants: Sequence[Variant], t: Words) -> None:
    st.segmented_control(t(f"drift.{name}"), list(place.shown[name]), key=name, required=True,
                         format_func=lambda value: t(f"drift.{name}_{value}"))


def _who(name: str, _place: Place, variants: Sequence[Variant], t: Words) -> None:
    st.selectbox(t("drift.variant"), [str(number) for number in range(len(variants))], key=name,
                 format_func=lambda number: variants[int(number)].name)


def _counted(name: str, _place: Place, variants: Sequence[Variant], t: Words) -> None:
    st.selectbox(t(f"drift.{name}"), [str(number) for number in range(_COUNTS[name](variants))], key=name, width=120)


def _position(name: str, place: Place, variants: Sequence[Variant], t: Words) -> None:
    """Draw the menu of positions where one token is exchanged, not all of a sequence."""
    if st.session_state["exchange"] == "token":
        _counted(name, place, variants, t)


def _when(name: str, place: Place, variants: Sequence[Variant], t: Words) -> None:
    """Draw which end of a training is looked at, where there is one."""
    if st.session_state["after"] != "0":
        _switch(name, place, variants, t)


def _number(name: str, place: Place, _variants: Sequence[Variant], t: Words) -> None:
    st.segmented_control(t(f"drift.{name}"), list(place.shown[name]), key=name, required=True)


def _percent(name: str, place: Place, _variants: Sequence[Variant], t: Words) -> None:
    st.select_slider(t(f"drift.{name}"), list(place.shown[name]), key=name, width=420,
                     format_func=lambda value: f"{value} %")


def _layer(name: str, place: Place, variants: Sequence[Variant], t: Words) -> None:
    """Draw the slider over the layers of a stack, and its embedding where the place has it too, if there are several.

    The state says LAST where it stands at its end.
    """
    chosen, last, slider = st.session_state[name], str(_depth(variants) - 1), f"{SLIDER}.{name}"
    st.session_state[slider] = last if chosen == LAST else chosen
    layers = [str(layer) for layer in range(EMBED, int(last) + 1) if str(layer) in place.shown[name]]
    if len(layers) < 2:
        return  # a slider has two ends
    st.select_slider(t("chart.layer"), layers, key=slider, width=320,
                     format_func=lambda layer: t("chart.embed") if layer == str(EMBED) else layer,
                     on_change=_take_layer, args=(name, last))


def _take_layer(name: str, last: str) -> None:
    chosen = st.session_state[f"{SLIDER}.{name}"]
    st.session_state[name] = LAST if chosen == last else chosen


MOST_LAYERS = 6
"""So many layers at most are drawn as lines over steps: with four variants they are 24 lines."""


def _at(name: str, _place: Place, variants: Sequence[Variant], t: Words) -> None:
    """Draw the menu of layers; the state says ENDS where it holds the first, the middle and the last."""
    depth = max(one.experiment.model.n_layers for one in variants)
    st.session_state[CHOSEN] = layers_of(st.session_state[name], depth)
    st.multiselect(t("drift.at"), list(range(EMBED, depth)), key=CHOSEN, max_selections=MOST_LAYERS, width=420,
                   format_func=lambda layer: t("chart.embed") if layer == EMBED else str(layer),
                   on_change=_take_layers, args=(depth,), placeholder=t("drift.at_placeholder"))


def _take_layers(depth: int) -> None:
    chosen = sorted(st.session_state[CHOSEN])
    ends = not chosen or chosen == layers_of(ENDS, depth)
    st.session_state["at"] = ENDS if ends else ".".join(map(str, chosen))


def layers_of(at: str, depth: int) -> list[int]:
    """Return the layers that a link's `at` names, of a stack of `depth`."""
    if at == ENDS:
        return sorted({0, (depth - 1) // 2, depth - 1})
    return sorted({layer for layer in map(int, at.split(".")) if EMBED <= layer < depth})[:MOST_LAYERS] or [depth - 1]


def _slide(name: str, place: Place, _variants: Sequence[Variant], t: Words) -> None:
    st.select_slider(t(f"{place.name}.{name}"), list(place.shown[name]), key=name, width=200,
                     help=t(f"{place.name}.{name}_help"), format_func=lambda value: number(float(value)))


def _pick(name: str, place: Place, _variants: Sequence[Variant], t: Words) -> None:
    st.segmented_control(t(f"{place.name}.{name}"), list(place.shown[name]), key=name, required=True,
                         help=t(f"{place.name}.{name}_help"),
                         format_func=lambda value: t(said) if (said := f"{place.name}.{name}_{value}") in t else value)


def _type(name: str, place: Place, _variants: Sequence[Variant], t: Words) -> None:
    """Draw a box to type in; a text that is refused is so beside it, and the last good one stays."""
    state, key, allowed, spelling = st.session_state, f"{TYPED}.{name}", place.shown[name], _SPELLINGS[name]
    if key not in state or spelling.read(state[key]) in allowed:
        state[key] = spelling.write(state[name])
    st.text_input(t(f"{place.name}.{name}"), key=key, help=t(f"{place.name}.{name}_help"), on_change=_take_typed,
                  args=(name, allowed), width=spelling.width)
    if spelling.read(state[key]) not in allowed:
        st.error(t(f"link.form_{name}", value=escaped(state[key][:60]), used=state[name]), icon=":material/block:")


def _take_typed(name: str, allowed: Collection[str]) -> None:
    if (typed := _SPELLINGS[name].read(st.session_state[f"{TYPED}.{name}"])) in allowed:
        st.session_state[name] = typed


@dataclass(frozen=True)
class Spelling:
    """How what a link says stands in a box, how what was typed there is read, and how wide the box is in pixels."""

    write: Callable[[str], str] = str
    read: Callable[[str], str] = lambda typed: typed.strip().lower().replace("−", "-")
    width: int = 260


_LIST = Spelling(lambda said: said.replace("_", ", "), lambda typed: "_".join(re.findall(r"[^\s,;，、；_]+", typed)),
                 width=340)

_SPELLINGS: dict[str, Spelling] = {"value": Spelling(), **dict.fromkeys(("a", "b"), _LIST),
                                   **dict.fromkeys(("full_a", "full_b"), Spelling(width=120))}
"""What is typed → its spelling."""


def _student(name: str, place: Place, _variants: Sequence[Variant], t: Words) -> None:
    """Draw the menu of students, those who have a mark in both exams."""
    state = st.session_state
    count = 1 + min(state[exam].count("_") for exam in ("a", "b"))
    if int(asked := state[name]) >= count:
        state[name] = str(count - 1)
        st.warning(t(f"link.form_{name}", value=asked, used=state[name]), icon=":material/link_off:")
    st.selectbox(t(f"{place.name}.{name}"), [str(number) for number in range(count)], key=name, width=120,
                 help=t(f"{place.name}.{name}_help"))


_DRAW: dict[str, Callable[[str, Place, Sequence[Variant], Words], None]] = {
    **dict.fromkeys(_SPOKEN, _choose), **dict.fromkeys(("of", "scale", "way", "exchange", "tokens"), _switch),
    **dict.fromkeys(_COUNTS, _counted), "who": _who, "layer": _layer, "depth": _layer, "at": _at,
    **dict.fromkeys(("format", "arithmetic", "root", "narrow"), _pick), **dict.fromkeys(_SPELLINGS, _type),
    **dict.fromkeys(("ratio", "sigma", "entries", "draw", "bits", "fraction", "quantum", "gamma"), _slide),
    "position": _position, "when": _when, "share": _percent, "steps": _number,
    "gain": _slide, "width": _slide, "basics.who": _student, "basics.depth": _slide,
}
"""Name in a place's `shown` → its control; after the place's name where it is another thing there."""
