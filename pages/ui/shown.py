"""The controls of what a view shows, in one row: one entry of a table each, used by every page that has views.

What the visitor chose is in the session under the query parameter's name. It knows no numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import streamlit as st

from core.experiment import Experiment
from core.vocabulary import EMBED
from pages.ui.link import Variant
from pages.ui.places import ENDS, LAST, Place
from pages.ui.text import Words

SLIDER, CHOSEN, LOOK_AT = "shown.layer", "shown.at", "shown.look_at"
"""Session keys: two widgets, and the name of a variant that is to be looked at from now on."""


def draw(asks: Sequence[str], place: Place, variants: Sequence[Variant], t: Words) -> dict[str, str]:
    """Draw the controls called `asks` in one row; return what all views show, by the names of the place's `shown`."""
    if "who" in place.shown:
        _fit(place, variants, t)
    with st.container(horizontal=True, vertical_alignment="bottom", wrap=True):
        for name in asks:
            _DRAW[name](name, place, variants, t)
    return {name: str(st.session_state[name]) for name in place.shown}


def _fit(place: Place, variants: Sequence[Variant], t: Words) -> None:
    """Bring the looked-at variant and layer into what there is: variants and layers may be fewer than before."""
    state = st.session_state
    wanted, names = state.pop(LOOK_AT, None), [one.name for one in variants]
    if wanted in names:
        state["who"] = str(names.index(wanted))
    state["who"] = str(min(int(state["who"]), len(variants) - 1))
    if "layer" in place.shown and state["layer"] != LAST and int(state["layer"]) >= _depth(variants) - 1:
        state["layer"] = LAST
    for name, count in _COUNTS.items():
        if name in place.shown:
            state[name] = str(min(int(state[name]), count(variants) - 1))
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
    "measure": lambda value, t: t(f"head.{value}"),
    "weight": lambda value, t: t(f"weight.{value}"),
    "role": lambda value, _t: value,
    "outcome": lambda value, t: t(f"outcome.{value}"),
}
"""Menu → what says one of its values."""


def _choose(name: str, place: Place, _variants: Sequence[Variant], t: Words) -> None:
    st.selectbox(t(f"drift.{name}"), list(place.shown[name]), key=name,
                 format_func=lambda value: _SPOKEN[name](value, t))


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


def _number(name: str, place: Place, _variants: Sequence[Variant], t: Words) -> None:
    st.segmented_control(t(f"drift.{name}"), list(place.shown[name]), key=name, required=True)


def _percent(name: str, place: Place, _variants: Sequence[Variant], t: Words) -> None:
    st.select_slider(t(f"drift.{name}"), list(place.shown[name]), key=name, width=420,
                     format_func=lambda value: f"{value} %")


def _layer(name: str, place: Place, variants: Sequence[Variant], t: Words) -> None:
    """Draw the slider over the layers of a stack, and its embedding where the place has it too, if there are several.

    The state says LAST where it stands at its end.
    """
    chosen, last = st.session_state[name], str(_depth(variants) - 1)
    st.session_state[SLIDER] = last if chosen == LAST else chosen
    layers = [str(layer) for layer in range(EMBED, int(last) + 1) if str(layer) in place.shown[name]]
    if len(layers) < 2:
        return  # a slider has two ends
    st.select_slider(t("chart.layer"), layers, key=SLIDER, width=320,
                     format_func=lambda layer: t("chart.embed") if layer == str(EMBED) else layer,
                     on_change=_take_layer, args=(last,))


def _take_layer(last: str) -> None:
    chosen = st.session_state[SLIDER]
    st.session_state["layer"] = LAST if chosen == last else chosen


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


_DRAW: dict[str, Callable[[str, Place, Sequence[Variant], Words], None]] = {
    "stat": _choose, "site": _choose, "measure": _choose, "weight": _choose, "role": _choose,
    "outcome": _choose, "of": _switch, "scale": _switch, "who": _who, "layer": _layer, "at": _at, "head": _counted,
    "sequence": _counted, "exchange": _switch, "sample": _counted, "position": _position, "tokens": _switch,
    "share": _percent, "steps": _number,
}
"""Name in a place's `shown` → its control."""
