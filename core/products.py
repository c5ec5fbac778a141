"""Products of tokens, G_ij = E x_i·x_j / width, (T, T): what theory carries through a stack, and how it is scaled."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]


def scaled(products: F64, sizes: F64) -> F64:
    """Return G_ij/(s_i·s_j) for `sizes` s, (T,): tokens divided by their sizes; 0 where one is 0."""
    both = np.multiply.outer(sizes, sizes)
    return np.asarray(np.divide(products, both, out=np.zeros_like(products), where=both > 0))


def cosines(products: F64) -> F64:
    """Return the cosine of every pair of tokens, 0 where one has no direction."""
    return np.asarray(np.clip(scaled(products, np.sqrt(np.diag(products))), -1.0, 1.0))
