"""What exact entropy costs at the attention itself: its forward and backward pass alone, and with the entropy beside.

Run: python benchmarks/attention.py [--quick]. Prints Markdown tables. One process, one torch thread, CPU time; a way is
always played between two bare passes over the same queries, keys and values (bare, way, bare, way, bare), and its ratio
is that to the mean of the two. Peak memory is taken in a fresh process for each way.

Shapes: B batch, H heads, T positions, K head dimension.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
import torch.nn.functional as F
from recorder import cell, fresh, grown, table
from torch import Tensor

from core.attention_measures import head_measures
from core.fused import attention
from core.sites import Heads

B, H, K = 1, 4, 32
REPEATS = {256: 40, 512: 20, 1024: 10, 2048: 5, 4096: 3}
"""T → how often each way is played."""

RULE = Heads(K**-0.5, None, "softmax", True)
Given = tuple[Tensor, Tensor, Tensor, Tensor]
"""Queries, keys, values, and the gradient of what comes out, (B, H, T, K)."""

Way = Callable[[Given], None]


def bare(given: Given) -> None:
    """The attention of protocol fused, forward and backward."""
    q, k, v, above = given
    attention(q, k, v, None, True, RULE.scale).backward(above)


def ours(given: Given) -> None:
    """All measures of a head, entropy among them, by one pass over queries and keys."""
    head_measures(given[0], given[1], None, RULE).tolist()
    bare(given)


def formula(given: Given) -> None:
    """Entropy alone, of a pattern made for it."""
    with torch.no_grad():
        entropy(pattern(*given[:2])).tolist()
    bare(given)


def written_out(given: Given) -> None:
    """Attention with its pattern in the open, forward and backward, and the entropy of that pattern."""
    q, k, v, above = given
    p = pattern(q, k)
    entropy(p.detach()).tolist()
    (p @ v).backward(above)


def torchs_own(given: Given) -> None:
    """The attention with torch's own backward pass, which huge scores spoil, and no entropy."""
    q, k, v, above = given
    F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=RULE.scale).backward(above)


def pattern(q: Tensor, k: Tensor) -> Tensor:
    scores = (q * RULE.scale) @ k.transpose(-2, -1)  # (B, H, T, T)
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return scores.masked_fill(hidden, -torch.inf).softmax(-1)


def entropy(p: Tensor) -> Tensor:
    return torch.special.entr(p).sum(-1).mean((0, 2))


BARE = "attention alone"
WAYS: dict[str, Way] = {
    BARE: bare,
    "with exact entropy and the nine other measures": ours,
    "with entropy by the T×T formula": formula,
    "attention written out, entropy of its pattern": written_out,
    "attention alone, torch's own backward": torchs_own,
}


def made(length: int) -> Given:
    draws = [torch.randn(B, length, H, K, generator=torch.Generator().manual_seed(n)).transpose(1, 2) for n in range(4)]
    q, k, v, above = draws
    return q.requires_grad_(), k.requires_grad_(), v.requires_grad_(), above


def play(way: Way, given: Given) -> float:
    """Return the CPU time of one pass, in seconds."""
    for x in given[:3]:
        x.grad = None
    begun = time.process_time()
    way(given)
    return time.process_time() - begun


def ratios(length: int, turns: int) -> tuple[list[float], dict[str, list[float]]]:
    """Return the seconds of bare passes, and each other way's ratios to the two beside it."""
    given, others = made(length), {name: way for name, way in WAYS.items() if name != BARE}
    for way in WAYS.values():
        play(way, given)  # nothing is done for the first time
    alone: list[float] = [play(bare, given)]
    found: dict[str, list[float]] = {name: [] for name in others}
    for _ in range(turns):
        for name, way in others.items():
            measured = play(way, given)
            alone.append(play(bare, given))
            found[name].append(2 * measured / (alone[-2] + alone[-1]))
    return alone, found


def peaks(name: str) -> list[float]:
    """Return the MiB by which a pass of each length exceeds what this process held before."""
    play(WAYS[name], made(8))
    return [grown(partial(play, WAYS[name], made(length))) for length in REPEATS]


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--quick", action="store_true", help="each way once")
    asked.add_argument("--peaks", metavar="WAY", help=argparse.SUPPRESS)
    arguments = asked.parse_args()
    torch.set_num_threads(1)
    if arguments.peaks:
        print(*peaks(arguments.peaks))
        return
    report(arguments.quick)


def report(quick: bool) -> None:
    """Print both tables."""
    columns = {}
    for length, turns in REPEATS.items():
        alone, ratio = ratios(length, 1 if quick else turns)
        columns[f"T {length}"] = {f"{BARE}, ms of CPU": f"{statistics.median(alone) * 1000:.1f}",
                                  **{name: cell(values) for name, values in ratio.items()}}
    table(f"pass ÷ attention alone: median (least … largest); B{B} H{H} K{K}, causal", columns)
    found = {name: fresh(__file__, "--peaks", name) for name in WAYS}
    table("peak memory of a pass, MiB", {f"T {length}": {name: f"{mib[place]:.0f}" for name, mib in found.items()}
                                         for place, length in enumerate(REPEATS)})


if __name__ == "__main__":
    main()
