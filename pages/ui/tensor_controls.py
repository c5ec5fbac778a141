"""The controls of the worked tensor, and its state in the session and in the address.

It knows Streamlit's session and query; what may be asked for is in `pages.ui.tensor_link`. What is refused stays where
it was written, and the last good tensor is in the pictures.

Shapes: B batch, T positions, D features.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import streamlit as st

from core import notation
from core.tables import NORMS
from core.worked import F64, WORKED
from pages.ui import explain, held, language, tensor_link, tensor_text
from pages.ui import query as address
from pages.ui.link import Notice
from pages.ui.tensor_link import CHOICES, PARAMETERS, PRESETS, Asked
from pages.ui.text import Words

ASKED, QUERY, CELLS, VERSION = "tensor.asked", "tensor.query", "tensor.cells", "tensor.version"
"""Session keys: what was accepted last, what the address then said, the table as text, and which table it is."""

PASTED, REFUSED = "tensor.pasted", "tensor.refused"

SCALES = tuple(10.0**power for power in range(-6, 7))
EPSILONS = (0.0, 1e-12, 1e-8, 1e-6, 1e-5, 1e-3, 0.1)

PLACES = ("b", "t", "d")
"""The three parts of what is looked at, each a control."""

Cells = list[list[list[str]]]
"""The entries as they are written, sample by sample, token by token."""


def settle() -> list[Notice]:
    """Take what is asked for from the link when it is a new one, else from this visit; fill widgets that are empty."""
    query, notices = address.read(PARAMETERS), list[Notice]()
    if address.is_another(query, st.session_state.get(QUERY), _touched):
        asked, notices = tensor_link.read(query)
        _take(asked)
    elif language.is_new():
        _lay(_written())
    held.fill(_held(), force=language.is_new())
    return notices


def _take(asked: Asked) -> None:
    """Show this from now on, in every widget."""
    st.session_state[ASKED] = asked
    _lay([[[tensor_text.said(value) for value in token] for token in sample] for sample in asked.written.tolist()])
    for name in ("gamma", "beta"):
        st.session_state[f"tensor.{name}_text"] = _spoken(getattr(asked, name))
    st.session_state.pop(REFUSED, None)
    held.fill(_held(), force=True)


def _lay(cells: Cells) -> None:
    """Begin a new table: edits of the one before are in these cells already."""
    st.session_state[CELLS] = cells
    st.session_state[VERSION] = st.session_state.get(VERSION, 0) + 1


def _held() -> dict[str, Any]:
    """Return what every widget holds, by its key."""
    state, asked = st.session_state, st.session_state[ASKED]
    values = {name: getattr(asked, name) for name in ("scale", "norm", "eps", "groups", "pool")}
    values |= {name: state[f"tensor.{name}_text"] for name in ("gamma", "beta")}
    values |= dict(zip(PLACES, asked.entry, strict=True))
    return {f"tensor.{name}": value for name, value in values.items()}


def _touched() -> bool:
    """Return whether the visitor moved a widget: the address is then an old one, not one gone back to."""
    return held.moved(_held()) or _written() != st.session_state[CELLS]


def presets(t: Words) -> None:
    """Draw the tensors to begin with, a button each."""
    with st.container(horizontal=True, vertical_alignment="center"):
        for name, asked in PRESETS.items():
            st.button(t(f"tensor.preset_{name}"), on_click=_take, args=(asked,), key=f"tensor.preset.{name}")


def table(t: Words) -> None:
    """Draw the tensor as a table to edit, a row a token, and a place to paste one; take what is good."""
    state = st.session_state
    cells = state[CELLS]
    tokens = [token for sample in cells for token in sample]
    rows: dict[str, list[str]] = {"token": [t("tensor.row", sample=b, token=token) for b, sample in enumerate(cells)
                                            for token in range(len(sample))]}
    rows |= {f"d {d}": [token[d] for token in tokens] for d in range(len(tokens[0]))}
    number = st.column_config.TextColumn(alignment="right", max_chars=24, required=True)
    st.data_editor(
        rows, key=_table_key(), num_rows="fixed", hide_index=True, disabled=["token"], alt=t("tensor.table"),
        column_config={"token": st.column_config.TextColumn(t("tensor.token"), pinned=True),
                       **{name: number for name in rows if name != "token"}})
    state[CELLS] = _written()
    x, notice = _read(state[CELLS])
    if x is not None:
        state[ASKED] = replace(state[ASKED], x=tensor_text.spelled(x))
    if notice:
        st.error(f"{explain.notice(notice, t)} {t('tensor.kept')}", icon=":material/block:")
    _paste(t)


def _table_key() -> str:
    return f"tensor.table.{st.session_state[VERSION]}"


def _written() -> Cells:
    """Return the table as text, the visitor's edits in it."""
    state = st.session_state
    cells = [[list(token) for token in sample] for sample in state[CELLS]]
    tokens = [token for sample in cells for token in sample]
    for row, changed in state.get(_table_key(), {}).get("edited_rows", {}).items():
        for name, value in changed.items():
            tokens[int(row)][int(name.removeprefix("d "))] = value or ""
    return cells


