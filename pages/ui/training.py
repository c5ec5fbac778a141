"""The trainings of a visit: which runs stand for its settings, how they are started, stopped and gone on with.

Runs belong to the store: whoever opens the page with the same settings, or with the runs' ids, sees the same runs. The
file knows Streamlit, runs and buttons; what is drawn of the runs is made by the views.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import streamlit as st

from core import drift, service
from core.cost import check_limits, cost, together
from core.experiment import parse
from core.fields import ExperimentError
from core.learning import learning
from core.service import RunView, StoreError
from core.trace import Trace
from pages.ui import autopsy_card, explain, feed, fields, panels, progress
from pages.ui.controls import Controls
from pages.ui.link import Notice, Variant, View
from pages.ui.player import player
from pages.ui.text import Words, escaped
from pages.ui.views.training import LiveView
from pages.ui.watching import Watched

FIRST = ("protocol.steps", "protocol.lr", "protocol.optimizer", "protocol.warmup", "protocol.schedule",
         "protocol.grad_clip", "input.batch", "input.seq_len", "protocol.dtype", "protocol.record_every")
"""The fields of a training that stand in the open."""

COLUMNS = 5
WATCH_S, JUDGE_S = 1.0, 3.0
STARTED = "live.started"
"""The runs that this visit was given, by the canonical JSON of their experiments."""

LAST = "live.last"
"""The runs that were drawn last, with their variants; they stay on screen while nothing stands for the settings."""


def adopt(desk: Controls) -> list[Notice]:
    """Take the settings from the runs that a link names, where it says none of its own; return what was wrong."""
    view, notices = desk.view, []
    new = [run for run in view.runs if run not in _started().values()]
    for run in new:
        try:
            _started()[service.experiment(run)] = run
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

    Where none does, nothing is returned: the page waits for Start.
    """
    runs = _runs(variants)
    fold = st.expander(t("live.settings"), icon=":material/model_training:", expanded=not any(runs))
    with fold:
        for place, path in enumerate(FIRST):
            if place % COLUMNS == 0:
                columns = st.columns(COLUMNS)
            with columns[place % COLUMNS]:
                fields.widget(path, t)
        if wrong:
            st.error(explain.refused(wrong, t), icon=":material/block:")
    if not service.ready_to_ask():
        progress.engine(t)
        return []
    if not all(runs):
        _offer(variants, t)
    watched = feed.watch([(run, variant) for run, variant in zip(runs, variants, strict=True) if run])
    if watched:
        _while_active(watched, WATCH_S)(_progress)(
            [one.run.id for one in watched], [one.name for one in watched], _shape(watched), t)
    return watched


