"""The page of stored runs: its words and links without a browser, then as a visitor meets it."""

import io
import math
import os
import shlex
import subprocess
import sys
import time

import numpy as np
import pyarrow.parquet as pq
import pytest
import xarray as xr
from browser import ROOT, server
from playwright.sync_api import expect
from sqlalchemy import insert, update

from core import archive, service
from core.database import JOBS, RUNS
from core.difference import Difference
from core.experiment import Experiment, parse
from core.presets import PRESETS
from core.runs import entries
from core.store import Store
from pages.ui import stored
from pages.ui.side_by_side import circumstances, sentences
from pages.ui.stored import Sought, Stored
from pages.ui.text import Words

EN = Words("en")
MODEL = {"n_layers": 2, "d_model": 16, "n_heads": 2}
HOSTILE = "<img src=x onerror=alert(1)> [a](javascript:alert(1)) **b** $x$ | c"


def experiment(steps=4, norm="layernorm", **protocol):
    return parse({"model": {**MODEL, "norm": norm}, "input": {"batch": 2, "seq_len": 8},
                  "protocol": {"steps": steps, **protocol}})


MADE = {
    "base": experiment(), "none": experiment(norm="none"), "seed": experiment(seed=5), "probe": experiment(steps=0),
    "rms": experiment(norm="rmsnorm"), "broken": experiment(400, "none", optimizer="sgd", lr=1e3, record_every=7),
}


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    return f"sqlite:///{tmp_path_factory.mktemp('runs') / 'store.db'}"


