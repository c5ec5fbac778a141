"""The door to the engine: a real store, a real Dask cluster, processes that are really killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pytest
import waiting

from core import service
from core.claims import LOST
from core.experiment import parse
from core.fields import ExperimentError
from core.keeper import Keeper
from core.look import HeadLook
from core.store import Ask, Store
from core.train import train

ROOT = Path(__file__).resolve().parent.parent
DEADLINE_S = 60.0

SMALL = {"model": {"n_layers": 2, "d_model": 16, "n_heads": 2}, "input": {"batch": 1, "seq_len": 8}}
LONG = {"model": {"n_layers": 192, "d_model": 128, "n_heads": 2}, "input": {"batch": 1, "seq_len": 16}}
"""One step of this takes a second or more, and little memory."""

ASKING = """
import sys, threading, time
from core import service
from core.experiment import parse
found = []
experiment = parse(sys.argv[1])
while time.time() < float(sys.argv[2]): pass
threads = [threading.Thread(target=lambda: found.extend(service.ensure([experiment]))) for _ in range(10)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(*found, *[view.status for view in service.wait(found, 60)])
service.stop()
"""


def small(seed=0, **parts):
    return parse({**SMALL, **parts, "protocol": {"seed": seed}})


def long(seed=0):
    return parse({**LONG, "protocol": {"seed": seed}})


until = partial(waiting.until, seconds=DEADLINE_S)


def is_ready():
    return service.state().status == "ready"


def have_ended(processes, seconds):
    """Whether all have ended; an orphan may stay a zombie until the machine's first process looks."""
    _, left = psutil.wait_procs(processes, timeout=seconds)
    return not [process for process in left if process.status() != psutil.STATUS_ZOMBIE]


def engine(pid=None):
    """The engine's processes that a process started, and what they started in turn; it may have others, a browser."""
    own = [child for child in psutil.Process(pid).children() if "dask" in child.cmdline()]
    return own + [process for child in own for process in child.children(recursive=True)]


def worker_pid(lane="probe", other_than=None):
    """Return the process id of the lane's worker, once there is one (another one)."""
    return until(lambda: [pid for pid in service.worker_pids().get(lane, ()) if pid != other_than])[0]


def running(run_id):
    return until(lambda: service.view([run_id])[0].status == "running")


@pytest.fixture(scope="module")
def store_url(tmp_path_factory):
    return f"sqlite:///{tmp_path_factory.mktemp('store') / 'runs.db'}"


@pytest.fixture(scope="module")
def server(store_url):
    """One server for the whole file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRIFTSCOPE_STORE", store_url)
        patch.setenv("DRIFTSCOPE_PROBE_WORKERS", "1")
        patch.delenv("DRIFTSCOPE_SCHEDULER", raising=False)
        service.start()
        until(is_ready)
        yield
        service.stop()


def test_starting_returns_at_once_and_work_asked_before_the_workers_are_up_is_done(store_url, server):
    service.stop()
    begun = time.monotonic()
    service.start()
    service.start()
    assert time.monotonic() - begun < 1.0
    assert service.state().status == "starting"
    run_ids = service.ensure([small(100)])
    assert service.view(run_ids)[0].status == "queued"
    assert service.wait(run_ids, DEADLINE_S)[0].status == "done"


def test_a_probe_comes_back_with_its_trace_and_surroundings(server):
    run_ids = service.ensure([small(1), small(2)])
    runs = service.wait(run_ids, DEADLINE_S)
    assert [(run.id, run.status, run.steps_done, run.steps_total) for run in runs] == [
        (run_ids[0], "done", 1, 1), (run_ids[1], "done", 1, 1)]
    trace = service.trace(run_ids[0])
    assert trace.steps == [0]
    assert trace.layout.n_layers == 2
    assert service.trace(run_ids[0]) is trace
    assert runs[0].provenance["device"] == "cpu"
    assert parse(service.experiment(run_ids[0])) == service.resolve(small(1))


def test_a_look_at_a_head_is_a_run_of_its_own_that_holds_its_weights_and_is_not_listed(server):
    look = HeadLook(1, 0)
    plain, looked = service.ensure([small(1)]), service.ensure([small(1)], look)
    assert service.ensure([small(1)], look) == looked != plain
    assert service.standing([small(1)], look) == looked
    assert service.missing([small(1)], HeadLook(0, 0)) == [small(1)]
    assert [run.status for run in service.wait(plain + looked, DEADLINE_S)] == ["done", "done"]
    seen = service.trace(looked[0]).snapshots[0]
    expected = next(iter(train(service.resolve(small(1)), look=look)))
    np.testing.assert_array_equal(seen.looks["weights"], expected.looks["weights"])
    assert not service.trace(plain[0]).snapshots[0].looks
    listed = {run.id for run in service.recent()}
    assert plain[0] in listed and looked[0] not in listed
    with pytest.raises(ExperimentError, match="the look's layer is 9; allowed: 0 … 1"):
        service.ensure([small(1)], HeadLook(9, 0))


def test_what_was_computed_is_not_computed_again(server):
    assert service.missing([small(3), small(4)]) == [small(3), small(4)]
    first = service.ensure([small(3)])
    assert service.missing([small(3), small(4)]) == [small(4)]
    assert service.ensure([small(4), small(3), small(4)])[1] == first[0]
    assert service.ensure([small(3, model={**SMALL["model"], "d_ff": 64})]) == first  # d_ff null means 4·d_model


def test_fifty_threads_in_five_processes_that_ask_at_once_get_one_run(server, store_url):
    moment, experiment = str(time.time() + 3.0), small(5)
    asking = [subprocess.Popen([sys.executable, "-W", "error", "-c", ASKING, experiment.model_dump_json(), moment],
                               cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(5)]
    mine = service.ensure([experiment])[0]
    words = [word for process in asking for word in process.communicate(timeout=DEADLINE_S)[0].split()]
    assert words.count("done") == 50
    assert words.count(mine) == 50


def test_a_visitors_own_text_is_kept_by_its_hash_and_read_by_the_worker(server):
    text = "the rank of attention collapses " * 20
    by_text, by_hash = (small(6, input={**SMALL["input"], "text": given}) for given in (text, service.put_text(text)))
    run_ids = service.ensure([by_text, by_hash])
    assert run_ids[0] == run_ids[1]
    assert service.wait(run_ids, DEADLINE_S)[0].status == "done"
    assert text not in service.experiment(run_ids[0])
    with pytest.raises(ExperimentError, match=r"input.text is sha256:00, which this store does not hold"):
        service.ensure([small(6, input={**SMALL["input"], "text": "sha256:00"})])


def test_traces_are_kept_up_to_a_number_of_bytes(server, monkeypatch):
    run_ids = service.ensure([small(seed) for seed in (20, 21, 22)])
    service.wait(run_ids, DEADLINE_S)
    first = service.trace(run_ids[0])
    arrays = [array for group in ("activations", "gradients", "heads", "parameters", "histograms")
              for array in getattr(first.snapshots[0], group).values()]
    monkeypatch.setattr("core.door.TRACES_BYTES", 2 * sum(array.nbytes for array in arrays))
    second = service.trace(run_ids[1])
    assert service.trace(run_ids[0]) is first
    third = service.trace(run_ids[2])
    assert service.trace(run_ids[2]) is third
    assert service.trace(run_ids[0]) is first
    assert service.trace(run_ids[1]) is not second
    monkeypatch.setattr("core.door.TRACES_BYTES", 1)
    assert service.trace(run_ids[2]) is not service.trace(run_ids[2])  # not even one that alone is too large


def test_a_text_that_is_too_long_is_refused_before_it_is_kept(server, store_url):
    with pytest.raises(ExperimentError, match="a text of 1 to 4194304 characters"):
        service.put_text("x" * 5_000_000)


def test_a_request_over_the_limits_is_refused_with_the_numbers(server, monkeypatch):
    monkeypatch.setenv("DRIFTSCOPE_LIMIT_PARAMETERS", "1000")
    with pytest.raises(ExperimentError, match="parameters; allowed: up to 1,000 parameters"):
        service.ensure([small(7)])


def test_an_experiment_that_the_worker_refuses_fails_with_its_sentence(server, store_url):
    store = Store(store_url)
    run_ids = store.ask([Ask("refused", '{"model": {"n_layers": 0}}'), Ask("other", "{}")], "probe", "a dead server")
    store.database.close()
    until(lambda: all(run.over for run in service.view(run_ids)))  # adopted from the dead server
    refused, other = service.view(run_ids)
    assert (refused.status, refused.error) == (
        "failed", "model.n_layers is 0; allowed: a whole number from 1 to 512")
    assert other.status == "done"
    with pytest.raises(service.StoreError, match=r"has recorded nothing \(status failed\)"):
        service.trace(run_ids[0])


def test_a_cancelled_run_ends_within_seconds_and_the_lane_goes_on(server):
    run_ids = service.ensure([long(1), small(8)])
    running(run_ids[0])
    begun = time.monotonic()
    service.cancel(run_ids[:1])
    until(lambda: service.view(run_ids[:1])[0].status == "cancelled")
    assert time.monotonic() - begun < 3.0
    assert service.wait(run_ids[1:], DEADLINE_S)[0].status == "done"


def test_a_waiting_run_tells_its_place_and_is_cancelled_at_once(server):
    first, second, third = service.ensure([long(2), small(9), small(10)])
    running(first)
    assert [run.queue_position for run in service.view([first, second, third])] == [0, 1, 2]
    service.cancel([second, first])
    assert service.view([second])[0].status == "cancelled"
    assert service.wait([third], DEADLINE_S)[0].status == "done"


def test_a_killed_worker_comes_back_and_the_run_is_tried_once_more(server):
    waiting = service.ensure([long(3)])[0]
    innocent = service.ensure([small(11)])[0]
    running(waiting)
    first = worker_pid()
    os.kill(first, signal.SIGKILL)
    second = worker_pid(other_than=first)
    until(lambda: service.view([waiting])[0].status == "running")
    os.kill(second, signal.SIGKILL)
    failed, done = service.wait([waiting, innocent], DEADLINE_S)
    assert (failed.status, failed.error) == ("failed", LOST)
    assert done.status == "done"


def test_a_server_whose_scheduler_was_killed_recovers(server):
    children = {" ".join(child.cmdline()): child for child in psutil.Process().children()}
    next(child for command, child in children.items() if "distributed.Scheduler" in command).kill()
    run_ids = service.ensure([small(12)])
    assert service.wait(run_ids, DEADLINE_S)[0].status == "done"


def test_a_server_that_stops_ends_every_process_within_two_seconds_and_its_runs_are_resumed(server):
    until(is_ready)
    run_id = service.ensure([long(4)])[0]
    running(run_id)
    processes = engine()
    assert len(processes) >= 3
    begun = time.monotonic()
    service.stop()
    assert time.monotonic() - begun < 2.0
    assert have_ended(processes, 1.0)
    service.stop()
    assert service.state().status == "stopped"
    assert service.view([run_id])[0].status == "queued"
    service.start()
    assert service.wait([run_id], DEADLINE_S)[0].status == "done"


def test_a_server_that_is_stopped_while_it_starts_leaves_nothing_behind(server):
    service.stop()
    service.start()
    until(engine)
    begun = time.monotonic()
    service.stop()
    assert time.monotonic() - begun < 2.0
    until(lambda: not engine())
    service.start()
    until(is_ready)


def test_processes_of_a_server_that_was_killed_end_by_themselves(tmp_path):
    code = ("import time\nfrom core import service\nservice.start()\n"
            "while service.state().status == 'starting': time.sleep(0.05)\nprint('up', flush=True)\ntime.sleep(600)\n")
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True,
                               env={**os.environ, "DRIFTSCOPE_STORE": f"sqlite:///{tmp_path / 'runs.db'}"})
    assert process.stdout.readline() == "up\n"
    orphans = engine(process.pid)
    process.kill()
    process.communicate()
    assert have_ended(orphans, 10.0)


def test_without_a_server_nothing_is_known_of_devices_but_a_named_one_may_be_asked_for(tmp_path):
    code = ("from core import service\nfrom core.experiment import parse\nimport sys\n"
            "print(service.state().status, service.ensure([parse({'protocol': {'device': 'cpu'}})]) != [])\n"
            "print(service.missing([parse({})]) == [parse({})])\n"
            "try: service.ensure([parse({})])\nexcept ValueError as error: print(error)\n"
            "print(sorted({'torch', 'numba', 'streamlit'} & set(sys.modules)))\nservice.stop()")
    printed = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=ROOT, text=True, check=True,
                             capture_output=True, timeout=60,
                             env={**os.environ, "DRIFTSCOPE_STORE": f"sqlite:///{tmp_path / 'runs.db'}"}).stdout
    assert printed.splitlines() == [
        "stopped True", "True",
        'protocol.device is "auto", but no worker has started with this store yet; allowed: cpu, cuda, cuda:N, mps, or '
        "auto once a server has been ready", "[]"]


def test_a_store_that_was_served_in_other_surroundings_gives_nobody_its_device(tmp_path):
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    store = Store(url)
    store.put_fact("device", "cuda")
    store.put_fact("surroundings", "another machine")
    store.close()
    code = ("from core import service\nfrom core.experiment import parse\n"
            "service.start()\nprint(service.ready_to_ask())\n"
            "print(service.resolve(parse({})).protocol.device, service.ready_to_ask())\nservice.stop()\n"
            "service.start()\nprint(service.state().status, service.ready_to_ask())\nservice.stop()")
    printed = subprocess.run([sys.executable, "-c", code], cwd=ROOT, text=True, check=True, stdout=subprocess.PIPE,
                             timeout=90, env={**os.environ, "DRIFTSCOPE_STORE": url, "CUDA_VISIBLE_DEVICES": ""})
    assert printed.stdout.splitlines() == ["False", "cpu True", "starting True"]


@pytest.mark.parametrize(("name", "value"), [("DRIFTSCOPE_STORE_LIMIT", "much"), ("DRIFTSCOPE_STORE", "foo")])
def test_an_application_that_cannot_start_says_why_in_one_sentence(tmp_path, name, value):
    command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.headless=true", "--server.port=0"]
    environment = {**os.environ, "DRIFTSCOPE_STORE": f"sqlite:///{tmp_path / 'runs.db'}", name: value}
    ended = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, timeout=60, env=environment, check=False)
    assert ended.returncode == 1
    assert f"Driftscope cannot start: {name} is" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_server_with_a_setting_that_cannot_be_read_does_not_start(server, monkeypatch):
    service.stop()
    monkeypatch.setenv("DRIFTSCOPE_PROBE_WORKERS", "some")
    with pytest.raises(service.SettingError, match='DRIFTSCOPE_PROBE_WORKERS is "some"'):
        service.start()
    assert service.state().status == "stopped"
    monkeypatch.delenv("DRIFTSCOPE_PROBE_WORKERS")
    service.start()
    until(is_ready)


def test_a_keeper_without_a_temporary_folder_says_so_and_tries_again(tmp_path, monkeypatch):
    monkeypatch.setattr("core.keeper.AGAIN_S", 0.1)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    store = Store(f"sqlite:///{tmp_path / 'runs.db'}")
    keeper = Keeper(store)
    keeper.start()
    until(lambda: keeper.state.status == "failed")
    assert "missing" in keeper.state.reason
    (tmp_path / "missing").mkdir()
    until(lambda: keeper.state.status == "ready")
    keeper.stop()
    store.close()


def test_a_keeper_whose_store_fails_while_it_closes_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr("core.keeper.AGAIN_S", 0.1)
    monkeypatch.setattr("core.keeper.LOOK_S", 0.1)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    store = Store(f"sqlite:///{tmp_path / 'runs.db'}")
    with store.database.writing() as connection:
        connection.exec_driver_sql("ALTER TABLE jobs RENAME TO hidden")
    keeper = Keeper(store)
    keeper.start()
    until(lambda: keeper.state.status == "failed")
    with store.database.writing() as connection:
        connection.exec_driver_sql("ALTER TABLE hidden RENAME TO jobs")
    (tmp_path / "missing").mkdir()
    until(lambda: keeper.state.status == "ready")
    keeper.stop()
    store.close()


def test_a_running_server_has_not_imported_torch(tmp_path):
    code = ("import sys, time\nfrom core import service\nfrom core.experiment import parse\nservice.start()\n"
            "run = service.ensure([parse({'model': {'n_layers': 1}})])\nprint(service.wait(run, 60)[0].status)\n"
            "service.trace(run[0])\nservice.worker_pids()\nservice.stop()\nprint('torch' in sys.modules)")
    printed = subprocess.run([sys.executable, "-c", code], cwd=ROOT, text=True, check=True, stdout=subprocess.PIPE,
                             timeout=90, env={**os.environ, "DRIFTSCOPE_STORE": f"sqlite:///{tmp_path / 'runs.db'}"})
    assert printed.stdout == "done\nFalse\n"


def test_many_waiting_threads_cost_the_server_little(server):
    run_ids = service.ensure([long(5)])
    threads = [threading.Thread(target=service.wait, args=(run_ids, 2.0)) for _ in range(20)]
    begun = time.process_time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.process_time() - begun < 2.0
    service.cancel(run_ids)
    until(lambda: service.view(run_ids)[0].over)


def test_a_cluster_of_somebody_else_is_used_and_left_alone(tmp_path):
    environment = {**os.environ, "DRIFTSCOPE_STORE": f"sqlite:///{tmp_path / 'runs.db'}", "PYTHONPATH": str(ROOT)}
    written = tmp_path / "scheduler.json"
    dask, where = [sys.executable, "-m", "dask"], ["--no-dashboard", "--scheduler-file", str(written)]
    theirs = [subprocess.Popen([*dask, "scheduler", "--host", "127.0.0.1", "--port", "0", *where,
                                "--dashboard-address", "127.0.0.1:0"], env=environment)]
    until(written.exists)
    theirs.append(subprocess.Popen([*dask, "worker", "--nthreads", "1", *where, "--resources", "probe=1",
                                    "--preload", "core.worker"], env=environment))
    code = ("from core import service\nfrom core.experiment import parse\nservice.start()\n"
            "print(service.wait(service.ensure([parse({'model': {'n_layers': 1}})]), 60)[0].status)\nservice.stop()")
    try:
        address = until(lambda: "tcp" in written.read_text() and json.loads(written.read_text())["address"])
        printed = subprocess.run([sys.executable, "-c", code], cwd=ROOT, text=True, stdout=subprocess.PIPE, timeout=90,
                                 env={**environment, "DRIFTSCOPE_SCHEDULER": address}, check=True).stdout
        assert printed == "done\n"
        assert [process.poll() for process in theirs] == [None, None]
    finally:
        for process in reversed(theirs):
            process.terminate()
            process.wait(timeout=20)
