"""What a worker makes of a job, in this process: real experiments, a real store."""

from __future__ import annotations

import threading
import time

import pytest

from core import claims
from core.claims import waiting_jobs
from core.database import StoreError
from core.experiment import parse
from core.store import Ask, Store
from core.trace import Snapshot
from core.worker import DEAF_EXIT, NO_MEMORY, device_kind, play, words

SMALL = {"model": {"n_layers": 2, "d_model": 16, "n_heads": 2}, "input": {"batch": 1, "seq_len": 8}}
LONG = {"model": {"n_layers": 192, "d_model": 128, "n_heads": 2}, "input": {"batch": 1, "seq_len": 16}}


@pytest.fixture
def store(tmp_path):
    opened = Store(f"sqlite:///{tmp_path / 'runs.db'}")
    yield opened
    opened.close()


def asked(store, *documents):
    """Ask for the experiments; return the job and its runs."""
    asks = [Ask(str(number), document if isinstance(document, str) else parse(document).canonical_json())
            for number, document in enumerate(documents)]
    run_ids = store.ask(asks, "train", "me")
    return waiting_jobs(store, "me")[0][0], run_ids


def test_every_run_of_a_job_is_played_and_one_that_is_refused_does_not_stop_the_others(store):
    job, run_ids = asked(store, SMALL, '{"model": {"norm": "rms"}}', {**SMALL, "protocol": {"seed": 1}})
    play(job, store)
    first, refused, last = store.views(run_ids)
    assert (first.status, last.status) == ("done", "done")
    assert refused.status == "failed"
    assert refused.error.startswith('model.norm is "rms"; allowed: layernorm, none, rmsnorm')
    assert first.finished <= last.started
    assert first.provenance["device"] == "cpu"
    losses = [Snapshot.from_bytes(store.snapshots(run_id)[0][1]).loss for run_id in (run_ids[0], run_ids[2])]
    assert losses[0] != losses[1]


def test_a_probe_with_a_non_finite_value_is_whole_and_says_where_it_began(store):
    overflowing = {"model": {**SMALL["model"], "norm": "none", "init_gain": 100.0},
                   "input": SMALL["input"], "protocol": {"dtype": "float16"}}
    job, run_ids = asked(store, overflowing)
    play(job, store)
    assert store.views(run_ids)[0].status == "done"
    assert Snapshot.from_bytes(store.snapshots(run_ids[0])[0][1]).non_finite is not None


def test_a_text_that_the_store_does_not_hold_fails_the_run_with_a_sentence(store):
    job, run_ids = asked(store, {**SMALL, "input": {**SMALL["input"], "text": "sha256:" + "0" * 64}})
    play(job, store)
    run = store.views(run_ids)[0]
    assert run.status == "failed"
    assert run.error.startswith("input.text is ")


def test_a_run_that_is_cancelled_before_it_is_reached_is_not_played(store):
    job, run_ids = asked(store, SMALL, {**SMALL, "protocol": {"seed": 1}})
    store.cancel(run_ids[:1])
    play(job, store)
    assert [run.status for run in store.views(run_ids)] == ["cancelled", "done"]


def test_a_cancelled_run_that_does_not_listen_ends_its_process_and_gives_the_others_back(store, monkeypatch):
    monkeypatch.setattr("core.worker.GRACE_S", 0.1)
    job, run_ids = asked(store, LONG, SMALL)
    left = []
    player = threading.Thread(target=play, args=(job, store, left.append))
    player.start()
    while store.views(run_ids)[0].status != "running":
        time.sleep(0.01)
    store.cancel(run_ids[:1])
    begun = time.monotonic()
    while not left:
        assert time.monotonic() - begun < 30
        time.sleep(0.01)
    assert time.monotonic() - begun < 2.5
    player.join(60)
    assert left[0] == DEAF_EXIT
    assert store.views(run_ids)[0].status == "cancelled"
    assert store.snapshots(run_ids[0]) == []


def test_a_long_step_keeps_its_heartbeat(store):
    job, run_ids = asked(store, LONG)
    player = threading.Thread(target=play, args=(job, store))
    player.start()
    beats = set()
    while player.is_alive():
        with store.database.reading() as connection:
            beats.add(connection.scalar(claims.select(claims.RUNS.c.heartbeat)))
        time.sleep(0.05)
    run = store.views(run_ids)[0]
    assert run.status == "done"
    assert len(beats) >= min(4, int(run.finished - run.started))


@pytest.mark.parametrize(("error", "sentence"), [
    (MemoryError(), NO_MEMORY),
    (RuntimeError("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried "
                  "to allocate 99 bytes."), NO_MEMORY),
    (RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB"), NO_MEMORY),
    (RuntimeError("mat1 and mat2\n  cannot be multiplied"), "RuntimeError: mat1 and mat2 cannot be multiplied"),
    (KeyError(), "KeyError: no message"),
    (StoreError("the store x cannot be used now: database is locked"),
     "the store x cannot be used now: database is locked"),
])
def test_what_ends_a_run_is_one_sentence(error, sentence):
    assert words(error) == sentence


def test_the_device_kind_is_one_that_an_experiment_may_name():
    assert device_kind() in ("cpu", "cuda", "mps")