@pytest.fixture(scope="module")
def made(url):
    """Name → id of the runs that are in the store; one of them is of a version to come."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRIFTSCOPE_STORE", url)
        found = {name: archive.play(one, keep=True).run for name, one in MADE.items()}
        store = Store()
        store.put_fact("device", "cpu")
        with store.database.writing() as connection:
            connection.execute(insert(JOBS).values(id="f0", lane="train", server="", heartbeat=0, created=0))
            connection.execute(insert(RUNS).values(
                id="f0", key="k", job="f0", lane="train", status="failed", error="<b>no</b>", created=time.time(),
                steps_total=9, experiment='{"model": {"norm": "normofthefuture"}}'))
            connection.execute(update(RUNS).where(RUNS.c.id == found["rms"]).values(name=HOSTILE))
        store.close()
        yield found | {"future": "f0"}
        service.stop()


@pytest.fixture(scope="module")
def address(url, made):
    with server(ROOT / "app.py", DRIFTSCOPE_STORE=url) as running:
        yield running


def stored_runs(url):
    store = Store(url)
    try:
        return {entry.view.id: Stored(entry, None, "cpu") for entry in entries(store, 100)}
    finally:
        store.close()


# without a browser


@pytest.mark.parametrize("sought", [Sought(), Sought("all"), Sought("probe", "failed", "no norm", ("a1", "b2"))])
def test_a_link_says_what_is_sought_both_ways(sought):
    assert stored.read(sought.write(), sought.chosen) == (sought, [])


@pytest.mark.parametrize(("query", "key"), [
    ({"kind": "x"}, "link.choice"), ({"status": "<b>"}, "link.choice"), ({"run": "<script>"}, "link.runs"),
    ({"run": ".".join(["a"] * 3 + [f"{n:x}" for n in range(99)])}, "link.runs"), ({"run": "abc"}, "live.no_run"),
    ({"run": "a\nb"}, "link.runs"), ({"run": "."}, "link.runs"),
])
def test_what_a_link_cannot_say_is_refused_with_a_notice_and_left_out(query, key):
    sought, notices = stored.read(query, ())
    assert sought == Sought()
    assert [notice.key for notice in notices] == [key]


@pytest.mark.parametrize("name", PRESETS)
def test_the_shortest_form_of_a_stored_experiment_means_the_same_and_says_no_field_that_follows_from_others(name):
    content = parse(PRESETS[name]).canonical_json("cpu")
    short, refused, changes = stored.described(content, "cpu")
    assert refused is None
    assert short.canonical_json("cpu") == content
    assert changes == short.differences() == parse(content).shortened("cpu").differences()


def test_the_search_finds_names_settings_ids_and_words_and_what_is_chosen_stays(url, made):
    runs = stored_runs(url)

    def found(**sought):
        return {run.view.id for run in runs.values() if Sought(**sought).wants(run, EN)}

    assert found(find="NORM=none") == {made["none"], made["broken"]}
    assert found(find="400 no SGD") == found(find="Optimizer") == {made["broken"]}
    assert found(find="norm=rmsnorm") == found(find="onerror") == {made["rms"]}
    assert found(find=made["seed"][:9]) == {made["seed"]}
    assert found(status="stopped") == {made["broken"]}
    assert found(kind="probe") == {made["probe"]}
    assert found(kind="all") == set(runs)
    assert found(status="stopped", chosen=(made["base"],)) == {made["broken"], made["base"]}


def test_the_command_line_that_is_shown_gives_the_same_numbers(url, made, tmp_path):
    run = stored_runs(url)[made["broken"]]
    program, *arguments = shlex.split(stored.command(run))
    assert program == "python"
    subprocess.run([sys.executable, *arguments, "--no-store"], cwd=tmp_path, check=False, stderr=subprocess.DEVNULL,
                   env=os.environ | {"PYTHONPATH": str(ROOT), "DRIFTSCOPE_STORE": url})
    again = pq.read_table(tmp_path / f"driftscope-{run.view.id}.parquet").to_pydict()
    kept = service.snapshots(made["broken"])
    losses = [repr(value) for value, site in zip(again["value"], again["site"], strict=True) if site == "loss"]
    assert losses == [repr(one.loss) for one in kept]


@pytest.mark.parametrize("value", ["12", "true", "null", "a b", "it's", "$x", "sha256:1"])
def test_every_text_reaches_the_command_line_as_a_text(url, made, value):
    from core.arguments import value_of

    assert value_of(stored._literal(value)) == value


@pytest.mark.parametrize(("count", "said"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (150 * 2**20, "150 MiB"),
                                             (2**31, "2.0 GiB")])
def test_sizes_are_said_in_binary_units(count, said):
    assert stored.size(count) == said


def test_runs_that_are_named_are_listed_however_old_with_their_last_losses_and_the_bytes_of_all(made):
    newest, named = service.entries(1), service.entries(1, [made["base"], "none such"])
    assert [entry.view.id for entry in newest] == [made["future"]]
    assert [entry.view.id for entry in named] == [made["future"], made["base"]]
    losses = service.last_losses(list(made.values()))
    assert losses.keys() == set(made.values()) - {made["future"]}
    for run, loss in losses.items():
        np.testing.assert_equal(loss, service.snapshots(run)[-1].loss)
    assert math.isnan(losses[made["broken"]])
    assert service.usage() == sum(entry.bytes for entry in service.entries())


def test_runs_of_other_circumstances_are_said_to_be_and_only_they():
    a = {"engine": "1", "threads": 2, "seed": 0}
    assert circumstances([a, a | {"seed": 5}], EN) == []
    (said,) = circumstances([a, a | {"threads": 1}], EN)
    assert "Threads: 2 / 1" in said


SAID = {
    "identical": (Difference(True, 3, compared=10), ["runs.identical"]),
    "apart": (Difference(True, 3, compared=10, differing=1), ["runs.differing"]),
    "steps": (Difference(True, 3, 1, 2, compared=10), ["runs.identical", "runs.other_steps"]),
    "not finite": (Difference(True, 3, compared=10, differing=2, one_sided=2),
                   ["runs.differing", "runs.not_finite_apart"]),
    "layout": (Difference(False), ["runs.other_layout"]),
    "nothing": (Difference(True), ["runs.no_common_step"]),
}


@pytest.mark.parametrize("name", SAID)
def test_a_difference_is_said_in_sentences(name):
    found, keys = SAID[name]
    said = sentences(found, EN)
    values = {"compared": "10", "steps": 3, "differing": str(found.differing), "a": 1, "b": 2, "count": "2"}
    assert len(said) == len(keys)
    assert all(sentence.endswith(EN(key, **values)) for sentence, key in zip(said, keys, strict=True))


def test_an_experiment_that_is_no_object_is_flat_nevertheless():
    assert [stored.flat(text) for text in ("[1]", "no", '{"a": 1}')] == [{".": [1]}, {".": "no"}, {"a.": 1}]


def test_what_all_runs_share_is_not_said_of_each_and_what_tells_them_apart_is(url, made):
    runs = [run for run in stored_runs(url).values() if run.kind == "training"]
    shared = stored.common(runs)
    assert shared == {**{f"model.{name}": value for name, value in MODEL.items()}, "input.batch": 2, "input.seq_len": 8}
    known = {run.view.id: run for run in runs}
    assert known[made["none"]].title(EN, shared) == "no norm"
    assert known[made["base"]].title(EN, shared) == EN("runs.nothing_else")
    assert stored.common(runs[:1]) == {}
    for run in runs:
        assert shared.items() <= run.changes.items() or run.experiment is None


# in the browser

browser = pytest.mark.browser
LOADED_MS, COMPUTED_MS = 30_000, 150_000
"""How long a table's own script may take on a busy machine, and how long its workers may take to come up."""


