"""The team demo as it runs on several machines, here all of it on loopback; see tests/stack.py."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator

import browser as real
import pytest
from playwright.sync_api import Browser, expect
from postgres import PASSWORD, QUOTED, Postgres
from stack import BASE, Stack
from stack import stack as running
from waiting import until

from core.experiment import parse
from core.store import Ask, Store

pytestmark = pytest.mark.browser

TRAINING = {"model": {"n_layers": 2, "d_model": 16, "n_heads": 2}, "input": {"seq_len": 16, "batch": 2}}
PROTOCOL = {"steps": 20_000, "record_every": 5, "device": "cpu"}


@pytest.fixture(scope="module")
def parts(postgres: Postgres) -> Iterator[tuple[Stack, str]]:
    with running(postgres, DRIFTSCOPE_CHECKPOINT_SECONDS="1") as made:
        yield made


@pytest.fixture
def stack(parts: tuple[Stack, str]) -> Stack:
    return parts[0]


@pytest.fixture
def store(stack: Stack) -> Iterator[Store]:
    opened = Store(stack.environment["DRIFTSCOPE_STORE"])
    yield opened
    opened.close()


@pytest.fixture
def visit(chromium: Browser, parts: tuple[Stack, str]) -> Iterator[real.Visit]:
    context = chromium.new_context(locale="en-US", viewport={"width": 1280, "height": 900})
    context.set_default_timeout(120_000)
    opened = real.Visit(context.new_page(), parts[1])
    yield opened
    assert opened.errors == []
    assert opened.hosts <= {parts[1].removeprefix("http://").partition("/")[0]}
    context.close()


def begun(store: Store, seed: int) -> str:
    """Ask for a long training; return its run once it has recorded something and left a checkpoint."""
    one = parse(TRAINING | {"protocol": PROTOCOL | {"seed": seed}})
    run, = store.ask([Ask(one.key("cpu"), one.canonical_json("cpu"), one.protocol.steps + 1)], "train", "")
    until(lambda: store.views([run])[0].steps_done > 20, 60)
    return run


def ended(store: Store, run: str) -> None:
    store.cancel([run])
    until(lambda: store.views([run])[0].over, 60)


def layers(visit: real.Visit) -> int:
    """How many layers the map on the drift page has, of those that are drawn."""
    return visit.chart("return gd.calcdata[0][0].z[0].length") - 2


def test_a_page_below_a_path_behind_the_proxy_shows_what_foreign_workers_computed(visit: real.Visit, store: Store):
    visit.open("/drift?lang=en&layers=2")
    assert layers(visit) == 2
    assert {run.status for run in store.recent()} == {"done"}
    assert urllib.request.urlopen(f"{visit.address}/_stcore/health").status == 200
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"{visit.address}/driftscope/metrics")


def test_the_root_and_the_bare_path_lead_to_the_application(visit: real.Visit):
    root = visit.address.removesuffix(BASE)
    for path in ("", BASE):
        visit.page.goto(root + path)
        visit.settle()
        assert visit.page.url.startswith(f"{visit.address}/")


def test_a_training_is_watched_live_through_the_proxy(visit: real.Visit, store: Store):
    run = begun(store, 1)
    visit.open(f"/live?lang=en&run={run}")
    newest = "return Math.max(...gd.data[0].x._inputArray ?? gd.data[0].x)"
    first = visit.chart(newest)
    until(lambda: visit.chart(newest) > first + 20, 30)
    assert not store.views([run])[0].over
    ended(store, run)


def test_a_run_whose_worker_was_killed_goes_on_at_another_and_keeps_what_it_recorded(stack: Stack, store: Store):
    run = begun(store, 2)
    stack.workers["train"].kill()
    recorded = dict(store.snapshots(run))
    stack.workers["train"] = stack.worker("train")
    until(lambda: store.views([run])[0].steps_done > max(recorded) + 20, 90)
    again = dict(store.snapshots(run))
    assert {step: again[step] for step in recorded} == recorded
    ended(store, run)


def test_a_dead_scheduler_is_said_on_the_page_and_work_goes_on_when_it_is_back(stack: Stack, visit: real.Visit):
    stack.scheduler.kill()
    visit.open("/drift?lang=en&layers=3")
    expect(visit.page.get_by_text("The engine cannot work now")).to_be_visible()
    for worker in stack.workers.values():
        until(lambda process=worker.process: process.poll() is not None, 60)  # of a lost scheduler it lets go
    stack.scheduler.start()
    for worker in stack.workers.values():
        worker.start()  # as whoever runs the demo has them started again
    assert layers(visit) == 3


def test_a_stopped_database_is_said_on_the_page_which_goes_on_by_itself(postgres: Postgres, visit: real.Visit):
    visit.open("/drift?lang=en&layers=2")
    postgres.stop()
    visit.page.goto(f"{visit.address}/drift?lang=en&layers=4")
    said = visit.page.get_by_text("The store cannot be read")
    expect(said).to_be_visible()
    assert [secret for secret in (PASSWORD, QUOTED) if secret in said.inner_text()] == []
    expect(visit.page.get_by_text("goes on by itself")).to_be_visible()
    postgres.start()
    expect(said).to_have_count(0)
    assert layers(visit) == 4
