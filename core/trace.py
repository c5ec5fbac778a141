"""What was measured: a Snapshot is one step, a Trace all recorded steps of a run, as arrays with named axes.

Torch-free: the web server reads these from the store. The file knows the vocabulary and numpy; it does not know how a
number was measured, nor how it is drawn.

Axes: S sites (a Layout's `sites`), P parameters, L layers, H heads, N recorded steps.
Two kinds of nothing: a site that a configuration does not have is *absent* (not in the Layout); a site or gradient that
was *not observed* has n = NaN. An observed site whose statistic is undefined has n ≥ 0 and NaN for that statistic.
"""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.vocabulary import NON_FINITE, RECURRENT_STREAM, SITES, STREAM, TIME_STATISTICS

F64 = NDArray[np.float64]

FORWARD, GRADIENT, WEIGHTS = "forward", "gradient", "weights"
"""Where a value that is not finite is met in a step."""


MEASURES = ("activations", "gradients", "heads", "parameters")
"""The fields of a Snapshot that hold numbers by the name of what they measure."""

GROUPS = (*MEASURES, "histograms")
"""Those that hold arrays by name."""


@dataclass(frozen=True)
class Layout:
    """What the rows of a run's arrays stand for, the same at every step.

    `sites`, `parameters`: (layer, name) in forward order; layer −1 for the embedding, n_layers after the stack.
    """

    n_layers: int
    n_heads: int
    sites: tuple[tuple[int, str], ...]
    parameters: tuple[tuple[int, str], ...]

    def rows(self, site: str) -> tuple[list[int], list[int]]:
        """Return the layers that have `site`, and the row of each; both empty when it is absent.

        Asked for the residual stream, a stack without one answers with its own: see `answering`.
        """
        wanted = self.answering(site)
        found = [(layer, row) for row, (layer, name) in enumerate(self.sites) if name == wanted]
        return [layer for layer, _ in found], [row for _, row in found]


    def answering(self, site: str) -> str:
        """Return the name of the site that answers for `site`: itself, but ``hidden`` for a stream that is not there.

        The one place that knows what goes from layer to layer in a recurrent stack.
        """
        return self._stream if site == STREAM else site

    @cached_property
    def over_time(self) -> tuple[tuple[int, str], ...]:
        """The sites that are made one time step after another, in the order of `sites`."""
        return tuple((layer, name) for layer, name in self.sites if name in SITES and SITES[name].over_time)

    @cached_property
    def _stream(self) -> str:
        present = {name for _, name in self.sites}
        return RECURRENT_STREAM if RECURRENT_STREAM in present and STREAM not in present else STREAM


@dataclass(frozen=True)
class Outlier:
    """A massive activation: one entry far above the median |x| of its site. `ratio`: |value| / median |x|.

    `token`: index of the position in the flattened batch, sequence · T + position; `dim`: the feature.
    """

    layer: int
    site: str
    token: int
    dim: int
    value: float
    ratio: float


@dataclass(frozen=True)
class NonFinite:
    """Where the first non-finite value of a step was met, in the order in which the step computes.

    `direction`: weights (not finite before the step: the update before it made them so), forward or gradient; `kind`:
    nan or inf.
    """

    step: int
    layer: int
    site: str
    direction: str
    kind: str


