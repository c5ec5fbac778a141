"""The row of any tensor, on any device: branch-free torch, always right, the measure that every faster way must match.

No value is fetched from the device and nothing depends on one, so a GPU never waits. Entries that are not finite are
counted and then left out. Everything is computed in float64 (float32 on MPS, which has no other), scaled by a power of
two near the largest magnitude where squares could leave the range, and about the smallest entry, so that neither a
large mean nor a vanishing or exploding tensor costs digits. The file does not know where a tensor comes from.

Shapes: R rows (tokens, or 1), W features of a row (or all n entries), n = R·W, B sequences.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from core.columns import (
    COLUMN,
    COLUMNS,
    FLOAT16_NORMAL,
    FLOAT16_OVERFLOW,
    OUTLIER_RATIO,
    OUTLIER_ZEROS,
    OUTLIERS,
    QUANTILES,
    STANDARD,
    TOKEN_QUANTILES,
    Reading,
)
from core.vocabulary import HISTOGRAM_HIGH, HISTOGRAM_LOW, SAMPLE


def row(x: Tensor, reading: Reading) -> Tensor:
    """Return the row of `x` (R, W), float32 or float64, as COLUMNS, (C,), on its device.

    Error: none; what is undefined is NaN.
    """
    work = working_dtype(x)
    if x.numel() == 0:
        return _nothing(x, work, reading)
    finite = x.isfinite()
    known = torch.where(finite, x, 0)  # (R, W)
    low = torch.where(finite, x, math.inf).amin()
    high = torch.where(finite, x, -math.inf).amax()
    mean, std = _mean_std(x, finite, low, high, work)
    parts = [*_counts(x, known, finite), low, high, mean, std, *_tokens(known, finite, reading, work)]
    if reading.full:
        parts += _sampled(x, reading, work)
    flat = torch.cat([part.reshape(-1).to(work) for part in parts])  # (C,) or (N_STANDARD,)
    return flat if reading.full else _padded(flat)


HEADROOM = 2.0**10
"""Norms of up to a million entries near the largest number are taken of entries that much smaller."""


def working_dtype(x: Tensor) -> torch.dtype:
    """Return the dtype in which `x` is measured: float64 wherever the device has it."""
    return torch.float32 if x.device.type == "mps" else torch.float64


def stride(n: int, width: int) -> int:
    """Return the step of the sample of `n` entries: the least that leaves SAMPLE or fewer and meets every feature.

    1 up to SAMPLE entries; beyond, a step that shares no factor with the row's width, for otherwise some features
    would never be seen.
    """
    step = -(-n // SAMPLE)
    while step > 1 and math.gcd(step, width) > 1:
        step += 1
    return max(step, 1)


@lru_cache(maxsize=64)
def constant(values: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return a tensor of `values` on `device`; kept, since a transfer each time would make the device wait."""
    return torch.tensor(values, dtype=dtype, device=device)


