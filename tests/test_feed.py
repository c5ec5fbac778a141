"""The source of live charts: it makes what the page made, of the store alone, and refuses what no page wrote."""

from dataclasses import replace

import numpy as np
import pytest

from core import service
from core.archive import play
from core.database import StoreError
from core.experiment import parse
from pages.ui import feed, link
from pages.ui.link import Variant
from pages.ui.patches import plain
from pages.ui.places import LIVE
from pages.ui.text import Words
from pages.ui.views.training import LIVE_VIEWS

SMALL = {"model": {"n_layers": 2, "d_model": 16, "n_heads": 2}, "input": {"batch": 2, "seq_len": 8},
         "protocol": {"steps": 6, "device": "cpu"}}
EXPERIMENTS = [parse(SMALL), parse({**SMALL, "model": {**SMALL["model"], "norm": "none"}})]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two stored trainings."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRIFTSCOPE_STORE", f"sqlite:///{tmp_path_factory.mktemp('feed') / 'runs.db'}")
        service.stop()
        yield [play(one, keep=True).run for one in EXPERIMENTS]
        service.stop()


def watched(runs):
    variants = [Variant({}, one, name, name) for one, name in zip(EXPERIMENTS, ("with <b>", "without"), strict=True)]
    return feed.watch(list(zip(runs, variants, strict=True)))


def query(runs, lang="en", **shown):
    address = feed.address(watched(runs), {**LIVE.defaults, **shown}, Words(lang))
    from urllib.parse import parse_qsl

    return dict(parse_qsl(address.partition("?")[2]))


def same(mine, theirs):
    if isinstance(theirs, dict):
        return mine.keys() == theirs.keys() and all(same(mine[name], value) for name, value in theirs.items())
    if isinstance(theirs, list | tuple):
        return len(mine) == len(theirs) and all(map(same, mine, theirs))
    if isinstance(theirs, np.ndarray):
        return np.array_equal(mine, theirs, equal_nan=theirs.dtype.kind == "f")
    return mine == theirs or str(mine) == str(theirs) == "nan"


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("view", LIVE.views)
def test_a_look_is_the_figures_of_the_page(runs, view, lang):
    looked = feed.look(query(runs, lang, view=view))
    pictures = LIVE_VIEWS[view].make(watched(runs), {**LIVE.defaults, "view": view}, Words(lang))
    assert looked.over
    assert looked.figures[feed.PLAYER]["layout"]["meta"]["steps"] == list(range(7))
    drawn = {one.key: plain(one.figure) for one in pictures if one.figure is not None}
    assert looked.figures.keys() == {*drawn, feed.PLAYER}
    for name, figure in drawn.items():
        assert same(looked.figures[name], figure), name


def test_every_statistic_site_measure_and_parameter_has_figures_or_says_why_not(runs):
    for name in ("stat", "site", "of", "scale", "measure", "weight", "role", "at"):
        for value in LIVE.shown[name]:
            for view in LIVE.views:
                if name in LIVE_VIEWS[view].asks:
                    made = LIVE_VIEWS[view].make(watched(runs), {**LIVE.defaults, "view": view, name: value},
                                                 Words("en"))
                    assert all(one.figure is not None or one.remarks for one in made), (view, name, value)
                    assert all(one.columns() for one in made if one.figure is not None)


def test_a_run_without_a_step_has_a_player_without_steps_and_no_picture_fails(runs):
    empty = [replace(one, trace=None, film=replace(one.film, trace=None, steps=np.empty(0, np.int64),
                                                   losses=np.empty(0))) for one in watched(runs)]
    for view in LIVE_VIEWS.values():
        if "who" not in view.asks:
            view.make(empty, LIVE.defaults, Words("zh"))


@pytest.mark.parametrize("change", [
    {"view": "nothing"}, {"stat": "<script>"}, {"lang": "xx"}, {"names": "1.xx"}, {"names": "1." + "A" * 100},
    {"names": link.pack([["a", "b"]])}, {"names": link.pack("ab")}, {"names": link.pack([1, 2])}, {"names": ""},
    {link.RUNS: ""}, {link.RUNS: ".".join("abcdef")}, {"at": "1;2"}, {"who": "-1"},
])
def test_a_query_that_no_page_wrote_is_one_sentence(runs, change):
    with pytest.raises(ValueError, match=r"possible|read|runs") as refused:
        feed.look(query(runs) | change)
    assert "\n" not in str(refused.value)


def test_a_run_that_is_not_in_the_store_is_said(runs):
    with pytest.raises(StoreError, match="the store has no run 0123"):
        feed.look(query(runs) | {link.RUNS: f"{runs[0]}.0123"})
