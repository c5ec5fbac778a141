"""The command line as a user calls it: a process of its own, its output, its files, its exit status."""

import csv
import io
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from sqlalchemy import select

from core.database import RUNS
from core.store import Ask, Store

ROOT = Path(__file__).parent.parent
SMALL = {"model": {"n_layers": 2, "d_model": 16, "n_heads": 2}, "input": {"batch": 2, "seq_len": 8}}
COLUMNS = ["run", "variant", "step", "layer", "site", "head", "statistic", "value", "token", "dim"]


@pytest.fixture
def core(tmp_path):
    def call(*arguments, stdin="", **variables):
        environment = os.environ | {"DRIFTSCOPE_STORE": f"sqlite:///{tmp_path / 'store.db'}"} | variables
        command = [sys.executable, "-W", "error", "-m", "core", *arguments]
        return subprocess.run(command, input=stdin, cwd=ROOT, env=environment, capture_output=True, text=True,
                              timeout=120, check=False)

    return call


def test_an_empty_object_prints_the_table(core):
    done = core("run", "-", stdin="{}")
    assert (done.returncode, done.stderr) == (0, "")
    rows = json.loads(done.stdout)
    assert list(rows[0]) == COLUMNS
    streams = [row for row in rows if row["site"] == "resid_post" and row["statistic"] == "rms"]
    assert [row["layer"] for row in streams] == list(range(12))
    assert {row["head"] for row in rows if row["statistic"] == "entropy_norm"} == {0, 1, 2, 3}


def test_every_format_of_one_experiment_holds_the_same_values(core, tmp_path):
    for ending in ("json", "csv", "parquet"):
        done = core("run", "-", "--out", str(tmp_path / f"t.{ending}"), "--no-store", stdin=json.dumps(SMALL))
        assert (done.returncode, done.stdout) == (0, "")
    rows = json.loads((tmp_path / "t.json").read_text())
    stored = pq.read_table(tmp_path / "t.parquet").to_pylist()
    text = list(csv.DictReader(io.StringIO((tmp_path / "t.csv").read_text())))
    assert rows == stored
    assert [float(row["value"]) for row in text] == [row["value"] for row in rows]


def test_the_same_experiment_gives_the_same_numbers_twice(core):
    first, second = (core("run", "-", "--no-store", stdin=json.dumps(SMALL)).stdout for _ in range(2))
    assert first == second


def test_a_comparison_names_its_variants(core):
    done = core("compare", "-", "--vary", "model.norm=none,layernorm", "--vary", "model.n_layers=1,2", "--no-store",
                stdin=json.dumps(SMALL))
    variants = list(dict.fromkeys(row["variant"] for row in json.loads(done.stdout)))
    assert variants == ["model.norm=none, model.n_layers=1", "model.norm=none, model.n_layers=2",
                        "model.norm=layernorm, model.n_layers=1", "model.norm=layernorm, model.n_layers=2"]


def test_a_sweep_writes_the_table_of_a_comparison_and_does_not_run_again_what_the_store_has(core, tmp_path):
    wanted = ("--grid", "model.n_layers=1,2", "--grid", "model.n_heads=2,3")
    first = core("sweep", "-", *wanted, stdin=json.dumps(SMALL))
    assert first.returncode == 0
    assert [line.partition(": model.n_heads")[0] for line in first.stderr.splitlines()] == [
        f"left out: model.n_layers={depth}, model.n_heads=3" for depth in (1, 2)]
    compared = core("compare", "-", "--vary", "model.n_layers=1,2", "--vary", "model.n_heads=2", "--no-store",
                    stdin=json.dumps(SMALL))
    def numbers(done):
        return [{**row, "run": None} for row in json.loads(done.stdout)]
    assert numbers(first) == numbers(compared)
    with sqlite3.connect(tmp_path / "store.db") as store:
        before = store.execute("SELECT id, attempts FROM runs ORDER BY id").fetchall()
    more = core("sweep", "-", "--grid", "model.n_layers=1,2,3", stdin=json.dumps(SMALL))
    assert more.returncode == 0
    with sqlite3.connect(tmp_path / "store.db") as store:
        after = store.execute("SELECT id, attempts FROM runs ORDER BY id").fetchall()
    assert len(before) == 2 and len(after) == 3 and set(before) < set(after)
    assert {row["run"] for row in json.loads(first.stdout)} < {row["run"] for row in json.loads(more.stdout)}