def directions(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return x/‖x‖ over the last axis, ‖x‖ in the working dtype, and which rows have a direction, (…,) both.

    Scaled by the row's largest magnitude, so that squares neither overflow nor underflow. A row of zero or non-finite
    norm has no direction: its unit vector is 0; its norm is 0 or NaN.
    """
    return _plain_directions(x) or _scaled_directions(x)


def _plain_directions(x: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
    """Return the same the short way, or None where a norm asks for more care; on the CPU alone, it waits."""
    if x.device.type != "cpu" or x.numel() == 0:
        return None
    lengths = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    if not (float(lengths.min()) > PLAIN[0] and float(lengths.max()) < PLAIN[1]):
        return None
    flat = lengths.squeeze(-1)
    return x / lengths, flat.to(working_dtype(x)), torch.ones_like(flat, dtype=torch.bool)


PLAIN = (1e-12, 1e15)
"""Norms between can be taken without scaling."""


def _scaled_directions(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    scale = x.abs().amax(-1, keepdim=True)
    valid = (scale > 0) & scale.isfinite()  # (…, 1)
    scaled = torch.where(valid, x, 0) / torch.where(valid, scale, 1)
    lengths = torch.linalg.vector_norm(scaled, dim=-1, keepdim=True)
    wide = torch.where(scale.isfinite(), lengths.to(working_dtype(x)) * scale, math.nan)
    return scaled / torch.where(valid, lengths, 1), wide.squeeze(-1), valid.squeeze(-1)


def mean_cosine(x: Tensor, y: Tensor) -> Tensor:
    """Return the mean over rows of cos(x, y) for x, y (R, W); rows of zero or non-finite norm left out; NaN if none."""
    (u, _, some), (v, _, others) = directions(x), directions(y)
    both = some & others
    return ((u * v).sum(-1) * both).sum() / both.sum()


def pair_cosine(sums: Tensor, squares: Tensor, count: Tensor) -> Tensor:
    """Return the mean cosine of all pairs of different tokens, pooled over sequences.

    (Σ_b ‖Σ_t u‖² − Σ_b Σ_t ‖u‖²) / Σ_b m_b(m_b − 1) with `sums` Σ_t u (B, W), `squares` Σ_t ‖u‖² (B,) and `count` the
    tokens of each sequence that have a direction, m (B,). NaN without a pair.
    """
    return ((sums * sums).sum(-1) - squares).sum() / (count * (count - 1)).sum()


def quantiles(ordered: Tensor, wanted: tuple[float, ...], offset: Tensor, count: Tensor) -> Tensor:
    """Return the quantiles, by linear interpolation, of the `count` entries of `ordered` from `offset` on."""
    positions = constant(wanted, ordered.dtype, ordered.device) * (count - 1).clamp(min=0)
    below = positions.floor()
    last = (count - 1).clamp(min=0)
    lower = ordered[(offset + below.long()).clamp(max=ordered.numel() - 1)]
    upper = ordered[(offset + torch.minimum(below.long() + 1, last)).clamp(max=ordered.numel() - 1)]
    weight = positions - below
    return torch.where(count > 0, lower * (1 - weight) + upper * weight, math.nan)


def _counts(x: Tensor, known: Tensor, finite: Tensor) -> list[Tensor]:
    """Return the columns n … n_overflow."""
    size = known.abs()
    n = torch.full((), x.numel(), device=x.device)
    zeros = ((known == 0) & finite).sum()
    subnormal = ((size < FLOAT16_NORMAL) & (known != 0)).sum()
    return [n, x.isnan().sum(), (x == math.inf).sum(), (x == -math.inf).sum(), zeros, subnormal,
            (size >= FLOAT16_OVERFLOW).sum()]


def _mean_std(x: Tensor, finite: Tensor, low: Tensor, high: Tensor, work: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return mean and population std over the finite entries; NaN without one, std exactly 0 where all are equal."""
    scale = _scale(x, low, high, work)
    base, count = low.to(work) / scale, finite.sum()
    shifted = torch.where(finite, x.to(work) / scale - base, 0)  # (R, W), ≥ 0
    offset = shifted.sum() / count
    spread = torch.where(finite, shifted - offset, 0)
    std = ((spread * spread).sum() / count).sqrt() * scale
    return (base + offset) * scale, torch.where(low == high, 0, std)


def _scale(x: Tensor, low: Tensor, high: Tensor, work: torch.dtype) -> Tensor:
    """Return a power of two near max|x|, or 1 where the squares of all values of that dtype fit the working one."""
    if x.dtype.itemsize < work.itemsize:
        return torch.ones((), dtype=work, device=x.device)
    limit = 1021 if work == torch.float64 else 125
    size = torch.maximum(low.abs(), high.abs()).to(work)
    return size.log2().floor().nan_to_num(0.0).clamp(-limit, limit).exp2()


def _tokens(known: Tensor, finite: Tensor, reading: Reading, work: torch.dtype) -> list[Tensor]:
    """Return the columns token_rms_p05 … token_cosine, NaN where they are not taken."""
    undefined = torch.full((), math.nan, dtype=work, device=known.device)
    rms = [undefined] * len(TOKEN_QUANTILES)
    if reading.tokens:
        seen = finite.sum(-1)
        room = torch.where(known.abs().amax() > torch.finfo(work).max / HEADROOM, 1 / HEADROOM, 1.0)
        sizes = directions(known * room)[1] / seen.to(work).sqrt()  # a norm can leave the range where an rms does not
        per_token = torch.where(seen > 0, sizes / room, math.inf)  # (R,)
        rms = [quantiles(ascending(per_token), TOKEN_QUANTILES, torch.zeros_like(seen[0]), (seen > 0).sum())]
    return [*rms, _token_cosine(known, finite, reading) if reading.lengths else undefined]


def _token_cosine(known: Tensor, finite: Tensor, reading: Reading) -> Tensor:
    """Return the mean cosine of pairs of different tokens of one sequence, in O(R·W)."""
    units, _, valid = directions(known.to(working_dtype(known)))  # (R, W), (R,)
    valid = valid & finite.all(-1)
    units = units * valid[:, None]
    lengths = constant(reading.lengths, torch.int64, known.device)
    sequence = torch.arange(len(reading.lengths), device=known.device).repeat_interleave(
        lengths, output_size=known.shape[0])  # (R,)

    def pooled(values: Tensor) -> Tensor:
        zeros = values.new_zeros((len(reading.lengths), *values.shape[1:]))
        return zeros.index_add(0, sequence, values)

    return pair_cosine(pooled(units), pooled((units**2).sum(-1)), pooled(valid.to(units.dtype)))


def _sampled(x: Tensor, reading: Reading, work: torch.dtype) -> list[Tensor]:
    """Return the columns of FULL: from all entries, or from the strided sample where there are more than SAMPLE."""
    sample = x.reshape(-1)[:: stride(x.numel(), x.shape[-1])]
    ordered = ascending(torch.where(sample.isnan(), math.inf, sample))  # −Inf, finite, +Inf
    before, after = (ordered == -math.inf).sum(), (ordered == math.inf).sum()
    count = ordered.numel() - before - after
    wanted = quantiles(ordered.to(work), QUANTILES, before, count)
    return [torch.full((), ordered.numel(), device=x.device), _kurtosis(ordered, work), wanted,
            _histogram(ordered, before, after), *_outliers(x, ordered, count, reading, work)]


def ascending(x: Tensor) -> Tensor:
    """Return `x` in ascending order along the last axis, NaN last; NumPy's sort is several times faster than torch's on
    the CPU."""
    if x.device.type != "cpu":
        return x.sort().values
    return torch.from_numpy(np.sort(x.numpy()))


def _kurtosis(ordered: Tensor, work: torch.dtype) -> Tensor:
    """Return E[(x−mean)⁴]/std⁴ over the finite entries; NaN where the std is 0."""
    finite = ordered.isfinite()
    low = torch.where(finite, ordered, math.inf).amin()
    high = torch.where(finite, ordered, -math.inf).amax()
    scale, count = _scale(ordered, low, high, work), finite.sum()
    shifted = torch.where(finite, ordered.to(work) / scale - low.to(work) / scale, 0)
    spread = torch.where(finite, shifted - shifted.sum() / count, 0)
    std = ((spread * spread).sum() / count).sqrt()
    normal = spread / torch.where((std > 0) & (low < high), std, math.nan)
    return (normal**4).sum() / count


def _histogram(ordered: Tensor, before: Tensor, after: Tensor) -> Tensor:
    """Return the counts of HISTOGRAM_BINS, (279,), of ascending entries, the first and last of them ±Inf."""
    edges = constant(_EDGES, ordered.dtype, ordered.device)  # (276,)
    zero, n = ordered.new_zeros(1), ordered.numel()
    positive = torch.cat((torch.searchsorted(ordered, zero, right=True), torch.searchsorted(ordered, edges),
                          (n - after).reshape(1)))
    negative = torch.cat((torch.searchsorted(ordered, zero), torch.searchsorted(ordered, -edges, right=True),
                          before.reshape(1)))
    return torch.cat((positive.diff() - negative.diff(), positive[:1] - negative[:1], (before + after).reshape(1)))


_EDGES = tuple(2.0**exponent for exponent in range(HISTOGRAM_LOW + 1, HISTOGRAM_HIGH + 1))


def _outliers(x: Tensor, ordered: Tensor, count: Tensor, reading: Reading, work: torch.dtype) -> list[Tensor]:
    """Return the columns median_abs, outlier_index and outlier_value; all NaN where not wanted.

    The median is over the sample, and over its non-zero entries from OUTLIER_ZEROS on; the outliers are the
    true ones of all entries.
    """
    nothing = torch.full((1 + 2 * OUTLIERS,), math.nan, dtype=work, device=x.device)
    if not reading.outliers:
        return [nothing]
    size = ascending(torch.where(ordered.isfinite(), ordered.abs(), math.inf))
    zeros = (size == 0).sum()
    skipped = torch.where(zeros >= OUTLIER_ZEROS * count, zeros, 0)
    median = quantiles(size.to(work), (0.5,), skipped, count - skipped)  # (1,)
    flat = torch.where(x.isfinite(), x, 0).reshape(-1)
    top, index = flat.abs().topk(min(OUTLIERS, flat.numel()))
    far = top.to(work) >= OUTLIER_RATIO * median
    missing = nothing[: OUTLIERS - far.numel()]
    return [median, torch.where(far, index.to(work), math.nan), missing,
            torch.where(far, flat[index].to(work), math.nan), missing]


def _nothing(x: Tensor, work: torch.dtype, reading: Reading) -> Tensor:
    """Return the row of a tensor without entries: counts 0, all else NaN."""
    empty = torch.full((len(COLUMNS),), math.nan, dtype=work, device=x.device)
    empty[: COLUMN["min"]] = 0
    if reading.full:
        empty[COLUMN["n_sample"]] = 0
        empty[COLUMN["log2_hist[-149]"]: COLUMN["median_abs"]] = 0
    return empty


def _padded(standard: Tensor) -> Tensor:
    """Return the row of detail standard with NaN in the columns of FULL."""
    return torch.nn.functional.pad(standard, (0, len(COLUMNS) - len(STANDARD)), value=math.nan)
