"""What recording costs: a step with the recorder against the bare step, and against two usual ways of measuring.

Run: python benchmarks/recorder.py [--quick]. Prints Markdown tables. One process, one torch thread, CPU time; a way of
measuring is always played between two bare steps of the same stack and data (bare, way, bare, way, bare), and its ratio
is that to the mean of the two. Peak memory is taken in a fresh process for each way.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from core.corpus import Batch, batch
from core.experiment import parse
from core.model import Stack, build
from core.passes import step
from core.recorder import Recorder
from core.sites import Heads, sites_of


class Size(NamedTuple):
    layers: int
    width: int
    length: int
    batch: int


SIZES = {"tiny": Size(12, 128, 64, 8), "mid": Size(24, 256, 256, 8), "wide": Size(6, 1024, 256, 2)}
DEPTHS = {f"{layers} layers": Size(layers, 128, 64, 4) for layers in (6, 24, 96, 192)}

Play = Callable[[], None]
Way = Callable[[Stack, Batch], AbstractContextManager[list[tuple[int, Play]]]]
"""Entered, it gives the steps to be timed, each with how often it comes."""


@contextmanager
def bare(stack: Stack, data: Batch) -> Iterator[list[tuple[int, Play]]]:
    yield [(1, lambda: _step(stack, data))]


def recorded(detail: str, idle: int = 0) -> Way:
    """Return our recorder; after each recorded step come `idle` ones, with the hooks in place."""
    @contextmanager
    def way(stack: Stack, data: Batch) -> Iterator[list[tuple[int, Play]]]:
        with Recorder(stack, detail) as recorder:
            def play() -> None:
                stack.zero_grad()
                recorder.begin(data.mask)
                loss = step(stack, data, 0)
                recorder.snapshot(0, float(loss))

            yield [(1, play)] + ([(idle, lambda: _step(stack, data))] if idle else [])

    return way


NAIVE_SITES = ("resid_pre", "norm1", "attn_out", "resid_mid", "norm2", "mlp_act", "mlp_out", "resid_post")


def ten(x: torch.Tensor) -> list[torch.Tensor]:
    """Return ten statistics as they are usually written."""
    return [x.mean(), x.std(), x.pow(2).mean().sqrt(), x.abs().max(), x.min(), x.max(), (x == 0).float().mean(),
            x.isnan().sum(), x.isinf().sum(), x.norm()]


@contextmanager
def items(stack: Stack, data: Batch) -> Iterator[list[tuple[int, Play]]]:
    """Ten statistics by .item() at eight sites of each block, forward and gradient."""
    seen: list[float] = []

    def look(x: torch.Tensor) -> None:
        seen.extend(value.item() for value in ten(x.detach()))

    def hook(_module: object, _arguments: object, x: torch.Tensor) -> None:
        look(x)
        x.register_hook(look)

    with _hooked(stack, hook, NAIVE_SITES):
        yield [(1, lambda: (seen.clear(), _step(stack, data)))]


@contextmanager
def cached(stack: Stack, data: Batch) -> Iterator[list[tuple[int, Play]]]:
    """Every site's activation and gradient kept to the end of the step, then the statistics, and entropy of heads."""
    kept: list[torch.Tensor] = []

    def hook(_module: object, _arguments: object, x: torch.Tensor) -> None:
        kept.append(x.detach())
        x.register_hook(kept.append)

    pairs: list[tuple[torch.Tensor, torch.Tensor, Heads]] = []

    def keep(rule: Heads, given: tuple[torch.Tensor, ...]) -> None:
        pairs.append((given[0].detach(), given[1].detach(), rule))

    heads = [module.register_forward_pre_hook(keep) for module in stack.modules() if isinstance(module, Heads)]

    def play() -> None:
        kept.clear()
        pairs.clear()
        _step(stack, data)
        torch.stack([torch.stack([value.double() for value in ten(x)]) for x in kept]).tolist()
        torch.stack([_entropy(*pair) for pair in pairs]).tolist()

    with _hooked(stack, hook):
        yield [(1, play)]
    for handle in heads:
        handle.remove()


def _entropy(q: torch.Tensor, k: torch.Tensor, rule: Heads) -> torch.Tensor:
    scores = q @ k.transpose(-2, -1) * rule.scale
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    pattern = scores.masked_fill(hidden, -torch.inf).softmax(-1)
    return torch.special.entr(pattern).sum(-1).mean((0, 2))


@contextmanager
def _hooked(stack: Stack, hook: Callable[..., None], names: tuple[str, ...] = ()) -> Iterator[None]:
    sites = sites_of(stack, len(stack.layers))
    handles = [site.register_forward_hook(hook) for (_, name), site in sites.items() if not names or name in names]
    yield
    for handle in handles:
        handle.remove()


def _step(stack: Stack, data: Batch) -> None:
    stack.zero_grad()
    step(stack, data, 0)


WAYS: dict[str, tuple[str, Way]] = {
    "recorder, detail standard": ("fused", recorded("standard")),
    "recorder, detail standard, every 4th step": ("fused", recorded("standard", idle=3)),
    "recorder, detail full": ("fused", recorded("full")),
    "recorder, detail standard, explicit attention": ("explicit", recorded("standard")),
    "ten statistics by `.item()`, 8 sites of 14": ("fused", items),
    "activations and gradients cached, then ten statistics": ("fused", cached),
}
"""What is compared: the attention of both the way and its bare step, and the way."""

OURS = "recorder, detail standard"
CACHED = "activations and gradients cached, then ten statistics"

OFTEN = (OURS, "recorder, detail standard, every 4th step")
REPEATS = {"tiny": (24, 10), "mid": (3, 1), "wide": (4, 2)}
"""How often the ways in OFTEN, and every other one, are played."""