@dataclass(frozen=True, eq=False)
class Snapshot:
    """One recorded step.

    `activations`, `gradients`: statistic → (S,), named as in STATISTICS; gradients empty without
    autograd.
    `heads`: measure → (L, H), NaN where a layer has no attention. `parameters`: statistic → (P,);
    `grad_observed` (P,): whether a gradient reached the parameter (None: all).
    `histograms`: "activations", "gradients" → counts (S, 279), in detail full only (else empty).
    `totals`: name → number.
    In detail full only, over the positions of the flattened batch, sequence · T + position: `token_rms` (L+1, M), the
    RMS of each of the first TOKENS_KEPT tokens in the embedding and in the stream after each layer, NaN at padding and
    at tokens that are not finite; `tokens`: the ids of the first IDS_KEPT, −1 at padding, empty where the model reads
    vectors; `batch_shape`: (B, T), (0, 0) where it is not known.
    `looks`: what a look found (`core.looking`), by name; empty without one.
    `over_time` (2, R, S, M): of activations and of gradients, at each site of `Layout.over_time`, each of
    TIME_STATISTICS at the M time steps `time_steps` (M,), over the real tokens there; NaN where an entry is not finite.
    Empty where no layer is recurrent, and in detail standard.
    """

    step: int
    loss: float
    layout: Layout
    activations: Mapping[str, F64]
    gradients: Mapping[str, F64]
    heads: Mapping[str, F64]
    parameters: Mapping[str, F64]
    totals: Mapping[str, float] = field(default_factory=dict)
    grad_observed: NDArray[np.bool_] | None = None
    histograms: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    outliers: tuple[Outlier, ...] = ()
    non_finite: NonFinite | None = None
    token_rms: NDArray[np.floating] = field(default_factory=lambda: np.empty((0, 0), np.float32))
    tokens: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    batch_shape: tuple[int, int] = (0, 0)
    looks: Mapping[str, NDArray[np.floating]] = field(default_factory=dict)
    over_time: NDArray[np.floating] = field(default_factory=lambda: np.empty((0, 0, 0, 0), np.float32))
    time_steps: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))

    def over_steps(self, layer: int, site: str, statistic: str, gradient: bool = False) -> F64:
        """Return a statistic of TIME_STATISTICS at each of the kept time steps, (M,).

        Empty where it was not taken, and of gradients where none was observed. Errors: ValueError for a site of the
        layer that does not run over time.
        """
        place = self.layout.over_time.index((layer, site))
        if not self.over_time.size or not self.measured(gradient):
            return np.empty(0)
        found: F64 = self.over_time[int(gradient), place, TIME_STATISTICS.index(statistic)].astype(np.float64)
        return found

    def measured(self, gradient: bool = False) -> Mapping[str, F64]:
        """Return the statistics of the sites, or of their gradients: statistic → (S,)."""
        return self.gradients if gradient else self.activations

    def not_finite(self, gradient: bool = False) -> F64:
        """Return how many entries are NaN or ±Inf at each site, (S,); 0 where nothing was observed."""
        counts = [self.measured(gradient)[name] for name in NON_FINITE if name in self.measured(gradient)]
        found: F64 = np.nansum([np.zeros(len(self.layout.sites)), *counts], axis=0)
        return found

    def observed_parameters(self, statistic: str) -> NDArray[np.bool_]:
        """Return which parameters have a value of `statistic`, (P,): weights always, the rest where a gradient came."""
        everywhere = np.ones(len(self.layout.parameters), bool)
        return everywhere if statistic.startswith("weight") or self.grad_observed is None else self.grad_observed

    def non_finite_kinds(self, gradient: bool = False) -> set[str]:
        """Return which of nan and inf the step met: in weights, at sites or in the loss; or in gradients of both."""
        values = self.measured(gradient)
        counts = {"nan": ("n_nan",), "inf": ("n_posinf", "n_neginf")}
        kinds = {kind for kind, names in counts.items() for name in names if np.nansum(values.get(name, 0)) > 0}
        norms = self.parameters.get("param_grad_norm", np.empty(0))
        seen = norms[self.observed_parameters("param_grad_norm")] if norms.size else norms
        others = seen if gradient else np.append(self.parameters.get("weight_norm", np.empty(0)), self.loss)
        met = {"nan": np.isnan(others).any(), "inf": np.isinf(others).any()}
        return kinds | {kind for kind, found in met.items() if found}

    def to_bytes(self) -> bytes:
        """Return the snapshot as compressed bytes; `from_bytes` gives it back exactly.

        An npz with an array a group, (names, …), and one JSON entry: a hundred small arrays are slow to read. It is
        compressed at the least level: more would hold up a training and save a tenth.
        """
        facts = {
            "step": self.step, "loss": self.loss, "layout": _layout_json(self.layout), "totals": dict(self.totals),
            "outliers": [asdict(outlier) for outlier in self.outliers],
            "non_finite": None if self.non_finite is None else asdict(self.non_finite),
            "batch_shape": self.batch_shape,
            "names": {group: list(getattr(self, group)) for group in GROUPS},
        }
        arrays: dict[str, Any] = {
            group: np.stack(list(named.values())) for group in GROUPS if (named := getattr(self, group))}
        if self.grad_observed is not None:
            arrays["grad_observed"] = self.grad_observed
        arrays |= {name: array for name in _ARRAYS if (array := getattr(self, name)).size}
        arrays |= {_LOOK + name: array for name, array in self.looks.items()}
        stream = io.BytesIO()
        np.savez(stream, json=np.frombuffer(json.dumps(facts).encode(), np.uint8), **arrays)
        return zlib.compress(stream.getbuffer(), 1)

    @classmethod
    def from_bytes(cls, content: bytes) -> Snapshot:
        """Return the snapshot that `to_bytes` wrote, now or when an npz was compressed by itself."""
        plain = content if content.startswith(_NPZ) else zlib.decompress(content)
        with np.load(io.BytesIO(plain)) as stored:
            facts, arrays = json.loads(stored["json"].tobytes()), {name: stored[name] for name in stored.files}
        if "names" not in facts:
            facts, arrays = _modern(facts, arrays)
        groups = {group: dict(zip(names, arrays.get(group, ()), strict=True))
                  for group, names in facts["names"].items()}
        return cls(
            step=facts["step"], loss=facts["loss"], totals=facts["totals"], layout=_layout(facts["layout"]),
            outliers=tuple(Outlier(**row) for row in facts["outliers"]),
            non_finite=NonFinite(**facts["non_finite"]) if facts["non_finite"] else None,
            batch_shape=tuple(facts.get("batch_shape", (0, 0))), grad_observed=arrays.get("grad_observed"),
            looks={name.removeprefix(_LOOK): array for name, array in arrays.items() if name.startswith(_LOOK)},
            **{name: arrays[name] for name in _ARRAYS if name in arrays}, **groups,  # type: ignore[arg-type]
        )


