"""One measured tensor as one row of numbers: which column holds what, and what a reader may ask of a tensor.

This is the boundary between measuring (`core.moments` on any device, `core.fast_moments` by compiled loops on the CPU)
and naming (`core.statistics`): a tensor goes in, a row of COLUMNS comes out, all in float64. A kernel that writes the
same row on a GPU can take the place of the former there. The file computes nothing.

Shapes: R rows (tokens, or 1), W features of a row (or all n entries).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from core.vocabulary import HISTOGRAM_BINS

FLOAT16_OVERFLOW = 65520.0
"""The least magnitude that rounds to Inf in float16."""

FLOAT16_NORMAL = 2.0**-14
"""The least normal magnitude of float16."""

QUANTILES: tuple[float, ...] = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
TOKEN_QUANTILES: tuple[float, ...] = (0.05, 0.5, 0.95)

OUTLIERS = 5
"""How many outliers of a tensor are kept at most, the largest first."""

OUTLIER_RATIO = 20.0
"""The least |x| / median|x| of an outlier. A Gaussian reaches 7 in a million entries; Sun et al. 2024
(arXiv:2402.17762) call an activation massive above 100 in magnitude and about 1000 times the median, which a table can
ask of these."""

OUTLIER_ZEROS = 0.25
"""From this share of zeros on, the median of outliers is that of the other entries: half the entries of a ReLU are
zero, and beside a median next to zero everything would stand out."""

STANDARD: tuple[str, ...] = (
    "n", "n_nan", "n_posinf", "n_neginf", "n_zero", "n_subnormal", "n_overflow", "min", "max", "mean", "std",
    *(f"token_rms_p{100 * q:02.0f}" for q in TOKEN_QUANTILES), "token_cosine",
)
"""What every row has: counts over all entries, the rest over the finite ones; n_subnormal and n_overflow are those of
float16."""

FULL: tuple[str, ...] = (
    "n_sample", "kurtosis", *(f"q{100 * q:02.0f}" for q in QUANTILES),
    *(f"log2_hist[{name}]" for name in HISTOGRAM_BINS), "median_abs",
    *(f"outlier_index_{i}" for i in range(OUTLIERS)), *(f"outlier_value_{i}" for i in range(OUTLIERS)),
)
"""What detail full adds, NaN in a row of detail standard: the sampled statistics, and the outliers (index into the
flattened rows, value), NaN where there are fewer."""

COLUMNS: tuple[str, ...] = STANDARD + FULL
COLUMN: dict[str, int] = {name: position for position, name in enumerate(COLUMNS)}
N_STANDARD = len(STANDARD)


def span(first: str, count: int) -> slice:
    """Return the `count` columns from the column `first` on."""
    return slice(COLUMN[first], COLUMN[first] + count)


TOKEN_SPAN = span("token_rms_p05", len(TOKEN_QUANTILES))
QUANTILE_SPAN = span("q01", len(QUANTILES))
HISTOGRAM_SPAN = span(f"log2_hist[{HISTOGRAM_BINS[0]}]", len(HISTOGRAM_BINS))
INDEX_SPAN = span("outlier_index_0", OUTLIERS)
VALUE_SPAN = span("outlier_value_0", OUTLIERS)


@dataclass(frozen=True)
class Reading:
    """What is asked of one tensor of R rows.

    `full`: the columns of FULL too; `tokens`: a row is a token, so that token_rms is taken; `lengths`: tokens of each
    sequence, Σ = R, where token_cosine is taken; `outliers`: the outliers are wanted as well (detail full only).
    """

    full: bool = True
    tokens: bool = False
    lengths: tuple[int, ...] = ()
    outliers: bool = False

    @cached_property
    def sequences(self) -> NDArray[np.int64]:
        """`lengths` as an array, where tokens are taken."""
        return np.array(self.lengths if self.tokens else (), np.int64)
