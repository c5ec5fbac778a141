"""The tidy table: one value a row, the same in every file format.

Columns: run, variant, step, layer, site, head, statistic, value, token, dim; what does not apply is empty (null). It
knows the vocabulary and pyarrow; it does not know torch or where a trace came from.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from core.trace import Snapshot, Trace
from core.vocabulary import ATTENTION_SITE, HISTOGRAM_BINS, STATISTICS, TIME_STATISTICS

SCHEMA = pa.schema([
    ("run", pa.string()), ("variant", pa.string()), ("step", pa.int64()), ("layer", pa.int64()), ("site", pa.string()),
    ("head", pa.int64()), ("statistic", pa.string()), ("value", pa.float64()), ("token", pa.int64()),
    ("dim", pa.int64()),
])

Row = tuple[int | None, str, int | None, str, float, int | None, int | None]
"""layer, site, head, statistic, value, token, dim."""


def tidy(trace: Trace, run: str, variant: str | None = None) -> pa.Table:
    """Return every number of `trace` as a table with the columns of SCHEMA."""
    rows = [(run, variant, snapshot.step, *row) for snapshot in trace.snapshots for row in _rows(snapshot)]
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(SCHEMA)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.table(arrays, schema=SCHEMA)


def table_of(columns: Mapping[str, Sequence[object]]) -> pa.Table:
    """Return columns of equal length as a table; None is null, numbers that are not finite stay what they are."""
    return pa.table({name: pa.array(list(values)) for name, values in columns.items()})


def concatenate(tables: list[pa.Table]) -> pa.Table:
    """Return the rows of all `tables`, in order."""
    return pa.concat_tables(tables)


def _rows(snapshot: Snapshot) -> Iterator[Row]:
    yield snapshot.layout.n_layers, "loss", None, "value", snapshot.loss, None, None
    for name, total in snapshot.totals.items():
        yield None, "all", None, name, total, None, None
    yield from _site_rows(snapshot, snapshot.activations, "")
    yield from _site_rows(snapshot, snapshot.gradients, "grad_")
    yield from _histogram_rows(snapshot)
    yield from _time_rows(snapshot)
    for layer, head, name, value in _head_values(snapshot):
        yield layer, ATTENTION_SITE, head, name, value, None, None
    for statistic, values in snapshot.parameters.items():
        observed = snapshot.observed_parameters(statistic)
        for (layer, name), value, seen in zip(snapshot.layout.parameters, values.tolist(), observed, strict=True):
            if seen:
                yield layer, name, None, statistic, value, None, None
    for outlier in snapshot.outliers:
        place = (outlier.token, outlier.dim)
        yield outlier.layer, outlier.site, None, "outliers", outlier.value, *place
        yield outlier.layer, outlier.site, None, "outlier_ratio", outlier.ratio, *place


def _site_rows(snapshot: Snapshot, values: Any, prefix: str) -> Iterator[Row]:
    """Yield the observed sites' statistics that apply there; undefined ones are NaN, unobserved ones are left out."""
    if not values:
        return
    observed = ~np.isnan(values["n"])
    for name, statistic in STATISTICS.items():
        if name not in values or not (statistic.gradient if prefix else statistic.forward):
            continue
        column = values[name].tolist()
        for row, (layer, site) in enumerate(snapshot.layout.sites):
            if observed[row] and (statistic.sites is None or site in statistic.sites):
                yield layer, site, None, prefix + name, column[row], None, None


def _histogram_rows(snapshot: Snapshot) -> Iterator[Row]:
    for group, prefix in (("activations", ""), ("gradients", "grad_")):
        for row, column in np.argwhere(snapshot.histograms.get(group, np.zeros((0, 0)))).tolist():
            layer, site = snapshot.layout.sites[row]
            count = float(snapshot.histograms[group][row, column])
            yield layer, site, None, f"{prefix}log2_hist[{HISTOGRAM_BINS[column]}]", count, None, None


def _time_rows(snapshot: Snapshot) -> Iterator[Row]:
    """Yield the statistics at each kept time step, which stands in the column token."""
    steps = snapshot.time_steps.tolist()
    for gradient, prefix in ((False, ""), (True, "grad_")):
        for layer, site in snapshot.layout.over_time:
            for name in TIME_STATISTICS:
                values = snapshot.over_steps(layer, site, name, gradient).tolist()
                for step, value in zip(steps if values else (), values, strict=True):
                    yield layer, site, None, prefix + name, value, step, None


def _head_values(snapshot: Snapshot) -> Iterator[tuple[int, int, str, float]]:
    attending = set(snapshot.layout.rows("q")[0])
    for name, values in snapshot.heads.items():
        for layer in sorted(attending):
            for head, value in enumerate(values[layer].tolist()):
                yield layer, head, name, value


def _json(table: pa.Table) -> bytes:
    rows, numbers = table.to_pylist(), _float_columns(table)
    for row in rows:
        for name in numbers:
            if row[name] is not None and not math.isfinite(row[name]):
                row[name] = shown(row[name])
    return orjson.dumps(rows, option=orjson.OPT_APPEND_NEWLINE)


def _csv(table: pa.Table) -> bytes:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(table.column_names)
    columns = {name: table.column(name).to_pylist() for name in table.column_names}
    for name in _float_columns(table):
        columns[name] = [None if number is None else shown(number) for number in columns[name]]
    writer.writerows(zip(*columns.values(), strict=True))
    return stream.getvalue().encode()


def _float_columns(table: pa.Table) -> list[str]:
    return [field.name for field in table.schema if pa.types.is_floating(field.type)]


def _parquet(table: pa.Table) -> bytes:
    stream = io.BytesIO()
    pq.write_table(table, stream, compression="zstd")
    return stream.getvalue()


FORMATS: dict[str, Callable[[pa.Table], bytes]] = {".json": _json, ".csv": _csv, ".parquet": _parquet}
"""A file name's ending → how a table becomes bytes."""


def shown(value: float) -> str:
    """Return a number as text that reads back exactly; non-finite ones as ``nan``, ``inf``, ``-inf``."""
    return repr(float(value))


def write(table: pa.Table, target: Path | BinaryIO, ending: str) -> None:
    """Write `table` in the format that `ending` (a key of FORMATS) names, to a path or an open binary stream."""
    content = FORMATS[ending](table)
    if isinstance(target, Path):
        target.write_bytes(content)
    else:
        target.write(content)