@pytest.mark.parametrize(("arguments", "said"), [
    (("--grid", "model.n_heads=3,5"), "every cell of the sweep is refused"),
    (("--grid", "model.norm=none", "--grid", "model.norm=layernorm"), "--grid names a field twice"),
    (("--grid", "protocol.seed=" + ",".join(map(str, range(401)))), "the sweep has 401 cells; allowed: up to 400"),
    (("--grid", "model.nonsense=1"), "model.nonsense"),
])
def test_a_sweep_that_cannot_be_is_refused(core, arguments, said):
    done = core("sweep", "-", *arguments, stdin=json.dumps(SMALL))
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr.splitlines()[-1]


def test_preset_file_and_set_go_over_each_other(core):
    done = core("run", "-", "--preset", "no_norm", "--set", "model.n_layers=1", "--set", "model.layer_norms.0=rmsnorm",
                "--no-store", stdin=json.dumps(SMALL))
    rows = json.loads(done.stdout)
    assert {row["layer"] for row in rows if row["site"] == "norm1"} == {0}


NON_FINITE = SMALL | {"model": SMALL["model"] | {"norm": "none", "init": "kaiming", "init_gain": 100},
                      "protocol": {"dtype": "float16"}}


def test_a_non_finite_value_ends_with_status_3_and_the_whole_table(core):
    done = core("run", "-", "--no-store", stdin=json.dumps(NON_FINITE))
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert "first at" in done.stderr
    values = [row["value"] for row in json.loads(done.stdout)]
    assert "nan" in values or "inf" in values
    counts = [row["value"] for row in json.loads(done.stdout) if row["statistic"] in ("n_nan", "n_posinf", "n_neginf")]
    assert sum(counts) > 0


def test_stopping_can_be_switched_off(core):
    protocol = NON_FINITE["protocol"] | {"stop_on_nan": False, "stop_on_inf": False}
    done = core("run", "-", "--no-store", stdin=json.dumps(NON_FINITE | {"protocol": protocol}))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("arguments", [
    (), ("nothing",), ("run",), ("run", "missing.json"), ("run", "-", "--set", "x"), ("run", "-", "--set", "a.b=1"),
    ("run", "-", "--set", "model.n_layers=0"), ("run", "-", "--out", "t.txt"), ("run", "-", "--out", "/no/such/t.csv"),
    ("run", "--preset", "nope"), ("compare", "-"), ("compare", "-", "--vary", "model.norm="), ("drift", "nope"),
    ("compare", "-", "--vary", "model.norm=a", "--vary", "model.norm=b"), ("run", "-", "--unknown"),
    ("run", "-", "--set", "protocol.device=cuda:77"), ("run", "-", "--set", "model.n_layers=512",
                                                       "--set", "model.d_model=4096", "--set", "model.d_ff=16384"),
])
def test_what_is_refused_is_one_line_and_status_2(core, arguments):
    done = core(*arguments, stdin="{}")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr


DEEP = "[" * 5000
UNKNOWN_DEVICE = ("--set", "protocol.device=cuda:77")
"""Refused only when the computation begins: what is refused before it was found out before it."""


@pytest.mark.parametrize("arguments", [("runs",), ("drift", "nope"), ("run", "-", *UNKNOWN_DEVICE)])
def test_a_store_that_cannot_be_opened_is_one_line_before_anything_is_computed(core, arguments):
    done = core(*arguments, stdin="{}", DRIFTSCOPE_STORE="foo")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("DRIFTSCOPE_STORE is not a database URL")
    assert done.stderr.count("\n") == 1


def test_a_target_that_cannot_be_written_is_one_line_before_anything_is_computed(core, tmp_path):
    (tmp_path / "folder.json").mkdir()
    done = core("run", "-", "--out", str(tmp_path / "folder.json"), *UNKNOWN_DEVICE, stdin="{}")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "cannot be written: Is a directory" in done.stderr


