"""The source of live charts: the runs and the view that a query names, as figures that a page follows.

The same views make them that made the page; the same store is read. It knows queries, not who asks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from core import service
from core.experiment import Experiment, parse
from pages.ui import link, stream
from pages.ui.cache import Measured
from pages.ui.events import Look
from pages.ui.link import Variant
from pages.ui.patches import Figure, plain
from pages.ui.places import LIVE
from pages.ui.text import LANGUAGES, Words
from pages.ui.views.training import LIVE_VIEWS
from pages.ui.watching import Watched

PLAYER = "player"
"""Name of the figure that holds the recorded steps."""

PARAMETERS = frozenset({*LIVE.shown, link.RUNS, "lang", "names", "active"} - {"step"})
"""What a query may say."""

NAME_LETTERS = 120


def address(watched: Sequence[Watched], shown: Mapping[str, str], t: Words) -> str:
    """Return where the figures of these runs, shown like this, are followed."""
    names = link.pack([[one.name[:NAME_LETTERS], one.variant.key[:NAME_LETTERS]] for one in watched])
    wanted = {name: value for name, value in shown.items() if name != "step"}
    active = sum(not one.run.over for one in watched)  # a stream that has ended is not asked again, and runs may go on
    return stream.live({**wanted, link.RUNS: ".".join(one.run.id for one in watched), "lang": t.lang, "names": names,
                        "active": active})


def look(query: Mapping[str, str]) -> Look:
    """Return the figures that a query asks for, as they are now.

    Errors: ValueError for a query that no page wrote; StoreError for a run that is not in the store.
    """
    shown = {name: _one_of(query, name, values) for name, values in LIVE.shown.items() if name != "step"}
    t = Words(_one_of(query, "lang", LANGUAGES))
    watched = _watched(query)
    pictures = LIVE_VIEWS[shown["view"]].make(watched, shown, t)
    figures = {one.key: plain(one.figure) for one in pictures if one.figure is not None}
    return Look({**figures, PLAYER: player(watched)}, all(one.run.over for one in watched))


def watch(runs: Sequence[tuple[str, Variant]]) -> list[Watched]:
    """Return the runs with their films as they are now.

    Errors: StoreError when one is not in the store.
    """
    films = service.films([run for run, _ in runs])
    return [Watched(variant, film.run, film.trace, film) for (_, variant), film in zip(runs, films, strict=True)]


def steps(watched: Sequence[Measured]) -> list[int]:
    """Return the steps through which a replay goes."""
    return sorted({step for one in watched if one.trace for step in one.trace.steps})


def player(watched: Sequence[Watched]) -> Figure:
    """Return the figure that tells a player its steps."""
    return {"data": [], "layout": {"meta": {"steps": steps(watched)}}}


def _watched(query: Mapping[str, str]) -> list[Watched]:
    runs = query.get(link.RUNS, "").split(".")
    try:
        names = [(str(name), str(key)) for name, key in link.unpack(query.get("names", ""))]
    except (TypeError, ValueError, RecursionError):
        raise ValueError("the names of the variants cannot be read") from None
    if not 0 < len(runs) == len(names) <= LIVE.most + 1:
        raise ValueError(f"there are {len(runs)} runs and {len(names)} names; allowed: 1 to {LIVE.most + 1} of each")
    return watch([(run, _variant(run, *name)) for run, name in zip(runs, names, strict=True)])


@lru_cache(maxsize=512)
def _experiment(run: str) -> Experiment:
    return parse(service.experiment(run))


def _variant(run: str, name: str, key: str) -> Variant:
    return Variant({}, _experiment(run), name, key)


def _one_of(query: Mapping[str, str], name: str, values: object) -> str:
    value = query.get(name, LIVE.defaults.get(name, ""))
    if value not in values:  # type: ignore[operator]
        raise ValueError(f"{name} is {value[:60]!r}, which is not possible")
    return value
