"""The pictures of the worked tensor: which entries share a statistic, and the tables of every step and pitfall.

Shapes: B batch, T positions, D features.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from core.pitfalls import PITFALLS, Outcome, outcome, right
from core.pools import POOLS, Shape
from core.worked import F64, WORKED, Worked
from pages.ui import charts
from pages.ui.explain import number
from pages.ui.picture import Columns, Picture, Subject
from pages.ui.tensor_link import Asked
from pages.ui.text import Words

LETTERS = 29
"""Room in a line above one of several blocks; a Chinese letter is as wide as two."""


def block(asked: Asked, sheet: Worked, t: Words) -> Picture:
    """The tensor as small cubes: those lit share their statistics with the chosen entry; a click chooses another."""
    title = t("tensor.block_title", norm=t(f"norm.{asked.norm}"), place=asked.at)
    one = charts.Block(sheet.pool, [], sheet.values("x"), sheet.sharing(asked.entry),
                       ~np.isfinite(sheet.values("output")), asked.entry)
    figure = charts.cubes([one], charts.Frame(title, "x", ""), t)
    return Picture("block", figure, title, Subject(extra=("worked_shared",)), partial(_shared, asked, sheet),
                   figure.layout.height, picks=True, width=charts.BLOCKS_PX)


def pools(asked: Asked, sheet: Worked, t: Words) -> Picture:
    """The same for every way to pool, side by side, each with the norms that pool so."""
    x = sheet.values("x")
    title = t("tensor.pools_title", place=asked.at)
    nothing = np.zeros(x.shape, bool)
    blocks = []
    for name in POOLS:
        labels = POOLS[name].label(x.shape, asked.groups)
        names = [t(f"tensor.pool_of_{name}", groups=asked.groups), *_norms(name, t)]
        blocks.append(charts.Block(name, names, x, labels == labels[asked.entry], nothing, asked.entry))
    figure = charts.cubes(blocks, charts.Frame(title, "x", ""), t)
    return Picture("pools", figure, title, Subject(extra=("worked_shared",)), partial(_pools, asked, x),
                   figure.layout.height, picks=True, width=charts.BLOCKS_PX)


def steps(sheet: Worked) -> Picture:
    """The numbers of every step for the whole tensor, as a table alone."""
    return Picture("steps", None, "", Subject(extra=("worked_steps",)), partial(_steps, sheet))


def pitfalls(asked: Asked, x: F64) -> Picture:
    """The numbers of every pitfall for the whole tensor, as a table alone."""
    return Picture("pitfalls", None, "", Subject(extra=("worked_pitfalls",)), partial(_pitfalls, asked, x))


def remarks(asked: Asked, sheet: Worked, t: Words) -> list[str]:
    """Return what there is to say about the chosen entry's statistics, in sentences."""
    x, y = sheet.values("x"), sheet.values("output")
    shared = sheet.sharing(asked.entry)
    count, said = int(shared.sum()), []
    if sheet.pool != "entry":
        said.append(t("tensor.count", count=count, place=asked.at))
    if sheet.is_centred and np.isfinite(x[shared]).all() and x[shared].min() == x[shared].max():
        said.append(t("tensor.constant" if np.isfinite(y[shared]).all() else "tensor.constant_lost"))
    if sheet.pool == "position" and count == 2:
        said.append(t("tensor.two_samples"))
    broken = [int((~np.isfinite(values)).sum()) for values in (x, y)]
    if any(broken):
        said.append(t("tensor.broken", before=broken[0], after=broken[1], total=x.size))
    return said


def judged(found: Outcome, shape: tuple[int, ...], t: Words) -> str:
    """Say how far what a pitfall gives is from the right one."""
    if found.y is None:
        return t("tensor.pitfall_error", error=found.error)
    if found.y.shape != shape:
        return t("tensor.pitfall_shape", shape="×".join(map(str, found.y.shape)), expected="×".join(map(str, shape)))
    lost = t("tensor.pitfall_lost", count=found.lost) if found.lost else ""
    if np.isnan(found.difference):
        return lost or t("tensor.pitfall_nothing")
    key = "tensor.pitfall_same" if found.difference == 0 else "tensor.pitfall_differs"
    return lost + t(key, difference=number(found.difference), ratio=number(found.ratio))


def _norms(pool: str, t: Words) -> list[str]:
    """Name the norms that pool so, in lines."""
    names = [t(f"norm.{name}") for name, entry in WORKED.items() if entry.pool == pool]
    names += [t("tensor.alone", norm=t(f"norm.{name}")) for name, entry in WORKED.items() if entry.alone == pool]
    lines = names[:1]
    for name in names[1:]:
        joined = lines[-1] + t("tensor.between") + name
        fits = sum(2 if ord(letter) > 0x2E7F else 1 for letter in joined) <= LETTERS
        lines = [*lines[:-1], joined] if fits else [*lines, name]
    return lines


def _entries(shape: Shape) -> dict[str, list[int]]:
    """Return the columns that say which entry a row is about."""
    return dict(zip(("b", "t", "d"), (index.ravel().tolist() for index in np.indices(shape)), strict=True))


def _shared(asked: Asked, sheet: Worked) -> Columns:
    x = sheet.values("x")
    return {**_entries(x.shape), "x": x.ravel().tolist(), "statistic": sheet.labels.ravel().tolist(),
            "shared": sheet.sharing(asked.entry).ravel().tolist(), "y": sheet.values("output").ravel().tolist()}


def _pools(asked: Asked, x: F64) -> Columns:
    return {**_entries(x.shape), "x": x.ravel().tolist(),
            **{name: POOLS[name].label(x.shape, asked.groups).ravel().tolist() for name in POOLS}}


def _steps(sheet: Worked) -> Columns:
    return {**_entries(sheet.labels.shape), **{step.name: step.values.ravel().tolist() for step in sheet.steps}}


def _pitfalls(asked: Asked, x: F64) -> Columns:
    found = {name: outcome(name, x, asked.eps).y for name in PITFALLS}
    return {**_entries(x.shape), "x": x.ravel().tolist(), "right": right(x, asked.eps).ravel().tolist(),
            **{name: y.ravel().tolist() if y is not None and y.shape == x.shape else [None] * x.size
               for name, y in found.items()}}
