"""What one step has shown so far, and the Snapshot it makes: one small row a tensor, never a tensor of the model.

The record is told what passed where; it does not know hooks. On a GPU its rows stay on the device, unfetched, until the
snapshot is made, and then come in one transfer.

Shapes: S sites, C columns of a row, L layers, H heads, M head measures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from core.attention_measures import head_measures
from core.columns import COLUMN, COLUMNS, INDEX_SPAN, N_STANDARD, VALUE_SPAN, Reading
from core.fast_tokens import TokenSizes
from core.parameters import ParameterMeasures
from core.rows import RealTokens
from core.sites import Heads
from core.statistics import cosine_of, histogram_of, named, row_of
from core.time_steps import TimeSteps
from core.token_rms import StreamTokens
from core.trace import FORWARD, GRADIENT, WEIGHTS, Layout, NonFinite, Outlier, Snapshot
from core.vocabulary import HEAD_MEASURES, HEADS_STANDARD, SITES, STATISTICS, TOKEN_SHAPES

F64 = NDArray[np.float64]

BRANCHES: dict[str, tuple[str, ...]] = {"attn_out": ("resid_pre",), "mlp_out": ("resid_mid", "resid_pre")}
"""Branch → the stream it is added to, the first of these sites that the layer has."""


class Record:
    """One step. `sites`: (layer, name) of each row; `causal`: by layer; `full`: its detail; `tokens`: the real ones.

    `ids`: the tokens' numbers, None for a model that reads vectors.
    """

    def __init__(self, sites: Sequence[tuple[int, str]], causal: Mapping[int, bool], full: bool,
                 tokens: RealTokens, ids: Tensor | None = None) -> None:
        self.sites, self.full, self._causal, self._tokens = sites, full, causal, tokens
        self._rows: dict[str, dict[int, Tensor | F64]] = {FORWARD: {}, GRADIENT: {}}
        shape = (len(sites), len(COLUMNS) if full else N_STANDARD)
        self._tables = {direction: np.full(shape, np.nan) for direction in self._rows}
        self._sizes = TokenSizes()
        self._heads: dict[int, Tensor] = {}
        self._cosines: dict[int, Tensor | float] = {}
        self._widths: dict[int, int] = {}
        self._stream = StreamTokens(ids if full else None, tokens)
        self._time = TimeSteps(sites if full else (), tokens)

    def has(self, direction: str, row: int | None = None) -> bool:
        """Say whether a row, or any, was observed in this direction."""
        return bool(self._rows[direction]) if row is None else row in self._rows[direction]

    def observe(self, direction: str, row: int, x: Tensor) -> None:
        """Measure what passed at the site of this row; rows are kept in the order in which they come."""
        layer, name = self.sites[row]
        rows = self._tokens.rows(x, name, self._causal.get(layer, False))
        reading = _reading(self.full and direction == FORWARD, self.full, name, self._tokens.lengths(x.shape))
        self._rows[direction][row] = row_of(rows, reading, self._tables[direction][row], self._sizes)
        self._widths[row] = rows.shape[-1]
        self._time.take(direction, row, x)

    def same(self, direction: str, row: int, source: int) -> None:
        """Note that the very tensor of row `source` passed at this row too."""
        if source in self._rows[direction]:
            self._rows[direction][row] = self._rows[direction][source]
            self._widths[row] = self._widths[source]

    def leaves(self, layer: int, x: Tensor) -> None:
        """Take the size of the single tokens of the stream where it leaves the layer (−1: the embedding)."""
        if self.full:
            self._stream.take(layer, x)

    def through(self, layer: int, before: Tensor, after: Tensor) -> None:
        """Take layer_cosine: `before` and `after` are the stream where it enters and leaves the layer."""
        pre, post = (self._tokens.features(x.detach()) for x in (before, after))
        self._cosines[layer] = cosine_of(pre, post)

    def attend(self, layer: int, q: Tensor, k: Tensor, mask: Tensor | None, rule: Heads) -> None:
        """Take the measures of the layer's heads."""
        self._heads[layer] = head_measures(q, k, mask, rule, self.full)

    def snapshot(self, step: int, loss: float, layout: Layout, parameters: ParameterMeasures,
                 residual: bool) -> Snapshot:
        """Return the snapshot of the step; gradients are empty when none was observed.

        `residual`: branches are added to a stream; without one there is no branch_ratio.
        """
        self._sizes.write()
        tables = {direction: _filled(table, self._rows[direction]) for direction, table in self._tables.items()}
        seen = {name: tables[direction] for name, direction in _GROUPS.items() if self._rows[direction]}
        activations, gradients = (
            {statistic: values for statistic, values in named(tables[direction], self.full).items()
             if getattr(STATISTICS[statistic], direction)} for direction in (FORWARD, GRADIENT))
        activations["layer_cosine"] = self._layer_cosine()
        if residual:
            activations["branch_ratio"] = self._branch_ratio(activations["rms"])
        return Snapshot(
            step=step, loss=loss, layout=layout, activations=activations,
            gradients=gradients if self.has(GRADIENT) else {},
            heads=self._head_table(layout), parameters=dict(parameters.statistics),
            totals={"grad_total_norm": parameters.grad_total_norm}, grad_observed=parameters.observed,
            histograms={name: histogram_of(table) for name, table in seen.items()} if self.full else {},
            outliers=self._outliers(tables[FORWARD]) if self.full else (),
            non_finite=self._non_finite(step, loss, layout, tables, parameters),
            token_rms=self._stream.sizes(layout.n_layers), tokens=self._stream.ids(), batch_shape=self._stream.shape,
            over_time=self._time.table(), time_steps=self._time.steps,
        )

    @property
    def n_heads(self) -> int:
        """The largest number of heads that was seen in a layer."""
        return max((measures.shape[1] for measures in self._heads.values()), default=0)

    def _head_table(self, layout: Layout) -> dict[str, F64]:
        names = tuple(HEAD_MEASURES) if self.full else HEADS_STANDARD
        table = np.full((len(names), layout.n_layers, layout.n_heads), np.nan)
        if self._heads:
            widest = self.n_heads
            padded = [torch.nn.functional.pad(measures, (0, widest - measures.shape[1]), value=np.nan)
                      for measures in self._heads.values()]
            table[:, list(self._heads), :widest] = _stacked(padded).transpose(1, 0, 2)
        return dict(zip(names, table, strict=True))

    def _layer_cosine(self) -> F64:
        cosine = np.full(len(self.sites), np.nan)
        tensors = [value for value in self._cosines.values() if isinstance(value, Tensor)]
        fetched = iter(_stacked(tensors) if tensors else ())
        for layer, value in self._cosines.items():
            cosine[self.sites.index((layer, "resid_post"))] = next(fetched) if isinstance(value, Tensor) else value
        clipped: F64 = np.clip(cosine, -1.0, 1.0)
        return clipped

    def _branch_ratio(self, rms: F64) -> F64:
        ratio = np.full(len(self.sites), np.nan)
        rows = {site: row for row, site in enumerate(self.sites)}
        for row, (layer, name) in enumerate(self.sites):
            streams = [rows[layer, stream] for stream in BRANCHES.get(name, ()) if (layer, stream) in rows]
            if streams and rms[streams[0]] != 0:
                ratio[row] = rms[row] / rms[streams[0]]
        return ratio

    def _outliers(self, table: F64) -> tuple[Outlier, ...]:
        found = []
        places = self._tokens.places
        for row in np.flatnonzero(np.isfinite(table[:, INDEX_SPAN.start])).tolist():
            layer, name = self.sites[row]
            median = table[row, COLUMN["median_abs"]]
            width = self._widths[row]
            for index, value in zip(table[row, INDEX_SPAN], table[row, VALUE_SPAN], strict=True):
                if np.isfinite(index):
                    token, dim = divmod(int(index), width)
                    token = token if places is None else int(places[token])
                    found.append(Outlier(layer, name, token, dim, float(value), float(abs(value) / median)))
        return tuple(found)

    def _non_finite(self, step: int, loss: float, layout: Layout, tables: Mapping[str, F64],
                    parameters: ParameterMeasures) -> NonFinite | None:
        """Return the first non-finite value: weights, forward, loss, gradients in backward order, then parameters'."""
        if parameters.broken is not None:
            return NonFinite(step, *layout.parameters[parameters.broken[0]], WEIGHTS, parameters.broken[1])
        for direction in (FORWARD, GRADIENT):
            for row in self._rows[direction]:
                if kind := _kind(tables[direction][row]):
                    return NonFinite(step, *self.sites[row], direction, kind)
            if direction == FORWARD and not np.isfinite(loss):
                return NonFinite(step, layout.n_layers, "loss", FORWARD, "nan" if np.isnan(loss) else "inf")
        if parameters.non_finite is None:
            return None
        return NonFinite(step, *layout.parameters[parameters.non_finite[0]], GRADIENT, parameters.non_finite[1])


