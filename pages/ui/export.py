"""``python -m pages.ui.export RUN [RUN …] --html FILE``: stored runs as one HTML file that opens without a network.

It reads the store; it starts no server and no worker. Exit status: 0 written; 2 refused, one line on standard error.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from core import service
from core.experiment import Experiment, parse
from core.fields import ExperimentError
from core.service import RunView, SettingError, StoreError
from pages.ui import controls, dossier, feed
from pages.ui.cache import Measured
from pages.ui.handout import Section
from pages.ui.link import Variant
from pages.ui.places import DRIFT, LIVE, Place
from pages.ui.text import LANGUAGES, Words
from pages.ui.views import VIEWS
from pages.ui.views.training import LIVE_VIEWS

DONE, REFUSED = 0, 2

PROBE_VIEWS = ("overview", "streams", "twins", "cosines")
TRAINING_VIEWS = ("overview",)
"""The views that are handed out where none is named."""

BY_LANE: Mapping[str, tuple[Place, Mapping[str, object], Sequence[str]]] = {
    "probe": (DRIFT, VIEWS, PROBE_VIEWS), "train": (LIVE, LIVE_VIEWS, TRAINING_VIEWS),
}
"""Lane of a run → the page that shows it, its views, and those that are handed out where none is named."""


class Refusal(Exception):
    """What was asked cannot be handed out, in one sentence."""


class _Parser(argparse.ArgumentParser):
    """A parser whose complaint is one line."""

    def error(self, message: str) -> NoReturn:
        raise Refusal(f"{message}; {self.prog} --help lists what is allowed")


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the file and return the exit status."""
    try:
        options = _parser().parse_args(arguments)
        content = made(options.runs, options.view, Words(options.lang))
        options.html.write_bytes(content)
    except (Refusal, ExperimentError, StoreError, SettingError) as error:
        return _refuse(str(error))
    except OSError as error:
        return _refuse(f"the file cannot be written: {error}")
    return DONE


def _refuse(sentence: str) -> int:
    print(" ".join(sentence.split()), file=sys.stderr)
    return REFUSED


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m pages.ui.export", description="Write stored runs as one HTML file.")
    parser.add_argument("runs", nargs="+", metavar="RUN", help="ids of runs of one kind, the base first")
    parser.add_argument("--html", required=True, type=Path, metavar="FILE", help="the file that is written")
    parser.add_argument("--lang", choices=LANGUAGES, default="en", help="its language (en)")
    parser.add_argument("--view", action="append", metavar="VIEW", default=[], help=(
        f"a view, several times for several; of probes: {', '.join(VIEWS)} ({', '.join(PROBE_VIEWS)}); "
        f"of trainings: {', '.join(LIVE_VIEWS)} ({', '.join(TRAINING_VIEWS)})"))
    return parser


def made(run_ids: Sequence[str], views: Sequence[str], t: Words) -> bytes:
    """Return the file of these runs; `views`: names of views, none for the usual ones.

    Errors: Refusal; StoreError where a run is not in the store; ExperimentError where this version cannot read it.
    """
    runs = service.view(list(dict.fromkeys(run_ids)))
    lane = _checked(runs)
    place, known, usual = BY_LANE[lane]
    for name in views:
        if name not in known:
            raise Refusal(f"--view is {name!r}; allowed: {', '.join(known)}")
    if len(runs) > place.most + 1:
        raise Refusal(f"there are {len(runs)} runs; allowed: up to {place.most + 1}")
    asked = [{**place.defaults, "view": name} for name in views or usual]
    variants = _named(runs, t)
    measured, sections = (_probes if lane == "probe" else _trainings)(runs, variants, asked, t)
    title = " · ".join(one.name for one in measured)
    return dossier.page(title, sections, measured, t)


def _checked(runs: Sequence[RunView]) -> str:
    """Return the lane that all runs have, which are over and of different experiments."""
    for run in runs:
        if not run.over:
            raise Refusal(f"run {run.id} is {run.status}; allowed: a run that is over")
        if not run.steps_done:
            raise Refusal(f"run {run.id} has recorded nothing (status {run.status}); allowed: a run that has")
    lanes = {run.lane for run in runs}
    if len(lanes) > 1:
        raise Refusal("there are probes and trainings among the runs; allowed: all of one kind")
    keys: dict[str, str] = {}
    for run in runs:
        if (other := keys.setdefault(run.key, run.id)) != run.id:
            raise Refusal(f"runs {other} and {run.id} computed the same experiment; allowed: one of them")
    return lanes.pop()


def _named(runs: Sequence[RunView], t: Words) -> list[Variant]:
    """Return the runs as a base and its variants, each by the name it was given or by what differs."""
    first, *others = [_experiment(run) for run in runs]
    variants = [Variant({}, first), *(Variant(other.differences(first), other) for other in others)]
    names = [run.name or one.name for run, one in zip(runs, controls.named(variants, t), strict=True)]
    return [replace(one, name=name if names.count(name) == 1 else f"{name} · {run.id}")
            for run, one, name in zip(runs, variants, names, strict=True)]


def _experiment(run: RunView) -> Experiment:
    return parse(service.experiment(run.id)).shortened(str(run.provenance.get("device", "cpu")))


Shown = Mapping[str, str]
Found = tuple[Sequence[Measured], list[Section]]


def _probes(runs: Sequence[RunView], variants: Sequence[Variant], asked: Sequence[Shown], t: Words) -> Found:
    measured = [Measured(one, run, service.trace(run.id)) for run, one in zip(runs, variants, strict=True)]
    return measured, [dossier.of_view(DRIFT.name, VIEWS[shown["view"]], measured, shown, t) for shown in asked]


def _trainings(runs: Sequence[RunView], variants: Sequence[Variant], asked: Sequence[Shown], t: Words) -> Found:
    watched = feed.watch([(run.id, one) for run, one in zip(runs, variants, strict=True)])
    return watched, [dossier.of_trainings(LIVE_VIEWS[shown["view"]], watched, shown, t) for shown in asked]


if __name__ == "__main__":
    sys.exit(main())
