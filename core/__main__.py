"""The command line: the same engine without a browser and without a cluster. ``python -m core --help`` lists it.

Only `run`, `compare` and `sweep` import torch. Exit status: 0 done; 2 refused, one line on standard error; 3 stopped at
a non-finite value, 130 interrupted (Ctrl-C), the table up to there written all the same.
"""

# ruff: noqa: E402 - an interrupt is met before the imports, which take a while
from __future__ import annotations

import os
import signal


def _leave(*_: object) -> None:
    """End at once and quietly, while there is nothing to be finished: so are imports interrupted."""
    os._exit(130)


if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _leave)

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from core.arguments import assignment, experiment_of, values_of
from core.comparison import variants
from core.cost import check_limits
from core.database import StoreError
from core.experiment import Experiment, json_schema
from core.fields import ExperimentError
from core.presets import PRESETS
from core.settings import SettingError
from core.store import LANES
from core.sweep import grid

DONE, REFUSED, NON_FINITE, INTERRUPTED = 0, 2, 3, 130


class _Parser(argparse.ArgumentParser):
    """A parser whose complaint is one line."""

    def error(self, message: str) -> NoReturn:
        raise ExperimentError(f"{message}; {self.prog} --help lists what is allowed")


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit status."""
    try:
        options = _parser().parse_args(arguments)
        command: Callable[[argparse.Namespace], int] = options.command
        status = command(options)
        sys.stdout.flush()  # here, where a full disk is a sentence, and not at the interpreter's end
        return status
    except BrokenPipeError:
        _abandon_output()
        return DONE
    except KeyboardInterrupt:
        return INTERRUPTED
    except RecursionError:
        return _refuse("a value is nested too deeply; allowed: an object of model, input, protocol")
    except (ExperimentError, StoreError, SettingError) as error:
        return _refuse(str(error))
    except OSError as error:
        _abandon_output()
        return _refuse(f"the output cannot be written: {error}")


def _refuse(sentence: str) -> int:
    print(" ".join(sentence.split()), file=sys.stderr)
    return REFUSED


def _abandon_output() -> None:
    """Let go of what standard output did not take, about which Python would complain at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run(options: argparse.Namespace) -> int:
    """Run one experiment and write its table."""
    return _play([(None, experiment_of(options))], options)


def compare(options: argparse.Namespace) -> int:
    """Run every variant in turn and write one table; the column variant says which."""
    return _play(list(variants(experiment_of(options), _fields(options.vary, "--vary")).items()), options)


def sweep(options: argparse.Namespace) -> int:
    """Run a grid over one or two fields and write one table; what the store has already is not run again."""
    cells = grid(experiment_of(options), _fields(options.grid, "--grid"))
    for cell in cells:
        if cell.refused is not None:
            print(f"left out: {cell.name}: {cell.refused}", file=sys.stderr)
    asked = [(cell.name, cell.experiment) for cell in cells if cell.experiment is not None]
    if not asked:
        raise ExperimentError("every cell of the sweep is refused; allowed: values that go together")
    return _play(asked, options, resume=True)


def _fields(texts: Sequence[str], option: str) -> dict[str, list[Any]]:
    """Return the fields that an option names, each with its values."""
    found = dict(assignment(text, values_of) for text in texts)
    if len(found) < len(texts):
        raise ExperimentError(f"{option} names a field twice; allowed: each field once, with all its values")
    return found


def presets(_options: argparse.Namespace) -> int:
    """Print every preset by name, as what differs from the default experiment."""
    return _print_json(PRESETS)


def schema(_options: argparse.Namespace) -> int:
    """Print the JSON Schema of an experiment."""
    return _print_json(json_schema())


def runs(_options: argparse.Namespace) -> int:
    """Print every stored run, newest first."""
    from core.archive import listing

    return _print_json(listing())


def drift(options: argparse.Namespace) -> int:
    """Print the verdicts of a stored run and their numbers; of a training, first what its losses say."""
    from core.archive import stored_run
    from core.learning import of_trace
    from core.verdicts import all_of

    experiment, trace = stored_run(options.run)
    learned = (of_trace(trace, experiment),) if experiment.protocol.steps else ()
    return _print_json([vars(verdict) for verdict in (*learned, *all_of(trace, experiment))])


def scheduler(options: argparse.Namespace) -> NoReturn:
    """Become a scheduler for workers on several machines: Dask's, with this program's settings."""
    from core import processes

    processes.become_scheduler(options.host, options.port)


def worker(options: argparse.Namespace) -> NoReturn:
    """Become a worker of one lane, of the scheduler that DRIFTSCOPE_SCHEDULER names."""
    from core import processes

    processes.become_worker(options.lane, options.host)


