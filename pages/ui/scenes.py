"""A state of a page as pictures, away from its page: what a lesson shows, and what is handed out.

Each page that can be shown so is one entry of SCENES: it reads the state as the page reads its link, measures as the
page measures, and draws nothing of its own but what stands in the way. It knows Streamlit, links and views.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from types import MappingProxyType

from core.worked import worked
from pages.ui import (
    bench,
    bench_views,
    comparing,
    controls,
    feed,
    lab,
    link,
    recall,
    softmax_link,
    tensor_link,
    worksheet,
)
from pages.ui.cache import Measured
from pages.ui.handout_blocks import Block
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
from pages.ui.watching import Watched

Query = Mapping[str, str]
Draw = Callable[[], None]


@dataclass(frozen=True)
class Part:
    """What a state shows that is no picture. `draw`: draws it; `blocks`: makes it as a part of a hand-out."""

    draw: Draw
    blocks: Callable[[], Sequence[Block]]


@dataclass(frozen=True)
class Scene:
    """What a state shows: pictures, made of what was measured, and what is no picture, by name.

    `feed`: address of the event stream that the pictures follow.
    """

    make: Callable[[Sequence[Measured]], Sequence[Picture]] = lambda _measured: ()
    measured: Sequence[Measured] = ()
    others: Mapping[str, Part] = field(default_factory=lambda: MappingProxyType({}))
    feed: str = ""

    @cached_property
    def pictures(self) -> dict[str, Picture]:
        """The pictures by their keys."""
        return {picture.key: picture for picture in self.make(self.measured)}

    def keep(self) -> Callable[[], Scene]:
        """Return what brings the scene back, its numbers read anew from the store. Errors: StoreError."""
        parts = {name: replace(part, draw=_nothing) for name, part in self.others.items()}  # what draws holds numbers
        kept, light = list(map(recall.keep, self.measured)), replace(self, measured=(), others=parts)
        return lambda: replace(light, measured=[one() for one in kept])


def _nothing() -> None:
    """Draw nothing."""


Make = Callable[[Query, str, Words], Scene]
"""From a page's query, a name of the place where it is drawn, and words."""


def scene(state: State, key: str, t: Words) -> Scene:
    """Return what a state shows; what stands in the way is said. `key`: constant for the place where it is drawn."""
    return SCENES[state.page](state.query, key, t)


def _compared(place: Place, views: Mapping[str, Viewpoint | Lab]) -> Make:
    """Return what makes the scenes of a page that compares."""

    def make(query: Query, key: str, t: Words) -> Scene:
        view, _ = link.read(query, place)
        looked, shown = views[view.shown["view"]], dict(view.shown)
        if isinstance(looked, Lab):
            return Scene(lambda _measured: [one.picture for one in looked.make(shown, t)])
        compared, _ = link.compared(View(base=view.base, variants=looked.variants or view.variants))
        stage = comparing.taken(looked, controls.named(compared, t), shown, t, key)
        if not stage.finished:
            return Scene()
        shown["who"] = stage.among_finished(shown["who"])
        return Scene(lambda measured: looked.make(measured, shown, t), stage.finished)

    return make


def _live(query: Query, key: str, t: Words) -> Scene:
    view, _ = link.read(query, LIVE)
    looked, shown = LIVE_VIEWS[view.shown["view"]], view.shown
    watched = lab.trainings(controls.named(link.compared(view)[0], t), t, key, over=False)
    having = [one for one in watched if one.trace is not None]
    if not having:
        return Scene()
    return Scene(lambda measured: looked.make(_watched(measured), shown, t), having,
                 feed=feed.address(having, shown, t))


def _watched(measured: Sequence[Measured]) -> list[Watched]:
    return [one for one in measured if isinstance(one, Watched)]


def _bench(query: Query, key: str, t: Words) -> Scene:
    view, _ = link.read(query, NORM_BENCH)
    looked, shown = bench_views.VIEWS[view.shown["view"]], view.shown
    found = bench.found(bench.asked(view.base, shown), shown, t, key)
    if looked.costs:
        found = bench.with_costs(found, view.base, t, key)
    if not found.measured:
        return Scene()
    bare = replace(found, measured=())
    return Scene(partial(bench_views.made_of, looked, bare, shown, t), found.measured)


def _softmax(query: Query, _key: str, t: Words) -> Scene:
    asked, _ = softmax_link.read(query)
    return Scene(lambda _measured: [one.picture for one in softmax.told(asked, asked.row(), t)])


def _tensor(query: Query, _key: str, t: Words) -> Scene:
    asked, _ = tensor_link.read(query)
    sheet = worked(asked.norm, asked.tensor(), asked.dials())
    steps = Part(partial(worksheet.steps, sheet, asked.entry, t), partial(worksheet.blocks, sheet, asked.entry, t))
    return Scene(lambda _measured: [tensor.block(asked, sheet, t), tensor.pools(asked, sheet, t)],
                 others={"steps": steps})


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
