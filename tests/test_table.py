"""The tidy table: every format holds the same numbers, non-finite ones included."""

import io
import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from core import table
from core.trace import Outlier, Snapshot
from tests.made import snapshot, trace

COLUMNS = ["run", "variant", "step", "layer", "site", "head", "statistic", "value", "token", "dim"]


def tidy():
    return table.tidy(trace(np.array([1.0, np.nan])), "abc", "model.norm=none")


def written(ending):
    stream = io.BytesIO()
    table.write(tidy(), stream, ending)
    return stream.getvalue()


def test_the_columns_are_those_of_the_specification():
    assert tidy().column_names == COLUMNS


def test_every_format_holds_the_same_rows():
    rows = json.loads(written(".json"))
    assert [list(row) for row in rows[:1]] == [COLUMNS]
    parquet = pq.read_table(io.BytesIO(written(".parquet"))).to_pylist()
    lines = written(".csv").decode().splitlines()
    assert lines[0] == ",".join(COLUMNS)
    assert len(rows) == len(parquet) == len(lines) - 1
    for row, stored, line in zip(rows, parquet, lines[1:], strict=True):
        np.testing.assert_equal(float(row["value"]), stored["value"])
        assert repr(stored["value"]) in line


def test_non_finite_values_are_written_as_words():
    values = {row["value"] for row in json.loads(written(".json")) if isinstance(row["value"], str)}
    assert values == {"nan"}
    assert ",rms,nan,," in written(".csv").decode()


def rows_of(made, **wanted):
    rows = table.tidy(type(trace(np.ones(1)))((made,)), "abc").to_pylist()
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def test_layers_and_places_follow_the_vocabulary():
    made = snapshot(np.ones(3), gradient=np.ones(3))
    assert rows_of(made, site="loss") == [
        {"run": "abc", "variant": None, "step": 0, "layer": 3, "site": "loss", "head": None, "statistic": "value",
         "value": 1.5, "token": None, "dim": None}]
    assert {row["layer"] for row in rows_of(made, site="embed")} == {-1}
    assert [(row["layer"], row["head"]) for row in rows_of(made, site="attn")] == []
    assert rows_of(made, site="layers.0.attn.q.weight", statistic="weight_norm")[0]["layer"] == 0
    assert len(rows_of(made, site="resid_post", statistic="grad_rms")) == 3
    assert rows_of(made, statistic="norm") == []
    assert len(rows_of(made, statistic="grad_norm")) == 4
    assert rows_of(made, site="embed", statistic="layer_cosine") == []


def replaced(made, **changes):
    return Snapshot(**{**vars(made), **changes})


def test_what_was_not_observed_has_no_row():
    made = snapshot(np.ones(2))
    made.activations["n"][1] = np.nan
    assert {row["layer"] for row in rows_of(made, site="resid_post")} == {1}


def test_histograms_outliers_and_totals_have_their_rows():
    counts = np.zeros((3, 279), np.int64)
    counts[1, 146], counts[2, 277] = 7, 2
    made = replaced(snapshot(np.ones(2)), histograms={"activations": counts}, totals={"grad_total_norm": 2.0},
                    outliers=(Outlier(1, "resid_post", 5, 7, -900.0, 1200.0),))
    assert [row["value"] for row in rows_of(made, statistic="log2_hist[-3]")] == [7]
    assert [row["value"] for row in rows_of(made, statistic="log2_hist[zero]")] == [2]
    assert rows_of(made, site="all")[0]["layer"] is None
    outlier = rows_of(made, statistic="outliers")[0]
    assert (outlier["token"], outlier["dim"], outlier["value"]) == (5, 7, -900.0)


def test_a_gradient_that_never_came_is_left_out_and_a_nan_gradient_is_kept():
    values = {"weight_norm": np.array([3.0]), "param_grad_norm": np.array([np.nan])}
    made = replaced(snapshot(np.ones(2)), parameters=values, grad_observed=np.array([False]))
    assert rows_of(made, statistic="param_grad_norm") == []
    kept = replaced(made, grad_observed=np.array([True]))
    assert len(rows_of(kept, statistic="param_grad_norm")) == 1


@pytest.mark.parametrize("gradient", [None, np.array([np.inf, np.nan])])
def test_a_snapshot_survives_its_bytes(gradient):
    made = replaced(snapshot(np.array([1.0, np.nan]), gradient=gradient), loss=float("nan"),
                    grad_observed=np.array([True]), outliers=(Outlier(0, "embed", 1, 2, 3.0, 4.0),),
                    histograms={"activations": np.arange(6).reshape(3, 2)})
    back = Snapshot.from_bytes(made.to_bytes())
    assert (back.layout, back.outliers, back.step) == (made.layout, made.outliers, made.step)
    for group in ("activations", "gradients", "heads", "parameters", "histograms"):
        assert getattr(back, group).keys() == getattr(made, group).keys()
        for name, values in getattr(made, group).items():
            np.testing.assert_array_equal(getattr(back, group)[name], values)
    np.testing.assert_array_equal(back.grad_observed, made.grad_observed)