def tick(visit, row):
    """Click the box of a row of the table."""
    box = visit.page.get_by_test_id("stDataFrame").bounding_box()
    visit.page.mouse.click(box["x"] + 17, box["y"] + 38 + 37 * row + 18)
    visit.page.wait_for_timeout(200)
    visit.settle()


def rows(visit, count):
    """Return what the first column of the table says, once it has so many rows."""
    found = visit.page.locator("[data-testid=stDataFrame] td[aria-colindex='1']")
    expect(found).to_have_count(count, timeout=LOADED_MS)
    return found.all_text_contents()


def seen(locator, timeout=LOADED_MS):
    expect(locator.first).to_be_visible(timeout=timeout)


def button(visit, key):
    return visit.page.get_by_role("button", name=EN(key), exact=True)


@browser
def test_the_newest_trainings_are_listed_and_a_tick_shows_one_and_says_so_in_the_link(visit, made):
    visit.open("/runs?lang=en")
    assert [text.split(" · ")[0] for text in rows(visit, 6)] == [
        EN("runs.unreadable"), "no norm", HOSTILE, "Seed: 5", "no norm", EN("runs.nothing_else")]
    seen(visit.page.get_by_text("In all of these: Depth (layers): 2 · Width D: 16"))
    tick(visit, 1)
    visit.page.wait_for_url(f"**run={made['broken']}")
    expect(visit.page.get_by_role("heading", level=2)).to_contain_text("no norm", timeout=LOADED_MS)
    seen(visit.page.get_by_test_id("stMarkdownContainer").filter(has_text=EN("runs.status_stopped")))
    seen(visit.page.get_by_test_id("stTable").filter(has_text=EN("runs.fact_engine")))


@browser
def test_two_ticks_compare_and_say_whether_they_are_paired(visit, made):
    visit.open(f"/runs?lang=en&run={made['base']}.{made['none']}")
    rows(visit, 6)
    seen(visit.page.get_by_text(EN("pairing.same_weights")))
    link = visit.page.get_by_role("link", name=EN("runs.open_live"))
    assert f"run={made['base']}.{made['none']}" in link.get_attribute("href")
    tick(visit, 3)
    visit.page.wait_for_url(f"**{made['none']}.{made['seed']}")
    seen(visit.page.get_by_text("unpaired"))
    seen(visit.page.get_by_test_id("stTable").filter(has_text="Seed").filter(has_text="no norm"))


@browser
def test_the_filter_and_the_search_stand_in_the_link_and_a_cold_one_is_right(visit, made):
    visit.open(f"/runs?lang=en&kind=all&find=norm&run={made['probe']}")
    rows(visit, 4)
    visit.page.get_by_role("searchbox").fill("seed=5")
    visit.page.get_by_role("searchbox").press("Enter")
    visit.page.wait_for_url("**find=seed%3D5**")
    visit.settle()
    rows(visit, 2)
    seen(visit.page.get_by_role("link", name=EN("runs.open_drift")))


@browser
def test_a_run_is_named_pinned_and_deleted_only_after_a_word(visit, url, made):
    victim = archive.play(experiment(seed=77), keep=True).run
    visit.open(f"/runs?lang=en&run={victim}")
    field = visit.page.get_by_label(EN("runs.name"), exact=True)
    field.fill("  a *good*   name ")
    field.press("Enter")
    expect(visit.page.get_by_role("heading", level=2)).to_have_text("a *good* name", timeout=LOADED_MS)
    button(visit, "runs.pin").click()
    seen(button(visit, "runs.unpin"))
    assert (stored_runs(url)[victim].view.name, stored_runs(url)[victim].view.pinned) == ("a *good* name", True)
    button(visit, "runs.delete").click()
    expect(visit.page.get_by_role("dialog")).to_contain_text("a *good* name", timeout=LOADED_MS)
    button(visit, "runs.keep").click()
    expect(visit.page.get_by_role("dialog")).to_have_count(0, timeout=LOADED_MS)
    assert victim in stored_runs(url)
    button(visit, "runs.delete").click()
    visit.page.get_by_role("dialog").get_by_role("button", name=EN("runs.delete_now"), exact=True).click()
    expect(visit.page.get_by_role("heading", level=2)).to_have_count(0, timeout=LOADED_MS)
    assert victim not in stored_runs(url)
    visit.page.wait_for_url(f"{visit.address}/runs?lang=en")


@browser
def test_a_name_is_drawn_as_it_is_written_and_one_that_is_too_long_is_refused(visit, url, made):
    victim = archive.play(experiment(seed=78), keep=True).run
    visit.open(f"/runs?lang=en&run={victim}")
    field = visit.page.get_by_label(EN("runs.name"), exact=True)
    field.fill(":material/delete: :smile: :red[x]")
    field.press("Enter")
    heading = visit.page.get_by_role("heading", level=2)
    expect(heading).to_contain_text("smile", timeout=LOADED_MS)
    assert heading.inner_text().replace("\u2060", "") == ":material/delete: :smile: :red[x]"
    field.fill("n" * 81)
    field.press("Enter")
    seen(visit.page.get_by_text(EN("runs.name_long", count=81, limit=80)))
    assert stored_runs(url)[victim].view.name == ":material/delete: :smile: :red[x]"
    service.remove([victim])


