"""Trainings on the command line: their table, their exit status, what is left in the store."""

import csv
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from waiting import until

from core.runs import checkpoints, resume
from core.store import Store
from core.worker import play

ROOT = Path(__file__).parent.parent
TRAINING_S = 9.0
"""CPU time after which a process surely trains: the imports and two steps take about 5 s of it."""
SMALL = {"model": {"n_layers": 2, "d_model": 16, "n_heads": 2}, "input": {"batch": 2, "seq_len": 8}}


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'store.db'}"


def command(url, *arguments):
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-W", "error", "-m", "core", *arguments], cwd=ROOT, text=True,
                            env=os.environ | {"DRIFTSCOPE_STORE": url}, stdin=pipe, stdout=pipe, stderr=pipe)


def training(steps, **protocol):
    return json.dumps({**SMALL, "protocol": {"device": "cpu", "steps": steps, **protocol}})


def under_way(url, steps):
    """Start a training in a process of its own; return it, its store and its run, which has recorded something."""
    process, store = command(url, "run", "-"), Store(url)
    process.stdin.write(training(steps))
    process.stdin.close()
    run = until(lambda: next((one.id for one in store.recent() if store.steps(one.id)), None), seconds=60, pause=0.05)
    return process, store, run


def test_a_training_gives_one_table_of_every_recorded_step_and_is_kept(url, tmp_path):
    target = tmp_path / "t.csv"
    _, complaint = (process := command(url, "run", "-", "--out", str(target))).communicate(
        training(7, record_every=3, grad_clip=0.5))
    assert (process.returncode, complaint) == (0, "")
    rows = list(csv.DictReader(io.StringIO(target.read_text())))
    at = {(row["site"], row["statistic"], int(row["step"])): row for row in rows if row["site"] in ("loss", "all")}
    assert [step for site, _, step in at if site == "loss"] == [0, 3, 6, 7]
    assert {row["layer"] for row in rows if row["site"] == "loss"} == {"2"}
    assert {row["layer"] for row in rows if row["site"] == "all"} == {""}
    assert 0 < float(at["all", "clip_factor", 0]["value"]) <= 1
    assert float(at["all", "grad_total_norm", 0]["value"]) > 0
    ratios = [row for row in rows if row["statistic"] == "update_ratio" and row["site"] == "layers.1.mlp.out.weight"]
    assert [(int(row["step"]), row["layer"]) for row in ratios] == [(3, "1"), (6, "1"), (7, "1")]
    store = Store(url)
    (run,) = store.recent()
    assert (run.lane, run.status, run.steps_done, [step for step, *_ in store.steps(run.id)]) == (
        "train", "done", 8, [0, 3, 6, 7])
    store.close()


def test_a_training_that_blows_up_ends_with_status_3_and_the_table_up_to_there(url):
    process = command(url, "compare", "-", "--vary", "protocol.lr=1000,0.01")
    table, complaint = process.communicate(training(60, optimizer="sgd"))
    assert process.returncode == 3
    assert complaint.startswith("protocol.lr=1000: stopped at a non-finite value: ") and complaint.count("\n") == 1
    losses = [row for row in json.loads(table) if row["site"] == "loss"]
    hot, cold = ([row["step"] for row in losses if row["variant"] == f"protocol.lr={rate}"]
                 for rate in ("1000", "0.01"))
    assert hot == list(range(len(hot))) and len(hot) < 61 and cold == list(range(61))
    store = Store(url)
    assert {run.status: run.steps_done for run in store.recent()} == {"stopped": len(hot), "done": 61}
    store.close()


def test_a_training_here_can_be_stopped_by_whoever_watches_the_store(url):
    process, store, run = under_way(url, 4000)
    store.cancel([run])
    table, complaint = process.stdout.read(), process.stderr.read()
    assert process.wait(30) == 130
    assert complaint.startswith(f"stopped by somebody who watches the store; run {run} is kept")
    assert [row for row in json.loads(table) if row["site"] == "loss"]
    (run,) = store.recent()
    assert (run.status, checkpoints(store, [run.id])) == ("cancelled", {run.id: run.steps_done})
    process.stdout.close()
    process.stderr.close()
    store.close()


def test_an_interrupted_training_keeps_what_it_recorded_and_a_worker_goes_on_with_it(url):
    process, store, begun = under_way(url, 400)
    process.send_signal(signal.SIGINT)
    table, complaint = process.stdout.read(), process.stderr.read()
    assert process.wait(20) == 130
    run = store.views([begun])[0]
    before = store.steps(run.id)
    assert run.status == "cancelled" and 0 < len(before) < 401
    steps = [row["step"] for row in json.loads(table) if row["site"] == "loss"]
    assert steps[:len(before)] == [step for step, *_ in before]
    assert len(steps) <= len(before) + 1  # the interrupt may come between a step and its place in the store
    assert complaint == f"interrupted; run {begun} is kept as cancelled, recorded steps: {len(steps)}\n"
    assert resume(store, [run.id]) == 1
    play(run.job, store)
    assert store.views([run.id])[0].status == "done"
    after = store.steps(run.id)
    assert after[:len(before)] == before and [step for step, *_ in after] == list(range(401))
    process.stdout.close()
    process.stderr.close()
    store.close()


def test_an_interrupted_training_that_is_not_kept_writes_its_table_and_says_so(url, tmp_path):
    target = tmp_path / "t.csv"
    process = command(url, "run", "-", "--no-store", "--out", str(target))
    process.stdin.write(training(100_000))
    process.stdin.close()
    until(lambda: sum(psutil.Process(process.pid).cpu_times()[:2]) > TRAINING_S, seconds=90, pause=0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130
    assert process.stderr.read().startswith("interrupted; the run is not kept, recorded steps: ")
    assert "loss" in target.read_text()
    process.stdout.close()
    process.stderr.close()


@pytest.mark.parametrize("module", ["core/__main__", "pydantic/__init__", "sqlalchemy/__init__", "torch/__init__"])
def test_an_interrupt_during_the_imports_ends_without_a_word(url, module):
    """The moment is met by a finder of modules that interrupts its own process."""
    name = module.partition("/")[0] if module != "core/__main__" else "core.comparison"
    script = f"""
import os, runpy, signal, sys
class Interrupt:
    def find_spec(self, name, *_):
        if name == {name!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
sys.argv = ["core", "run", "-", "--no-store"]
runpy.run_module("core", run_name="__main__", alter_sys=True)
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, input=training(3), text=True, capture_output=True,
                          env=os.environ | {"DRIFTSCOPE_STORE": url}, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_the_verdicts_of_a_training_begin_with_what_its_losses_say(url):
    process = command(url, "run", "-")
    table, _ = process.communicate(training(30, lr=1e-9))
    run = json.loads(table)[0]["run"]
    verdicts, _ = command(url, "drift", run).communicate()
    assert json.loads(verdicts)[0]["code"] == "learning_chance_tokens"
    assert len(json.loads(verdicts)) > 5
