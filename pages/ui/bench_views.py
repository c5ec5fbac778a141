"""The views of the norm bench, each one entry of a table, and the questions that it answers, each a state of the page.

It knows Streamlit and views; it measures nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import streamlit as st

from pages.ui import dossier, explain, panels, recall
from pages.ui.cache import Measured
from pages.ui.controls import Controls
from pages.ui.link import View
from pages.ui.picture import Picture, Subject
from pages.ui.places import NORM_BENCH
from pages.ui.text import Words
from pages.ui.views import bench, onward, ranking
from pages.ui.views.bench import Bench
from pages.ui.views.depth import Shown


@dataclass(frozen=True)
class BenchView:
    """One view. `make`: its pictures; `asks`: the controls that change them; `costs`: it shows what norms cost;
    `say`: what is said above the pictures, in Markdown.
    """

    make: Callable[[Bench, Shown, Words], list[Picture]]
    asks: tuple[str, ...]
    costs: bool = False
    say: Callable[[Bench, Shown, Words], list[str]] = lambda _found, _shown, _t: []


def _ranking(found: Bench, shown: Shown, t: Words) -> list[str]:
    rows = ranking.rows(found)
    short = ranking.summary(rows, t)
    billed = any("norm_seconds" in row.values for row in rows)
    return [*([f"**{short}**"] if short else []), ranking.table(found, rows, shown["by"], t),
            t("bench.ranked_by", by=t(f"bench.by_{shown['by']}")), *ranking.said(rows, t),
            *(bench.unfused(found, t) if billed else [])]


def _costs(found: Bench, _shown: Shown, t: Words) -> list[str]:
    taken = [] if found.costed is None else [
        explain.protocol(found.costed.experiment, found.costed.run.provenance, t)]
    return [*bench.said_of_costs(found, t), *taken]


VIEWS: dict[str, BenchView] = {
    "overlay": BenchView(bench.overlay, ("scale", "after", "when")),
    "multiples": BenchView(bench.multiples, ("number", "scale", "after", "when")),
    "ranking": BenchView(lambda found, _shown, t: [_numbers(found, t)], ("by", "after", "when"), costs=True,
                         say=_ranking),
    "costs": BenchView(bench.costs, ("way",), costs=True, say=_costs),
}


def _numbers(found: Bench, t: Words) -> Picture:
    """Return the ranking as a picture without a figure: its numbers, and what they are."""
    names = tuple(f"outcome_{name}" for name in ranking.READ)
    return Picture("ranking", None, t("bench.ranking"), Subject(extra=(*names, "norm_seconds", "norm_passes")),
                   lambda: ranking.columns(ranking.rows(found), t))


def draw(looked: BenchView, found: Bench, shown: Shown, t: Words) -> None:
    """Draw a view of what was found; of nothing, nothing: what stands in the way is said already."""
    if not found.measured:
        return
    said = looked.say(found, shown, t)
    say(said)
    for picture in looked.make(found, shown, t):
        panels.panel(picture, found.measured, t, NORM_BENCH.name)
    if looked is not VIEWS["costs"]:
        panels.pairing_and_protocol(found.measured, t)
    kept = [recall.keep(one) for one in (*found.measured, found.costed) if one]
    make = partial(made_of, looked, replace(found, measured=()), shown, t)
    panels.hand_out(partial(dossier.of_told, NORM_BENCH.name, shown, said, make, kept, t), f"norms-{shown['view']}", t,
                    partial(panels.recalled, kept, t))


def made_of(looked: BenchView, bare: Bench, shown: Shown, t: Words, measured: Sequence[Measured]) -> list[Picture]:
    """Return the pictures of a view. `bare`, `measured`: as of `refilled`."""
    return looked.make(refilled(bare, measured), shown, t)


def refilled(bare: Bench, measured: Sequence[Measured]) -> Bench:
    """Return what was found. `bare`: all of it but the candidates among what was `measured`."""
    return replace(bare, measured=[one for one in measured if one.name in bare.candidates])


def say(said: Sequence[str]) -> None:
    """Draw what is said above the pictures."""
    for one in said:
        st.markdown(one)


QUESTIONS: Mapping[str, tuple[Mapping[str, object], Mapping[str, str]]] = {
    "rms": ({}, {"norms": "layernorm,rmsnorm", "placements": "pre", "after": "100", "view": "ranking"}),
    "placement": (
        {"model.n_layers": 18, "model.d_model": 64, "model.activation": "relu", "model.bias": False,
         "model.pos_std": 0.1, "input.source": "markov", "input.batch": 16, "protocol.optimizer": "adam",
         "protocol.betas": [0.9, 0.98]},
        {"norms": "layernorm", "placements": "pre,post,sandwich", "after": "200", "view": "ranking"}),
}
"""Question → how its base differs from the page's own, and what the page shows: its answer is measured there."""


def questions(desk: Controls, t: Words) -> None:
    """Draw the questions, each the way to the state that answers it: of this page, or of the BatchNorm lab."""
    with st.container(horizontal=True, vertical_alignment="center"):
        for name, (changes, shown) in QUESTIONS.items():
            usual = View.of(NORM_BENCH)
            view = replace(usual, base=usual.base.with_values(changes), shown={**usual.shown, **shown})
            st.button(f"**{t(f'bench.ask_{name}')}**", icon=":material/help:", on_click=desk.take, args=(view,),
                      key=f"bench.ask_{name}")
        onward.way("batchnorm", {}, t("bench.ask_batch"), t)
