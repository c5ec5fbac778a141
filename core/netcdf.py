"""netCDF-4 of runs: labelled arrays that xarray opens, with the names of the vocabulary and of the tidy table.

One run is a file without groups; several are one group each, since their sites and steps may differ. Nothing touches
the disk. The file knows traces and the vocabulary; it does not know the store, nor who asks.

Kinds of nothing: a site that was *not observed* has NaN for `n` and for everything else; a statistic that is NaN where
`n` is a number is *undefined* there, or belongs to detail full and the step was recorded in standard. A histogram of
such a step is missing (−1 in the file, NaN once decoded). A gradient that never reached a parameter has 0 in
`grad_observed`. NaN and ±Inf that were measured stay what they are.

Axes: step N, site S, parameter P, layer L, head H, bin 279, outlier (all steps together).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from core.trace import Trace
from core.vocabulary import ENTROPY_QUANTILES, HEAD_MEASURES, HISTOGRAM_BINS, STATISTICS

if TYPE_CHECKING:
    import xarray as xr

Variable = tuple[tuple[str, ...], NDArray[Any], dict[str, str]]
"""Dimensions, values, attributes."""

MISSING = -1
"""What stands in the file for a count that was not taken."""

DEFINITIONS: dict[str, str] = {
    "n": "number of entries, non-finite ones included",
    "n_sample": "number of entries that sampled statistics used",
    "n_nan": "number of NaN",
    "n_posinf": "number of +Inf",
    "n_neginf": "number of -Inf",
    "mean": "mean",
    "std": "standard deviation (correction 0)",
    "rms": "root mean square",
    "absmax": "largest magnitude",
    "min": "minimum",
    "max": "maximum",
    "norm": "L2 norm",
    "zero_frac": "share of exact zeros",
    "overflow_frac16": "share with |x| >= 65520, Inf in float16",
    "subnormal_frac16": "share with 0 < |x| < 2**-14, subnormal in float16",
    "token_rms_p05": "5 % quantile over tokens of the token's root mean square",
    "token_rms_p50": "median over tokens of the token's root mean square",
    "token_rms_p95": "95 % quantile over tokens of the token's root mean square",
    "token_cosine": "mean cosine between different tokens of a sequence",
    "layer_cosine": "mean over tokens of the cosine between the block's input and output",
    "branch_ratio": "rms of the branch over rms of the stream it is added to",
    "kurtosis": "kurtosis (a Gaussian gives 3)",
    **{f"q{percent:02d}": f"{percent} % quantile" for percent in (1, 5, 25, 50, 75, 95, 99)},
    "log2_hist": "number of entries by floor(log2 |x|), zeros and non-finite ones apart",
    "entropy": "attention entropy, mean over queries",
    "entropy_norm": "attention entropy over its largest value, mean over queries",
    "max_prob": "largest attention weight, mean over queries",
    "saturated_frac": "share of queries whose largest attention weight is above 0.99",
    "score_std": "standard deviation of a query's scores, mean over queries",
    "score_absmax": "largest magnitude of a score, before the soft cap",
    "softmax_gain": "1 - sum of squared attention weights, mean over queries",
    "q_rms": "root mean square of the queries",
    "k_rms": "root mean square of the keys",
    "qk_cosine": "mean cosine of query and key over visible pairs",
    **{name: f"{100 * share:.0f} % quantile over queries of a query's attention entropy over its largest value"
       for name, share in ENTROPY_QUANTILES.items()},
    "weight_norm": "L2 norm of the parameter",
    "weight_rms": "root mean square of the parameter",
    "param_grad_norm": "L2 norm of the parameter's gradient, unscaled and before clipping",
    "update_ratio": "L2 norm of the last update over that of the parameter",
    "grad_total_norm": "L2 norm of all parameters' gradients, before clipping",
    "clip_factor": "what the gradients were multiplied with to clip them",
    "loss": "loss",
    "lr": "learning rate",
    "loss_scale": "what the loss was multiplied with before the backward pass",
    "overflow": "1 where a gradient overflowed under loss scaling and the update was skipped",
    "overflow_steps": "number of overflow steps so far",
    "outliers": "value of an entry far above the median magnitude of its site",
    "outlier_ratio": "magnitude of that entry over the median magnitude",
}
"""Name of a measure → what `long_name` says; names that are not here say themselves."""


@dataclass(frozen=True)
class Recording:
    """One run as it goes into a file. `experiment`: canonical JSON; `variant`: its name among several."""

    trace: Trace
    run: str
    experiment: str = ""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    variant: str = ""


def to_bytes(recordings: Sequence[Recording]) -> bytes:
    """Return a netCDF-4 file: one run at its root, several as a group each, called as `groups` says.

    Errors: ValueError where there is no run, or a run has recorded nothing.
    """
    import xarray as xr

    if not recordings:
        raise ValueError("there is no run to write; allowed: one run or more")
    made = {name: dataset(one) for name, one in zip(groups(recordings), recordings, strict=True)}
    if len(recordings) == 1:
        (only,) = made.values()
        return bytes(only.to_netcdf(None, engine="h5netcdf", encoding=_encoding(only)))
    tree = xr.DataTree.from_dict({f"/{name}": one for name, one in made.items()})
    encoding = {f"/{name}": _encoding(one) for name, one in made.items()}
    return bytes(tree.to_netcdf(None, engine="h5netcdf", encoding=encoding))


def groups(recordings: Sequence[Recording]) -> list[str]:
    """Return the group of each run: its variant's name (else the run's), each once and without what HDF5 reserves."""
    found: list[str] = []
    for one in recordings:
        name = "".join("_" if sign == "/" or not sign.isprintable() else sign for sign in one.variant or one.run)
        plain = name.strip(" .") or "run"
        number = next(number for number in range(1, len(recordings) + 1) if _numbered(plain, number) not in found)
        found.append(_numbered(plain, number))
    return found


def dataset(one: Recording) -> xr.Dataset:
    """Return every number of a run, and where each stands.

    `rms`, …, `grad_rms`, … (step, site); `log2_hist`, `grad_log2_hist` (step, site, bin); `entropy`, … (step, layer,
    head); `weight_norm`, … (step, parameter); `loss` and the totals (step); `outliers`, `outlier_ratio` (outlier). A
    site is called as in ``3/resid_post``. Errors: ValueError where nothing was recorded.
    """
    import xarray as xr

    if not one.trace.snapshots:
        raise ValueError(f"run {one.run} has recorded nothing yet; allowed: a run that has")
    variables = {**_totals(one.trace), **_sites(one.trace), **_histograms(one.trace), **_heads(one.trace),
                 **_parameters(one.trace), **_outliers(one.trace)}
    used = {dimension for dimensions, *_ in variables.values() for dimension in dimensions}
    coordinates = {name: entry for name, entry in _coordinates(one.trace).items() if used.issuperset(entry[0])}
    return xr.Dataset(variables, coordinates, _attributes(one))


def _totals(trace: Trace) -> dict[str, Variable]:
    shots = trace.snapshots
    names = dict.fromkeys(name for shot in shots for name in shot.totals)
    found = {"loss": np.array([shot.loss for shot in shots], np.float64)} | {name: trace.total(name) for name in names}
    return {name: (("step",), values, _words(name)) for name, values in found.items()}


def _sites(trace: Trace) -> dict[str, Variable]:
    found: dict[str, Variable] = {}
    for gradient, prefix in ((False, ""), (True, "grad_")):
        for name in _names(shot.measured(gradient) for shot in trace.snapshots):
            words = _words(name, "gradient of the loss: " if gradient else "", STATISTICS)
            found[prefix + name] = (("step", "site"), trace.site(name, gradient), words)
    return found


def _histograms(trace: Trace) -> dict[str, Variable]:
    found: dict[str, Variable] = {}
    shape = len(trace.layout.sites), len(HISTOGRAM_BINS)
    for group, prefix in (("activations", ""), ("gradients", "grad_")):
        if any(group in shot.histograms for shot in trace.snapshots):
            counts = np.full((len(trace.snapshots), *shape), MISSING, np.int32)  # of at most SAMPLE entries
            for row, shot in enumerate(trace.snapshots):
                counts[row] = shot.histograms.get(group, MISSING)
            words = _words("log2_hist", "gradient of the loss: " if prefix else "") | {"units": "count"}
            found[f"{prefix}log2_hist"] = (("step", "site", "bin"), counts, words)
    return found


def _heads(trace: Trace) -> dict[str, Variable]:
    return {name: (("step", "layer", "head"), trace.head(name), _words(name, "", HEAD_MEASURES))
            for name in _names(shot.heads for shot in trace.snapshots)}


def _parameters(trace: Trace) -> dict[str, Variable]:
    shots, axes = trace.snapshots, ("step", "parameter")
    found: dict[str, Variable] = {name: (axes, trace.parameter(name), _words(name))
                                  for name in _names(shot.parameters for shot in shots)}
    if found:
        seen = np.stack([shot.observed_parameters("param_grad_norm") for shot in shots])
        found["grad_observed"] = (axes, seen.astype(np.int8), {"long_name": "1 where a gradient reached the parameter"})
    return found


def _outliers(trace: Trace) -> dict[str, Variable]:
    rows = [outlier for shot in trace.snapshots for outlier in shot.outliers]
    found = {"outliers": [row.value for row in rows], "outlier_ratio": [row.ratio for row in rows]}
    return {name: (("outlier",), np.array(values, np.float64), _words(name))
            for name, values in found.items() if rows}


def _coordinates(trace: Trace) -> dict[str, Variable]:
    layout = trace.layout
    outliers = [(shot.step, outlier) for shot in trace.snapshots for outlier in shot.outliers]
    columns: dict[str, tuple[str, Sequence[object]]] = {
        "step": ("step", trace.steps),
        "site": ("site", [f"{layer}/{_text(name)}" for layer, name in layout.sites]),
        "site_layer": ("site", [layer for layer, _ in layout.sites]),
        "site_name": ("site", [_text(name) for _, name in layout.sites]),
        "bin": ("bin", HISTOGRAM_BINS),
        "layer": ("layer", range(layout.n_layers)),
        "head": ("head", range(layout.n_heads)),
        "parameter": ("parameter", [_text(name) for _, name in layout.parameters]),
        "parameter_layer": ("parameter", [layer for layer, _ in layout.parameters]),
        "outlier_step": ("outlier", [step for step, _ in outliers]),
        "outlier_layer": ("outlier", [outlier.layer for _, outlier in outliers]),
        "outlier_site": ("outlier", [_text(outlier.site) for _, outlier in outliers]),
        "outlier_token": ("outlier", [outlier.token for _, outlier in outliers]),
        "outlier_dim": ("outlier", [outlier.dim for _, outlier in outliers]),
    }
    return {name: ((dimension,), _column(values), {"long_name": COORDINATES[name]})
            for name, (dimension, values) in columns.items()}


COORDINATES: dict[str, str] = {
    "step": "updates of the weights before this record", "site": "layer and name of the site",
    "site_layer": "layer: -1 the embedding, the number of layers what follows the stack",
    "site_name": "name of the site",
    "bin": "floor(log2 |x|); zero; nonfinite", "layer": "layer", "head": "head", "parameter": "name of the parameter",
    "parameter_layer": "layer of the parameter, as site_layer", "outlier_step": "step", "outlier_layer": "layer",
    "outlier_site": "site", "outlier_token": "position in the flattened batch", "outlier_dim": "feature",
}
"""Coordinate → its `long_name`."""


def _attributes(one: Recording) -> dict[str, str]:
    facts = {
        "run": one.run, "variant": one.variant, "experiment": one.experiment,
        "provenance": json.dumps(dict(one.provenance), default=str),
        "engine": str(one.provenance.get("engine", "")),
        "missing": "n is NaN: the site was not observed. Another statistic is NaN where n is a number: undefined, or "
                   "of detail full at a step recorded in detail standard. Histograms of such steps are missing.",
    }
    return {name: _text(value) for name, value in facts.items()}


def _encoding(made: xr.Dataset) -> dict[str, dict[str, Any]]:
    """Return how variables are stored: compressed, and with a fill value only where something can be missing.

    netCDF's default, NaN as the fill value of every float, would call a measured NaN missing.
    """
    fills = dict.fromkeys(("log2_hist", "grad_log2_hist"), MISSING)
    return {str(name): {"zlib": True, "complevel": 4, "_FillValue": fills.get(str(name))} for name in made.data_vars}


def _words(name: str, of: str = "", table: Mapping[str, Any] | None = None) -> dict[str, str]:
    """Return a variable's attributes; what has no unit of its own has that of the tensor, a pure number."""
    unit = table[name].unit if table and name in table else ""
    return {"units": unit or "1", "long_name": of + DEFINITIONS.get(name, name)}


def _names(tables: Iterable[Mapping[str, object]]) -> Iterator[str]:
    yield from dict.fromkeys(name for table in tables for name in table)


def _column(values: Sequence[object]) -> NDArray[Any]:
    listed = list(values)
    return np.array(listed, object if listed and isinstance(listed[0], str) else np.int64)


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name}_{number}"


def _text(words: str) -> str:
    """Return text that HDF5 can hold: lone surrogates, and NUL, which ends its strings, are spelled out."""
    return words.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