def _read(cells: Cells) -> tuple[F64 | None, Notice | None]:
    """Return what the cells say, or which of them says nothing that is allowed."""
    shape = (len(cells), len(cells[0]), len(cells[0][0]))
    x = np.empty(shape)
    for b, t, d in np.ndindex(shape):
        found, notice = tensor_text.entry_of(cells[b][t][d])
        if found is None:
            assert notice is not None
            return None, Notice("tensor.refused_cell", {"place": f"{b}.{t}.{d}", **notice.values})
        x[b, t, d] = found
    return x, None


def _paste(t: Words) -> None:
    """Draw the place where a tensor of one's own is written."""
    with st.expander(t("tensor.paste"), icon=":material/content_paste:"), st.form("tensor.paste", border=False):
        st.text_area(t("tensor.pasted"), key=PASTED, help=t("tensor.pasted_help"), height=180,
                     placeholder="[[[2, 4, 6, 8], [1, 3, 5, 7]], [[-1, 0, 1, 2], [3, 3, 3, 3]]]")
        st.form_submit_button(t("tensor.use"), on_click=_take_pasted)
    if refused := st.session_state.get(REFUSED):
        st.error(f"{explain.notice(refused, t)} {t('tensor.kept')}", icon=":material/block:")


def _take_pasted() -> None:
    x, notice = tensor_text.tensor_of(st.session_state[PASTED])
    if x is None:
        st.session_state[REFUSED] = notice
        return
    _take(replace(st.session_state[ASKED], x=tensor_text.spelled(x), at=Asked().at))


def norm(t: Words) -> None:
    """Draw the choice of the norm."""
    _choice("norm", t, lambda name: t(f"norm.{name}"))


def dials(t: Words) -> None:
    """Draw what the chosen norm can be given, and the scale of the tensor."""
    chosen = st.session_state["tensor.norm"]
    _steps("scale", SCALES, t)
    if WORKED[chosen].eps:
        _steps("eps", EPSILONS, t)
    if WORKED[chosen].alone:
        _choice("pool", t, lambda name: t(f"tensor.pool_{name}"))
    if WORKED[chosen].pool == "group":
        _groups(t)
    learns = NORMS[chosen]
    for name in ("gamma",) * bool(learns.vectors or learns.scalars) + ("beta",) * (learns.vectors > 1):
        _numbers(name, t)


def entry(t: Words) -> None:
    """Draw the three controls of what is looked at."""
    state = st.session_state
    shape = state[ASKED].written.shape
    with st.container(horizontal=True, vertical_alignment="bottom"):
        for name, size in zip(PLACES, shape, strict=True):
            state[f"tensor.{name}"] = min(state[f"tensor.{name}"], size - 1)
            st.number_input(t(f"tensor.at_{name}"), 0, size - 1, key=f"tensor.{name}", width=150)


def choose(place: str, _block: str) -> None:
    """Look at the entry that was clicked."""
    for name, value in zip(PLACES, place.split("."), strict=True):
        st.session_state[f"tensor.{name}"] = int(value)


def asked() -> tuple[Asked, list[Notice]]:
    """Return what is asked for, with what does not fit the tensor replaced, and a notice for each of these."""
    state = st.session_state
    values = {name: state[f"tensor.{name}"] for name in ("scale", "norm", "eps", "groups", "pool")}
    place = ".".join(str(state[f"tensor.{name}"]) for name in PLACES)
    state[ASKED] = replace(state[ASKED], **values, at=place)
    return tensor_link.settled(state[ASKED])


def mirror(shown: Asked) -> None:
    """Write what is shown into the address."""
    st.session_state[QUERY] = query = shown.write()
    address.write(query, PARAMETERS)


def _choice(name: str, t: Words, said: Callable[[str], str]) -> None:
    st.segmented_control(t(f"tensor.{name}"), CHOICES[name], key=f"tensor.{name}", required=True,
                         help=t(f"tensor.{name}_help"), format_func=said)


def _steps(name: str, values: tuple[float, ...], t: Words) -> None:
    options = sorted({*values, st.session_state[f"tensor.{name}"]})
    st.select_slider(t(f"tensor.{name}"), options, key=f"tensor.{name}", help=t(f"tensor.{name}_help"),
                     format_func=lambda value: notation.number(value).plain)


def _groups(t: Words) -> None:
    """Draw into how many groups the features split."""
    key, width = "tensor.groups", st.session_state[ASKED].written.shape[2]
    options = sorted({*tensor_link.divisors(width), st.session_state[key]})
    st.segmented_control(t("tensor.groups"), options, key=key, required=True, help=t("tensor.groups_help"))


def _numbers(name: str, t: Words) -> None:
    """Draw γ or β, one number or one for each feature; where it is refused, say why."""
    state = st.session_state
    text = state[f"tensor.{name}_text"] = st.text_input(t(f"tensor.{name}"), key=f"tensor.{name}",
                                                        help=t(f"tensor.{name}_help"), max_chars=400)
    found, notice = tensor_link.listed_of(text)
    if found is not None:
        changed: Mapping[str, Any] = {name: found}
        state[ASKED] = replace(state[ASKED], **changed)
    if notice:
        st.error(explain.notice(notice, t), icon=":material/block:")


def _spoken(listed: str) -> str:
    return listed.replace("_", ", ")
