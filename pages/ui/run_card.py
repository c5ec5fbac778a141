"""One stored run: its name, how it is, where its numbers come from, what it computes, and what can be done with it.

It knows Streamlit and the engine's door; it draws no picture of what was measured.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import streamlit as st

from core import netcdf, service, table
from core.experiment import Experiment
from core.runs import NAME_LETTERS
from core.service import RunView, StoreError
from pages.ui import explain, export, link, panels, shelf, stored
from pages.ui.language import PARAMETER
from pages.ui.link import View
from pages.ui.places import DRIFT, LIVE
from pages.ui.stored import FACTS, LOOKS, Stored
from pages.ui.text import Words, escaped
from pages.ui.training import spoken_time

PAGES = Path(__file__).resolve().parents[1]
ASKED = "runs.asked"
"""The runs that the visitor is asked about before they are deleted."""


def under_way(runs: Sequence[Stored]) -> bool:
    """Return whether any of the runs is not over yet."""
    return any(not run.view.over for run in runs)


def card(run: Stored, siblings: Sequence[Stored], t: Words) -> None:
    """Draw everything about one run. `siblings`: others that computed the same experiment."""
    view = service.view([run.view.id])[0]
    with st.container(border=True):
        heading(run, t)
        _actions(run, t)
        for said in _troubles(run, view, t):
            st.warning(said, icon=":material/info:")
        _repetitions(run, siblings, t)
        what, whence = st.columns(2, gap="large")
        with what:
            _experiment(run, t)
        with whence:
            _provenance(view, t)
        downloads(run, t)
        st.markdown(f"**{t('runs.command')}**", help=t("runs.command_help"))
        st.code(stored.command(run) if run.experiment else t("runs.no_command"), language=None, wrap_lines=True)
        with st.expander(t("runs.json"), icon=":material/data_object:"):
            st.code(_pretty(run.entry.experiment), language="json")


def heading(run: Stored, t: Words) -> None:
    """Draw what a run is called and how it is."""
    icon, color = LOOKS[run.view.status][1:]
    st.header(escaped(run.title(t)), anchor=False)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.badge(t(f"runs.status_{run.view.status}"), icon=icon, color=color)  # type: ignore[arg-type]
        st.badge(t(f"runs.kind_{run.kind}"), color="gray")
        if run.view.pinned:
            st.badge(t("runs.pinned"), icon=":material/keep:", color="blue")
        st.caption(f"{_progress(run, t)} · `{run.view.id}`")


def _progress(run: Stored, t: Words) -> str:
    done, total = max(run.view.steps_done - 1, 0), run.view.steps_total - 1
    steps = t("live.running", done=done, total=total) if total else ""
    loss = f"{t('runs.loss')} {run.loss_said()}" if run.loss is not None else ""
    waiting = t("live.queued", position=run.view.queue_position) if run.view.status == "queued" else ""
    return " · ".join(part for part in (steps, waiting, loss, stored.size(run.entry.bytes)) if part)


def _actions(run: Stored, t: Words) -> None:
    """Draw the name and the buttons."""
    view = run.view
    name = st.text_input(t("runs.name"), view.name or "", key=f"runs.name.{view.id}", width=480,
                         placeholder=t("runs.name_placeholder"), on_change=_rename, args=(view.id,))
    if (count := _letters(name)) > NAME_LETTERS:
        st.error(t("runs.name_long", count=count, limit=NAME_LETTERS), icon=":material/block:")
    with st.container(horizontal=True, vertical_alignment="center"):
        open_link([run], t)
        if view.pinned:
            st.button(t("runs.unpin"), icon=":material/keep_off:", on_click=service.pin, args=(view.id, False))
        else:
            st.button(t("runs.pin"), icon=":material/keep:", on_click=service.pin, args=(view.id,),
                      help=t("runs.pin_help"))
        if not view.over:
            st.button(t("live.stop"), icon=":material/stop:", on_click=service.cancel, args=([view.id],))
        if view.status in service.RESUMABLE and run.experiment:
            st.button(t("live.resume"), icon=":material/play_arrow:", on_click=_go_on, args=(view.id,),
                      help=_goes_on(view.id, t))
        st.button(t("runs.repeat"), icon=":material/replay:", on_click=_repeat, args=(view.id,),
                  help=t("runs.repeat_help"), disabled=run.experiment is None)
        delete_button([run], t)


def _rename(run_id: str) -> None:
    name = st.session_state[f"runs.name.{run_id}"]
    if _letters(name) <= NAME_LETTERS:
        service.rename(run_id, name)


def _letters(name: str) -> int:
    """Count a name's letters as the store counts them."""
    return len(" ".join(name.split()))


