"""The views of the pages that measure at initialization, each one entry of a table: its controls and its pictures.

A new view is a function from what was measured to pictures, an entry here, its name in `pages.ui.places`, and its
words (``drift_view.*``, ``gradients_view.*``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from core.experiment import Experiment
from core.service import Look
from pages.ui.cache import Measured
from pages.ui.link import Variant
from pages.ui.picture import Picture
from pages.ui.stage import Stage
from pages.ui.text import Words
from pages.ui.views import (
    attention,
    block,
    depth,
    gradients,
    head,
    judges,
    onward,
    overview,
    queries,
    spread,
    tokens,
)
from pages.ui.views.judges import Judge

Make = Callable[[Sequence[Measured], Mapping[str, str], Words], list[Picture]]
Draw = Callable[[Sequence[Measured], Words], None]
Take = Callable[[Sequence[Variant], Mapping[str, str], Words, str], Stage]
"""From variants, what is shown, words and the name of the page to what was measured."""


@dataclass(frozen=True)
class Viewpoint:
    """One view. `make`: its pictures; `asks`: the controls that change them, names in the place's `shown`.

    `judge`: its judgements on one variant, the first `spoken` said in the open; `single`: all of it is about
    the one variant that is looked at; `report`, `more`: draw what stands above, and below, the pictures and is none;
    `closer`: says which head of that variant is looked at closer; `take`: measures the variants where a probe of each
    is not what is wanted; `at_hand`: fields of the base above the charts, in place of those of the page.
    """

    make: Make
    judge: Judge
    asks: tuple[str, ...] = ()
    spoken: int = 1
    single: bool = False
    report: Draw | None = None
    more: Draw | None = None
    closer: Callable[[Experiment, Mapping[str, str]], Look | None] | None = None
    take: Take | None = None
    at_hand: tuple[str, ...] = ()


VIEWS: dict[str, Viewpoint] = {
    "overview": Viewpoint(overview.overview, judges.on_map, ("stat", "site", "of", "scale", "who"), spoken=2),
    "profile": Viewpoint(depth.profile, judges.on_site, ("stat", "site", "of", "scale")),
    "streams": Viewpoint(depth.streams, judges.on_stream_and_input, ("stat", "of", "scale"), spoken=3),
    "twins": Viewpoint(depth.twins, judges.on_twins, ("stat", "site", "scale"), spoken=2),
    "cosines": Viewpoint(depth.cosines, judges.on_cosines, spoken=3),
    "quantiles": Viewpoint(spread.quantiles, judges.on_quantiles, ("site", "of", "scale")),
    "exponents": Viewpoint(spread.exponents, judges.on_exponents, ("site", "of")),
    "outliers": Viewpoint(tokens.outliers, judges.on_outliers, ("who",), single=True),
    "text": Viewpoint(tokens.text, judges.on_text, ("who", "layer", "scale"), single=True),
    "wiring": Viewpoint(block.wiring, judges.on_wiring, more=block.formulas),
}
"""Those of the drift page."""

GRADIENT_VIEWS: dict[str, Viewpoint] = {
    "sites": Viewpoint(gradients.sites, judges.on_gradient, ("stat", "site", "scale", "who"), spoken=2),
    "parameters": Viewpoint(gradients.parameters, judges.on_role, ("weight", "role", "scale", "who"),
                            more=gradients.to_training),
    "clipping": Viewpoint(gradients.clip, judges.on_clipping, ("role", "scale", "who"), report=gradients.offer_limit),
    "twins": Viewpoint(depth.twins, judges.on_twins, ("stat", "site", "scale"), spoken=2),
    "theory": Viewpoint(gradients.theory, judges.on_stream_gradient),
}
"""Those of the gradients page."""

ENTROPY_VIEWS: dict[str, Viewpoint] = {
    "heads": Viewpoint(attention.heads, judges.on_attention, ("measure", "who"), more=onward.to_heads_over_steps),
    "queries": Viewpoint(queries.queries, judges.on_attention, ("who", "layer"), single=True),
    "causes": Viewpoint(attention.causes, judges.on_attention, ("who",), more=onward.to_switches),
    "weights": Viewpoint(head.weights, judges.on_attention, ("who", "layer", "head", "sequence"), single=True,
                         closer=head.look),
    "theory": Viewpoint(attention.theory, judges.on_attention),
}
"""Those of the entropy page."""