def test_a_refused_run_leaves_its_target_as_it_was(core, tmp_path):
    (tmp_path / "old.json").write_text("old")
    for name in ("old.json", "new.json"):
        assert core("run", "-", "--out", str(tmp_path / name), *UNKNOWN_DEVICE, stdin="{}").returncode == 2
    assert (tmp_path / "old.json").read_text() == "old"
    assert not (tmp_path / "new.json").exists()


def test_output_that_does_not_fit_is_one_line_and_status_2():
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", "core", "presets"], cwd=ROOT, stdout=full, stderr=subprocess.PIPE,
                              text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "No space left on device" in done.stderr


@pytest.mark.parametrize("value", [DEEP, DEEP + "]" * 5000, "[" * 970 + "]" * 970, f'{{"a": {DEEP}'])
def test_a_value_that_is_nested_too_deeply_is_one_line_and_status_2(core, value):
    for arguments in (("run", "-", "--set"), ("compare", "-", "--vary")):
        done = core(*arguments, f"model.norm={value}", "--no-store", stdin="{}")
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert "Traceback" not in done.stderr


def test_an_interrupted_command_ends_with_status_130_and_without_a_word(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    process = subprocess.Popen([sys.executable, "-m", "core", "run", str(tmp_path / "fifo")], cwd=ROOT, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with open(tmp_path / "fifo", "w"):  # opens when the command has opened it too
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=60) == ("", "")
    assert process.returncode == 130


BAD = ["", "nonsense", "[]", '{"model": 3}', '{"model": {"norm": "x"}}', "\x00", '{"a":' * 2000]


@pytest.mark.parametrize("text", BAD)
def test_bad_input_is_one_line_and_status_2(core, text):
    done = core("run", "-", stdin=text)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


def test_presets_and_schema_are_json(core):
    assert "pre_layernorm" in json.loads(core("presets").stdout)
    assert json.loads(core("schema").stdout)["properties"].keys() == {"model", "input", "protocol"}


def test_a_kept_run_is_listed_and_judged(core):
    done = core("run", "-", stdin=json.dumps(SMALL))
    run = json.loads(done.stdout)[0]["run"]
    assert [(entry["run"], entry["status"]) for entry in json.loads(core("runs").stdout)] == [(run, "done")]
    verdicts = json.loads(core("drift", run).stdout)
    assert {"growing", "steady"} & {verdict["code"] for verdict in verdicts}
    assert json.loads(core("run", "-", stdin=json.dumps(SMALL)).stdout)[0]["run"] == run


def test_the_verdicts_of_a_non_finite_run_are_valid_json(core):
    run = json.loads(core("run", "-", stdin=json.dumps(NON_FINITE)).stdout)[0]["run"]
    printed = core("drift", run).stdout
    verdicts = json.loads(printed, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    words = {value for verdict in verdicts for value in verdict["numbers"].values() if isinstance(value, str)}
    assert words
    assert words <= {"nan", "inf", "-inf"}


def test_a_stored_experiment_of_another_version_is_listed_with_the_reason(core, tmp_path):
    core("run", "-", stdin=json.dumps(SMALL))
    store = Store(f"sqlite:///{tmp_path / 'store.db'}")
    store.ask([Ask("old", '{"model": {"gone": 1}}')], "probe", "another server")
    store.close()
    old, valid = json.loads(core("runs").stdout)
    assert old["experiment"] is None
    assert old["error"].startswith("model.gone is not a field")
    assert (valid["error"], valid["experiment"]["model.n_layers"]) == (None, 2)


def test_a_run_of_a_text_that_is_named_by_its_hash_keeps_that_text_in_the_store(core, tmp_path):
    store = Store(f"sqlite:///{tmp_path / 'store.db'}")
    hashed = store.keep_text("to be or not to be")
    assert core("run", "-", "--set", f"input.text={hashed}", stdin=json.dumps(SMALL)).returncode == 0
    with store.database.reading() as connection:
        assert connection.scalar(select(RUNS.c.text)) == hashed
    store.close()


def test_own_text_is_read_from_the_experiment_and_found_again_by_its_hash(core):
    own = SMALL | {"input": SMALL["input"] | {"text": "to be or not to be"}}
    first = core("run", "-", stdin=json.dumps(own))
    assert first.returncode == 0
    hashed = json.loads(core("runs").stdout)[0]["experiment"]["input.text"]
    assert hashed.startswith("sha256:")
    again = core("run", "-", "--set", f"input.text={hashed}", stdin=json.dumps(SMALL))
    assert again.stdout == first.stdout
    unknown = core("run", "-", "--set", "input.text=sha256:" + "0" * 64, stdin=json.dumps(SMALL))
    assert (unknown.returncode, unknown.stderr.count("\n")) == (2, 1)


def test_only_what_computes_imports_torch():
    code = "import sys; from core.__main__ import main; main(['presets']); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.endswith("False\n")


@pytest.fixture
def make(tmp_path):
    """Call make in a folder with the real Makefile, where everything is installed already."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in ("requirements.txt", "requirements-dev.txt", ".venv/bin/pip", ".venv/.dev", "scripts/browser.sh",
                 "scripts/services.sh"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / ".venv/bin/pytest").write_text("#!/bin/sh\necho tested with $BROWSER_PATH\n")
    (tmp_path / ".venv/bin/pytest").chmod(0o755)

    def call(*arguments):
        return subprocess.run(["make", "-s", *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=60,
                              check=False)

    return call


@pytest.mark.parametrize("missing", ["browser", "services"])
def test_the_tests_do_not_run_without_a_browser_and_the_services(make, tmp_path, missing):
    (tmp_path / "scripts/browser.sh").write_text("echo /a/browser")
    assert make("test").stdout == "tested with /a/browser\n"
    (tmp_path / f"scripts/{missing}.sh").write_text("exit 1")
    done = make("test")
    assert done.returncode != 0
    assert "tested" not in done.stdout


@pytest.mark.parametrize(("old", "sentence"), [
    ("exit 1", "needs Python 3.11 or newer"),
    ('case "$2" in *ensurepip*) exit 1;; esac', "apt install python3-venv"),
])
def test_a_python_that_will_not_do_is_named_in_one_sentence(make, tmp_path, old, sentence):
    (tmp_path / ".venv/bin/pip").unlink()
    (tmp_path / "old-python").write_text(f"#!/bin/sh\n{old}\n")
    (tmp_path / "old-python").chmod(0o755)
    done = make("test", "PYTHON=./old-python")
    assert done.returncode != 0
    assert sentence in done.stderr.splitlines()[0]
    assert "./old-python" in done.stderr.splitlines()[0]


@pytest.mark.parametrize("document", [
    {"model": {"n_layers": 1, "d_model": 16, "n_heads": 2, "norm": "none", "embed_scale": 3e37, "init_gain": 0},
     "input": {"batch": 2, "seq_len": 8}},
    {"model": {"n_layers": 1, "d_model": 16, "n_heads": 2, "norm": "none", "sublayers": "mlp", "activation": "identity",
               "init": "normal", "init_std": 0.05, "output_gain": 100, "d_ff": 8, "bias": False},
     "input": {"source": "scaled", "feature_scales": [4500] * 16, "batch": 2, "seq_len": 8},
     "protocol": {"dtype": "float16"}},
], ids=["loss", "parameter gradient"])
def test_a_loss_or_a_parameter_gradient_that_is_not_finite_ends_with_status_3_too(core, document):
    done = core("run", "-", "--no-store", stdin=json.dumps(document))
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)


def test_lists_and_words_mix_in_the_values_of_a_varied_field(core):
    done = core("compare", "-", "--vary", "input.lengths=[8,4],ragged,null", "--no-store", stdin=json.dumps(SMALL))
    variants = list(dict.fromkeys(row["variant"] for row in json.loads(done.stdout)))
    assert variants == ["input.lengths=[8, 4]", "input.lengths=ragged", "input.lengths=null"]


def test_a_number_that_is_not_finite_is_refused_by_its_field(core):
    done = core("run", "-", "--set", "model.norm_eps=NaN", stdin="{}")
    assert done.stderr == "model.norm_eps is NaN; allowed: a finite number from 0 to 1\n"
