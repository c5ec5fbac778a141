"""How one figure becomes the next: the few numbers that are new instead of all of them.

A figure is ``{"data": [...], "layout": {...}}``: dicts, sequences, NumPy arrays, scalars. The file knows neither what a
figure shows nor who watches it. `assets/feed.js` does in the browser what `apply` does here.

A patch is a list of ops, each with the ``path`` of what it changes:

- ``{"path", "set": value}`` puts a value there, ``{"path", "drop": true}`` removes the key;
- ``{"path", "cut": n, "add": [...]}`` keeps the first n elements and appends;
- the same with ``"axis": 1`` keeps the first n elements of every row and appends to each its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import orjson
import plotly.graph_objects as go
from numpy.typing import NDArray

Figure = dict[str, Any]
Op = dict[str, Any]
Path = tuple[str | int, ...]
Array = NDArray[Any]


def plain(figure: go.Figure) -> Figure:
    """Return a figure as dicts with its arrays as they are, without the template: only a browser knows the theme."""
    layout = figure.layout.to_plotly_json()
    layout.pop("template", None)
    return {"data": [trace.to_plotly_json() for trace in figure.data], "layout": layout}


def wire(value: object) -> bytes:
    """Return JSON on one line; arrays in the brevity of their type, NaN and ±Inf as null."""
    return orjson.dumps(value, default=_listed, option=orjson.OPT_SERIALIZE_NUMPY)


def _listed(value: object) -> object:
    """Return what orjson cannot write: arrays that are not contiguous, of text or of anything."""
    if isinstance(value, np.ndarray):
        return np.ascontiguousarray(value) if value.dtype.kind in "fiub" and value.ndim else value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError  # orjson says of what


def patches(old: Figure, new: Figure) -> list[Op]:
    """Return what makes `new` of `old`; NaN equals NaN. Arrays are compared whole, lists element by element."""
    return list(_ops(old, new, ()))


def apply(figure: Figure, ops: Sequence[Op]) -> Figure:
    """Change `figure`, where it is, as a browser does: both are plain lists and dicts, as JSON gives them."""
    for op in ops:
        *way, key = op["path"]
        place: Any = figure
        for name in way:
            place = place[name]
        if "drop" in op:
            del place[key]
        elif "set" in op:
            place[key] = op["set"]
        elif "axis" in op:
            place[key] = [row[: op["cut"]] + more for row, more in zip(place[key], op["add"], strict=True)]
        else:
            place[key] = place[key][: op["cut"]] + op["add"]
    return figure


def _ops(old: Any, new: Any, path: Path) -> Iterator[Op]:
    """Yield the ops for one place."""
    if old is new:
        return
    if isinstance(old, np.ndarray) and isinstance(new, np.ndarray):
        yield from _array_ops(old, new, path)
    elif isinstance(old, dict) and isinstance(new, dict):
        yield from _dict_ops(old, new, path)
    elif isinstance(old, list | tuple) and isinstance(new, list | tuple):
        yield from _list_ops(old, new, path)
    elif not _same(old, new):
        yield _set(path, new)


def _set(path: Path, value: object) -> Op:
    return {"path": path, "set": value}


def _same(old: object, new: object) -> bool:
    """Say whether two scalars are the same; True is not 1."""
    return type(old) is type(new) and bool(old == new or (_is_nan(old) and _is_nan(new)))


def _is_nan(value: object) -> bool:
    return isinstance(value, float | np.floating) and bool(np.isnan(value))


def _dict_ops(old: dict[str, Any], new: dict[str, Any], path: Path) -> Iterator[Op]:
    yield from ({"path": (*path, name), "drop": True} for name in old if name not in new)
    for name, value in new.items():
        yield from _ops(old[name], value, (*path, name)) if name in old else [_set((*path, name), value)]


def _list_ops(old: Sequence[Any], new: Sequence[Any], path: Path) -> Iterator[Op]:
    """Look into elements that hold something; of others keep those before the first difference."""
    if path == ("data",) and len(old) != len(new):  # another number of traces: they are others
        yield _set(path, new)
        return
    common = min(len(old), len(new))
    nested = any(isinstance(one, dict | list | tuple | np.ndarray) for one in (*old[:common], *new[:common]))
    if nested and not _written_alike(old[:common], new[:common]):
        for index in range(common):
            yield from _ops(old[index], new[index], (*path, index))
    elif not nested:
        common = next((index for index in range(common) if not _same(old[index], new[index])), common)
    if common < max(len(old), len(new)):
        yield {"path": path, "cut": common, "add": new[common:]}


def _written_alike(old: Sequence[Any], new: Sequence[Any]) -> bool:
    """Say quickly whether two lists come out the same; those that hold arrays are not looked at, and False."""
    try:
        return orjson.dumps(old) == orjson.dumps(new)
    except TypeError:
        return False


def _array_ops(old: Array, new: Array, path: Path) -> Iterator[Op]:
    """Keep what is common at the beginning of rows or columns, whichever leaves less to send."""
    if old.dtype != new.dtype or old.ndim != new.ndim or not new.ndim:
        yield _set(path, new)
        return
    if _equal(old, new):
        return
    choices: list[tuple[int, Op]] = [(new.size, _set(path, new))]
    for axis in range(min(new.ndim, 2)):
        count = _kept(old, new, axis)
        more = new[count:] if axis == 0 else new[:, count:]
        choices.append((more.size, {"path": path, "cut": count, "add": more} | ({"axis": 1} if axis else {})))
    yield min(choices, key=lambda choice: choice[0])[1]


def _equal(old: Array, new: Array) -> bool:
    return np.array_equal(old, new, equal_nan=new.dtype.kind == "f")


def _kept(old: Array, new: Array, axis: int) -> int:
    """Return how many slices along `axis` are the same from the beginning; 0 where the others do not fit."""
    ours, theirs = (old, new) if axis == 0 else (old.swapaxes(0, axis), new.swapaxes(0, axis))
    if ours.shape[1:] != theirs.shape[1:]:
        return 0
    count = min(len(ours), len(theirs))
    ours, theirs = ours[:count], theirs[:count]
    if _equal(ours, theirs):  # what grew, as almost always
        return count
    return next(place for place in range(count) if not _equal(ours[place:place + 1], theirs[place:place + 1]))
