"""What a worker makes of a job, in this process: real experiments, a real store."""

from __future__ import annotations

import threading
import time

import pytest

from core import claims
from core.claims import waiting_jobs
from core.database import SNAPSHOTS, StoreError
from core.experiment import parse
from core.runs import checkpoints, resume
from core.store import Ask, Store
from core.trace import Snapshot
from core.watch import DEAF_EXIT
from core.worker import ANOTHER_ENGINE, NO_MEMORY, device_kind, play, words

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
    monkeypatch.setattr("core.watch.GRACE_S", 0.1)
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


TRAINED = {**SMALL, "protocol": {"steps": 5, "device": "cpu"}}


def written(store):
    """Return (run, step) of every snapshot in the order in which they were written."""
    with store.database.reading() as connection:
        rows = claims.select(SNAPSHOTS.c.run, SNAPSHOTS.c.step).order_by(SNAPSHOTS.c.written)
        return [tuple(row) for row in connection.execute(rows)]


@pytest.fixture
def cancelled_under_way(store, monkeypatch):
    """A way to play a job to its end with this run of it cancelled when it has recorded its first step.

    It is cancelled by the very hand that writes the step, and looked for before each step: no training is too fast.
    """
    def played(job, run):
        monkeypatch.setattr("core.worker.CHECK_S", -1.0)
        append = claims.Claim.append

        def appended(self, *arguments, **named):
            append(self, *arguments, **named)
            if self.run == run:
                store.cancel([run])

        with monkeypatch.context() as patched:
            patched.setattr(claims.Claim, "append", appended)
            play(job, store)

    return played


def test_the_variants_of_a_training_are_stepped_in_turn(store):
    job, runs = asked(store, TRAINED, {**TRAINED, "model": {**SMALL["model"], "norm": "rmsnorm"}})
    play(job, store)
    assert written(store) == [(run, step) for step in range(6) for run in runs]
    assert [(view.status, view.steps_done, view.pace) for view in store.views(runs)] == [("done", 6, None)] * 2


def test_a_training_that_meets_a_non_finite_value_is_stopped_and_the_others_go_on(store):
    hot = {"steps": 60, "optimizer": "sgd", "lr": 1e3, "device": "cpu"}
    job, runs = asked(store, {**TRAINED, "protocol": hot}, {**TRAINED, "protocol": {**hot, "lr": 0.1}})
    play(job, store)
    first, second = store.views(runs)
    assert (first.status, second.status, second.steps_done) == ("stopped", "done", 61)
    last = Snapshot.from_bytes(store.snapshots(runs[0])[-1][1])
    assert last.non_finite is not None and last.step + 1 == first.steps_done < 61


def test_a_stopped_training_leaves_a_checkpoint_and_goes_on_as_if_it_had_never_stopped(
        store, cancelled_under_way):
    same = {**TRAINED, "protocol": {**TRAINED["protocol"], "loss_scale": 1}}
    job, (whole, halved) = asked(store, TRAINED, same)
    store.cancel([halved])
    play(job, store)
    resume(store, [halved])
    cancelled_under_way(job, halved)
    assert store.views([halved])[0].status == "cancelled"
    assert [step for step, *_ in store.steps(halved)] == [0] and checkpoints(store, [halved]) == {halved: 1}
    resume(store, [halved])
    play(job, store)
    assert store.views([halved])[0].status == "done"
    assert store.steps(halved) == store.steps(whole)
    assert checkpoints(store, [halved]) == {}


def test_a_run_that_goes_on_while_its_job_is_played_joins_it(store, monkeypatch):
    monkeypatch.setattr("core.worker.NEWS_S", 0.05)
    slow = {"model": {"n_layers": 12, "d_model": 64}, "input": {"batch": 1, "seq_len": 8},
            "protocol": {"steps": 40, "device": "cpu"}}
    job, (first, second) = asked(store, slow, TRAINED)
    store.cancel([second])
    player = threading.Thread(target=play, args=(job, store))
    player.start()
    while not store.steps(first):
        time.sleep(0.005)
    resume(store, [second])
    player.join()
    one, other = store.views([first, second])
    assert one.status == other.status == "done" and other.finished < one.finished


def test_a_training_of_another_version_of_the_engine_is_not_gone_on_with(store):
    job, runs = asked(store, TRAINED)
    mine = claims.claim(store, runs[0])
    mine.note({"engine": "0+older"})
    mine.append(0, b"of the older engine")
    mine.surrender()
    play(job, store)
    view = store.views(runs)[0]
    assert (view.status, view.error) == ("failed", ANOTHER_ENGINE)
    assert store.snapshots(runs[0]) == [(0, b"of the older engine")]


def test_a_training_tells_its_pace_and_how_far_it_is_between_recorded_steps(store, monkeypatch):
    monkeypatch.setattr("core.watch.BEAT_S", 0.2)
    rare = {"model": {"n_layers": 12, "d_model": 64}, "input": {"batch": 2, "seq_len": 32},
            "protocol": {"steps": 60, "device": "cpu", "record_every": 1000}}
    job, runs = asked(store, rare)
    player = threading.Thread(target=play, args=(job, store))
    player.start()
    seen = set()
    while player.is_alive():
        view = store.views(runs)[0]
        seen.add((view.steps_done, view.pace is not None and view.pace > 0))
        time.sleep(0.02)
    assert any(1 < steps < 61 and told for steps, told in seen)


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


def test_a_checkpoint_that_cannot_be_kept_at_a_stop_fails_neither_its_run_nor_those_beside_it(
        store, monkeypatch, cancelled_under_way):
    job, (stopped, other) = asked(store, {**TRAINED, "protocol": {"steps": 2000, "device": "cpu"}},
                                  {**TRAINED, "protocol": {"steps": 30, "device": "cpu"}})

    def full(*_arguments):
        raise StoreError("the disk is full")

    monkeypatch.setattr(claims.Claim, "save", full)
    cancelled_under_way(job, stopped)
    first, second = store.views([stopped, other])
    assert (first.status, second.status, second.steps_done) == ("cancelled", "done", 31)
