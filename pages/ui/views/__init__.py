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
from pages.ui.link import Changes, Variant
from pages.ui.picture import Picture, Told
from pages.ui.places import HALVES
from pages.ui.stage import Stage
from pages.ui.text import Words
from pages.ui.views import (
    attention,
    block,
    casts,
    copies,
    depth,
    format_gap,
    gradients,
    head,
    headroom,
    integer,
    judges,
    onward,
    over_time,
    overview,
    queries,
    ruler,
    scores,
    silent,
    spread,
    tokens,
    underflow,
    variance,
)
from pages.ui.views.judges import Judge

Make = Callable[[Sequence[Measured], Mapping[str, str], Words], list[Picture]]
Draw = Callable[[Sequence[Measured], Words], None]
Take = Callable[[Sequence[Variant], Mapping[str, str], Words, str], Stage]
"""From variants, what is shown, words and the name of the page to what was measured."""

FIXED: Mapping[str, tuple[Changes, ...]] = {
    "formats": tuple({"protocol.dtype": name} for name in HALVES),
    "norms": tuple({"protocol.dtype": name, "model.norm_dtype": dtype, "model.norm_cast": cast} for name in HALVES
                   for dtype, cast in (("float32", "after"), ("compute", "after"), ("float32", "before"))),
}
"""What a base is compared with whatever the visitor chose, by name: the narrow formats; and each of them with a norm in
float32, a naive one, and one that is cast before γ. Its words are ``<page>.fixed_<name>``."""


@dataclass(frozen=True)
class Viewpoint:
    """One view. `make`: its pictures; `asks`: the controls that change them, names in the place's `shown`.

    `judge`: its judgements on one variant, the first `spoken` said in the open; `single`: all of it is about
    the one variant that is looked at; `report`, `more`: draw what stands above, and below, the pictures and is none;
    `closer`: says which head of that variant is looked at closer; `fixed`: a name in FIXED, where that is what the base
    is compared with; `take`: measures the variants where a probe of each is not what is wanted; `at_hand`: fields of
    the base above the charts, in place of those of the page.
    """

    make: Make
    judge: Judge
    asks: tuple[str, ...] = ()
    spoken: int = 1
    single: bool = False
    report: Draw | None = None
    more: Draw | None = None
    closer: Callable[[Experiment, Mapping[str, str]], Look | None] | None = None
    fixed: str = ""
    take: Take | None = None
    at_hand: tuple[str, ...] = ()

    @property
    def variants(self) -> tuple[Changes, ...]:
        """What the base is compared with whatever the visitor chose; empty where that is the visitor's choice."""
        return FIXED.get(self.fixed, ())


@dataclass(frozen=True)
class Lab:
    """One view of numbers alone, which needs no run. `make`: its pictures, each with what is said above it."""

    make: Callable[[Mapping[str, str], Words], list[Told]]
    asks: tuple[str, ...] = ()


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
    "time": Viewpoint(over_time.over_time, judges.on_time, ("gate", "moment", "of", "depth", "scale", "who"), spoken=2),
    "wiring": Viewpoint(block.wiring, judges.on_wiring, more=block.formulas),
}
"""Those of the drift page."""

GRADIENT_VIEWS: dict[str, Viewpoint] = {
    "sites": Viewpoint(gradients.sites, judges.on_gradient, ("stat", "site", "scale", "who"), spoken=2),
    "parameters": Viewpoint(gradients.parameters, judges.on_role, ("weight", "role", "scale", "who"),
                            more=gradients.to_training),
    "clipping": Viewpoint(gradients.clip, judges.on_clipping, ("role", "scale", "who"), report=gradients.offer_limit),
    "twins": Viewpoint(depth.twins, judges.on_twins, ("stat", "site", "scale"), spoken=2),
    "time": Viewpoint(over_time.backward, judges.on_time, ("gate", "moment", "depth", "scale", "who"), spoken=2),
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

PRECISION_VIEWS: dict[str, Viewpoint | Lab] = {
    "headroom": Viewpoint(headroom.headroom, headroom.judge, ("format", "who"), spoken=2, report=headroom.report,
                          fixed="formats"),
    "underflow": Viewpoint(underflow.underflow, underflow.judge, ("of", "who"), spoken=2, fixed="formats"),
    "silent": Viewpoint(silent.silent, silent.judge, report=silent.report, fixed="norms"),
    "difference": Viewpoint(format_gap.difference, format_gap.judge, ("stat", "site", "of"),
                            report=format_gap.report, fixed="formats"),
    "variance": Lab(variance.variance, ("arithmetic", "ratio", "sigma", "entries", "draw")),
    "integer": Lab(integer.integer, ("bits", "quantum", "root", "fraction", "entries", "draw")),
    "casts": Lab(casts.casts, ("narrow", "gamma", "entries", "draw")),
    "ruler": Lab(ruler.ruler, ("value",)),
}
"""Those of the precision page."""

BASICS_VIEWS: dict[str, Viewpoint | Lab] = {
    "scores": Lab(scores.scores, ("a", "b", "full_a", "full_b", "who")),
    "copies": Lab(copies.copies, ("gain", "depth", "width", "draw")),
}
"""Those of the first experiments."""
