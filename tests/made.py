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
