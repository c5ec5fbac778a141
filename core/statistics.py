"""The statistics of a tensor by name: every number of `core.vocabulary.STATISTICS` from a measured row.

A new statistic is one entry in STATISTICS of the vocabulary and one in FROM_ROWS here; if no column of the row holds
what it needs, it is a column in `core.columns` too, which `core.moments` (and, where it pays, `core.fast_moments`)
fills. The file knows rows and names; it does not know models or hooks, nor where a tensor stands.

Shapes: R rows (tokens, or 1), W features of a row (or all n entries), S rows of a table, C = len(COLUMNS).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from core import fast_moments, moments, scan
from core.columns import COLUMN, HISTOGRAM_SPAN, N_STANDARD, QUANTILES, TOKEN_QUANTILES, Reading
from core.fast_tokens import TokenSizes
from core.vocabulary import HISTOGRAM_BINS, STATISTICS

F64 = NDArray[np.float64]
Table = Mapping[str, F64]


def row_of(x: Tensor, reading: Reading, out: F64 | None = None, sizes: TokenSizes | None = None) -> Tensor | F64:
    """Return the row of `x` (R, W) as COLUMNS, (C,): on the CPU at once as an array, else on its device, unfetched.

    float16 and bfloat16 are widened to float32 first, which is exact. Gradients do not flow through it. `out`, `sizes`:
    as `core.fast_moments.row` takes them; a device does not need them.
    """
    wide = x.detach()
    wide = wide if wide.dtype in (torch.float32, torch.float64) else wide.float()
    if wide.device.type != "cpu":
        return moments.row(wide, reading)
    return fast_moments.row(wide.contiguous().numpy(), reading, out, sizes)


def cosine_of(x: Tensor, y: Tensor) -> Tensor | float:
    """Return the mean over rows of cos(x, y) for x, y (R, W): on the CPU a number, else on their device, unfetched.

    Rows of zero or non-finite norm are left out; NaN if none is left.
    """
    wide = torch.promote_types(torch.promote_types(x.dtype, y.dtype), torch.float32)
    x, y = x.detach().to(wide), y.detach().to(wide)
    if x.device.type != "cpu":
        return moments.mean_cosine(x, y)
    quick = scan.mean_cosine(x.contiguous().numpy(), y.contiguous().numpy()) if x.numel() else math.nan
    return float(moments.mean_cosine(x, y)) if math.isnan(quick) else quick


def named(rows: F64, full: bool) -> dict[str, F64]:
    """Return the statistics of `rows` (S, C), each (S,), in the order of STATISTICS; a row of NaN stays NaN.

    `full`: those of detail full too. layer_cosine and branch_ratio, which need two tensors, are left out.
    """
    table = {name: rows[:, place] for name, place in COLUMN.items() if full or place < N_STANDARD}
    table["n_finite"] = table["n"] - table["n_nan"] - table["n_posinf"] - table["n_neginf"]
    some = np.where(table["n_finite"] > 0, 1.0, np.nan)
    with np.errstate(all="ignore"):
        return {name: FROM_ROWS[name](table) * (1.0 if statistic.unit == "count" else some)
                for name, statistic in STATISTICS.items()
                if name in FROM_ROWS and (full or statistic.detail == "standard")}


def histogram_of(rows: F64) -> NDArray[np.int64]:
    """Return the counts of HISTOGRAM_BINS in `rows` (S, C), (S, 279); 0 where nothing was observed."""
    return np.nan_to_num(rows[:, HISTOGRAM_SPAN]).astype(np.int64)


def is_full(detail: str) -> bool:
    """Say whether `detail` is full. Errors: ValueError when it is neither that nor standard."""
    if detail not in DETAILS:
        raise ValueError(f'detail is "{detail}"; allowed: {", ".join(DETAILS)}')
    return DETAILS[detail]


DETAILS = {"standard": False, "full": True}


def statistics_of(x: Tensor | NDArray[np.generic], detail: str = "full", tokens: bool = False) -> dict[str, float]:
    """Return every statistic of one tensor by name, with ``log2_hist[…]`` by bin in detail full.

    `x`: any shape, a tensor or an array; with `tokens`, its last axis holds the features of a token and its last but
    one the tokens of a sequence (…, T, D), and token_rms and token_cosine are given as well.
    Errors: TypeError for entries that are not real floating numbers; ValueError for another detail.
    """
    tensor = x if isinstance(x, Tensor) else torch.from_numpy(np.array(x))
    if not tensor.is_floating_point():
        raise TypeError(f"statistics are taken of real floating numbers; this tensor holds {tensor.dtype}")
    full = is_full(detail)
    lengths = (tensor.shape[-2],) * (tensor[..., 0, 0].numel()) if tokens and tensor.ndim > 1 else ()
    shape = (-1, tensor.shape[-1]) if tokens else (1, tensor.numel())
    row = np.asarray(torch.as_tensor(row_of(tensor.reshape(shape), Reading(full, tokens, lengths))).cpu())[None]
    numbers = {name: float(values[0]) for name, values in named(row, full).items()}
    if not tokens:
        numbers = {name: value for name, value in numbers.items() if not name.startswith("token_")}
    bins = zip(HISTOGRAM_BINS, histogram_of(row)[0], strict=True) if full else ()
    return numbers | {f"log2_hist[{name}]": float(count) for name, count in bins}


def _column(name: str) -> Callable[[Table], F64]:
    return lambda table: table[name]


def _share(name: str) -> Callable[[Table], F64]:
    return lambda table: table[name] / table["n_finite"]


FROM_ROWS: dict[str, Callable[[Table], F64]] = {
    **{name: _column(name) for name in ("n", "n_nan", "n_posinf", "n_neginf", "mean", "std", "min", "max")},
    "n_sample": lambda table: table.get("n_sample", table["n"]),
    "rms": lambda table: np.hypot(table["mean"], table["std"]),
    "absmax": lambda table: np.maximum(table["max"], -table["min"]) + 0.0,  # never −0
    "norm": lambda table: np.hypot(table["mean"], table["std"]) * np.sqrt(table["n_finite"]),
    "zero_frac": _share("n_zero"),
    "overflow_frac16": _share("n_overflow"),
    "subnormal_frac16": _share("n_subnormal"),
    **{f"token_rms_p{100 * q:02.0f}": _column(f"token_rms_p{100 * q:02.0f}") for q in TOKEN_QUANTILES},
    "token_cosine": lambda table: np.clip(table["token_cosine"], -1.0, 1.0),
    "kurtosis": _column("kurtosis"),
    **{f"q{100 * q:02.0f}": _column(f"q{100 * q:02.0f}") for q in QUANTILES},
}
"""Statistic → its value at every row of a table, (S,). In detail standard nothing is sampled, so n_sample is n:
counting zeros exactly costs less than a sample."""
