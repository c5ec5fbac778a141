"""What is drawn of the runs that a page watches: the player, the pictures of a view, and what each has come to.

It knows Streamlit, views and judgements; which runs there are, and how they are started and stopped, is in
`pages.ui.training`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import streamlit as st

from core import service
from core.service import RunView, StoreError
from pages.ui import autopsy_card, dossier, explain, feed, judging, origin, panels
from pages.ui.link import Variant
from pages.ui.places import LAST as LAST_STEP
from pages.ui.player import player
from pages.ui.text import Words
from pages.ui.views.training import LiveView
from pages.ui.watching import Watched

JUDGE_S, REST_S = 3.0, 10.0

LAST = "live.last"
"""The runs that were drawn last, with their variants; they stay on screen while nothing stands for the settings."""


def while_active(runs: Sequence[RunView], seconds: float) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return what makes a fragment that draws itself anew every so many seconds, as long as a run is under way.

    Of runs that somebody may go on with it asks now and then. A run that was removed meanwhile draws the page anew.
    """
    active = any(not run.over for run in runs)
    resumable = any(run.status in service.RESUMABLE for run in runs)

    def made(part: Callable[..., None]) -> Callable[..., None]:
        def guarded(*given: object) -> None:
            try:
                part(*given)
            except StoreError:
                st.rerun()

        return st.fragment(guarded, run_every=seconds if active else REST_S if resumable else None)

    return made


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
    if len(prints) == len(having):
        kept = [(one.run.id, one.variant) for one in having]
        panels.hand_out(partial(dossier.of_live, looked, kept, shown, t), f"live-{shown['view']}", t,
                        lambda: origin.again(feed.watch(kept), t))
    while_active([one.run for one in having], JUDGE_S)(_judge)([(one.run.id, one.variant) for one in having], t)


def _draw(looked: LiveView, having: Sequence[Watched], shown: dict[str, str], t: Words) -> None:
    """Draw the player and the pictures of a view."""
    address = feed.address(having, shown, t)
    if looked.player:
        step = None if shown["step"] == LAST_STEP else int(shown["step"])
        last = feed.steps(having)[-1]
        if step is not None and step > last and all(one.run.over for one in having):
            st.info(t("live.beyond", step=step, last=last), icon=":material/info:")
        player(address, feed.PLAYER, "live.player", step=step, on_step=_stand)
    for picture in looked.make(having, shown, t):
        panels.panel(picture, having, t, "live", panels.choose, feed=address)


def drawn_last() -> set[str]:
    """Return the runs that were drawn last."""
    return {run for run, _ in st.session_state.get(LAST, [])}


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
    st.header(t("drift.verdicts"))
    columns = st.columns(min(len(runs), 3))
    for index, one in enumerate(feed.watch(runs)):
        judged = judging.of_training(one)
        with columns[index % len(columns)].container(border=True):
            explain.judgement(judged.name, judged.verdicts, t)


def _stand(step: int | None) -> None:
    st.session_state["step"] = LAST_STEP if step is None else str(step)
