"""Computes what the lessons show into the store, so that a lecture never waits: ``python -m pages.ui.ahead``.

It opens every lesson as a visitor does, turns every dial and presses every start, so it can ask for nothing else than
the pages do. What a lesson cannot show is said, and the exit status is 1.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from streamlit.testing.v1 import AppTest

from core import service
from pages.ui import lessons
from pages.ui.lesson_link import UNGUESSED, Visit
from pages.ui.text import LANGUAGES, Words

PAGES = Path(__file__).resolve().parents[1]
LANG = next(iter(LANGUAGES))
POLL_S = 0.5
LESSON_S = 900.0
"""A lesson that is not shown by then is given up."""

STARTS = ("drift.run", "live.start", "bench.start", "bench.go_on")
"""Words on the buttons that a visitor presses to have something computed."""

STOPS = ("drift.cancel", "live.stop", "bench.stop")
"""Words on the buttons that stop what is under way."""

MISSES_A_BROWSER = "streamlit.runtime.scriptrunner_utils.script_run_context"
"""Streamlit's logger that warns at every widget of a script without a browser."""

WAITS = ":material/hourglass:"


def visits(name: str) -> Iterator[Visit]:
    """Yield the states of a lesson: as it begins, and with each dial at each other value."""
    one = lessons.lesson(name, LANG)
    yield Visit(name, UNGUESSED)
    for dial in one.dials:
        others = (place for place in range(len(dial.values)) if place != dial.at)
        yield from (Visit(name, UNGUESSED, {dial.state: place}) for place in others)


def shown(visit: Visit) -> list[str]:
    """Open a lesson and wait until all of it is shown; return what was wrong."""
    at = AppTest.from_file(str(PAGES / "ui" / "shell.py"), default_timeout=120).run()
    at.switch_page(str(PAGES / "lessons.py"))
    for name, value in {**visit.write(), "lang": LANG}.items():
        at.query_params[name] = value
    end = time.monotonic() + LESSON_S
    while time.monotonic() < end:
        at.run()
        if at.exception:
            return [one.value for one in at.exception]
        starts = [one for one in at.button if one.label in map(Words(LANG), STARTS)]
        for one in starts:
            one.click()
        if not (starts or _waits(at)):
            return [one.value for one in (*at.error, *at.warning)]
        time.sleep(POLL_S)
    return [f"not shown after {LESSON_S:.0f} s"]


def _waits(at: AppTest) -> bool:
    """Return whether something is under way: it is said, or can be stopped."""
    said = any(WAITS in one.value or getattr(one, "icon", "") == WAITS for one in (*at.caption, *at.info))
    return said or any(one.label in map(Words(LANG), STOPS) for one in at.button)


def main() -> int:
    """Show every lesson, or those that are named."""
    asked = sys.argv[1:] or lessons.names()
    unknown = [name for name in asked if name not in lessons.names()]
    if unknown:
        print(f"no lesson is called {unknown[0]!r}; allowed: {', '.join(lessons.names())}", file=sys.stderr)
        return 2
    logging.getLogger(MISSES_A_BROWSER).addFilter(lambda _record: False)
    service.start()
    failed = 0
    try:
        for name in asked:
            begun = time.monotonic()
            wrong = [said for visit in visits(name) for said in shown(visit)]
            failed += bool(wrong)
            print(f"{name}: {'; '.join(wrong) or 'ready'} ({time.monotonic() - begun:.0f} s)", flush=True)
    finally:
        service.stop()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
