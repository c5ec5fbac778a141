"""A state of a page as pictures, away from its page: what a lesson shows, and what is handed out.

Each page that can be shown so is one entry of SCENES: it reads the state as the page reads its link, measures as the
page measures, and draws nothing of its own but what stands in the way. It knows Streamlit, links and views.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType

from core.worked import worked
from pages.ui import (
    autopsy_card,
    bench,
    bench_views,
    comparing,
    controls,
    feed,
    lab,
    link,
    pitfall_cards,
    softmax_link,
    tensor_link,
    worksheet,
)
from pages.ui.cache import Measured
from pages.ui.lessons import State
from pages.ui.link import View
from pages.ui.picture import Picture
from pages.ui.places import BASICS, BATCHNORM, DRIFT, ENTROPY, GRADIENTS, LIVE, NORM_BENCH, PRECISION, Place
from pages.ui.text import Words
from pages.ui.views import (
    BASICS_VIEWS,
    ENTROPY_VIEWS,
    GRADIENT_VIEWS,
    PRECISION_VIEWS,
    VIEWS,
    Lab,
    Viewpoint,
    softmax,
    tensor,
)
from pages.ui.views.batchnorm import BATCHNORM_VIEWS
from pages.ui.views.training import LIVE_VIEWS

Query = Mapping[str, str]
Draw = Callable[[], None]


@dataclass(frozen=True)
class Scene:
    """What a state shows: pictures by their keys, what they are of, and what is no picture, by name.

    `feed`: address of the event stream that the pictures follow.
    """

    pictures: Mapping[str, Picture] = field(default_factory=lambda: MappingProxyType({}))
    measured: Sequence[Measured] = ()
    others: Mapping[str, Draw] = field(default_factory=lambda: MappingProxyType({}))
    feed: str = ""


Make = Callable[[Query, str, Words], Scene]
"""From a page's query, a name of the place where it is drawn, and words."""


def scene(state: State, key: str, t: Words) -> Scene:
    """Return what a state shows; what stands in the way is said. `key`: constant for the place where it is drawn."""
    return SCENES[state.page](state.query, key, t)


def _by_key(pictures: Sequence[Picture]) -> dict[str, Picture]:
    return {picture.key: picture for picture in pictures}


def _compared(place: Place, views: Mapping[str, Viewpoint | Lab]) -> Make:
    """Return what makes the scenes of a page that compares."""

    def make(query: Query, key: str, t: Words) -> Scene:
        view, _ = link.read(query, place)
        looked, shown = views[view.shown["view"]], dict(view.shown)
        if isinstance(looked, Lab):
            return Scene(_by_key([one.picture for one in looked.make(shown, t)]))
        compared, _ = link.compared(View(base=view.base, variants=looked.variants or view.variants))
        stage = comparing.taken(looked, controls.named(compared, t), shown, t, key)
        if not stage.finished:
            return Scene()
        shown["who"] = stage.among_finished(shown["who"])
        return Scene(_by_key(looked.make(stage.finished, shown, t)), stage.finished)

    return make


def _live(query: Query, key: str, t: Words) -> Scene:
    view, _ = link.read(query, LIVE)
    looked, shown = LIVE_VIEWS[view.shown["view"]], view.shown
    watched = lab.trainings(controls.named(link.compared(view)[0], t), t, key, over=False)
    having = [one for one in watched if one.trace is not None]
    if not having:
        return Scene()
    report = partial(looked.report or autopsy_card.alarm, having, shown, t)
    return Scene(_by_key(looked.make(having, shown, t)), having, {"report": report}, feed.address(having, shown, t))


def _bench(query: Query, key: str, t: Words) -> Scene:
    view, _ = link.read(query, NORM_BENCH)
    looked, shown = bench_views.VIEWS[view.shown["view"]], view.shown
    found = bench.found(bench.asked(view.base, shown), shown, t, key)
    if looked.costs:
        found = bench.with_costs(found, view.base, t, key)
    if not found.measured:
        return Scene()
    others = {} if looked.say is None else {"said": partial(looked.say, found, shown, t)}
    return Scene(_by_key(looked.make(found, shown, t)), found.measured, others)


def _softmax(query: Query, _key: str, t: Words) -> Scene:
    asked, _ = softmax_link.read(query)
    return Scene(_by_key([one.picture for one in softmax.told(asked, asked.row(), t)]))


def _tensor(query: Query, _key: str, t: Words) -> Scene:
    asked, _ = tensor_link.read(query)
    sheet = worked(asked.norm, asked.tensor(), asked.dials())
    return Scene(_by_key([tensor.block(asked, sheet, t), tensor.pools(asked, sheet, t)]),
                 others={"steps": partial(worksheet.steps, sheet, asked.entry, t),
                         "pitfalls": partial(pitfall_cards.cards, asked, sheet.values("x"), t)})


SCENES: dict[str, Make] = {
    "basics": _compared(BASICS, BASICS_VIEWS),
    "drift": _compared(DRIFT, VIEWS),
    "gradients": _compared(GRADIENTS, GRADIENT_VIEWS),
    "entropy": _compared(ENTROPY, ENTROPY_VIEWS),
    "precision": _compared(PRECISION, PRECISION_VIEWS),
    "batchnorm": _compared(BATCHNORM, BATCHNORM_VIEWS),
    "norms": _bench,
    "live": _live,
    "softmax": _softmax,
    "tensor": _tensor,
}
"""Page → what makes its scenes."""
