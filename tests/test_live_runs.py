"""Trainings through the door: a real store, a real Dask cluster, and each of its processes really killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
import waiting

from core import service
from core.experiment import parse
from core.fields import ExperimentError
from core.films import FRAMES
from core.train import train

ROOT = Path(__file__).resolve().parent.parent
DEADLINE_S = 90.0
MODEL = {"n_layers": 6, "d_model": 32, "n_heads": 2}
STEPS = 150


def training(seed, steps=STEPS, **protocol):
    return parse({"model": MODEL, "input": {"batch": 2, "seq_len": 16},
                  "protocol": {"seed": seed, "steps": steps, **protocol}})


until = partial(waiting.until, seconds=DEADLINE_S)


def recorded(run):
    return [snapshot.step for snapshot in service.snapshots(run)]


def has_recorded(run, steps):
    return until(lambda: len(recorded(run)) >= steps)


def is_the_uninterrupted_run(run, experiment):
    """Whether a finished run is, step by step and bit for bit, what a run without any trouble is."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    expected = list(train(experiment))
    torch.set_num_threads(threads)
    found = service.snapshots(run)
    assert [one.step for one in found] == [one.step for one in expected]
    for mine, theirs in zip(found, expected, strict=True):
        assert (mine.loss, mine.totals) == (theirs.loss, theirs.totals)
        for name, values in theirs.parameters.items():
            np.testing.assert_array_equal(mine.parameters[name], values)
    return True


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRIFTSCOPE_STORE", f"sqlite:///{tmp_path_factory.mktemp('store') / 'runs.db'}")
        patch.setenv("DRIFTSCOPE_PROBE_WORKERS", "1")
        patch.setenv("DRIFTSCOPE_CHECKPOINT_SECONDS", "0.5")
        patch.delenv("DRIFTSCOPE_SCHEDULER", raising=False)
        service.start()
        until(lambda: service.state().status == "ready")
        yield
        service.stop()


def train_worker():
    return until(lambda: service.worker_pids().get("train"))[0]


def test_stop_ends_the_computing_within_a_step_and_the_run_goes_on_bit_for_bit(server):
    experiment = training(1)
    (run,) = service.ensure([experiment])
    has_recorded(run, 5)
    service.cancel([run])
    begun = time.monotonic()
    until(lambda: service.view([run])[0].over)
    assert time.monotonic() - begun < 2.0
    assert service.view([run])[0].status == "cancelled"
    steps = recorded(run)
    time.sleep(0.5)
    assert recorded(run) == steps and steps[-1] < STEPS
    assert service.checkpoints([run]) == {run: steps[-1] + 1}
    assert service.trace(run).steps == steps
    assert service.ensure([experiment]) != [run]  # whoever asks now gets a run that is computed
    service.cancel(service.ensure([experiment]))
    assert service.resume([run]) == 1
    assert service.wait([run], DEADLINE_S)[0].status == "done"
    assert is_the_uninterrupted_run(run, experiment)
    assert service.trace(run).steps == list(range(STEPS + 1))  # nothing of what was read while it was stopped is left


def test_a_killed_worker_loses_nothing_that_was_recorded_and_the_run_goes_on(server):
    experiment = training(2)
    (run,) = service.ensure([experiment])
    until(lambda: service.checkpoints([run]))
    before = recorded(run)
    os.kill(train_worker(), signal.SIGKILL)
    until(lambda: service.view([run])[0].deaths == 1)
    assert recorded(run)[:len(before)] == before
    assert service.wait([run], DEADLINE_S)[0].status == "done"
    assert is_the_uninterrupted_run(run, experiment)
    assert service.view([run])[0].provenance["resumed_at"] > 0


def test_a_killed_scheduler_loses_nothing_that_was_recorded_and_the_run_goes_on(server):
    experiment = training(3)
    (run,) = service.ensure([experiment])
    until(lambda: service.checkpoints([run]))
    before = recorded(run)
    children = {" ".join(child.cmdline()): child for child in psutil.Process().children()}
    next(child for command, child in children.items() if "distributed.Scheduler" in command).kill()
    assert service.wait([run], DEADLINE_S)[0].status == "done"
    assert recorded(run)[:len(before)] == before
    assert is_the_uninterrupted_run(run, experiment)


SERVER = """
import sys, time
from core import service
from core.experiment import parse
service.start()
print(*service.ensure([parse(sys.argv[1])]), flush=True)
time.sleep(600)
"""