_ARRAYS = ("token_rms", "tokens", "over_time", "time_steps")
_NPZ, _LOOK = b"PK", "look/"  # what an npz begins with, and the names of a look's arrays in it


def _modern(facts: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return what an older version stored, an array a statistic named ``group/name``, as it is stored now."""
    named = {group: {path.partition("/")[2]: array for path, array in arrays.items() if path.startswith(f"{group}/")}
             for group in GROUPS}
    stacked = {group: np.stack(list(found.values())) for group, found in named.items() if found}
    names = {group: list(found) for group, found in named.items()}
    return {**facts, "layout": json.dumps(facts["layout"]), "names": names}, {**arrays, **stacked}


@lru_cache(maxsize=64)
def _layout_json(layout: Layout) -> str:
    return json.dumps(asdict(layout))


@lru_cache(maxsize=64)
def _layout(text: str) -> Layout:
    """Return the layout that `_layout_json` wrote: one for all snapshots of a run."""
    found = json.loads(text)
    return Layout(found["n_layers"], found["n_heads"], _pairs(found["sites"]), _pairs(found["parameters"]))


def _pairs(rows: Iterable[tuple[int, str]]) -> tuple[tuple[int, str], ...]:
    return tuple((int(layer), str(name)) for layer, name in rows)


@dataclass(frozen=True, eq=False)
class Trace:
    """All recorded steps of one run, oldest first; every snapshot has the same Layout."""

    snapshots: tuple[Snapshot, ...]

    @property
    def layout(self) -> Layout:
        """The rows' meaning."""
        return self.snapshots[0].layout

    @property
    def steps(self) -> list[int]:
        """The recorded steps."""
        return [snapshot.step for snapshot in self.snapshots]

    def site(self, statistic: str, gradient: bool = False) -> F64:
        """Return one statistic at every site and step, (N, S); NaN where a step did not record it."""
        empty = np.full(len(self.layout.sites), np.nan)
        return np.stack([snapshot.measured(gradient).get(statistic, empty) for snapshot in self.snapshots])

    def profile(self, site: str, statistic: str, gradient: bool = False, step: int = -1) -> tuple[list[int], F64]:
        """Return the layers that have `site` and the statistic there, (layers,), at the `step`-th recorded step.

        Both are empty when the site is absent.
        """
        layers, rows = self.layout.rows(site)
        values = self.snapshots[step].measured(gradient)
        return layers, values[statistic][rows] if statistic in values else np.full(len(rows), np.nan)

    def head(self, measure: str) -> F64:
        """Return one attention measure at every step, layer and head, (N, L, H); NaN where a step has none of it."""
        empty = np.full((self.layout.n_layers, self.layout.n_heads), np.nan)
        return np.stack([snapshot.heads.get(measure, empty) for snapshot in self.snapshots])

    def parameter(self, statistic: str) -> F64:
        """Return one statistic of every parameter at every step, (N, P); NaN where a step has none of it."""
        empty = np.full(len(self.layout.parameters), np.nan)
        return np.stack([snapshot.parameters.get(statistic, empty) for snapshot in self.snapshots])

    def total(self, name: str) -> F64:
        """Return one number of the whole model at every step, (N,); NaN where a step has none of it."""
        return np.array([snapshot.totals.get(name, np.nan) for snapshot in self.snapshots])
