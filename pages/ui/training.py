"""The trainings of a visit: which runs stand for its settings, how they are started, stopped and gone on with.

Runs belong to the store: whoever opens the page with the same settings, or with the runs' ids, sees the same runs. The
file knows Streamlit, runs and buttons; what is drawn of the runs is made by the views.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import streamlit as st

from core import service
from core.cost import cost, together
from core.experiment import Experiment, parse
from core.fields import ExperimentError
from core.service import RunView, StoreError
from pages.ui import explain, feed, fields, progress, sight
from pages.ui.controls import Controls
from pages.ui.link import Notice, Variant, View
from pages.ui.showing import drawn_last, while_active
from pages.ui.text import Words, escaped
from pages.ui.watching import Watched

FIRST = ("protocol.steps", "protocol.lr", "protocol.optimizer", "protocol.warmup", "protocol.schedule",
         "protocol.grad_clip", "input.batch", "input.seq_len", "protocol.dtype", "protocol.record_every")
"""The fields of a training that stand in the open."""

COLUMNS = 5
WATCH_S = 1.0
STARTED = "live.started"
"""The runs that this visit was given, by the canonical JSON of their experiments."""

PRESSED = "live.pressed"
"""Whether Start was pressed. What the widgets say when the page is drawn next is started: a value may come with it."""

SEEN = "live.seen"
"""The runs that this visit watched and that may go on, with their names."""

Shape = tuple[tuple[str, bool], ...]


def adopt(desk: Controls) -> list[Notice]:
    """Take the settings from the runs that a link names, where it says none of its own; return what was wrong."""
    view, notices = desk.view, []
    new = [run for run in view.runs if run not in _started().values()]
    for run in new:
        try:
            if service.view([run])[0].lane == "train":
                _started()[service.experiment(run)] = run
            else:
                notices.append(Notice("live.not_training", {"value": run}))
        except StoreError:
            notices.append(Notice("live.no_run", {"value": run}))
    known = {run: content for content, run in _started().items()}
    mine = [known[run] for run in view.runs if run in known]
    if desk.only_runs and mine:
        _take(desk, mine, notices)
    return notices


def _take(desk: Controls, contents: Sequence[str], notices: list[Notice]) -> None:
    """Show the settings of stored runs: the first is the base, the others are its variants."""
    try:
        first, *others = [parse(content).shortened(_device()) for content in contents]
    except ExperimentError as error:
        notices.append(Notice("live.old_run", {}, error))
        return
    changes = tuple(other.differences(first) for other in others)
    desk.take(View(desk.view.preset, first, changes, desk.view.shown, desk.view.runs))


def _device() -> str:
    return service.device() or "cpu"


def _started() -> dict[str, str]:
    found: dict[str, str] = st.session_state.setdefault(STARTED, {})
    return found


def panel(variants: Sequence[Variant], wrong: ExperimentError | None, t: Words) -> list[Watched]:
    """Draw the training's settings, buttons and progress; return the runs that stand for the variants.

    Where none does, nothing is returned: the page waits for Start, which is not offered while a setting is `wrong`.
    """
    pressed = st.session_state.pop(PRESSED, False)
    refused = _start([one.experiment for one in variants]) if pressed and wrong is None else None
    runs = _runs(variants)
    _first(t, expanded=not any(runs))
    if wrong:
        st.error(t("live.refused", reason=explain.refused(wrong, t)), icon=":material/block:")
    if not service.ready_to_ask():
        progress.engine(t)
        return []
    if refused:
        st.error(explain.refused(refused, t), icon=":material/block:")
    elif not wrong and not all(runs):
        _offer([one.experiment for one in variants], runs, t)
    watched = feed.watch([(run, variant) for run, variant in zip(runs, variants, strict=True) if run])
    follow([one.run for one in watched], [one.name for one in watched], shape(watched), t)
    _follow_earlier(watched, t)
    return watched


def _first(t: Words, expanded: bool) -> None:
    """Draw the fields of a training that stand in the open."""
    with st.expander(t("live.settings"), icon=":material/model_training:", expanded=expanded):
        for place, path in enumerate(FIRST):
            if place % COLUMNS == 0:
                columns = st.columns(COLUMNS)
            with columns[place % COLUMNS]:
                fields.widget(path, t)


def follow(runs: Sequence[RunView], names: Sequence[str], drawn: Shape, t: Words, place: str = "live") -> None:
    """Draw how far the runs are, again and again while they are under way. `drawn`: their `shape` now.

    `place`: where on a page they stand.
    """
    if runs:
        while_active(runs, WATCH_S)(_progress)([run.id for run in runs], list(names), drawn, t, place)


def _follow_earlier(watched: Sequence[Watched], t: Words) -> None:
    """Draw how far the runs are that were watched before the settings changed, with the buttons that stop them.

    Those that ended are left out, but for one that may go on and is drawn still.
    """
    seen: dict[str, str] = st.session_state.setdefault(SEEN, {})
    seen |= {one.run.id: one.name for one in watched}
    there, now = service.existing(list(seen)), {one.run.id for one in watched}
    for name in (name for run, name in seen.items() if run not in there):
        st.warning(t("live.deleted", name=escaped(name)), icon=":material/delete:")
    views = service.view([run for run in seen if run in there])
    still = set() if watched else drawn_last()
    kept = [run for run in views if not run.over or (run.id in still and run.status in service.RESUMABLE)]
    earlier = [run for run in kept if run.id not in now]
    if earlier:
        st.caption(t("live.earlier"))
        follow(earlier, [seen[run.id] for run in earlier],
               tuple((run.status if run.over else "", True) for run in earlier), t)
    st.session_state[SEEN] = {run.id: seen[run.id] for run in views if run in kept or run.id in now}


def _runs(variants: Sequence[Variant]) -> list[str | None]:
    """Return the run of each variant: one that this visit was given, else one that stands for everybody."""
    if not service.ready_to_ask():
        return [None] * len(variants)
    mine = [_started().get(one.experiment.canonical_json(_device())) for one in variants]
    standing = service.standing([one.experiment for one in variants])
    there = service.existing([run for run in mine if run])
    return [run if run in there else other for run, other in zip(mine, standing, strict=True)]


def _offer(experiments: Sequence[Experiment], runs: Sequence[str | None], t: Words) -> None:
    """Say what the training would cost, and wait for Start; over the limits, say so with the numbers.

    `runs`: those that stand for the experiments already.
    """
    if min(one.protocol.steps for one in experiments) < 1:
        st.info(t("live.no_steps"), icon=":material/info:")
        return
    try:
        service.check_size(experiments, training=True)
    except ExperimentError as error:
        st.error(explain.refused(error, t), icon=":material/block:")
        return
    new = [one for one, run in zip(experiments, runs, strict=True) if run is None]
    total = together([cost(one) for one in new])
    said = t("live.estimate", variants=len(new), steps=max(one.protocol.steps for one in new),
             time=spoken_time(total.seconds, t), gflop=f"{total.flops / 1e9:,.0f}",
             mib=f"{total.peak_bytes / 2**20:,.0f}", stored=f"{total.stored_bytes / 2**20:,.0f}")
    ahead = service.ahead(experiments[0])
    with st.container(border=True, horizontal=True, vertical_alignment="center", key=sight.PLACE):
        st.button(t("live.start"), type="primary", icon=":material/play_arrow:", on_click=_press)
        st.markdown(f"{said} {t('live.would_wait', count=ahead)}" if ahead else said)
    sight.bring()


def _press() -> None:
    st.session_state[PRESSED] = True


def _start(experiments: Sequence[Experiment]) -> ExperimentError | StoreError | None:
    """Ask for the runs; return why they were refused."""
    if min(one.protocol.steps for one in experiments) < 1:
        return None
    try:
        runs = service.ensure(experiments)
    except (ExperimentError, StoreError) as error:
        return error
    _started().update({service.experiment(run): run for run in runs})
    return None


def spoken_time(seconds: float, t: Words) -> str:
    """Say a span of time."""
    if seconds < 90:
        return t("live.seconds", count=f"{max(1, seconds):.0f}")
    return t("live.minutes", count=f"{seconds / 60:.0f}") if seconds < 5400 else t("live.hours",
                                                                                   count=f"{seconds / 3600:.1f}")


def shape(watched: Sequence[Watched]) -> Shape:
    """Return what makes the page draw itself anew when it changes: which runs are over, and which have a picture."""
    return tuple((one.run.status if one.run.over else "", one.trace is not None) for one in watched)


def _progress(run_ids: list[str], names: list[str], drawn: Shape, t: Words, place: str) -> None:
    """Show how far the runs are, and the buttons that stop them or let them go on."""
    runs = service.view(run_ids)
    now = tuple((run.status if run.over else "", run.steps_done > 0 or before[1])
                for run, before in zip(runs, drawn, strict=True))
    if now != drawn:
        st.rerun()
    resumable = service.checkpoints([run.id for run in runs if run.status in service.RESUMABLE])
    with st.container(border=True, key=f"done.{place}" if all(run.status == "done" for run in runs) else None):
        for name, run in zip(names, runs, strict=True):
            _row(name, run, resumable, t)
        with st.container(horizontal=True):
            _buttons(runs, t, place)
    progress.trouble(t)


def _row(name: str, run: RunView, resumable: dict[str, int], t: Words) -> None:
    """Say in one line how one run is."""
    share = min(run.steps_done / run.steps_total, 1.0)
    st.progress(share, text=f"**{escaped(name)}** · {_SAID[run.status](run, resumable, t)}")


Say = Callable[[RunView, dict[str, int], Words], str]


def _running(run: RunView, _resumable: dict[str, int], t: Words) -> str:
    said = [t("live.running", done=max(run.steps_done - 1, 0), total=run.steps_total - 1)]
    if run.pace:
        said.append(t("live.left", time=spoken_time((run.steps_total - run.steps_done) * run.pace, t)))
    if run.deaths:
        said.append(t("live.died", count=run.deaths))
    return " · ".join(said)


def _ended(key: str) -> Say:
    def say(run: RunView, resumable: dict[str, int], t: Words) -> str:
        reason = t("drift.failed_reason", reason=escaped(run.error)) if run.error else ""
        from_step = t("live.resumable", step=resumable[run.id]) if run.id in resumable else ""
        total = run.steps_total - 1
        ended = t("live.done_one") if (key, total) == ("done", 1) else t(
            f"live.{key}", done=max(run.steps_done - 1, 0), total=total)
        return " · ".join(part for part in (ended, reason, from_step) if part)

    return say


_SAID: dict[str, Say] = {
    "queued": lambda run, _resumable, t: t("live.queued", position=run.queue_position),
    "running": _running,
    **{status: _ended(status) for status in service.FINISHED},
}
"""Status of a run → what says it."""


def _buttons(runs: Sequence[RunView], t: Words, place: str) -> None:
    """Draw the buttons. What they do is done before anything is drawn, for drawing may end in drawing the page anew."""
    active = [run.id for run in runs if not run.over]
    ended = [run.id for run in runs if run.status in service.RESUMABLE]
    if active:
        st.button(t("live.stop"), icon=":material/stop:", key=f"{place}.stop.{runs[0].id}", on_click=service.cancel,
                  args=(active,))
    if ended:
        st.button(t("live.resume"), icon=":material/play_arrow:", type="primary", key=f"{place}.resume.{runs[0].id}",
                  on_click=_resume, args=(ended,))


def _resume(run_ids: Sequence[str]) -> None:
    service.resume(run_ids)
