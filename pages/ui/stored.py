"""Stored runs in words: what each is called, how it is, what it holds; and which of them a visit looks for.

A `Sought` is a filter and the runs that are chosen, as a link both ways. Reading never fails: what is refused is
replaced and becomes a Notice. No Streamlit here.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from core import rules
from core.experiment import Experiment, parse
from core.fields import ExperimentError
from core.service import FINISHED, UNFINISHED, Entry, RunView
from pages.ui import explain, fields
from pages.ui.link import RUNS, Notice, run_ids
from pages.ui.text import Words

KINDS = ("training", "probe", "all")
LANES = {"train": "training", "probe": "probe"}
ANY = "any"
MOST_NAMED = 40
"""A link names so many chosen runs at most."""

FIND_LETTERS = 80

LOOKS: Mapping[str, tuple[str, str, str]] = {
    "queued": ("…", ":material/hourglass:", "gray"),
    "running": ("▶", ":material/play_arrow:", "blue"),
    "done": ("✓", ":material/check_circle:", "green"),
    "stopped": ("▲", ":material/warning:", "orange"),
    "failed": ("✕", ":material/error:", "red"),
    "cancelled": ("■", ":material/stop:", "gray"),
}
"""Status of a run → its sign in a table, and icon and colour of its badge."""


FACTS = ("engine", "torch", "numpy", "python", "device", "device_name", "dtype", "threads", "seed")
"""What the provenance of a run says that is shown, in this order."""

FIRST = ("model.norm", "model.placement", "model.init", "protocol.optimizer", "protocol.lr", "protocol.dtype",
         "protocol.seed")
LAST = ("model.n_layers", "model.d_model", "model.n_heads", "model.head_dim", "model.d_ff", "input.batch",
        "input.seq_len")
"""The fields that are said first of a run, and last."""


def _rank(path: str) -> tuple[int, str]:
    """Return what sorts the fields of a run: FIRST, the rest, LAST."""
    place = FIRST.index(path) if path in FIRST else len(FIRST) + 1 + LAST.index(path) if path in LAST else len(FIRST)
    return place, path


@dataclass(frozen=True)
class Sought:
    """A filter (`kind`, `status`, words to `find`) and the ids of the chosen runs."""

    kind: str = KINDS[0]
    status: str = ANY
    find: str = ""
    chosen: tuple[str, ...] = ()

    def write(self) -> dict[str, str]:
        """Return the query parameters; what is as by default is left out."""
        query = {name: value for name, value, default in (
            ("kind", self.kind, KINDS[0]), ("status", self.status, ANY), ("find", self.find, "")) if value != default}
        return query | ({RUNS: ".".join(self.chosen[:MOST_NAMED])} if self.chosen else {})

    def wants(self, run: Stored, t: Words) -> bool:
        """Return whether the run passes the filter, or is chosen: what is chosen stays in sight."""
        if run.view.id in self.chosen:
            return True
        if self.kind not in ("all", run.kind) or self.status not in (ANY, run.view.status):
            return False
        words = self.find.casefold().split()
        return not words or all(word in run.said(t) for word in words)


PARAMETERS = ("kind", "status", "find", RUNS)
CHOICES: Mapping[str, Sequence[str]] = {"kind": KINDS, "status": (ANY, *UNFINISHED, *FINISHED)}


def read(query: Mapping[str, str], existing: Collection[str]) -> tuple[Sought, list[Notice]]:
    """Return what `query` looks for, and a notice for each part that was refused; `existing`: the runs there are."""
    notices, found = [], {}
    for name, allowed in CHOICES.items():
        given = query.get(name, allowed[0])
        if given not in allowed:
            notices.append(Notice("link.choice", {"name": name, "value": given[:60], "allowed": ", ".join(allowed),
                                                  "used": allowed[0]}))
        found[name] = given if given in allowed else allowed[0]
    named = run_ids(query.get(RUNS, ""), MOST_NAMED)
    if named is None:
        notices.append(Notice("link.runs", {"value": query[RUNS][:40]}))
    notices += [Notice("live.no_run", {"value": run}) for run in named or () if run not in existing]
    chosen = tuple(run for run in named or () if run in existing)
    return Sought(found["kind"], found["status"], query.get("find", "")[:FIND_LETTERS], chosen), notices


@dataclass(frozen=True, eq=False)
class Stored:
    """A run of the store. `loss`: at its last recorded step, None before the first; `device`: what auto means here."""

    entry: Entry
    loss: float | None
    device: str

    @property
    def view(self) -> RunView:
        """What it looks like now."""
        return self.entry.view

    @property
    def kind(self) -> str:
        """Whether it is a training or a probe."""
        return LANES[self.view.lane]

    @property
    def experiment(self) -> Experiment | None:
        """What it computes, in its shortest form; None where another version wrote what this one refuses."""
        return described(self.entry.experiment, self.device)[0]

    @property
    def refused(self) -> ExperimentError | None:
        """Why this version cannot read its experiment."""
        return described(self.entry.experiment, self.device)[1]

    @cached_property
    def changes(self) -> Mapping[str, Any]:
        """How it differs from the default experiment, as dotted path → JSON value; empty where it cannot be read."""
        return described(self.entry.experiment, self.device)[2]

    def differs(self, t: Words, but: Collection[str] = ()) -> str:
        """Say how it differs from the default experiment: what makes a variant first, sizes last, steps elsewhere.

        `but`: fields that are left out.
        """
        if self.experiment is None:
            return t("runs.unreadable")
        changes = {path: value for path, value in self.changes.items() if path not in but}
        return spoken(changes, t) or t("runs.nothing_else" if but else "runs.default")

    def title(self, t: Words, but: Collection[str] = ()) -> str:
        """Return its name, else how it differs from the default; a visitor's words, not escaped."""
        return self.view.name or self.differs(t, but)

    def said(self, t: Words) -> str:
        """Return everything that a search looks through."""
        return "\n".join((self.title(t), self.differs(t), self.view.id, *fields.codes(self.changes),
                          t(f"runs.status_{self.view.status}"), t(f"runs.kind_{self.kind}"))).casefold()

    def loss_said(self) -> str:
        """Say its last loss; nothing before the first."""
        if self.loss is None:
            return ""
        return f"{self.loss:.4f}" if 1e-3 <= abs(self.loss) < 1e4 else explain.number(self.loss)


