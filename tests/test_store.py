"""The store: real SQLite files, a real PostgreSQL, real processes."""

from __future__ import annotations

import math
import os
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from postgres import PASSWORD, QUOTED
from sqlalchemy import text, update

from core import claims
from core.claims import (
    Cancelled,
    LostClaim,
    claim,
    fail_job,
    give_back,
    keep_jobs,
    release_jobs,
    waiting_jobs,
    waiting_runs,
)
from core.database import JOBS, RUNS, TEXTS, StoreError
from core.fields import ExperimentError
from core.pruning import prune
from core.runs import checkpoints, entries, pin, remove, rename, repeat, resume
from core.settings import SettingError, check, limits, store_limit
from core.store import Ask, Store

ROOT = Path(__file__).resolve().parent.parent

ASKING = """
import sys, time
from core.store import Ask, Store
store = Store(sys.argv[1])
while time.time() < float(sys.argv[2]): pass
print(*store.ask([Ask(str(n), "{}") for n in sys.argv[3].split(",")], "probe", "me"))
store.close()
"""

CLAIMING = """
import sys, time
from core.claims import claim
from core.store import Store
store = Store(sys.argv[1])
while time.time() < float(sys.argv[2]): pass
print(sum(claim(store, run) is not None for run in sys.argv[3].split(",")))
store.close()
"""


@pytest.fixture
def file_url(tmp_path):
    return f"sqlite:///{tmp_path / 'folder' / 'runs.db'}"


@pytest.fixture(params=("sqlite", "postgresql"))
def url(request):
    if request.param == "sqlite":
        return request.getfixturevalue("file_url")
    return request.getfixturevalue("postgres").database()


@pytest.fixture
def store(url):
    opened = Store(url)
    yield opened
    opened.close()


def ask(store, *keys, lane="probe", server="me", steps=1):
    return store.ask([Ask(key, '{"key": "' + key + '"}', steps) for key in keys], lane, server)


