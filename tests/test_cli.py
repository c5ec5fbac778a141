"""The command line as a user calls it: a process of its own, its output, its files, its exit status."""

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).parent.parent
SMALL = {"model": {"n_layers": 2, "d_model": 16, "n_heads": 2}, "input": {"batch": 2, "seq_len": 8}}
COLUMNS = ["run", "variant", "step", "layer", "site", "head", "statistic", "value", "token", "dim"]


@pytest.fixture
def core(tmp_path):
    def call(*arguments, stdin=""):
        environment = os.environ | {"DRIFTSCOPE_STORE": f"sqlite:///{tmp_path / 'store.db'}"}
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


def test_only_run_and_compare_import_torch():
    code = "import sys; from core.__main__ import main; main(['presets']); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.endswith("False\n")