def spoken(changes: Mapping[str, Any], t: Words) -> str:
    """Say changes of an experiment in a line: what makes a variant first, sizes last, steps not at all."""
    paths = sorted(changes.keys() - {"protocol.steps"}, key=_rank)
    return " · ".join(fields.spoken(code, t) for code in fields.codes({path: changes[path] for path in paths}))


def common(runs: Sequence[Stored]) -> dict[str, Any]:
    """Return the differences from the default that all of several runs share, but for the steps."""
    readable = [run.changes for run in runs if run.experiment is not None]
    if len(readable) < 2:
        return {}
    return {path: value for path, value in readable[0].items() if path != "protocol.steps"
            and all(path in other and other[path] == value for other in readable[1:])}


@lru_cache(maxsize=4096)
def described(content: str, device: str) -> tuple[Experiment | None, ExperimentError | None, Mapping[str, Any]]:
    """Return a stored experiment in its shortest form, or why it cannot be read, and its differences from the default.

    `Experiment.shortened` tries every field that may follow from others, which is slow for a thousand runs; so only
    those are left to it that do not follow from the others already.
    """
    try:
        whole = parse(content)
    except ExperimentError as error:
        return None, error, {}
    wanted, paths = whole.resolved(device).paths(), whole.paths()
    try:
        short = Experiment().with_values({path: value for path, value in whole.differences().items()
                                          if path not in rules.RESOLVED})
        found = short.resolved(device).paths()
        short = short.with_values({path: paths[path] for path in rules.RESOLVED if found[path] != wanted[path]})
    except ExperimentError:
        short = whole
    short = (short if short.resolved(device).paths() == wanted else whole).shortened(device)
    return short, None, short.differences()


def flat(content: str) -> dict[str, Any]:
    """Return a stored experiment as dotted path → JSON value, whether this version can read it or not."""
    document = fields.json_or_text(content)
    parts = document if isinstance(document, dict) else {"": document}
    return {f"{part}.{name}": value for part, values in parts.items()
            for name, value in (values if isinstance(values, dict) else {"": values}).items()}


def named(path: str, t: Words) -> str:
    """Return what a field is called; one that this version does not know is called by its path."""
    key = f"field.{path.partition('.')[2]}"
    return t(key) if key in t else path


def valued(path: str, value: Any, t: Words) -> str:
    """Say the value of a field."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return fields.spoken_value(path.partition(".")[2], t)(text) if path in fields.schemas() else text


def command(run: Stored) -> str:
    """Return the command line that computes the run again and writes its table."""
    return command_of(run.changes, run.view.id)


def command_of(changes: Mapping[str, Any], run_id: str) -> str:
    """Return the command line of what differs so from the default experiment."""
    return f"python -m core run{_given(changes)} --out driftscope-{run_id}.parquet"


def command_of_grid(changes: Mapping[str, Any], axes: Mapping[str, Sequence[Any]]) -> str:
    """Return the command line of a sweep. `changes`: of its base; `axes`: field → values."""
    named = [f"{path}={','.join(map(_literal, values))}" for path, values in axes.items()]
    over = "".join(f" --grid {shlex.quote(one)}" for one in named)
    return f"python -m core sweep{_given(changes)}{over} --out driftscope-sweep.parquet"


def _given(changes: Mapping[str, Any]) -> str:
    """Write what differs from the default experiment as options."""
    settings = "".join(f" --set {shlex.quote(f'{path}={_literal(value)}')}" for path, value in changes.items())
    return f" --preset pre_layernorm{settings}"


def _literal(value: Any) -> str:
    """Write a value as the command line reads it: JSON, or a text that is none."""
    return value if isinstance(value, str) and fields.json_or_text(value) == value else json.dumps(value)


UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size(count: float) -> str:
    """Say a number of bytes."""
    power = min(int(math.log2(count)) // 10, len(UNITS) - 1) if count >= 1 else 0
    value = count / 1024**power
    return f"{value:.0f} {UNITS[power]}" if value >= 100 or not power else f"{value:.1f} {UNITS[power]}"