def together(code, url, *arguments, processes=6):
    """Run `code` in several Python processes that begin at the same moment; return what each printed."""
    moment = str(time.time() + 2.5)
    running = [subprocess.Popen([sys.executable, "-W", "error", "-c", code, url, moment, *arguments], cwd=ROOT,
                                stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    printed = [process.communicate(timeout=60)[0].split() for process in running]
    assert [process.returncode for process in running] == [0] * processes
    return printed


def test_a_new_store_is_created_on_demand_and_opens_again(url, store):
    store.put_fact("device", "cpu")
    again = Store(url)
    assert again.fact("device") == "cpu"
    assert again.fact("nothing") is None
    again.close()


def test_a_store_keeps_texts_by_their_content_hash(store):
    content_hash = store.keep_text("浮点数 drift")
    assert content_hash.startswith("sha256:")
    assert store.keep_text("浮点数 drift") == content_hash
    assert store.text(content_hash) == "浮点数 drift"
    assert store.text("sha256:0") is None


def test_a_content_hash_stays_what_it_is_and_makes_its_text_new_again(store):
    content_hash = store.keep_text("drift")
    with store.database.writing() as connection:
        connection.execute(update(TEXTS).values(created=1.0))
    assert store.keep_text(content_hash) == content_hash
    with store.database.reading() as connection:
        kept = connection.execute(TEXTS.select()).mappings().all()
    assert [(row["hash"], row["content"]) for row in kept] == [(content_hash, "drift")]
    assert kept[0]["created"] > time.time() - 60
    assert store.keep_text("sha256:00") == "sha256:00"
    assert store.text("sha256:00") is None


@pytest.mark.parametrize("text", ["", "a" * 4_194_305, "half a \ud800 pair"])
def test_a_text_that_no_experiment_may_hold_is_not_kept(store, text):
    with pytest.raises(ExperimentError):
        store.keep_text(text)
    with store.database.reading() as connection:
        assert connection.execute(TEXTS.select()).all() == []


def test_ids_are_words_that_a_command_line_takes(store):
    run_ids = ask(store, *map(str, range(50)))
    jobs = [job for job, *_ in waiting_jobs(store, "me")]
    assert set("".join(run_ids + jobs)) <= set("0123456789abcdef")


def test_the_same_key_gives_the_same_run(store):
    first = ask(store, "a", "b", "a")
    assert first[0] == first[2] != first[1]
    assert ask(store, "b", "c")[0] == first[1]
    assert [view.status for view in store.views(first)] == ["queued"] * 3


def test_runs_of_a_job_keep_the_order_in_which_they_were_asked(store):
    run_ids = ask(store, "z", "m", "a", lane="train")
    job = waiting_jobs(store, "me")[0][0]
    assert waiting_runs(store, job) == run_ids
    assert [view.queue_position for view in store.views(run_ids)] == [0, 1, 2]


def test_processes_that_ask_at_once_create_one_run_for_each_key(url, store):
    printed = together(ASKING, url, "1,2,3,4,5") + together(ASKING, url, "5,4,3,2,1")
    assert len({tuple(sorted(run_ids)) for run_ids in printed}) == 1
    assert len(store.recent()) == 5


def test_processes_that_claim_at_once_get_each_run_once(url, store):
    run_ids = ask(store, *"abcdefgh")
    counts = [int(words[0]) for words in together(CLAIMING, url, ",".join(run_ids))]
    assert sum(counts) == len(run_ids)


def test_processes_that_create_the_store_at_once_all_succeed(url):
    assert len(together(ASKING, url, "1")) == 6


def test_fifty_threads_that_ask_at_once_create_one_run(store):
    found, barrier = [], threading.Barrier(50)

    def one():
        barrier.wait()
        found.extend(ask(store, "same"))

    threads = [threading.Thread(target=one) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 50
    assert len(set(found)) == 1


def test_snapshots_come_back_after_the_last_one_seen(store):
    run_id = ask(store, "a", steps=3)[0]
    mine = claim(store, run_id)
    for step in range(3):
        mine.append(step, bytes([step]))
    mine.finish("done")
    assert store.snapshots(run_id) == [(0, b"\0"), (1, b"\1"), (2, b"\2")]
    assert store.snapshots(run_id, after=1) == [(2, b"\2")]
    view = store.views([run_id])[0]
    assert (view.status, view.steps_done, view.steps_total, view.over) == ("done", 3, 3, True)
    assert store.unfinished([run_id]) == 0


def test_what_a_worker_notes_is_seen_by_readers(store):
    run_id = ask(store, "a")[0]
    claim(store, run_id).note({"device": "cpu", "threads": 1})
    assert store.views([run_id])[0].provenance == {"device": "cpu", "threads": 1}
    assert store.experiment(run_id) == '{"key": "a"}'


def test_a_run_that_failed_may_be_asked_for_again(store):
    run_id = ask(store, "a")[0]
    claim(store, run_id).finish("failed", "it was too large")
    assert store.views([run_id])[0].error == "it was too large"
    assert ask(store, "a") != [run_id]


def test_a_waiting_run_is_cancelled_at_once_and_may_be_asked_for_again(store):
    run_id = ask(store, "a")[0]
    store.cancel([run_id])
    assert store.views([run_id])[0].status == "cancelled"
    assert claim(store, run_id) is None
    assert ask(store, "a") != [run_id]


def test_a_running_run_is_told_that_it_was_cancelled(store):
    run_id = ask(store, "a")[0]
    mine = claim(store, run_id)
    mine.check()
    store.cancel([run_id])
    assert ask(store, "a") != [run_id]
    with pytest.raises(Cancelled):
        mine.check()
    mine.append(0, b"the step that was under way")
    mine.finish("cancelled")
    assert [step for step, _ in store.snapshots(run_id)] == [0]
    assert store.views([run_id])[0].status == "cancelled"


def test_a_run_whose_worker_died_is_tried_once_more_and_then_fails_with_a_clear_word(store):
    run_id = ask(store, "a")[0]
    job = waiting_jobs(store, "me")[0][0]
    claim(store, run_id).append(0, b"half")
    assert give_back(store, "me", job) == {job}
    assert store.views([run_id])[0].status == "queued"
    again = claim(store, run_id)
    again.append(0, b"the same step, played again")
    assert store.snapshots(run_id) == [(0, b"half")]
    assert give_back(store, "me", job) == {job}
    view = store.views([run_id])[0]
    assert view.status == "failed"
    assert "the worker died 2 times" in view.error
    with pytest.raises(LostClaim):
        again.append(1, b"too late")


def test_a_worker_that_comes_back_late_changes_nothing(store):
    run_id = ask(store, "a")[0]
    late = claim(store, run_id)
    give_back(store, "me", job_of(store, run_id))
    now = claim(store, run_id)
    with pytest.raises(LostClaim):
        late.append(0, b"late")
    late.finish("failed", "late")
    now.append(0, b"now")
    now.finish("done")
    assert store.snapshots(run_id) == [(0, b"now")]
    assert store.views([run_id])[0].status == "done"


def job_of(store, run_id):
    with store.database.reading() as connection:
        return connection.execute(RUNS.select().where(RUNS.c.id == run_id)).mappings().one()["job"]


def test_a_run_without_a_heartbeat_goes_back_to_the_queue(store):
    run_id = ask(store, "a")[0]
    claim(store, run_id)
    assert give_back(store, "me") == set()
    with store.database.writing() as connection:
        connection.execute(update(RUNS).values(heartbeat=time.time() - claims.WORKER_LEASE_S - 1))
    assert len(give_back(store, "me")) == 1
    assert store.views([run_id])[0].status == "queued"


def test_each_probe_is_a_job_of_its_own_so_that_workers_share_a_comparison(store):
    run_ids = ask(store, "z", "m", "a")
    assert [waiting_runs(store, job) for job, *_ in waiting_jobs(store, "me")] == [[run_id] for run_id in run_ids]


def test_a_job_that_no_worker_can_play_fails_with_the_reason(store):
    run_ids = ask(store, "a", "b", lane="train")
    claim(store, run_ids[0]).finish("done")
    fail_job(store, job_of(store, run_ids[0]), "no worker could play the job")
    assert [(run.status, run.error) for run in store.views(run_ids)] == [
        ("done", None), ("failed", "no worker could play the job")]


def test_a_job_is_adopted_only_when_its_server_died(store):
    ask(store, "a")
    assert keep_jobs(store, "other") == 0
    with store.database.writing() as connection:
        connection.execute(update(JOBS).values(heartbeat=time.time() - claims.SERVER_LEASE_S - 1))
    assert keep_jobs(store, "other") == 1
    assert waiting_jobs(store, "me") == []
    assert len(waiting_jobs(store, "other")) == 1


def test_a_server_that_stops_leaves_its_runs_to_the_next_one(store):
    run_id = ask(store, "a")[0]
    claim(store, run_id)
    release_jobs(store, "me", workers_ended=True)
    assert keep_jobs(store, "next") == 1
    assert waiting_runs(store, waiting_jobs(store, "next")[0][0]) == [run_id]


def test_pruning_removes_the_oldest_unpinned_finished_runs(store):
    run_ids = ask(store, *"abcd")
    for run_id in run_ids[:3]:
        mine = claim(store, run_id)
        mine.append(0, bytes(1000))
        mine.finish("done")
    pin(store, run_ids[0])
    assert prune(store, 3000) == 0
    assert prune(store, 2500) == 1
    assert [view.id for view in store.recent()] == [run_ids[3], run_ids[2], run_ids[0]]
    assert store.snapshots(run_ids[1]) == []
    assert prune(store, 0) == 1
    assert len(store.views([run_ids[0], run_ids[3]])) == 2


def test_texts_count_against_the_limit_and_go_with_the_last_run_that_needs_them(store, monkeypatch):
    monkeypatch.setattr("core.pruning.GRACE_S", -1.0)
    texts = [store.keep_text(letter * 1000) for letter in ("é", "b")]
    asks = [Ask(str(number), "{}", text=text) for number, text in enumerate((texts[0], texts[0], texts[1]))]
    run_ids = store.ask(asks, "probe", "me")
    for run_id in run_ids:
        mine = claim(store, run_id)
        mine.append(0, bytes(1000))
        mine.finish("done")
    assert prune(store, 6000) == 0  # three snapshots, a text of 2000 bytes and one of 1000
    assert prune(store, 2000) == 2
    assert [store.text(text) is None for text in texts] == [True, False]


def test_a_text_that_no_run_needs_drives_no_run_out_of_a_full_store(store):
    run_id = ask(store, "a")[0]
    mine = claim(store, run_id)
    mine.append(0, bytes(1000))
    mine.finish("done")
    new, old = store.keep_text("a" * 5000), store.keep_text("b" * 5000)
    with store.database.writing() as connection:
        connection.execute(update(TEXTS).where(TEXTS.c.hash == old).values(created=time.time() - 3600))
    assert prune(store, 20_000) == 0
    assert store.text(old) is not None
    assert prune(store, 3000) == 0
    assert store.text(old) is None
    assert store.text(new) is not None  # somebody is about to ask for a run of it


def test_pruning_makes_the_file_smaller(file_url, tmp_path):
    store = Store(file_url)
    run_id = ask(store, "a")[0]
    mine = claim(store, run_id)
    mine.append(0, os.urandom(4_000_000))
    mine.finish("done")
    prune(store, 0)
    store.close()  # the write-ahead log goes into the file
    assert (tmp_path / "folder" / "runs.db").stat().st_size < 1_000_000


def test_texts_that_no_run_needs_go_after_a_day(store, monkeypatch):
    needed, unneeded = store.keep_text("needed"), store.keep_text("unneeded")
    store.ask([Ask("a", "{}", text=needed)], "probe", "me")
    prune(store, 1000)
    assert store.text(unneeded) == "unneeded"
    monkeypatch.setattr("core.pruning.DAY_S", -1.0)
    prune(store, 1000)
    assert store.text(unneeded) is None
    assert store.text(needed) == "needed"


@pytest.mark.parametrize(("wrong", "sentence"), [
    ("mysql://user@host/name", "DRIFTSCOPE_STORE names a mysql database; allowed: sqlite, postgresql"),
    ("nonsense", "DRIFTSCOPE_STORE is not a database URL; allowed: sqlite:///FILE, postgresql+psycopg://USER@HOST/NAME"),
    ("sqlite://", "DRIFTSCOPE_STORE names a SQLite database in memory, which workers cannot see; allowed: "
                  "sqlite:///FILE"),
])
def test_a_wrong_url_is_refused_with_one_sentence(wrong, sentence):
    with pytest.raises(StoreError) as caught:
        Store(wrong)
    assert str(caught.value) == sentence


def test_a_store_that_cannot_be_opened_says_why_and_hides_the_password(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"cannot be opened: .*exists.*; DRIFTSCOPE_STORE names another"):
        Store(f"sqlite:///{tmp_path / 'file' / 'runs.db'}")
    (tmp_path / "rubbish.db").write_text("this is no database, only words, and many of them " * 100)
    with pytest.raises(StoreError, match="file is not a database"):
        Store(f"sqlite:///{tmp_path / 'rubbish.db'}")


    with pytest.raises(StoreError) as caught:
        Store("postgresql+psycopg://me:secret@127.0.0.1:1/name?connect_timeout=2")
    assert "secret" not in str(caught.value)


def test_a_database_that_fails_after_it_was_opened_says_so_in_one_sentence(store):
    with store.database.writing() as connection:
        connection.exec_driver_sql("DROP TABLE snapshots")
    missing = r'(no such table: snapshots|relation "snapshots" does not exist)'
    with pytest.raises(StoreError, match=rf"^the store \S+ cannot be used now: {missing}$") as caught:
        store.snapshots("a")
    assert PASSWORD not in str(caught.value)
    assert QUOTED not in str(caught.value)
    with pytest.raises(StoreError, match=missing):
        claim(store, ask(store, "a")[0])


def test_a_database_that_went_away_is_said_and_used_again_when_it_is_back(postgres):
    store = Store(postgres.database())
    run, = ask(store, "a")
    postgres.stop()
    with pytest.raises(StoreError, match=r"^the store \S+ cannot be used now: ") as caught:
        store.views([run])
    assert QUOTED not in str(caught.value)
    with pytest.raises(StoreError, match="cannot be used now"):
        claim(store, run)
    postgres.start()
    assert claim(store, run) is not None
    store.close()


def test_a_file_that_is_locked_for_long_says_so_and_works_again_afterwards(file_url, monkeypatch):
    monkeypatch.setattr("core.database.BUSY_TIMEOUT_S", 0.1)
    store = Store(file_url)
    other = sqlite3.connect(file_url.removeprefix("sqlite:///"), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="cannot be used now: database is locked"):
        ask(store, "a")
    assert store.recent() == []
    other.execute("ROLLBACK")
    other.close()
    assert len(ask(store, "a")) == 1
    store.close()


def test_a_store_of_another_version_is_refused(url):
    first = Store(url)
    first.put_fact("schema", "0")
    first.close()
    with pytest.raises(StoreError, match="has schema 0, this program needs 3"):
        Store(url)


OLDER = {
    "1": ("ALTER TABLE runs DROP COLUMN name", "ALTER TABLE runs DROP COLUMN pace",
          "ALTER TABLE snapshots DROP COLUMN loss", "ALTER TABLE snapshots DROP COLUMN written",
          "ALTER TABLE snapshots DROP COLUMN event", "ALTER TABLE runs DROP COLUMN look", "DROP TABLE checkpoints"),
    "2": ("ALTER TABLE runs DROP COLUMN look",),
}


@pytest.mark.parametrize("version", OLDER)
def test_a_store_of_a_version_before_is_brought_up_to_date_and_keeps_its_runs(url, store, version):
    mine = claim(store, ask(store, "a")[0])
    mine.append(0, b"kept", 2.5)
    mine.finish("done")
    with store.database.writing() as connection:
        for statement in (*OLDER[version], f"UPDATE facts SET value = '{version}' WHERE name = 'schema'"):
            connection.execute(text(statement))
    newer = Store(url)
    assert newer.fact("schema") == "3"
    assert newer.snapshots(mine.run) == [(0, b"kept")]
    loss = newer.steps(mine.run)[0][1]
    assert math.isnan(loss) if version == "1" else loss == 2.5
    assert (newer.views([mine.run])[0].status, newer.views([mine.run])[0].name) == ("done", None)
    assert [run.id for run in newer.recent()] == [mine.run]
    newer.close()


def test_a_run_that_keeps_a_look_is_computed_like_any_other_and_is_not_listed(store):
    plain, = ask(store, "a")
    looked, = store.ask([Ask("a look", "{}", 1, None, "3.1.0")], "probe", "")
    assert (claim(store, looked).look, claim(store, plain).look) == ("3.1.0", None)
    assert [run.id for run in store.recent()] == [plain] == [one.view.id for one in entries(store, 10)]
    assert [one.view.id for one in entries(store, 10, [looked])] == [looked, plain]


# ── trainings ──


def test_losses_come_back_as_they_are(store):
    mine = claim(store, ask(store, "a")[0])
    for step, loss in enumerate((1.5, math.nan, math.inf, -math.inf)):
        mine.append(step, b"", loss)
    np.testing.assert_array_equal([loss for _, loss, _ in store.steps(mine.run)], [1.5, math.nan, math.inf, -math.inf])
    assert [step for step, *_ in store.steps(mine.run, after=1)] == [2, 3]
    assert store.snapshots_at(mine.run, [3, 1, 7]) == [(1, b""), (3, b"")]


def test_a_checkpoint_replaces_the_one_before_forgives_a_death_and_goes_when_the_run_is_complete(store):
    run = ask(store, "a")[0]
    job = waiting_jobs(store, "me")[0][0]
    mine = claim(store, run)
    assert mine.checkpoint() is None
    mine.save(3, b"three")
    give_back(store, "me", job)
    assert store.views([run])[0].deaths == 1
    mine = claim(store, run)
    assert mine.checkpoint() == b"three"
    mine.save(5, b"five")
    assert (mine.checkpoint(), store.views([run])[0].deaths) == (b"five", 0)
    assert checkpoints(store, [run]) == {run: 5}
    mine.finish("done")
    assert mine.checkpoint() is None


def test_a_worker_that_lost_its_run_leaves_no_checkpoint(store):
    run = ask(store, "a")[0]
    late = claim(store, run)
    give_back(store, "me", store.views([run])[0].job)
    claim(store, run)
    late.save(9, b"late")
    assert checkpoints(store, [run]) == {}


def test_a_run_that_goes_on_keeps_what_it_recorded_and_stands_for_its_key_again(store):
    run = ask(store, "a")[0]
    mine = claim(store, run)
    mine.append(0, b"zero", 1.0)
    mine.append(1, b"one", 0.5)
    store.cancel([run])
    mine.save(2, b"two")
    mine.finish("cancelled")
    assert store.standing(["a"]) == {}
    assert resume(store, [run]) == 1
    assert store.standing(["a"]) == {"a": run}
    again = claim(store, run)
    assert (again.recorded, again.checkpoint()) == (1, b"two")
    again.check()
    again.append(1, b"played again")
    again.append(2, b"two")
    assert [content for _, content in store.snapshots(run)] == [b"zero", b"one", b"two"]
    assert store.views([run])[0].steps_done == 3


def test_a_run_that_goes_on_beside_another_of_its_key_does_not_stand_for_it(store):
    old = ask(store, "a")[0]
    store.cancel([old])
    new = ask(store, "a")[0]
    assert resume(store, [old, new]) == 1
    assert store.standing(["a"]) == {"a": new}
    assert store.views([old])[0].status == "queued"


def test_the_heartbeat_says_how_far_a_run_got_between_recorded_steps(store):
    mine = claim(store, ask(store, "a")[0])
    mine.append(0, b"")
    mine.beat(40, 0.25)
    assert (store.views([mine.run])[0].steps_done, store.views([mine.run])[0].pace) == (41, 0.25)
    mine.beat(3, 0.25)
    assert store.views([mine.run])[0].steps_done == 41


def test_a_run_is_named_pinned_computed_again_and_deleted(store):
    run = ask(store, "a")[0]
    rename(store, run, "  a   name\n of two lines " + "x" * 100)
    pin(store, run)
    view = store.views([run])[0]
    assert (view.name, view.pinned) == (("a name of two lines " + "x" * 100)[:80], True)
    assert remove(store, [run]) == 0  # it is not over
    mine = claim(store, run)
    mine.append(0, b"12345")
    mine.finish("done")
    again = repeat(store, run, "me")
    assert again != run and store.standing(["a"]) == {"a": run}
    assert [(entry.view.id, entry.bytes) for entry in entries(store, 9)] == [(again, 0), (run, 5)]
    assert remove(store, [run, again]) == 1
    assert [entry.view.id for entry in entries(store, 9)] == [again]
    with pytest.raises(StoreError, match="the store has no run nobody"):
        repeat(store, "nobody", "me")


def test_checkpoints_count_against_the_limit(store):
    run = ask(store, "a")[0]
    mine = claim(store, run)
    mine.append(0, bytes(100))
    mine.save(1, bytes(5000))
    mine.finish("cancelled")
    assert prune(store, 5100) == 0
    assert prune(store, 5000) == 1


def test_an_unknown_run_and_an_unknown_lane_are_errors(store):
    with pytest.raises(StoreError, match="the store has no run nothing"):
        store.views(["nothing"])
    with pytest.raises(StoreError, match="the store has no run nothing"):
        store.experiment("nothing")
    with pytest.raises(ValueError, match='lane is "fast"; allowed: probe, train'):
        ask(store, "a", lane="fast")


def test_settings_are_read_with_their_units(monkeypatch):
    monkeypatch.setenv("DRIFTSCOPE_STORE_LIMIT", "1.5 GiB")
    assert store_limit() == 1.5 * 2**30
    monkeypatch.setenv("DRIFTSCOPE_LIMIT_FLOPS", "1e12")
    assert limits()["flops"] == 1e12
    monkeypatch.setenv("DRIFTSCOPE_STORE_LIMIT", "much")
    with pytest.raises(SettingError, match='DRIFTSCOPE_STORE_LIMIT is "much"; allowed: a number'):
        store_limit()


@pytest.mark.parametrize("name", ["DRIFTSCOPE_STORE_LIMIT", "DRIFTSCOPE_WORKER_THREADS", "DRIFTSCOPE_PROBE_WORKERS",
                                  "DRIFTSCOPE_WORKER_MEMORY", "DRIFTSCOPE_LIMIT_FLOPS"])
def test_every_setting_that_cannot_be_read_is_found_at_once(monkeypatch, name):
    check()
    monkeypatch.setenv(name, "much")
    with pytest.raises(SettingError, match=f'{name} is "much"; allowed: a number'):
        check()


def test_the_store_is_in_the_users_data_folder_by_default(monkeypatch, tmp_path):
    monkeypatch.delenv("DRIFTSCOPE_STORE", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    Store().close()
    assert (tmp_path / "driftscope" / "driftscope.db").is_file()
