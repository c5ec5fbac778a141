"""Traces made by hand, for tests of what reads them."""

import numpy as np

from core.trace import Layout, Snapshot, Trace
from core.vocabulary import STATISTICS


def snapshot(stream, embed=1.0, crest=4.0, cosine=0.0, gradient=None, step=0):
    """A stack of len(stream) blocks whose stream has these rms values; NaN entries hold NaN counts too."""
    n = len(stream)
    sites = ((-1, "embed"), *((layer, "resid_post") for layer in range(n)))
    values = np.array([embed, *stream], float)
    return Snapshot(step=step, loss=1.5, layout=Layout(n, 2, sites, ((0, "layers.0.attn.q.weight"),)),
                    activations=_statistics(values, crest, cosine),
                    gradients=_statistics(np.array([1.0, *gradient]), crest, cosine) if gradient is not None else {},
                    heads={"entropy": np.full((n, 2), 0.5)}, parameters={"weight_norm": np.array([3.0])})


def _statistics(rms, crest, cosine):
    table = {name: np.zeros(len(rms)) for name in STATISTICS}
    finite = np.isfinite(rms)
    return table | {"n": np.full(len(rms), 100.0), "rms": np.where(finite, rms, np.nan), "absmax": crest * rms,
                    "n_nan": np.where(finite, 0.0, 5.0), "token_cosine": np.full(len(rms), cosine)}


def trace(*arguments, **settings):
    """A trace of one such snapshot."""
    return Trace((snapshot(*arguments, **settings),))


def recorded(rows, gradients=None, n_layers=None, **settings):
    """A trace of one snapshot with these rows: (layer, site) → statistics; rms is 1 and the rest 0 unless given.

    A row of None was not observed. `settings`: further fields of the Snapshot.
    """
    sites = tuple(rows)
    n_layers = 1 + max(layer for layer, _ in sites) if n_layers is None else n_layers
    parts = {"activations": _table(rows.values()), "gradients": _table(gradients.values()) if gradients else {}}
    return Trace((Snapshot(step=0, loss=1.5, layout=Layout(n_layers, 2, sites, ()), heads={}, parameters={},
                           **{**parts, **settings}),))


def _table(rows):
    rows = [row if row is None else {"n": 100.0, "rms": 1.0, "absmax": 4 * row.get("rms", 1.0), **row} for row in rows]
    return {name: np.array([np.nan if row is None else row.get(name, 0.0) for row in rows]) for name in STATISTICS}


def profile(values, site="attn_out", statistic="rms", **settings):
    """A trace whose `site` has these values of one statistic, layer by layer."""
    return recorded({(layer, site): {statistic: value} for layer, value in enumerate(values)}, **settings)
