"""What an operator sees of a server: its log, its metrics and its status page, of a real one with real workers."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
import tempfile
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
import waiting
from browser import ROOT, Visit, server
from playwright.sync_api import expect
from prometheus_client.parser import text_string_to_metric_families
from small import SMALL
from streamlit.testing.v1 import AppTest

from core import crew, logs, service, settings
from core.experiment import parse
from core.fields import ExperimentError
from core.health import versions
from core.store import STATUSES, Store
from pages.ui import feed, link, stream
from pages.ui.text import LANGUAGES, Words

until = partial(waiting.until, seconds=60.0, pause=0.1)


def probe(seed):
    return parse({}).with_values({**SMALL, "protocol.seed": seed, "protocol.device": "cpu"})


def training(seed):
    return probe(seed).with_values({"protocol.steps": 100_000, "protocol.record_every": 1000})


class Served:
    """A real server with a store that this process has opened too, and a log of JSON lines."""

    def __init__(self, address, log):
        self.address, self._log = address, log

    def log(self, event, **fields):
        """Return the lines about an event; every line of the log is an object with what each has."""
        lines = [json.loads(line) for line in self._log.read_text("utf-8").splitlines()]
        assert all({"time", "level", "logger", "event"} <= line.keys() for line in lines)
        return [line for line in lines if line["event"] == event and fields.items() <= line.items()]

    def metrics(self):
        """Return the samples, (name, labels) → value, and the families by name."""
        with urllib.request.urlopen(f"{self.address}/{stream.METRICS}") as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            families = {one.name: one for one in text_string_to_metric_families(answer.read().decode())}
        return {(one.name, *one.labels.values()): one.value for family in families.values()
                for one in family.samples}, families


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    url, log = f"sqlite:///{folder / 'runs.db'}", folder / "log"
    environment = {"DRIFTSCOPE_STORE": url, "DRIFTSCOPE_LOG": "json", "DRIFTSCOPE_PROBE_WORKERS": "1"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRIFTSCOPE_STORE", url)
        with server(ROOT / "app.py", log=log, **environment) as address:
            yield Served(address, log)
        service.stop()


def test_metrics_are_those_of_the_store_after_a_probe(served):
    run, = service.ensure([probe(1)])
    assert service.wait([run], 60)[0].status == "done"
    until(lambda: served.metrics()[0]["driftscope_workers", "train"])
    samples, families = served.metrics()
    with_status = {status: samples["driftscope_runs", "probe", status] for status in STATUSES}
    assert with_status == {status: float(status == "done") for status in STATUSES}
    assert samples["driftscope_queue_length", "probe"] == samples["driftscope_queue_oldest_seconds", "probe"] == 0
    assert samples["driftscope_store_bytes",] == service.usage() > 0
    assert samples["driftscope_store_limit_bytes",] == settings.store_limit()
    assert samples["driftscope_workers", "probe"] == samples["driftscope_engine_ready",] == 1
    assert samples["driftscope_worker_resident_bytes", "probe"] > 100e6
    assert samples["driftscope_worker_deaths_total",] == samples["driftscope_event_streams",] == 0
    assert samples["driftscope_server_resident_bytes",] > 50e6
    assert 0 < samples["driftscope_server_cpu_seconds_total",] < 600
    assert families["driftscope_build_info"].samples[0].labels == versions()
    assert all(one.documentation and one.type in ("gauge", "counter") for one in families.values())


def test_the_log_tells_what_becomes_of_a_run_one_object_a_line(served):
    run, = service.ensure([probe(2)])
    service.wait([run], 60)
    ended, = until(lambda: served.log("run ended", run=run))
    started, = served.log("run started", run=run)
    submitted, = served.log("job submitted", job=started["job"], lane="probe")
    assert (ended["status"], ended["level"], ended["logger"]) == ("done", "info", "driftscope.worker")
    assert submitted["time"] < started["time"] < ended["time"] and 0 < ended["seconds"] < 60
    begun, = served.log("server started")
    assert begun["versions"] == versions()
    assert begun["settings"]["DRIFTSCOPE_PROBE_WORKERS"] == 1
    assert served.log("engine ready")[0]["seconds"] > 0
    assert served.log("worker started", pid=ended["pid"])


@pytest.mark.browser
def test_the_status_page_shows_workers_and_queue_in_both_languages_and_renews_itself(served, chromium):
    first, second = service.ensure([training(3), training(4)], apart=True)
    until(lambda: service.view([first])[0].steps_done > 1)
    context = chromium.new_context(locale="en-US", viewport={"width": 1280, "height": 900})
    for lang in LANGUAGES:
        t, page = Words(lang), Visit(context.new_page(), served.address).open(f"/status?lang={lang}").page
        workers, queue = (page.get_by_test_id("stTable").nth(number) for number in range(2))
        expect(page.get_by_text(t("status.ready"))).to_be_visible()
        for started in served.log("worker started"):
            expect(workers).to_contain_text(str(started["pid"]))
        expect(workers.get_by_role("row")).to_have_count(3)
        expect(workers.get_by_role("row").nth(1)).to_contain_text(t("status.idle"))
        expect(workers.get_by_role("row").nth(2)).to_contain_text("100001")
        expect(queue.get_by_role("row").nth(1)).to_contain_text(t("runs.status_running"))
        expect(queue.get_by_role("row").nth(2)).to_contain_text(t("runs.status_queued"))
        assert "sqlite:" not in page.content()
    query = {link.RUNS: first, "names": link.pack([["a", "a"]]), "lang": "en"}
    with urllib.request.urlopen(f"{served.address}/{stream.live(query)}") as followed:
        assert followed.readline() == b"event: state\n"
        samples, _ = served.metrics()
    assert samples["driftscope_event_streams",] == 1
    assert (samples["driftscope_runs", "train", "running"], samples["driftscope_queue_length", "train"]) == (1, 1)
    assert samples["driftscope_queue_oldest_seconds", "train"] > 0
    service.cancel([second, first])
    expect(page.get_by_text(Words(lang)("status.empty"))).to_be_visible()
    context.close()


SECRET = """
import os, signal, sys, time
from core import logs, service
from core.claims import claim
from core.experiment import parse
from core.store import Ask, Store
logs.begin()
store = Store()
old = claim(store, store.ask([Ask("a", "{}")], "probe", "nobody")[0])
old.append(0, b"x" * 1000)
old.finish("done")
service.start()
run = service.ensure([parse({"protocol": {"device": "cpu"}})])
print(service.wait(run, 60)[0].status)
os.kill(service.worker_pids()["probe"][0], signal.SIGKILL)
while not service.health().deaths: time.sleep(0.1)
print(service.health().used < 1000 * 1000)
service.stop()
"""


def test_no_password_is_logged_and_a_dead_worker_and_what_is_pruned_are(tmp_path):
    environment = {**os.environ, "DRIFTSCOPE_LOG": "json", "DRIFTSCOPE_STORE_LIMIT": "500", "PYTHONPATH": str(ROOT),
                   "DRIFTSCOPE_STORE": f"sqlite:///file:{tmp_path}/runs.db?uri=true&password=sesame"}
    ended = subprocess.run([sys.executable, "-c", SECRET], cwd=tmp_path, text=True, capture_output=True, check=True,
                           timeout=120, env=environment)
    assert ended.stdout.splitlines()[0] == "done"
    assert "sesame" not in ended.stderr
    lines = {line["event"]: line for line in map(json.loads, ended.stderr.splitlines())}
    assert lines["server started"]["store"].endswith(f"{tmp_path}/runs.db")
    assert lines["store pruned"]["runs"] == 1
    assert lines["worker died"]["pid"] and lines["worker died"]["level"] == "warning"
    assert lines["server stopped"]["seconds"] > 0


def record(**fields):
    made = logging.makeLogRecord({"name": "driftscope.x", "levelname": "WARNING", "msg": "run ended", "created": 1.5,
                                  "msecs": 500.0})
    made.fields = fields
    return made


def test_a_plain_line_is_short_and_a_json_line_stays_one():
    said = record(run="a", seconds=float("nan"), reason='two\n"lines"')
    assert logs.Plain().format(said) == (
        r'1970-01-01T00:00:01.500Z warning driftscope.x: run ended run=a seconds=nan reason="two\n\"lines\""')
    assert json.loads(logs.JsonLine().format(said)) == {
        "time": "1970-01-01T00:00:01.500Z", "level": "warning", "logger": "driftscope.x", "event": "run ended",
        "run": "a", "seconds": None, "reason": 'two\n"lines"'}


def test_an_unknown_form_of_the_log_is_refused(monkeypatch):
    monkeypatch.setenv("DRIFTSCOPE_LOG", "xml")
    with pytest.raises(settings.SettingError, match='DRIFTSCOPE_LOG is "xml"; allowed: plain, json'):
        settings.check()


def test_every_setting_but_the_address_of_the_store_is_said():
    assert settings.in_force().keys() == settings.SETTINGS.keys() - {"DRIFTSCOPE_STORE"}


def test_what_is_refused_is_logged(monkeypatch, caplog):
    monkeypatch.setenv("DRIFTSCOPE_LIMIT_PARAMETERS", "10")
    with pytest.raises(ExperimentError):
        service.check_size([probe(1)])
    (said,) = caplog.records
    assert (said.message, said.fields["lane"]) == ("request refused", "probe")
    assert "parameters; allowed: up to 10" in said.fields["reason"]


def test_a_worker_that_says_nothing_of_itself_is_known_all_the_same_and_others_are_left_out():
    said = {"name": "n", "host": "h", "resources": {"train": 1}, "metrics": {}, "memory_limit": None}
    workers = crew.read({"workers": {"tcp://a": said, "tcp://b": {**said, "resources": {"GPU": 1}}}})
    assert workers == (crew.Worker("tcp://a", "n", "h", ("train",), 0, 0),)


@pytest.fixture
def own_store(monkeypatch, tmp_path):
    service.stop()
    monkeypatch.setenv("DRIFTSCOPE_STORE", f"sqlite:///{tmp_path / 'runs.db'}")
    yield Store()
    service.stop()


def status_page(lang):
    at = AppTest.from_file(str(ROOT / "pages" / "ui" / "shell.py"), default_timeout=60)
    at.query_params["lang"] = lang
    at.run()
    at.switch_page(str(Path(ROOT) / "pages" / "status.py"))
    at.query_params["lang"] = lang
    at.run()
    assert not at.exception
    return at


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_status_page_says_that_there_is_no_engine_or_that_it_failed_and_why(own_store, monkeypatch, lang):
    t = Words(lang)
    at = status_page(lang)
    assert [one.value for one in at.warning] == [t("status.stopped")]
    assert t("status.empty") in [one.value for one in at.markdown]
    monkeypatch.setattr(tempfile, "tempdir", str(Path(own_store.url.removeprefix("sqlite:///")).parent / "missing"))
    service.start()
    until(lambda: service.state().status == "failed")
    (said,) = status_page(lang).error
    assert said.value.startswith(t("status.failed", reason="").strip()) and "missing" in said.value


def test_a_store_that_cannot_be_read_is_said_on_the_page_and_by_the_metrics(own_store):
    assert service.usage() == 0
    with own_store.database.writing() as connection:
        connection.exec_driver_sql("ALTER TABLE checkpoints RENAME TO hidden")
    (said,) = status_page("en").error
    assert said.value.startswith("The store cannot be read") and "checkpoints" in said.value
    (route,) = (one for one in stream.routes(feed.look) if one.path.endswith("metrics"))
    with ThreadPoolExecutor(1) as apart:  # a browser of another test may hold this thread's event loop
        answer = apart.submit(asyncio.run, route.endpoint(None)).result()
    assert answer.status_code == 503 and b"no such table: checkpoints" in answer.body
