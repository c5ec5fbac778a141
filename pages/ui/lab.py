"""How the views of the BatchNorm page are measured: which experiment of each variant, with which look, who starts it.

Probes are asked for as everywhere; a training waits for Start, and belongs to the store like any other. It knows
Streamlit, runs and looks; what they show is made by `pages.ui.views`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import streamlit as st

from core import service
from core.cost import cost, together
from core.experiment import Experiment
from core.fields import ExperimentError
from core.look import CompanionShift, EvaluationGap, Look, PaddingShift, SampleLeak, TokenLeak
from core.rules import layer_norms
from core.service import StoreError
from pages.ui import explain, feed, fields, progress, stage, training
from pages.ui.link import Variant
from pages.ui.stage import Stage
from pages.ui.text import Words
from pages.ui.watching import Watched

Shown = Mapping[str, str]

STARTED, REFUSED = "lab.started", "lab.refused"
"""The runs that this visit was given, by their experiments' canonical JSON; why the engine refused to start, if so."""

LARGEST_BATCH = 32
"""So many sequences are the whole batch that companions are taken from."""

POINTS = 20
"""About so many steps of a training are recorded."""

ALONE: Mapping[str, Any] = {"model.dropout": 0.0}
"""Dropout draws other numbers for a batch of another shape, which would be taken for a shift."""


def exchanged(shown: Shown) -> Look:
    """Return the look at what an exchange moves."""
    sample, position = int(shown["sample"]), int(shown["position"])
    return TokenLeak(sample, position) if shown["exchange"] == "token" else SampleLeak(sample)


def leak(variants: Sequence[Variant], shown: Shown, t: Words, place: str) -> Stage:
    """Measure what the exchange moves in each variant."""
    return stage.measured(variants, t, f"{place}.leak", exchanged(shown))


def batch(variants: Sequence[Variant], shown: Shown, t: Words, place: str) -> Stage:
    """Measure each variant in batches of all sizes, of whole sequences or of one token each."""
    size = {"input.batch": LARGEST_BATCH, "input.lengths": None, **({"input.seq_len": 1} if one_token(shown) else {})}
    return stage.measured(_changed(variants, {**ALONE, **size}), t, f"{place}.batch", CompanionShift())


def one_token(shown: Shown) -> bool:
    """Return whether batches are of sequences of a single token."""
    return shown["tokens"] == "one"


def lengths(variants: Sequence[Variant], _shown: Shown, t: Words, place: str) -> Stage:
    """Measure each variant with more and more padding; one with a batchnorm under both rules for it."""
    found = [one for variant in _changed(variants, ALONE) for one in _both_rules(variant, t)]
    distinct = {one.experiment.canonical_json(): one for one in found}
    return stage.measured(list(distinct.values()), t, f"{place}.lengths", PaddingShift())


def gap(variants: Sequence[Variant], shown: Shown, t: Words, place: str) -> Stage:
    """Show the trainings of the variants as far as they are, with the buttons that start and stop them."""
    steps = int(shown["steps"])
    try:
        taken = _changed(variants, {"protocol.mode": "train", "protocol.steps": steps,
                                    "protocol.record_every": max(1, steps // POINTS)})
    except ExperimentError as error:  # what evaluation takes, such as a single token, training may not
        st.error(explain.refused(error, t), icon=":material/block:")
        return Stage()
    having = [one for one in trainings(taken, t, place, EvaluationGap()) if one.trace is not None]
    return Stage(tuple(having), places=tuple(taken.index(one.variant) for one in having))


def trainings(variants: Sequence[Variant], t: Words, place: str, look: Look | None = None,
              over: bool = True) -> list[Watched]:
    """Return the trainings of variants that were started, with the buttons that start and stop them.

    `place`: where on a page they stand; `look`: what their runs keep besides; `over`: whether those that are over are
    spoken of too.
    """
    if not service.ready_to_ask():
        progress.engine(t)
        return []
    if refused := st.session_state.pop(REFUSED, None):
        st.error(explain.refused(refused, t), icon=":material/block:")
    runs = _runs(variants, look)
    if not all(runs):
        _offer([one.experiment for one, run in zip(variants, runs, strict=True) if not run], place, look, t)
    watched = feed.watch([(run, variant) for run, variant in zip(runs, variants, strict=True) if run])
    if over or not all(one.run.over for one in watched):
        training.follow([one.run for one in watched], [one.name for one in watched], training.shape(watched), t,
                        place)
    return watched


def _changed(variants: Sequence[Variant], changes: Mapping[str, Any]) -> list[Variant]:
    return [replace(one, experiment=one.experiment.with_values(changes)) for one in variants]


def _both_rules(variant: Variant, t: Words) -> list[Variant]:
    """Return the variant under both rules for padding, where it has a norm that has one."""
    if "batchnorm" not in layer_norms(variant.experiment):
        return [variant]
    path, name = "model.bn_padding", variant.name
    return [replace(variant, changes={**variant.changes, path: rule}, name=name if said in name else f"{name} · {said}",
                    experiment=variant.experiment.with_values({path: rule}))
            for rule in ("masked", "pooled") for said in [fields.spoken_value("bn_padding", t)(rule)]]


def _runs(variants: Sequence[Variant], look: Look | None) -> list[str]:
    """Return the run of each variant, one that this visit was given or one that stands for everybody; "" for none."""
    mine: dict[str, str] = st.session_state.setdefault(STARTED, {})
    own = [mine.get(_key(one.experiment, look), "") for one in variants]
    there = service.existing([run for run in own if run])
    standing = service.standing([one.experiment for one in variants], look)
    return [run if run in there else other or "" for run, other in zip(own, standing, strict=True)]


def _key(experiment: Experiment, look: Look | None) -> str:
    return experiment.canonical_json() + ("" if look is None else look.code)


def _offer(missing: Sequence[Experiment], place: str, look: Look | None, t: Words) -> None:
    """Say what the trainings would take, and wait for Start."""
    total = together([cost(one) for one in missing])
    with st.container(border=True, horizontal=True, vertical_alignment="center"):
        st.button(t("live.start"), type="primary", icon=":material/play_arrow:", on_click=_start,
                  args=(list(missing), look), key=f"start.{place}")
        st.markdown(t("batchnorm.estimate", variants=len(missing), steps=missing[0].protocol.steps,
                      time=training.spoken_time(total.seconds, t)))


def _start(missing: list[Experiment], look: Look | None) -> None:
    """Ask for the trainings that nobody computed, as one job."""
    try:
        runs = service.ensure(missing, look)
        st.session_state[STARTED] |= dict(zip((_key(one, look) for one in missing), runs, strict=True))
    except (ExperimentError, StoreError) as error:
        st.session_state[REFUSED] = error
