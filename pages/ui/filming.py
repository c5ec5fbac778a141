"""A film in the making: its frames are drawn in a thread of its own, while whoever asked for it watches or leaves.

It knows neither Streamlit nor what a frame shows.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from pages.ui.chromium import ImageError

_log = logging.getLogger(__name__)

LEFT_S = 20.0
"""Nobody waits for a film that nobody has looked at for so long."""


class Filming:
    """`count` frames, of which `done` are drawn; in the end its `content`, or what went wrong as `trouble`."""

    def __init__(self, frames: Iterator[bytes], count: int, joined: Callable[[Sequence[bytes]], bytes]) -> None:
        self.count, self.done = count, 0
        self.content = b""
        self.trouble: ImageError | None = None
        self._frames, self._joined = frames, joined
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._make, name="film", daemon=True)
        self.look()
        self._thread.start()

    def look(self) -> bool:
        """Say whether it is under way, and that somebody is waiting for it."""
        self._seen = time.monotonic()
        return self._thread.is_alive()

    def stop(self) -> None:
        """End it after the frame that is being drawn."""
        self._stopped.set()

    def _make(self) -> None:
        drawn = []
        try:
            for frame in self._frames:
                drawn.append(frame)
                self.done = len(drawn)
                if self._stopped.is_set() or time.monotonic() - self._seen > LEFT_S:
                    return
            self.content = self._joined(drawn)
        except ImageError as error:
            self.trouble = error
        except Exception:
            _log.exception("a film came to nothing")
            self.trouble = ImageError("something went wrong that was not foreseen", "unforeseen")
