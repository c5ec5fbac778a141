"""``python -m pages.ui.export RUN [RUN …] --html FILE``: stored runs as one HTML file, an image or a film.

``--image FILE`` is a picture of them as PNG, SVG or PDF, ``--film FILE`` the replay of a training as GIF. It reads the
store; it starts no server and no worker. Exit status: 0 written; 2 refused, in one line; 130 interrupted.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from core import service
from core.experiment import Experiment, parse
from core.fields import ExperimentError
from core.service import RunView, SettingError, StoreError
from pages.ui import controls, dossier, feed, images, replay, theme
from pages.ui.cache import Measured
from pages.ui.chromium import ImageError
from pages.ui.handout import Section
from pages.ui.link import Variant
from pages.ui.picture import Picture
from pages.ui.places import DRIFT, LIVE, Place
from pages.ui.text import LANGUAGES, Words
from pages.ui.views import VIEWS
from pages.ui.views.training import LIVE_VIEWS

DONE, REFUSED, INTERRUPTED = 0, 2, 130

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
    """Write the files and return the exit status."""
    logging.getLogger("pages").addHandler(logging.NullHandler())  # what a reader needs is said in one line
    try:
        options = _parser().parse_args(arguments)
        _write(options)
    except (Refusal, ExperimentError, StoreError, SettingError, ImageError) as error:
        return _refuse(str(error))
    except OSError as error:
        return _refuse(f"the file cannot be written: {error}")
    except KeyboardInterrupt:
        return INTERRUPTED
    return DONE


def _write(options: argparse.Namespace) -> None:
    wanted = {name: path for name in FILES if (path := getattr(options, name)) is not None}
    if not wanted:
        raise Refusal(f"nothing is asked for; allowed: {', '.join(f'--{name}' for name in FILES)}, one or several")
    for name, path in wanted.items():
        endings, _ = FILES[name]
        if endings and path.suffix.lower() not in endings:
            raise Refusal(f"--{name} is {str(path)!r}; allowed: a file ending in {', '.join(endings)}")
    found = handed(options.runs, options.view, Words(options.lang))
    for name, path in wanted.items():
        path.write_bytes(FILES[name][1](found, options))


def _refuse(sentence: str) -> int:
    print(" ".join(sentence.split()), file=sys.stderr)
    return REFUSED


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m pages.ui.export", description=(
        "Write stored runs as one HTML file, a picture of them as an image, the replay of a training as a film."))
    parser.add_argument("runs", nargs="+", metavar="RUN", help="ids of runs of one kind, the base first")
    parser.add_argument("--html", type=Path, metavar="FILE", help="everything in one file that opens without a network")
    parser.add_argument("--image", type=Path, metavar="FILE", help=f"a picture ({', '.join(images.FORMATS)})")
    parser.add_argument("--film", type=Path, metavar="FILE", help="the replay of a picture of a training (.gif)")
    parser.add_argument("--picture", metavar="VIEW/KEY", help="which picture, where there are several")
    parser.add_argument("--theme", choices=theme.PALETTES, default="light", help="that of an image and a film (light)")
    parser.add_argument("--lang", choices=LANGUAGES, default="en", help="the language (en)")
    parser.add_argument("--view", action="append", metavar="VIEW", default=[], help=(
        f"a view, several times for several; of probes: {', '.join(VIEWS)} ({', '.join(PROBE_VIEWS)}); "
        f"of trainings: {', '.join(LIVE_VIEWS)} ({', '.join(TRAINING_VIEWS)})"))
    return parser


@dataclass(frozen=True)
class Handed:
    """What is handed out: measured runs, and each view of them as a section of a hand-out."""

    measured: Sequence[Measured]
    sections: Mapping[str, Section]

    def pictures(self, kept: Callable[[Picture], bool] = lambda one: one.figure is not None) -> dict[str, Picture]:
        """Return the pictures that are `kept` by what they are called: view and key."""
        return {f"{view}/{one.key}": one for view, section in self.sections.items() for one in section.pictures
                if kept(one)}


def made(run_ids: Sequence[str], views: Sequence[str], t: Words) -> bytes:
    """Return the HTML file of these runs. Arguments and errors as of `handed`."""
    return _html(handed(run_ids, views, t), t)


def handed(run_ids: Sequence[str], views: Sequence[str], t: Words) -> Handed:
    """Return what is handed out of these runs; `views`: names of views, none for the usual ones.

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
    names = list(dict.fromkeys(views or usual))
    measured, sections = (_probes if lane == "probe" else _trainings)(
        runs, _named(runs, t), [{**place.defaults, "view": name} for name in names], t)
    return Handed(measured, dict(zip(names, sections, strict=True)))


def _html(found: Handed, t: Words) -> bytes:
    title = " · ".join(one.name for one in found.measured)
    return dossier.page(title, list(found.sections.values()), found.measured, t)


def _image(found: Handed, options: argparse.Namespace) -> bytes:
    picture = _one_of(found.pictures(), options.picture, "pictures")
    shown = [one for one in found.measured if picture.shows(one.name)]
    said = replay.newest(picture, feed.steps(shown), Words(options.lang))
    return images.image(picture, options.image.suffix.lower(), options.theme, [one.run.id for one in shown], said)


def _film(found: Handed, options: argparse.Namespace) -> bytes:
    picture = _one_of(found.pictures(replay.moves), options.picture, "pictures that follow the steps of a training")
    steps = replay.chosen(feed.steps([one for one in found.measured if picture.shows(one.name)]))
    if len(steps) < 2:
        raise Refusal("one step is recorded; allowed with --film: a training with several")
    return replay.gif(list(replay.frames(picture, steps, options.theme, Words(options.lang))), picture.label)


def _one_of(pictures: Mapping[str, Picture], name: str | None, what: str) -> Picture:
    """Return the picture of that name, or the only one there is."""
    if not pictures:
        raise Refusal(f"there are no {what}; another --view may have some")
    if name is None and len(pictures) > 1:
        raise Refusal(f"there are {len(pictures)} {what}; allowed: --picture with one of {', '.join(pictures)}")
    if name is not None and name not in pictures:
        raise Refusal(f"--picture is {name!r}; allowed: {', '.join(pictures)}")
    return pictures[name or next(iter(pictures))]


FILES: Mapping[str, tuple[Iterable[str], Callable[[Handed, argparse.Namespace], bytes]]] = {
    "html": ((), lambda found, options: _html(found, Words(options.lang))),
    "image": (images.FORMATS, _image),
    "film": ((".gif",), _film),
}
"""What can be asked for → the endings that its file may have, none for any, and what makes it."""


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