@lru_cache(maxsize=256)
def _reading(outliers: bool, full: bool, name: str, lengths: tuple[int, ...]) -> Reading:
    """Return what is asked of the site of this name; `lengths`: the tokens of each sequence."""
    site = SITES[name]
    tokens = site.shape in TOKEN_SHAPES
    return Reading(full, tokens, lengths if site.cosine else (), outliers and tokens)


_GROUPS = {"activations": FORWARD, "gradients": GRADIENT}


def _kind(row: F64) -> str | None:
    """Return nan or inf, the former when there are both, or None for a row whose entries were all finite."""
    if row[COLUMN["n_nan"]] > 0:
        return "nan"
    return "inf" if row[COLUMN["n_posinf"]] + row[COLUMN["n_neginf"]] > 0 else None


def _filled(table: F64, rows: Mapping[int, Tensor | F64]) -> F64:
    """Return the table (S, C) with every row in its place; one transfer for all on a device."""
    away = {row: values for row, values in rows.items() if isinstance(values, Tensor)}
    if away:
        table[list(away)] = _stacked(list(away.values()))[:, : table.shape[1]]
    for row, values in rows.items():
        if not isinstance(values, Tensor):
            table[row] = values
    return table


def _stacked(tensors: Sequence[Tensor]) -> F64:
    """Return tensors of one shape as one array, in one transfer when they are on one device."""
    first = tensors[0].device
    stacked: F64 = torch.stack([tensor.to(first) for tensor in tensors]).cpu().double().numpy()
    return stacked