def made(size: Size, attention: str = "fused") -> tuple[Stack, Batch]:
    experiment = parse({
        "model": {"n_layers": size.layers, "d_model": size.width},
        "input": {"batch": size.batch, "seq_len": size.length}, "protocol": {"attention": attention},
    })
    return build(experiment), batch(experiment, 0)


def seconds(plays: list[tuple[int, Play]]) -> float:
    """Return the CPU time of a step, the mean over those given."""
    total = 0.0
    for count, play in plays:
        begun = time.process_time()
        play()
        total += count * (time.process_time() - begun)
    return total / sum(count for count, _ in plays)


def ratios(size: Size, ways: dict[str, int]) -> dict[str, list[float]]:
    """Return the ratios of each way to the bare step, played as often as `ways` says, under bare the bare seconds."""
    found: dict[str, list[float]] = {"bare": [], **{name: [] for name in ways}}
    for attention in ("fused", "explicit"):
        mine = {name: count for name, count in ways.items() if WAYS[name][0] == attention}
        if mine:
            stack, data = made(size, attention)
            _warm(stack, data, [WAYS[name][1] for name in mine])
            _alternate(stack, data, mine, found)
    return found


def _alternate(stack: Stack, data: Batch, ways: dict[str, int], found: dict[str, list[float]]) -> None:
    """Play bare, way, bare, way, …, bare."""
    before = _timed(bare, stack, data)
    for turn in range(max(ways.values())):
        for name in [name for name, count in ways.items() if turn < count]:
            measured = _timed(WAYS[name][1], stack, data)
            after = _timed(bare, stack, data)
            found[name].append(2 * measured / (before + after))
            before = after
            if WAYS[name][0] == "fused":
                found["bare"].append(after)


def _timed(way: Way, stack: Stack, data: Batch) -> float:
    with way(stack, data) as plays:
        return seconds(plays)


def _warm(stack: Stack, data: Batch, ways: list[Way]) -> None:
    """Play a small stack each way, and the bare step of this one, so that nothing is done for the first time."""
    small = made(Size(1, 16, 8, 2))
    for way in ways:
        _timed(way, *small)
    _timed(bare, stack, data)


def fresh(script: str, *arguments: str) -> list[float]:
    """Return the numbers that `script` prints in a process of its own, which gives back what it frees."""
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1"}
    done = subprocess.run([sys.executable, script, *arguments], capture_output=True, text=True, check=True,
                          env=environment)
    return [float(number) for number in done.stdout.split()]


def measure_peak(size: str, name: str) -> float:
    """Return the MiB by which a step exceeds what this process held before."""
    torch.set_num_threads(1)
    way = bare if name == "bare" else WAYS[name][1]
    stack, data = made(SIZES[size])
    small = made(Size(1, 16, 8, 2))
    _timed(way, *small)
    with way(stack, data) as plays:
        return grown(plays[0][1])


def grown(play: Play) -> float:
    """Return the MiB by which `play` exceeds what is held before: the high-water mark of the process's RSS; Linux."""
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark begins anew
    before = _status("VmRSS")
    play()
    return (_status("VmHWM") - before) / 1024


def _status(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return float(next(line for line in lines if line.startswith(field)).split()[1])


def cell(values: list[float]) -> str:
    """Return median and extremes."""
    if len(values) == 1:
        return f"{values[0]:.2f} (once)"
    return f"{statistics.median(values):.2f} ({min(values):.2f} … {max(values):.2f})"


def table(title: str, columns: dict[str, dict[str, str]]) -> None:
    """Print a table of columns, row name → cell."""
    rows = list(next(iter(columns.values())))
    print(f"| {title} | " + " | ".join(columns) + " |\n|---" + "|---" * len(columns) + "|")
    for row in rows:
        print(f"| {row} | " + " | ".join(column[row] for column in columns.values()) + " |")
    print(flush=True)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--quick", action="store_true", help="few repetitions, and no peak memory but for tiny")
    asked.add_argument("--peak", nargs=2, metavar=("SIZE", "WAY"), help=argparse.SUPPRESS)
    arguments = asked.parse_args()
    if arguments.peak:
        print(measure_peak(*arguments.peak))
        return
    torch.set_num_threads(1)
    report(arguments.quick)


def report(quick: bool) -> None:
    """Print every table."""
    columns = {}
    for name, size in SIZES.items():
        often, others = (1, 1) if quick and name != "tiny" else REPEATS[name]
        found = ratios(size, {way: often if way in OFTEN else others for way in WAYS})
        bare_ms = statistics.median(found.pop("bare")) * 1000
        columns[f"{name}: L{size.layers} d{size.width} T{size.length} B{size.batch}"] = {
            "bare step, ms of CPU": f"{bare_ms:.0f}", **{way: cell(values) for way, values in found.items()}}
    table("way, step ÷ bare step: median (least … largest)", columns)
    table("depth, d128 T64 B4", {name: {OURS: cell(ratios(size, {OURS: 2 if quick else 96 // size.layers + 4})[OURS])}
                                 for name, size in DEPTHS.items()})
    peaks = {}
    for name in ("tiny",) if quick else SIZES:
        base, *others = (fresh(__file__, "--peak", name, way)[0] for way in ("bare", OURS, CACHED))
        peaks[name] = {"bare step": f"{base:.0f} MiB", **{way: f"{value:.0f} MiB, {value / base:.2f}×"
                                                         for way, value in zip((OURS, CACHED), others, strict=True)}}
    table("peak memory of a step", peaks)


if __name__ == "__main__":
    main()