@browser
def test_a_run_that_was_deleted_elsewhere_is_said_to_be(visit, url, made):
    victim = archive.play(experiment(seed=79), keep=True).run
    visit.open(f"/runs?lang=en&run={victim}")
    seen(button(visit, "runs.repeat"))
    service.remove([victim])
    button(visit, "runs.repeat").click()
    seen(visit.page.get_by_text("Deleted meanwhile").filter(has_text=victim))
    assert visit.page.get_by_test_id("stException").count() == 0


@browser
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_filter_that_nothing_passes_is_said_in_the_visitors_language(visit, made, lang):
    visit.open(f"/runs?lang={lang}&find=nothingofthekind")
    seen(visit.page.get_by_text(Words(lang)("runs.none_found")))
    assert visit.page.get_by_test_id("stDataFrame").count() == 0


@browser
def test_run_again_shows_how_far_the_two_lie_apart_as_soon_as_both_are_over(visit, url, made):
    (run,) = service.ensure([experiment(seed=9)])  # by the same worker, with as many threads
    assert service.wait([run], COMPUTED_MS / 1000)[0].status == "done"
    visit.open(f"/runs?lang=en&run={run}")
    button(visit, "runs.repeat").click()
    seen(visit.page.get_by_text("bit for bit"), COMPUTED_MS)
    seen(visit.page.get_by_text(EN("runs.same_experiment")))
    same = [one.view for one in stored_runs(url).values() if one.view.key == service.view([run])[0].key]
    assert [view.status for view in same] == ["done", "done"]


@browser
def test_a_run_that_is_under_way_can_be_stopped_and_gone_on_with_but_not_deleted(visit, made):
    (run,) = service.ensure([experiment(20_000, record_every=10_000)])
    visit.open(f"/runs?lang=en&run={run}")
    expect(button(visit, "runs.delete")).to_be_disabled()
    button(visit, "live.stop").click()
    seen(button(visit, "live.resume"), COMPUTED_MS)
    assert service.view([run])[0].status == "cancelled"
    expect(button(visit, "runs.delete")).to_be_enabled()
    button(visit, "live.resume").click()
    seen(button(visit, "live.stop"))
    assert service.view([run])[0].status in service.UNFINISHED
    service.cancel([run])


@browser
def test_every_download_holds_the_run(visit, made):
    visit.open(f"/runs?lang=en&run={made['base']}")
    contents = {}
    for ending, name in ((".parquet", "Parquet"), (".csv", "CSV"), (".nc", "netCDF")):
        with visit.page.expect_download() as download:
            visit.page.get_by_role("button", name=f"{name} ·").click()
        assert download.value.suggested_filename == f"driftscope-{made['base']}{ending}"
        contents[ending] = download.value.path().read_bytes()
    table = pq.read_table(io.BytesIO(contents[".parquet"])).to_pydict()
    loss = [value for value, site in zip(table["value"], table["site"], strict=True) if site == "loss"]
    assert len(loss) == 5
    assert len(contents[".csv"].decode().splitlines()) == len(table["value"]) + 1
    assert xr.open_dataset(io.BytesIO(contents[".nc"]), engine="h5netcdf")["loss"].values.tolist() == loss


@browser
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_what_strangers_and_other_versions_wrote_leaves_a_whole_page(visit, made, lang):
    visit.open(f"/runs?lang={lang}&kind=all&run={made['rms']}.{made['future']}.abc&status=<b>")
    assert visit.page.get_by_test_id("stAlert").filter(has_text="abc").count() == 1
    seen(visit.page.get_by_text("normofthefuture"))
    seen(visit.page.get_by_test_id("stMarkdownContainer").filter(has_text=HOSTILE))
    visit.open(f"/runs?lang={lang}&run={made['future']}")
    seen(visit.page.get_by_text("<b>no</b>"))
    seen(visit.page.get_by_text(Words(lang)("runs.other_version", reason="")[:20]))
    visit.open(f"/runs?lang={lang}&run=<script>alert(1)</script>")
    assert "<script>" in visit.page.get_by_test_id("stAlert").inner_text()
    assert visit.page.get_by_test_id("stException").count() == 0
    assert "{" not in visit.page.inner_text("body")


def test_the_default_of_the_command_line_is_the_default_experiment():
    assert parse(PRESETS["pre_layernorm"]) == Experiment()
