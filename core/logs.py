"""What a process says on standard error: a line for each event that an operator wants to know, in one of two forms.

`note` says it, anywhere, through Python's logging; `begin` chooses the form, once a process, for everything that is
logged there. A field's value is never a secret: whoever notes a store's address takes `Database.shown_url`.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime

import orjson

from core.settings import log_form

OURS = "driftscope"
"""The logger above all of ours."""


def note(log: logging.Logger, event: str, level: int = logging.INFO, error: BaseException | None = None,
         **fields: object) -> None:
    """Log an event: what happened, in two or three words, and its fields; those that are None are left out.

    `error`: what was caught; its traceback is logged too.
    """
    log.log(level, event, exc_info=error, extra={"fields": {name: value for name, value in fields.items()
                                                            if value is not None}})


def begin() -> None:
    """Send everything that is logged in this process to standard error, in the form that the environment names.

    Streamlit and Dask give their loggers ways of their own to standard error; all go this one way instead.
    Errors: SettingError.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_FORMS[log_form()]())
    for name in list(logging.root.manager.loggerDict):
        logger = logging.getLogger(name)
        for other in [one for one in logger.handlers if type(one) is logging.StreamHandler]:
            logger.removeHandler(other)
            logger.propagate = True
    logging.root.handlers = [handler]
    logging.getLogger(OURS).setLevel(logging.INFO)
    logging.captureWarnings(True)


class Plain(logging.Formatter):
    """``2026-08-01T09:00:00.000Z info driftscope.keeper: job submitted job=… lane=probe``."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, and below it the traceback, if there is one."""
        said = " ".join((f"{_time(record)} {record.levelname.lower()} {record.name}: {record.getMessage()}",
                         *(f"{name}={_word(value)}" for name, value in _fields(record).items())))
        return f"{said}\n{self.formatException(record.exc_info)}" if record.exc_info else said


class JsonLine(logging.Formatter):
    """One JSON object: time (UTC), level, logger, event, the event's own fields, and ``traceback`` where there is one.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the object in one line; a number that is not finite is null."""
        said = {"time": _time(record), "level": record.levelname.lower(), "logger": record.name,
                "event": record.getMessage()}
        trace = {"traceback": self.formatException(record.exc_info)} if record.exc_info else {}
        return orjson.dumps({**said, **_fields(record), **trace}, default=str).decode()


_FORMS: dict[str, type[logging.Formatter]] = {"plain": Plain, "json": JsonLine}


def _time(record: logging.LogRecord) -> str:
    return f"{datetime.fromtimestamp(record.created, UTC):%Y-%m-%dT%H:%M:%S}.{int(record.msecs):03d}Z"


def _fields(record: logging.LogRecord) -> dict[str, object]:
    fields: dict[str, object] = getattr(record, "fields", {})
    return fields


def _word(value: object) -> str:
    """Write a value so that one sees where it ends."""
    if isinstance(value, Mapping):
        return f"({' '.join(f'{name}={_word(one)}' for name, one in value.items() if one is not None)})"
    text = str(value)
    return text if text and not set(text) & set(' "=\n') else orjson.dumps(text).decode()