def test_a_killed_server_loses_nothing_that_was_recorded_and_the_next_one_goes_on(server):
    experiment = training(4)
    service.stop()
    other = subprocess.Popen([sys.executable, "-c", SERVER, experiment.canonical_json()], cwd=ROOT, text=True,
                             stdout=subprocess.PIPE)
    try:
        run = other.stdout.readline().strip()
        until(lambda: service.checkpoints([run]))
    finally:
        other.kill()
        other.communicate()
    before = recorded(run)
    service.start()
    assert service.wait([run], DEADLINE_S)[0].status == "done"
    assert recorded(run)[:len(before)] == before
    assert is_the_uninterrupted_run(run, experiment)


def test_a_run_whose_worker_dies_again_and_again_fails_with_a_clear_word_and_can_be_gone_on_with(server, monkeypatch):
    monkeypatch.setattr("core.claims.MAX_DEATHS", 1)
    experiment = training(5)
    until(lambda: service.state().status == "ready")
    (run,) = service.ensure([experiment])
    has_recorded(run, 3)
    os.kill(train_worker(), signal.SIGKILL)
    until(lambda: service.view([run])[0].over)
    view = service.view([run])[0]
    assert view.status == "failed" and "the worker died" in view.error
    assert recorded(run)[:3] == [0, 1, 2]
    assert service.resume([run]) == 1
    assert service.wait([run], DEADLINE_S)[0].status == "done"
    assert is_the_uninterrupted_run(run, experiment)


def test_a_training_does_not_make_a_probe_wait(server):
    (run,) = service.ensure([training(6)])
    has_recorded(run, 1)
    (probe,) = service.ensure([training(6, steps=0)])
    assert service.wait([probe], DEADLINE_S)[0].status == "done"
    assert not service.view([run])[0].over
    service.cancel([run])


def test_a_training_over_the_limits_is_refused_before_it_starts_with_the_numbers(server, monkeypatch):
    with pytest.raises(ExperimentError, match=r"would need [0-9,.]+ MiB in the store; allowed: up to 256\.0 MiB"):
        service.ensure([training(7, steps=100_000)])
    monkeypatch.setenv("DRIFTSCOPE_LIMIT_TRAINING_FLOPS", "1e9")
    with pytest.raises(ExperimentError, match=r"would need [0-9,.]+ GFLOP; allowed: up to 1\.0 GFLOP"):
        service.ensure([training(7)])
    with pytest.raises(ExperimentError, match=r"would need [0-9,.]+ GFLOP"):
        service.ensure([training(7, steps=20)] * 4)


def test_a_film_grows_with_the_run_holds_every_loss_and_a_bounded_number_of_snapshots(server):
    experiment = parse({"model": {"n_layers": 1, "d_model": 8, "n_heads": 1}, "input": {"batch": 1, "seq_len": 4},
                        "protocol": {"steps": 3 * FRAMES, "seed": 8, "detail": "standard"}})
    (run,) = service.ensure([experiment])
    lengths = []
    while True:
        (film,) = service.films([run])
        lengths.append(len(film.steps))
        if film.trace:
            assert set(film.trace.steps) >= {*film.steps[::film.every].tolist(), int(film.steps[-1])}
            assert len(film.trace.snapshots) <= FRAMES + 2
        if film.run.over:
            break
        time.sleep(0.1)
    assert lengths == sorted(lengths) and lengths[-1] == 3 * FRAMES + 1
    assert film.every == 4
    losses = {snapshot.step: snapshot.loss for snapshot in service.snapshots(run)}
    assert dict(zip(film.steps.tolist(), film.losses.tolist(), strict=True)) == losses
    assert all(losses[one.step] == one.loss for one in film.trace.snapshots)


def test_a_training_that_blows_up_is_stopped_where_it_began_and_its_film_holds_that_step(server):
    (run,) = service.ensure([training(9, steps=400, optimizer="sgd", lr=1e3, record_every=7)])
    assert service.wait([run], DEADLINE_S)[0].status == "stopped"
    (film,) = service.films([run])
    assert film.trace.snapshots[-1].non_finite.step == film.steps[-1]
    assert film.events == ((int(film.steps[-1]), "non_finite"),)


def test_a_repeated_run_is_a_run_of_its_own_with_the_same_numbers(server):
    (run,) = service.ensure([training(10, steps=4)])
    service.wait([run], DEADLINE_S)
    again = service.repeat(run)
    assert service.wait([again], DEADLINE_S)[0].status == "done"
    assert [one.loss for one in service.snapshots(again)] == [one.loss for one in service.snapshots(run)]
    assert service.ensure([training(10, steps=4)]) == [run]