def _go_on(run_id: str) -> None:
    service.resume([run_id])


def _goes_on(run_id: str, t: Words) -> str:
    step = service.checkpoints([run_id]).get(run_id)
    return t("runs.from_start") if step is None else t("live.resumable", step=step)


def _repeat(run_id: str) -> None:
    """Compute the run once more, and choose both; of one that was deleted meanwhile the page says so."""
    try:
        shelf.choose([run_id, service.repeat(run_id)])
    except StoreError:
        return


def delete_button(runs: Sequence[Stored], t: Words) -> None:
    """Draw the button that asks whether these runs are to be deleted; what is under way has to be stopped first."""
    active = under_way(runs)
    st.button(t("runs.delete"), icon=":material/delete:", key="runs.delete", disabled=active,
              help=t("runs.delete_active") if active else None, on_click=_ask, args=([run.view.id for run in runs],))


def _ask(run_ids: Sequence[str]) -> None:
    st.session_state[ASKED] = tuple(run_ids)


def confirm(runs: Sequence[Stored], t: Words) -> None:
    """Ask before deleting, when the visitor wants to delete; `runs`: all there are. Stays until it is answered."""
    asked = [run for run in runs if run.view.id in st.session_state.get(ASKED, ())]
    if asked:
        st.dialog(t("runs.delete_title"), on_dismiss=_forget)(_confirm)(asked, t)


def _confirm(runs: Sequence[Stored], t: Words) -> None:
    if ASKED not in st.session_state:  # answered just now; only drawing the page anew closes a dialog
        st.rerun()
    st.markdown(t("runs.delete_lost"))
    st.markdown("\n".join(f"- **{escaped(run.title(t))}** · {_progress(run, t)}" for run in runs[:10]))
    if len(runs) > 10:
        st.markdown(t("runs.delete_more", count=len(runs) - 10))
    with st.container(horizontal=True):
        st.button(t("runs.delete_now"), type="primary", icon=":material/delete:", key="runs.delete_now",
                  on_click=_delete, args=([run.view.id for run in runs],))
        st.button(t("runs.keep"), key="runs.keep", on_click=_forget)


def _delete(run_ids: Sequence[str]) -> None:
    service.remove(run_ids)
    shelf.choose([run for run in shelf.sought().chosen if run not in run_ids])
    _forget()


def _forget() -> None:
    st.session_state.pop(ASKED, None)


def open_link(runs: Sequence[Stored], t: Words) -> None:
    """Draw the link that opens runs of one kind on the page that shows them; nothing where no page can."""
    different = [run for place, run in enumerate(runs) if run.view.key not in {one.view.key for one in runs[:place]}]
    experiments = [run.experiment for run in different if run.experiment is not None]
    kinds = {run.kind for run in runs}
    if len(experiments) < len(different) or len(kinds) > 1:
        return
    place, label, query = _OPEN[kinds.pop()]
    if len(different) <= place.most + 1:
        st.page_link(str(PAGES / f"{place.name}.py"), label=f"**{t(label)}**", icon=":material/open_in_full:",
                     query_params={PARAMETER: t.lang, **query(different, experiments)})


def _live_query(runs: Sequence[Stored], _experiments: Sequence[Experiment]) -> Mapping[str, str]:
    return {link.RUNS: ".".join(run.view.id for run in runs)}


def _drift_query(_runs: Sequence[Stored], experiments: Sequence[Experiment]) -> Mapping[str, str]:
    """Return the query that shows the first as the base, the others as its variants."""
    base = Experiment().with_values(_shown(experiments[0].differences()))
    return link.write(View(base=base, variants=tuple(_shown(other.differences(experiments[0]))
                                                     for other in experiments[1:])), DRIFT)


