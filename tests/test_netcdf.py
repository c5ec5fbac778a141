"""netCDF: every number of the tidy table is found again in the file, and nothing is told for what is not known."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from core import netcdf, table
from core.experiment import parse
from core.netcdf import Recording, to_bytes
from core.presets import PRESETS
from core.trace import Layout, Outlier, Trace
from core.train import train
from core.vocabulary import HEAD_MEASURES, PARAMETER_STATISTICS, STATISTICS, TOTALS
from tests.made import recorded, snapshot, trace

SMALL = {"model": {"n_layers": 2}, "input": {"batch": 2, "seq_len": 8}}
RUNS = {
    "plain": {},
    "ragged": {"input": {"lengths": "ragged"}},
    "float16_overflow": {**PRESETS["float16_overflow"], "model": {**PRESETS["float16_overflow"]["model"],
                                                                  "n_layers": 12}},
    "no_residual": {"model": {"norm": "none", "residual": False}},
    "attention_only": {"model": {"sublayers": "attention"}},
    "standard": {"protocol": {"detail": "standard"}},
}


@cache
def probe(name):
    changes = {part: {**SMALL.get(part, {}), **RUNS[name].get(part, {})} for part in ("model", "input", "protocol")}
    return Trace(tuple(train(parse(changes))))


def training(first):
    """Steps as a training records them: full, standard, one that broke, full."""
    standard = replace(first, step=1, histograms={}, outliers=(), loss=np.nan,
                       activations={name: values for name, values in first.activations.items()
                                    if STATISTICS[name].detail == "standard"},
                       parameters={**first.parameters, "update_ratio": np.full(len(first.layout.parameters), 1e-3)})
    broken = {name: values.copy() for name, values in first.activations.items()}
    for value, (name, values) in zip([np.nan, np.inf, -np.inf] * 20, broken.items(), strict=False):
        values[-1] = values[-1] if name == "n" else value
    for values in broken.values():
        values[1] = np.nan  # not observed, n included
    last = replace(first, step=1000, activations=broken, totals={**first.totals, "lr": 1e-3, "overflow": 1.0},
                   outliers=(Outlier(0, "resid_post", 5, 7, -np.inf, np.inf),))
    return Trace((first, standard, last))


def opened(folder, content, group=None):
    path = folder / "run.nc"
    path.write_bytes(content)
    with xr.open_dataset(path, engine="h5netcdf", group=group) as found:
        return found.load()


def value_in(found, row):
    """Where a user looks for a row of the tidy table."""
    name, _, exponent = row["statistic"].rstrip("]").partition("[")
    values = found["loss" if name == "value" else name]
    if row["token"] is not None:
        here = [found[f"outlier_{what}"] == row[what] for what in ("step", "layer", "site", "token", "dim")]
        return values[np.logical_and.reduce(here)]
    labels = {**row, "site": f"{row['layer']}/{row['site']}", "parameter": row["site"], "bin": exponent}
    return values.sel({dimension: labels[dimension] for dimension in values.dims})


def observed_numbers(found):
    """How many numbers the file holds, as a user counts them: what is missing and what was not observed left out."""
    seen, count = {"": found.n, "grad_": found.get("grad_n")}, 0
    for name, values in found.data_vars.items():
        if values.dims == ("step", "site") and name.removeprefix("grad_") in STATISTICS:
            prefix = "grad_" if name.startswith("grad_") else ""
            count += int((seen[prefix].notnull() & values.notnull()).sum())
        elif name.endswith("log2_hist"):
            count += int((values > 0).sum())
        elif name not in ("grad_observed", "outliers", "outlier_ratio"):
            count += int(values.notnull().sum())
    return count


@pytest.mark.parametrize("name", RUNS)
def test_every_number_of_the_tidy_table_is_found_again_at_its_place_and_no_other_is(name, tmp_path):
    found = opened(tmp_path, to_bytes([Recording(probe(name), "abc")]))
    rows = table.tidy(probe(name), "abc").to_pylist()
    assert len(rows) > 300
    numbers = 0
    for row, where in zip(rows, places(found, rows), strict=True):
        np.testing.assert_equal(where, row["value"], err_msg=str(row))
        numbers += row["token"] is None and not np.isnan(row["value"])
    assert observed_numbers(found) == numbers


def places(found, rows):
    """The values of `value_in`, with the many plain rows looked up by index, for speed."""
    arrays = {name: values.to_numpy() for name, values in found.data_vars.items()}
    at = {name: {key: place for place, key in enumerate(found[name].to_numpy().tolist())}
          for name in ("step", "site")}
    for row in rows:
        site = f"{row['layer']}/{row['site']}"
        plain = site in at["site"] and row["statistic"] in arrays and row["token"] is None
        yield (arrays[row["statistic"]][at["step"][row["step"]], at["site"][site]] if plain
               else value_in(found, row).item())


def test_a_user_finds_every_kind_of_row_of_a_training_by_its_names(tmp_path):
    made = training(probe("ragged").snapshots[0])
    found = opened(tmp_path, to_bytes([Recording(made, "abc")]))
    rows = table.tidy(made, "abc").to_pylist()
    assert {row["step"] for row in rows} == {0, 1, 1000}
    for row, where in zip(rows, places(found, rows), strict=True):
        np.testing.assert_equal(where, row["value"], err_msg=str(row))
    for row in rows[:: len(rows) // 100]:
        np.testing.assert_equal(value_in(found, row).item(), row["value"], err_msg=str(row))
    assert {"+inf", "-inf", "nan"} == {f"{value:+}".replace("+nan", "nan") for value in (
        row["value"] for row in rows) if not np.isfinite(value)}


def test_what_was_not_observed_is_told_from_what_is_undefined_and_from_what_was_not_recorded(tmp_path):
    found = opened(tmp_path, to_bytes([Recording(training(probe("plain").snapshots[0]), "abc")]))
    assert np.isnan(found.n[2, 1]) and np.isnan(found.rms[2, 1])
    assert found.n[1, 1] > 0 and np.isnan(found.kurtosis[1]).all() and found.kurtosis[0].notnull().any()
    assert found.log2_hist[1].isnull().all() and found.log2_hist[0].notnull().all()
    assert found.log2_hist[0, 0].sum() == found.n_sample[0, 0]
    assert np.isnan(found.update_ratio[0]).all() and (found.update_ratio[1] == 1e-3).all()
    assert np.isnan(found.lr[:2]).all() and found.lr[2] == 1e-3
    raw = tmp_path / "run.nc"
    with xr.open_dataset(raw, engine="h5netcdf", mask_and_scale=False) as bare:
        assert set(np.unique(bare.log2_hist[1])) == {-1} and bare.log2_hist.attrs["_FillValue"] == -1
        assert "_FillValue" not in bare.rms.attrs


def test_a_gradient_that_never_came_is_told_from_a_gradient_of_nan(tmp_path):
    values = {"weight_norm": np.array([3.0]), "param_grad_norm": np.array([np.nan])}
    shots = [replace(snapshot(np.ones(2), step=step), parameters=values, grad_observed=np.array([seen]))
             for step, seen in enumerate((False, True))]
    found = opened(tmp_path, to_bytes([Recording(Trace(tuple(shots)), "abc")]))
    assert found.grad_observed.squeeze().to_numpy().tolist() == [0, 1]


def test_every_name_of_the_vocabulary_has_a_definition_and_every_variable_says_unit_and_meaning(tmp_path):
    assert {*STATISTICS, *HEAD_MEASURES, *PARAMETER_STATISTICS, *TOTALS} <= netcdf.DEFINITIONS.keys()
    found = opened(tmp_path, to_bytes([Recording(probe("plain"), "abc")]))
    assert all(values.attrs["long_name"] for values in found.variables.values())
    assert {found[name].attrs["units"] for name in ("rms", "n", "log2_hist", "entropy", "zero_frac")} == {
        "1", "count", "nats", "share"}
    assert found.grad_rms.attrs["long_name"] == "gradient of the loss: root mean square"


def test_the_file_says_what_it_is_of(tmp_path):
    experiment = parse(RUNS["ragged"]).canonical_json()
    made = to_bytes([Recording(probe("ragged"), "abc", experiment, {"engine": "1+x", "lengths": [3, 4]}, "one")])
    said = opened(tmp_path, made).attrs
    assert (said["run"], said["variant"], said["engine"]) == ("abc", "one", "1+x")
    assert parse(json.loads(said["experiment"])).canonical_json() == experiment
    assert json.loads(said["provenance"]) == {"engine": "1+x", "lengths": [3, 4]}


def test_several_runs_are_a_group_each_with_their_own_sites_and_steps(tmp_path):
    variants = {"model.norm=none": probe("no_residual"), "model.sublayers=attention": training(
        probe("attention_only").snapshots[0])}
    content = to_bytes([Recording(one, f"run{number}", variant=name)
                        for number, (name, one) in enumerate(variants.items())])
    for number, (name, one) in enumerate(variants.items()):
        found = opened(tmp_path, content, name)
        assert found.attrs["run"] == f"run{number}" and found.sizes["step"] == len(one.snapshots)
        np.testing.assert_array_equal(found.rms.to_numpy(), one.site("rms"))
    with xr.open_datatree(tmp_path / "run.nc", engine="h5netcdf") as tree:
        assert list(tree.children) == list(variants)


HOSTILE = ["a/b", "", ".", "..", "/", "a\0b", "名 字", "\ud800", "a" * 300, "a/b", "a_b", "\n", " x ", "a_b_2", "="]


def test_hostile_names_are_groups_of_their_own_and_said_in_full(tmp_path):
    recordings = [Recording(trace(np.ones(2)), "abc", variant=name) for name in HOSTILE]
    names = netcdf.groups(recordings)
    assert len(set(names)) == len(HOSTILE)
    content = to_bytes(recordings)
    for name, variant in zip(names, HOSTILE, strict=True):
        said = opened(tmp_path, content, name).attrs["variant"]
        assert said == {"a\0b": "a\\x00b", "\ud800": "\\ud800"}.get(variant, variant)


def test_hostile_sites_and_parameters_and_a_huge_experiment_keep_their_names(tmp_path):
    first = snapshot(np.ones(2))
    layout = Layout(2, 2, ((-1, "a/b\0"), (0, "名"), (1, "")), ((0, "\ud800 w"),))
    made = replace(first, layout=layout, outliers=(Outlier(0, "名", 1, 2, 3.0, 4.0),))
    huge = json.dumps({"input": {"feature_scales": [0.1 + 0.2] * 20_000}})
    found = opened(tmp_path, to_bytes([Recording(Trace((made,)), "\0", huge)]))
    assert found.site.to_numpy().tolist() == ["-1/a/b\\x00", "0/名", "1/"]
    assert found.parameter.to_numpy().tolist() == ["\\ud800 w"]
    assert found.attrs["experiment"] == huge
    assert found.outliers.sel(outlier=0).outlier_site == "名"


def test_a_trace_without_parameters_heads_and_gradients_has_no_such_axes(tmp_path):
    found = opened(tmp_path, to_bytes([Recording(recorded({(0, "attn_out"): {"rms": 2.0}, (1, "q"): None}), "abc")]))
    assert set(found.sizes) == {"step", "site"}
    assert found.rms.sel(site="0/attn_out").item() == 2.0 and np.isnan(found.n.sel(site="1/q")).all()


def test_nothing_to_write_is_refused():
    with pytest.raises(ValueError, match="there is no run to write; allowed: one run or more"):
        to_bytes([])
    with pytest.raises(ValueError, match="run abc has recorded nothing yet; allowed: a run that has"):
        to_bytes([Recording(Trace(()), "abc")])


def test_importing_it_loads_neither_xarray_nor_torch():
    code = "import core.netcdf, sys; print({'xarray', 'h5py', 'pandas', 'torch'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


def test_bytes_are_made_without_a_file(tmp_path):
    code = """
import sys
import numpy as np
from core.netcdf import Recording, to_bytes
from tests.made import trace
recordings = [Recording(trace(np.ones(2)), "abc")] * 2
to_bytes(recordings[:1]), to_bytes(recordings)  # imports
sys.addaudithook(lambda event, arguments: print(arguments) if event == "open" else None)
print(to_bytes(recordings[:1])[1:4], to_bytes(recordings)[1:4])
"""
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd()), "TMPDIR": str(tmp_path)}
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path,
                          env=environment)
    assert made.stdout == "b'HDF' b'HDF'\n"
    assert list(tmp_path.iterdir()) == []
