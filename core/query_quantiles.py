"""How a head's queries differ: quantiles over queries of the normalized entropy, which a mean over them hides.

Half the queries one-hot and half uniform have the mean of a head whose queries are all halfway. The file takes one
number a query, from whatever made it; it does not know scores, nor masks.

Shapes: H heads, Q queries of the whole batch.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from core.moments import ascending, constant, working_dtype
from core.vocabulary import ENTROPY_QUANTILES

LEFT_OUT = math.inf
"""What stands for a query that does not count; above every share, so that an order puts it behind them."""


def of_shares(shares: Tensor) -> Tensor:
    """Return ENTROPY_QUANTILES of each head, (5, H), in the working dtype, on the device of `shares` (H, Q), unfetched.

    `shares`: −Σ p ln p / ln n of each query, LEFT_OUT where it does not count. By linear interpolation between
    neighbours in order, never beyond them, and without the rounding that carries a share over 0 … 1. A head with NaN,
    or without a query that counts, has NaN.
    """
    work = working_dtype(shares)
    if not shares.shape[1]:
        return shares.new_full((len(ENTROPY_QUANTILES), shares.shape[0]), math.nan, dtype=work)
    last = (shares != LEFT_OUT).sum(1, keepdim=True) - 1  # (H, 1), the rank of the greatest that counts
    positions = constant(tuple(ENTROPY_QUANTILES.values()), work, shares.device) * last.clamp(min=0)  # (H, 5)
    ordered, below = ascending(shares), positions.long()
    lower, upper = (ordered.gather(1, ranks).to(work) for ranks in (below, (below + 1).minimum(last.clamp(min=0))))
    between = (lower + (upper - lower) * (positions - below)).minimum(upper).clamp(0, 1)
    undefined = (last < 0) | shares.isnan().any(1, keepdim=True)
    return torch.where(undefined, math.nan, between).T
