"""Several stored runs beside each other: whether they are paired, in what they differ, and how far apart two lie.

It knows Streamlit, runs and the engine's comparisons; it draws no picture of what was measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import streamlit as st

from core import service
from core.difference import Difference, Gap, largest_difference
from core.service import StoreError
from pages.ui import explain, origin, shelf, stored
from pages.ui.run_card import delete_button, facts, open_link
from pages.ui.stored import LOOKS, Stored
from pages.ui.text import Words, escaped

COMPARED = 4
"""So many runs at most stand beside each other."""

LETTERS = "ABCD"


def several(runs: Sequence[Stored], t: Words) -> None:
    """Draw what can be done with several runs, and how they compare."""
    with st.container(border=True):
        st.header(t("runs.chosen", count=len(runs)), anchor=False)
        with st.container(horizontal=True, vertical_alignment="center"):
            open_link(runs, t)
            _pin_buttons(runs, t)
            delete_button(runs, t)
        if len(runs) > COMPARED:
            st.info(t("runs.compare_most", limit=COMPARED), icon=":material/info:")
            return
        if len({run.kind for run in runs}) > 1:
            st.info(t("runs.two_kinds"), icon=":material/info:")
        _pairing(runs, t)
        _fields(runs, t)
        if len(runs) == 2:
            _apart(runs[0], runs[1], t)


def _pin_buttons(runs: Sequence[Stored], t: Words) -> None:
    ids = [run.view.id for run in runs]
    if not all(run.view.pinned for run in runs):
        st.button(t("runs.pin_all"), icon=":material/keep:", on_click=_pin, args=(ids, True))
    if any(run.view.pinned for run in runs):
        st.button(t("runs.unpin_all"), icon=":material/keep_off:", on_click=_pin, args=(ids, False))


def _pin(run_ids: Sequence[str], pinned: bool) -> None:
    for run_id in run_ids:
        service.pin(run_id, pinned)


def _pairing(runs: Sequence[Stored], t: Words) -> None:
    """Say how the runs are paired, as far as that can be known."""
    experiments = [run.experiment for run in runs if run.experiment is not None]
    if len(experiments) < len(runs):
        st.caption(t("runs.pairing_unreadable"))
        return
    found = origin.paired(experiments, [view.provenance for view in service.view([run.view.id for run in runs])])
    if found is None:
        st.caption(t("runs.pairing_later"))
    else:
        explain.pairing_badge(found, t)


def _fields(runs: Sequence[Stored], t: Words) -> None:
    """Say which run is which, and draw the fields in which they differ, a column a run."""
    documents = [stored.flat(run.entry.experiment) for run in runs]
    readable = all(run.experiment for run in runs)  # fields that only follow from others are then left out
    paths = dict.fromkeys(path for run, document in zip(runs, documents, strict=True)
                          for path in (run.changes if readable else document))
    differing = [path for path in paths if len({str(document.get(path)) for document in documents}) > 1]
    for letter, run in zip(LETTERS, runs, strict=False):
        st.markdown(f"**{letter}** · {_head(run, t)}")
    if not differing:
        st.caption(t("runs.same_experiment"))
        return
    rows: dict[str, list[str]] = {t("runs.field"): [escaped(stored.named(path, t)) for path in differing]}
    for letter, document in zip(LETTERS, documents, strict=False):
        rows[letter] = [escaped(stored.valued(path, document[path], t)) if path in document else "–"
                        for path in differing]
    st.table(rows, border="horizontal", hide_index=True)


def _head(run: Stored, t: Words) -> str:
    """Say which run it is."""
    icon = LOOKS[run.view.status][1]
    return (f"**{escaped(run.title(t))}** · {icon} {t(f'runs.status_{run.view.status}')} · "
            f"{shelf.local(run.view.created)} · `{run.view.id[:8]}`")


def _apart(a: Stored, b: Stored, t: Words) -> None:
    """Say how far apart the numbers of two runs lie, as soon as both are over."""
    st.markdown(f"**{t('runs.difference')}**", help=t("runs.difference_help"))
    if not (a.view.over and b.view.over):
        st.info(t("runs.difference_later"), icon=":material/hourglass:")
        return
    try:
        with st.spinner(t("runs.comparing")):
            found = _difference(a.view.id, a.view.steps_done, b.view.id, b.view.steps_done)
    except StoreError as error:
        st.warning(escaped(str(error)), icon=":material/info:")
        return
    views = service.view([a.view.id, b.view.id])
    for said in [*sentences(found, t), *circumstances([view.provenance for view in views], t)]:
        st.markdown(said)
    gaps = {"runs.largest": found.largest, "runs.relative": found.relative, "runs.one_sided": found.first_one_sided}
    rows = {f"**{t(name)}**": _gap(gap, t) for name, gap in gaps.items() if gap is not None}
    if rows:
        facts(rows)


@lru_cache(maxsize=256)
def _difference(a: str, _steps_a: int, b: str, _steps_b: int) -> Difference:
    """Return the difference of two runs that are over; the steps tell a run that went on from what it was."""
    return largest_difference(service.trace(a), service.trace(b))


def sentences(found: Difference, t: Words) -> list[str]:
    """Say what two runs have in common."""
    if not found.same_layout:
        return [t("runs.other_layout")]
    if not found.steps:
        return [t("runs.no_common_step")]
    key, look = ("runs.differing", ":orange[:material/difference:]") if found.differing else (
        "runs.identical", ":green[:material/check_circle:]")
    numbers = {"compared": f"{found.compared:,}", "differing": f"{found.differing:,}", "steps": found.steps}
    said = [f"{look} {t(key, **numbers)}"]
    if found.only_a or found.only_b:
        said.append(t("runs.other_steps", a=found.only_a, b=found.only_b))
    if found.one_sided:
        said.append(t("runs.not_finite_apart", count=f"{found.one_sided:,}"))
    return said


def circumstances(provenances: Sequence[Mapping[str, Any]], t: Words) -> list[str]:
    """Say in what two runs were computed differently, beside their settings; nothing where they were not."""
    a, b = provenances
    differing = [name for name in ("engine", "torch", "numpy", "device", "device_name", "threads")
                 if name in a and name in b and a[name] != b[name]]
    said = [f"{t(f'runs.fact_{name}')}{t('drift.colon')}{escaped(str(a[name]))} / {escaped(str(b[name]))}"
            for name in differing]
    return [t("runs.circumstances", differing=" · ".join(said))] if said else []


def _gap(gap: Gap, t: Words) -> str:
    """Say a difference, both numbers, and where they stand."""
    step, layer = f"{t('chart.step')} {gap.step}", "" if gap.layer is None else f"{t('chart.layer')} {gap.layer}"
    head = "" if gap.head is None else f"{t('runs.head')} {gap.head}"
    place = " · ".join(part for part in (step, layer, f"`{gap.site}`", head, f"`{gap.statistic}`") if part)
    far = "" if math.isnan(gap.absolute) else t(
        "runs.apart", absolute=explain.number(gap.absolute), relative=explain.number(gap.relative)) + "  \n"
    return f"{far}A {gap.a:.9g} · B {gap.b:.9g}  \n{place}"
