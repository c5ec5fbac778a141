"""Massive activations: which feature of which token stands far above the rest of the residual stream, and how long.

One row a (token, feature), put together from the outliers of a snapshot's sites (Sun et al. 2024, arXiv:2402.17762).
Torch-free; it knows a Snapshot, not how the outliers were found, nor how the table is drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from core.columns import OUTLIERS
from core.drift import THRESHOLDS
from core.token_table import place, symbol
from core.trace import Outlier, Snapshot
from core.vocabulary import SITES, STREAM


@dataclass(frozen=True)
class Massive:
    """One feature of one token that stands out in the stream.

    `token`: position in the flattened batch; `sequence`, `position`: the same (−1 where the batch's shape is unknown);
    `token_id`: −1 where unknown; `symbol`: how it is written, empty where unknown. `layers`: those after which it
    stands out in the stream, ascending; `depth`: the longest run of consecutive ones; `hidden`: layers whose list of
    outliers is full without it, where it may stand out all the same. `value`: the entry that stands out most in the
    stream, a massive one before others, at `site` of `layer`; `ratio`: |value| / median |x| there.
    `elsewhere`: (layer, site) of the other sites of the stream's width where it stands out. `massive`: at one site of
    the stream |value| is above 100 and the ratio above 1000.
    """

    token: int
    dim: int
    sequence: int
    position: int
    token_id: int
    symbol: str
    layers: tuple[int, ...]
    depth: int
    hidden: tuple[int, ...]
    value: float
    layer: int
    site: str
    ratio: float
    elsewhere: tuple[tuple[int, str], ...]
    massive: bool

    @property
    def code(self) -> str:
        """massive, or outlier: stands out without being massive."""
        return "massive" if self.massive else "outlier"

    @property
    def persistence(self) -> str:
        """exact, or at_least: a full list of outliers may hide it in a layer (`hidden`)."""
        return "at_least" if self.hidden else "exact"


def massive(snapshot: Snapshot, source: str = "") -> tuple[Massive, ...]:
    """Return a row for each (token, feature) that stands out at a site of the stream, the largest ratio first.

    `source`: as in ``input.source``, for the token's symbol. Empty in detail standard, which records no outliers (see
    `observed`).
    """
    crowded, found = full_lists(snapshot), _grouped(snapshot.outliers)
    rows = [_row(snapshot, entries, crowded, source) for entries in found.values()
            if any(SITES[entry.site].stream for entry in entries)]
    return tuple(sorted(rows, key=lambda row: (-row.ratio, row.token, row.dim)))


def observed(snapshot: Snapshot) -> bool:
    """Say whether outliers were recorded at all: in detail full only."""
    return "kurtosis" in snapshot.activations


def full_lists(snapshot: Snapshot) -> tuple[tuple[int, str], ...]:
    """Return (layer, site) of each site whose list of outliers is full, so that more may stand out there."""
    counts: dict[tuple[int, str], int] = {}
    for entry in snapshot.outliers:
        counts[entry.layer, entry.site] = counts.get((entry.layer, entry.site), 0) + 1
    return tuple(found for found in snapshot.layout.sites if counts.get(found, 0) >= OUTLIERS)


def columns(rows: Sequence[Massive]) -> dict[str, list[object]]:
    """Return the rows as columns of one length, ready for a file: lists are written with spaces, a place as layer:site.
    """
    names = (*Massive.__dataclass_fields__, "persistence")
    return {name: [_written(getattr(row, name)) for row in rows] for name in names}


def _written(value: object) -> object:
    if not isinstance(value, tuple):
        return value
    return " ".join(":".join(map(str, part)) if isinstance(part, tuple) else str(part) for part in value)


def _grouped(outliers: Iterable[Outlier]) -> dict[tuple[int, int], list[Outlier]]:
    """Return the outliers by (token, feature); those of sites whose features are not the stream's are left out."""
    found: dict[tuple[int, int], list[Outlier]] = {}
    for entry in outliers:
        if SITES[entry.site].shape == SITES[STREAM].shape:
            found.setdefault((entry.token, entry.dim), []).append(entry)
    return found


def _row(snapshot: Snapshot, entries: Sequence[Outlier], crowded: Sequence[tuple[int, str]], source: str) -> Massive:
    stream, leaving = [entry for entry in entries if SITES[entry.site].stream], snapshot.layout.answering(STREAM)
    layers = tuple(sorted(entry.layer for entry in stream if entry.site == leaving))
    peak = max(stream, key=lambda entry: (_is_massive(entry), entry.ratio))
    token = peak.token
    sequence, position = place(snapshot, token)
    return Massive(
        token=token, dim=peak.dim, sequence=sequence, position=position,
        token_id=int(snapshot.tokens[token]) if token < len(snapshot.tokens) else -1,
        symbol=symbol(snapshot, source, token), layers=layers, depth=_longest_run(layers),
        hidden=tuple(layer for layer, site in crowded if site == leaving and layer not in layers),
        value=peak.value, layer=peak.layer, site=peak.site, ratio=peak.ratio,
        elsewhere=tuple((entry.layer, entry.site) for entry in entries if entry.site != leaving),
        massive=_is_massive(peak),
    )


def _is_massive(entry: Outlier) -> bool:
    return abs(entry.value) > THRESHOLDS["massive_value"] and entry.ratio > THRESHOLDS["massive_ratio"]


def _longest_run(layers: Sequence[int]) -> int:
    """Return the length of the longest run of consecutive layers."""
    longest = run = 0
    for before, layer in zip((None, *layers), layers, strict=False):
        run = run + 1 if before is not None and layer == before + 1 else 1
        longest = max(longest, run)
    return longest