def _while_active(watched: Sequence[Watched], seconds: float) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return what makes a fragment that draws itself anew every so many seconds, as long as a run is under way."""
    return st.fragment(run_every=seconds if any(not one.run.over for one in watched) else None)


def _runs(variants: Sequence[Variant]) -> list[str | None]:
    """Return the run of each variant: one that this visit was given, else one that stands for everybody."""
    if not service.ready_to_ask():
        return [None] * len(variants)
    mine = [_started().get(one.experiment.canonical_json(_device())) for one in variants]
    standing = service.standing([one.experiment for one in variants])
    there = service.existing([run for run in mine if run])
    return [run if run in there else other for run, other in zip(mine, standing, strict=True)]


def _offer(variants: Sequence[Variant], t: Words) -> None:
    """Say what the training would cost, and wait for Start; over the limits, say so with the numbers."""
    experiments = [one.experiment for one in variants]
    if min(one.protocol.steps for one in experiments) < 1:
        st.info(t("live.no_steps"), icon=":material/info:")
        return
    try:
        check_limits(experiments, service.limits(training=True))
    except ExperimentError as error:
        st.error(explain.refused(error, t), icon=":material/block:")
        return
    new = [one for one, run in zip(experiments, _runs(variants), strict=True) if run is None]
    total = together([cost(one) for one in new])
    with st.container(border=True, horizontal=True, vertical_alignment="center"):
        st.button(t("live.start"), type="primary", icon=":material/play_arrow:", on_click=_start, args=(experiments,))
        st.markdown(t("live.estimate", variants=len(new), steps=max(one.protocol.steps for one in new),
                      time=spoken_time(total.seconds, t), gflop=f"{total.flops / 1e9:,.0f}",
                      mib=f"{total.peak_bytes / 2**20:,.0f}", stored=f"{total.stored_bytes / 2**20:,.0f}"))


def _start(experiments: Sequence[object]) -> None:
    """Ask for the runs; what is refused now is said by the page that is drawn next."""
    runs = service.ensure(experiments)  # type: ignore[arg-type]
    _started().update({service.experiment(run): run for run in runs})


def spoken_time(seconds: float, t: Words) -> str:
    """Say a span of time."""
    if seconds < 90:
        return t("live.seconds", count=f"{max(1, seconds):.0f}")
    return t("live.minutes", count=f"{seconds / 60:.0f}") if seconds < 5400 else t("live.hours",
                                                                                   count=f"{seconds / 3600:.1f}")


Shape = tuple[tuple[str, bool], ...]


def _shape(watched: Sequence[Watched]) -> Shape:
    """Return what makes the page draw itself anew when it changes: which runs are over, and which have a picture."""
    return tuple((one.run.status if one.run.over else "", one.trace is not None) for one in watched)


def _progress(run_ids: list[str], names: list[str], drawn: Shape, t: Words) -> None:
    """Show how far the runs are, and the buttons that stop them or let them go on."""
    runs = service.view(run_ids)
    now = tuple((run.status if run.over else "", run.steps_done > 0 or before[1])
                for run, before in zip(runs, drawn, strict=True))
    if now != drawn:
        st.rerun()
    resumable = service.checkpoints([run.id for run in runs if run.status in service.RESUMABLE])
    with st.container(border=True):
        for name, run in zip(names, runs, strict=True):
            _row(name, run, resumable, t)
        with st.container(horizontal=True):
            _buttons(runs, t)
    if service.state().status == "failed":
        st.error(t("drift.engine_failed", reason=escaped(service.state().reason)), icon=":material/error:")


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
        return " · ".join(part for part in (
            t(f"live.{key}", done=max(run.steps_done - 1, 0), total=run.steps_total - 1), reason, from_step) if part)

    return say


_SAID: dict[str, Say] = {
    "queued": lambda run, _resumable, t: t("live.queued", position=run.queue_position),
    "running": _running,
    **{status: _ended(status) for status in service.FINISHED},
}
"""Status of a run → what says it."""


def _buttons(runs: Sequence[RunView], t: Words) -> None:
    active = [run.id for run in runs if not run.over]
    ended = [run.id for run in runs if run.status in service.RESUMABLE]
    if active and st.button(t("live.stop"), icon=":material/stop:"):
        service.cancel(active)
        st.rerun(scope="fragment")
    if ended and st.button(t("live.resume"), icon=":material/play_arrow:", type="primary"):
        service.resume(ended)
        st.rerun()


def show(looked: LiveView, watched: Sequence[Watched], variants: Sequence[Variant], shown: dict[str, str],
         t: Words) -> None:
    """Draw the view of the runs; as long as one is under way its charts follow the event stream.

    Of `variants` those without a recorded step yet are left out, and `who` counts the others.
    """
    having = [one for one in watched if one.trace is not None]
    if not having and not service.ready_to_ask():
        return  # that the engine starts is said already
    if not having:
        st.info(t("live.nothing" if not watched else "live.no_step_yet"), icon=":material/hourglass:")
        _draw_earlier(looked, shown, t)
        return
    st.session_state[LAST] = [(one.run.id, one.variant) for one in having]
    looked_at = variants[int(shown["who"])].experiment
    who = next((place for place, one in enumerate(having) if one.experiment == looked_at), 0)
    shown = {**shown, "who": str(who)}
    (looked.report or autopsy_card.alarm)(having, shown, t)
    _draw(looked, having, shown, t)
    prints = [one for one in having if one.run.provenance]
    if prints:
        panels.pairing_and_protocol(prints, t)
    _while_active(having, JUDGE_S)(_judge)([(one.run.id, one.variant) for one in having], t)


def _draw(looked: LiveView, having: Sequence[Watched], shown: dict[str, str], t: Words) -> None:
    """Draw the player and the pictures of a view."""
    address = feed.address(having, shown, t)
    if looked.player:
        step = None if shown["step"] == "last" else int(shown["step"])
        player(address, feed.PLAYER, "live.player", step=step, on_step=_stand)
    for picture in looked.make(having, shown, t):
        panels.panel(picture, having, t, "live", panels.choose_site, feed=address)


def _draw_earlier(looked: LiveView, shown: dict[str, str], t: Words) -> None:
    """Draw what was looked at before the settings changed, as long as the store has it."""
    last: list[tuple[str, Variant]] = st.session_state.get(LAST, [])
    there = service.existing([run for run, _ in last])
    earlier = [one for one in feed.watch([(run, variant) for run, variant in last if run in there]) if one.trace]
    if earlier:
        st.caption(t("live.previous"))
        _draw(looked, earlier, shown, t)


def _judge(runs: Sequence[tuple[str, Variant]], t: Words) -> None:
    """Say what each training has come to, and how its stream drifts now."""
    st.subheader(t("drift.verdicts"))
    columns = st.columns(min(len(runs), 3))
    for index, one in enumerate(feed.watch(runs)):
        film = one.film
        said = [learning(film.steps.tolist(), film.losses, film.events, one.experiment)]
        if film.trace is not None:
            now = drift.verdicts(Trace(film.trace.snapshots[-1:]), one.experiment)
            said += [replace(verdict, expected="") for verdict in now]  # what is expected holds at initialization
        with columns[index % len(columns)].container(border=True):
            explain.judgement(one.name, said, t)


def _stand(step: int | None) -> None:
    st.session_state["step"] = "last" if step is None else str(step)
