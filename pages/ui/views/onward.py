"""Ways from a page to another with the same variants: to a training of them, to three switches on the same stack.

It knows links and the pages' files; it draws no picture.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import streamlit as st

from pages.ui import link
from pages.ui.cache import Measured
from pages.ui.language import PARAMETER
from pages.ui.link import View
from pages.ui.places import DRIFT, LIVE, Place
from pages.ui.text import Words

PAGES = Path(__file__).resolve().parents[2]

SWITCHES: tuple[Mapping[str, Any], ...] = (
    {"model.pattern": "identity"}, {"model.residual": False}, {"model.pattern": "uniform"})
"""What separates the causes of drift, each off by itself: attention's mixing, the residual sum, the softmax."""


def training(measured: Sequence[Measured], preset: str, **shown: str) -> dict[str, str]:
    """Return the query of the live page with the same base and variants. `preset`: what the base was chosen from."""
    return _compared(measured, preset, LIVE, LIVE.starts, shown)


def probe(measured: Sequence[Measured], preset: str) -> dict[str, str]:
    """Return the query of the drift page with the same base and variants at initialization."""
    untrained = {"protocol.steps": 0, "protocol.record_every": 1}
    return _compared(measured, preset, DRIFT, untrained, {"view": "profile"})


def _compared(measured: Sequence[Measured], preset: str, place: Place, changes: Mapping[str, Any],
              shown: Mapping[str, str]) -> dict[str, str]:
    """Return the query of a page with these variants, each with `changes`, as far as there is room for them."""
    base, *others = [one.experiment.with_values(changes) for one in measured]
    compared = tuple(other.differences(base) for other in others[:place.most])
    return link.write(View(preset, base, compared, {**place.defaults, **shown}), place)


def switches(measured: Sequence[Measured], preset: str) -> dict[str, str]:
    """Return the query of the drift page with the same base, and each switch off in turn."""
    return link.write(View(preset, measured[0].experiment, SWITCHES, {**DRIFT.defaults, "view": "profile"}), DRIFT)


def way(page: str, query: Mapping[str, str], label: str, t: Words) -> None:
    """Draw the link to a page in a state."""
    st.page_link(str(PAGES / f"{page}.py"), label=f"**{label}**", icon=":material/arrow_forward:",
                 query_params={**query, PARAMETER: t.lang})


def to_heads_over_steps(measured: Sequence[Measured], t: Words) -> None:
    """Draw the way to the same heads while they learn."""
    query = training(measured, st.session_state["preset"], view="entropy", measure=st.session_state["measure"])
    way("live", query, t("entropy.open_live"), t)


def to_switches(measured: Sequence[Measured], t: Words) -> None:
    """Draw the way to the same stack with mixing, residual and softmax switched off in turn, and say what that is."""
    st.markdown(t("entropy.switches"))
    way("drift", switches(measured, st.session_state["preset"]), t("entropy.open_switches"), t)