def _shown(changes: Mapping[str, Any]) -> dict[str, Any]:
    return {path: value for path, value in changes.items() if path not in DRIFT.withheld}


_OPEN = {"training": (LIVE, "runs.open_live", _live_query), "probe": (DRIFT, "runs.open_drift", _drift_query)}


def _troubles(run: Stored, view: RunView, t: Words) -> list[str]:
    """Say what went wrong with a run."""
    said = [t("drift.failed_reason", reason=escaped(view.error))] if view.error else []
    if view.deaths:
        said.append(t("live.died", count=view.deaths))
    if run.refused:
        said.append(t("runs.other_version", reason=explain.refused(run.refused, t)))
    return said


def _repetitions(run: Stored, siblings: Sequence[Stored], t: Words) -> None:
    """Say how often the same was computed, and lead to the difference."""
    if siblings:
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(t("runs.repetitions", count=len(siblings)))
            st.button(t("runs.compare_repetition"), icon=":material/difference:", type="tertiary",
                      on_click=shelf.choose, args=([run.view.id, siblings[0].view.id],))


def facts(rows: Mapping[str, str]) -> None:
    """Draw names and values, both in Markdown, as a table without a head."""
    st.table({"name": list(rows), "value": list(rows.values())}, border="horizontal", hide_index=True,
             hide_header=True)


def _experiment(run: Stored, t: Words) -> None:
    st.markdown(f"**{t('runs.experiment')}**")
    if run.changes:
        facts({escaped(stored.named(path, t)): escaped(stored.valued(path, value, t))
               for path, value in run.changes.items()})
    else:
        st.markdown(run.differs(t))


def _provenance(view: RunView, t: Words) -> None:
    """Draw where a run's numbers come from."""
    known = {t(f"runs.fact_{name}"): escaped(str(view.provenance[name])) for name in FACTS if name in view.provenance}
    times = {"created": view.created, "started": view.started, "finished": view.finished}
    known |= {t(f"runs.{name}"): shelf.local(at) for name, at in times.items() if at}
    if view.started and view.finished:
        known[t("runs.took")] = spoken_time(view.finished - view.started, t)
    if "resumed_at" in view.provenance:
        known[t("runs.resumed")] = escaped(str(view.provenance["resumed_at"]))
    st.markdown(f"**{t('runs.provenance')}**")
    facts(known)


DOWNLOADS: Mapping[str, tuple[str, str, float, float]] = {
    ".parquet": ("Parquet", "application/vnd.apache.parquet", 1.1, 4e3),
    ".csv": ("CSV", "text/csv", 15.5, 0),
    ".nc": ("netCDF", "application/netcdf", 1.2, 3e5),
}
"""A download's ending → its name, its media type, its size per byte in the store, and what comes to it (measured)."""


def downloads(run: Stored, t: Words) -> None:
    """Draw the ways to take a run's numbers away; a file is made when it is asked for."""
    st.markdown(f"**{t('runs.downloads')}**", help=t("runs.downloads_help"))
    with st.container(horizontal=True):
        for ending, (name, media, factor, more) in DOWNLOADS.items():
            about = stored.size(run.entry.bytes * factor + more)
            st.download_button(t("runs.download", format=name, size=about), partial(content, ending, run.view.id),
                               f"driftscope-{run.view.id}{ending}", media, icon=":material/download:",
                               key=f"runs.download{ending}", on_click="ignore", disabled=not run.view.steps_done)
        if run.view.over and run.view.steps_done and run.experiment:
            panels.hand_out(partial(export.made, [run.view.id], (), t), run.view.id, t)


def content(ending: str, run_id: str) -> bytes:
    """Return all that a run has recorded as a file with this ending (a key of DOWNLOADS)."""
    view, trace = service.view([run_id])[0], service.trace(run_id)
    if ending in table.FORMATS:
        steps = [table.tidy(type(trace)((snapshot,)), run_id, view.name) for snapshot in trace.snapshots]
        return table.FORMATS[ending](table.concatenate(steps))
    return netcdf.to_bytes([netcdf.Recording(trace, run_id, service.experiment(run_id), view.provenance,
                                             view.name or "")])


def _pretty(text: str) -> str:
    try:
        return json.dumps(json.loads(text), indent=1, ensure_ascii=False)
    except ValueError:
        return text