def _play(experiments: Sequence[tuple[str | None, Experiment]], options: argparse.Namespace,
          resume: bool = False) -> int:
    """Play experiments in turn and write one table. `resume`: what the store has whole already is read from there."""
    from core import archive, table
    from core.trace import Trace

    ending = ".json" if options.out == "-" else Path(options.out).suffix.lower()
    _check_target(options.out, ending, table.FORMATS)
    check_limits([experiment for _, experiment in experiments], _memory_limit())
    tables, status, keep = [], DONE, not options.no_store
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # from here on there is something to be finished
    with archive.opened([experiment for _, experiment in experiments], keep) as store:
        for variant, experiment in experiments:
            try:
                stored = archive.found(experiment, store) if resume and store else None
                result = stored or archive.play(experiment, keep, store, _progress(variant, experiment))
            except archive.Interrupted as error:
                status = _say(variant, str(error), INTERRUPTED)
                tables += [table.tidy(Trace(error.snapshots), error.run or "", variant)] if error.snapshots else []
                break
            tables.append(table.tidy(result.trace, result.run, variant))
            if result.stopped:
                status = _say(variant, result.stopped, NON_FINITE)
    if tables:
        whole = table.concatenate(tables)
        table.write(whole, sys.stdout.buffer if options.out == "-" else Path(options.out), ending)
    return status


def _say(variant: str | None, sentence: str, status: int) -> int:
    """Say how a run ended, on a line of its own, and return the status that stands for it."""
    begin = "\n" if status == INTERRUPTED and sys.stderr.isatty() else ""  # where the progress stands
    print(f"{begin}{variant + ': ' if variant else ''}{sentence}", file=sys.stderr)
    return status


def _progress(variant: str | None, experiment: Experiment) -> Callable[[Any], None]:
    """Return what says on a terminal how far a training has come; it says nothing anywhere else."""
    steps, of = experiment.protocol.steps, f"{variant}: " if variant else ""

    def tell(snapshot: Any) -> None:
        if steps and sys.stderr.isatty():
            end = "\n" if snapshot.step == steps else ""
            print(f"\r\033[K{of}step {snapshot.step} of {steps}, loss {snapshot.loss:.4g}", end=end, file=sys.stderr,
                  flush=True)

    return tell


def _check_target(out: str, ending: str, formats: Iterable[str]) -> None:
    """Refuse a file that cannot be written, before anything is computed; it is left as it is."""
    if ending not in formats:
        raise ExperimentError(f"--out is {out}; allowed: - or a file ending in {', '.join(formats)}")
    if out != "-" and not Path(out).absolute().parent.is_dir():
        raise ExperimentError(f"--out is {out}; its folder does not exist; allowed: a file in an existing folder")
    if out != "-":
        existed = Path(out).exists()
        try:
            Path(out).open("ab").close()
        except OSError as error:
            raise ExperimentError(f"--out is {out}, which cannot be written: {error.strerror}; allowed: a file in a "
                                  "folder that is yours") from None
        if not existed:
            Path(out).unlink()


def _memory_limit() -> dict[str, float]:
    """Return what fits here: the machine's memory."""
    return {"peak_bytes": float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))}


def _print_json(content: object) -> int:
    print(json.dumps(_finite(content), indent=2, ensure_ascii=False, default=str, allow_nan=False))
    return DONE


def _finite(content: object) -> object:
    """Return `content` with non-finite numbers as the table's words for them: JSON has no such numbers."""
    if isinstance(content, dict):
        return {name: _finite(value) for name, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    if isinstance(content, float) and not math.isfinite(content):
        from core.table import shown

        return shown(content)
    return content


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m core", description="Run experiments and read what they recorded.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=_Parser)
    for name, command in COMMANDS.items():
        sub = commands.add_parser(name, help=command.__doc__, description=command.__doc__, allow_abbrev=False)
        sub.set_defaults(command=command)
        for arguments, settings in _ARGUMENTS.get(name, ()):
            sub.add_argument(*arguments, **settings)
    return parser


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "run": run, "compare": compare, "sweep": sweep, "presets": presets, "schema": schema, "runs": runs, "drift": drift,
    "scheduler": scheduler, "worker": worker,
}

_EXPERIMENT: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    (("file",), {"metavar": "FILE", "nargs": "?", "help": "an experiment as JSON; - for standard input"}),
    (("--preset",), {"metavar": "NAME", "help": "start from a preset; FILE and --set go over it"}),
    (("--set",), {"metavar": "FIELD=VALUE", "action": "append", "default": [], "help": "set one field"}),
    (("--out",), {"metavar": "FILE", "default": "-", "help": ".json, .csv or .parquet; - (default): JSON to stdout"}),
    (("--no-store",), {"action": "store_true", "help": "do not keep the run"}),
)
_VARY = (("--vary",), {"metavar": "FIELD=VALUE,…", "action": "append", "required": True,
                       "help": "the values of a varied field; several --vary make their product"})

_GRID = (("--grid",), {"metavar": "FIELD=VALUE,…", "action": "append", "required": True,
                       "help": "the values of a field; a second --grid makes rows and columns"})

_HOST = (("--host",), {"help": "the address to listen at; default: every address of this machine"})

_ARGUMENTS: dict[str, tuple[tuple[tuple[str, ...], dict[str, Any]], ...]] = {
    "run": _EXPERIMENT,
    "compare": (*_EXPERIMENT, _VARY),
    "sweep": (*_EXPERIMENT, _GRID),
    "drift": ((("run",), {"metavar": "RUN", "help": "the id of a stored run"}),),
    "scheduler": (_HOST, (("--port",), {"type": int, "default": 8786, "help": "the port; default: 8786"})),
    "worker": (_HOST, (("--lane",), {"choices": LANES, "default": "probe",
                                     "help": "what it computes: probe (default) or train"})),
}

if __name__ == "__main__":
    sys.exit(main())
