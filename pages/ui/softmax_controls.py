"""The controls of the softmax lab, and its state in the session and in the address.

It knows Streamlit's session and query; what may be asked for is in `pages.ui.softmax_link`. Scores that are refused
stay in their widget, and the last good ones are in the picture.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

import streamlit as st

from pages.ui import explain, held, language, softmax_link
from pages.ui import query as address
from pages.ui.link import Notice
from pages.ui.softmax_link import CHOICES, NUMBERS, PARAMETERS, PRESETS, TEXT_LETTERS, Asked
from pages.ui.text import Words

ASKED, QUERY, TEXT = "softmax.asked", "softmax.query", "softmax.text"
"""Session keys: what was accepted last, what the address then said, and the scores as the visitor wrote them."""

TEMPERATURES = (0.05, 0.07, 0.1, 0.14, 0.2, 0.3, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 5.0, 7.0, 10.0, 14.0, 20.0)

SHOWN: Mapping[str, tuple[str, ...]] = {"gaussian": ("n", "std", "seed"), "own": ("scores",)}
"""Source of the scores → the controls that it has."""


def settle() -> list[Notice]:
    """Take what is asked for from the link when it is a new one, else from this visit; fill widgets that are empty."""
    query, notices = address.read(PARAMETERS), list[Notice]()
    if address.is_another(query, st.session_state.get(QUERY), _touched):
        asked, notices = softmax_link.read(query)
        _take(asked)
    held.fill(_held(), force=language.is_new())
    return notices


def _take(asked: Asked) -> None:
    """Show this from now on, in every widget."""
    st.session_state[ASKED], st.session_state[TEXT] = asked, softmax_link.spelled(asked.scores)
    held.fill(_held(), force=True)


def _held() -> dict[str, Any]:
    """Return what every widget holds, by its key."""
    state = st.session_state
    values = asdict(state[ASKED]) | {"scores": state[TEXT]}
    return {f"softmax.{name}": value for name, value in values.items()}


def _touched() -> bool:
    """Return whether the visitor moved a widget: the address is then an old one, not one gone back to."""
    return held.moved(_held())


def presets(t: Words) -> None:
    """Draw the rows to begin with, a button each."""
    with st.container(horizontal=True, vertical_alignment="center"):
        for name, asked in PRESETS.items():
            st.button(t(f"softmax.preset_{name}"), on_click=_take, args=(asked,), key=f"softmax.preset.{name}")


def ask(t: Words) -> Asked:
    """Draw the controls; return what is asked for, with the last good scores where those in the widget are refused."""
    state = st.session_state
    _choice("source", t)
    for name in SHOWN[state["softmax.source"]]:
        _DRAW[name](name, t)
    _temperature("temperature", t)
    _choice("upstream", t)
    before: Asked = state[ASKED]
    scores = _scores(t) if "scores" in SHOWN[state["softmax.source"]] else None
    values = {name: state[f"softmax.{name}"] for name in PARAMETERS}
    return replace(before, **values | {"scores": scores or before.scores})


def mirror(asked: Asked) -> None:
    """Keep what is asked for and write it into the address."""
    st.session_state[ASKED] = asked
    st.session_state[QUERY] = query = asked.write()
    address.write(query, PARAMETERS)


def _scores(t: Words) -> tuple[float, ...] | None:
    """Return the scores in the widget; where they are refused, say why."""
    text = st.session_state[TEXT] = st.session_state["softmax.scores"]
    scores, notice = softmax_link.scores_of(text)
    if notice:
        st.error(f"{explain.notice(notice, t)} {t('softmax.kept')}", icon=":material/block:")
    return scores


def _choice(name: str, t: Words) -> None:
    st.segmented_control(t(f"softmax.{name}"), CHOICES[name], key=f"softmax.{name}", required=True,
                         help=t(f"softmax.{name}_help"), format_func=lambda value: t(f"softmax.{name}_{value}"))


def _slider(name: str, t: Words) -> None:
    limits = NUMBERS[name]
    number, step = (int, 1) if limits.whole else (float, 0.1)
    st.slider(t(f"softmax.{name}"), number(limits.low), number(limits.high), step=step, key=f"softmax.{name}",
              format="%g", help=t(f"softmax.{name}_help"))


def _seed(name: str, t: Words) -> None:
    st.number_input(t("field.seed"), int(NUMBERS[name].low), int(NUMBERS[name].high), key=f"softmax.{name}",
                    help=t("softmax.seed_help"))


def _temperature(name: str, t: Words) -> None:
    options = sorted({*TEMPERATURES, st.session_state[f"softmax.{name}"]})
    st.select_slider(t("softmax.temperature"), options, key=f"softmax.{name}", help=t("softmax.temperature_help"),
                     format_func=lambda value: f"{value:g}")


def _own(name: str, t: Words) -> None:
    st.text_area(t("softmax.scores"), key=f"softmax.{name}", help=t("softmax.scores_help"), max_chars=TEXT_LETTERS)


_DRAW: Mapping[str, Callable[[str, Words], None]] = {"n": _slider, "std": _slider, "seed": _seed, "scores": _own}
"""Part of what is asked for → its control."""
