"""The event stream of live charts: whole figures first, then patches, to everybody who asks the same.

A source makes the figures of a query; whoever asks the same query shares its looks and the bytes made of them. Nothing
is kept of viewers that left. The file knows neither runs nor what a figure shows.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType, MappingProxyType

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from core.database import StoreError
from core.logs import note
from pages.ui.patches import Figure, patches, wire

EVERY_S = 0.22
"""Between two looks at a source: a little less than a quarter, lest what comes four times a second comes later."""

BEAT_S = 15.0
"""A comment is sent when nothing else was for so long, lest a proxy takes the stream for dead."""

MAX_STREAMS = 512
"""More viewers at a time are refused."""

GRACE_S = 1
"""How long a server that ends waits for viewers that no longer read, such as a laptop that was closed."""

HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
BEAT = b": still here\n\n"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Look:
    """What a source shows now: figures by name, and whether they will never change again.

    The source must not change the figures afterwards: they are compared with the next ones.
    """

    figures: Mapping[str, Figure] = field(default_factory=lambda: MappingProxyType({}))
    over: bool = False


Source = Callable[[Mapping[str, str]], Look]
"""Makes the figures of a query; it may block for some milliseconds. Errors: ValueError, StoreError, of one sentence."""


def event(name: str, content: object) -> bytes:
    """Return one server-sent event."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), wire(content))


class Channel:
    """What everybody sees who asks the same query: the figures now, as of the how-manieth change, and its end."""

    def __init__(self, source: Source, query: Mapping[str, str]) -> None:
        self._source, self._query = source, query
        self._figures: Mapping[str, Figure] = {}
        self._version = 0
        self._patch = b""  # from the version before to this one; empty where only the whole will do
        self._state = b""  # made when somebody needs it
        self._end: bytes | None = None
        self._news = asyncio.Event()
        self.viewers = 0
        self._task = asyncio.create_task(self._watch())

    async def messages(self) -> AsyncIterator[bytes]:
        """Yield what one viewer is sent. Who was too slow for a patch gets the whole."""
        seen = 0
        while True:
            news = self._news
            if self._version != seen:
                message = self._patch if seen and self._version == seen + 1 else b""
                seen = self._version
                yield message or self._whole()
            elif self._end is not None:
                yield self._end
                return
            elif not await _happens(news):
                yield BEAT

    def close(self) -> None:
        """End the stream of every viewer."""
        self._task.cancel()
        self._finish(b"")

    async def _watch(self) -> None:
        """Look again and again until all is over; pause at least half as long as the look took."""
        try:
            while True:
                began = time.monotonic()
                look = await run_in_threadpool(self._source, self._query)
                self._show(look.figures, await run_in_threadpool(self._changes, look.figures))
                if look.over:
                    return self._finish(event("over", {}))
                took = time.monotonic() - began
                await asyncio.sleep(max(EVERY_S - took, took / 2))
        except (ValueError, StoreError) as error:
            _log.warning("no live figures: %s", error)
            self._finish(event("failure", {"reason": str(error)}))
        except Exception:
            _log.exception("a look at the live figures failed")
            self._finish(b"")

    def _changes(self, new: Mapping[str, Figure]) -> tuple[bytes, bytes]:
        """Return the events that lead to the new figures: a patch, or the whole where there is no other way."""
        old = self._figures
        if not self._version or old.keys() != new.keys():
            return b"", event("state", {"figures": new})
        changes = {name: ops for name in new if (ops := patches(old[name], new[name]))}
        return event("patch", {"figures": changes}) if changes else b"", b""

    def _show(self, figures: Mapping[str, Figure], changes: tuple[bytes, bytes]) -> None:
        self._figures = figures
        if any(changes):
            self._patch, self._state = changes
            self._version += 1
            self._tell()

    def _finish(self, end: bytes) -> None:
        if self._end is None:
            self._end = end
        self._tell()

    def _whole(self) -> bytes:
        self._state = self._state or event("state", {"figures": self._figures})
        return self._state

    def _tell(self) -> None:
        """Wake everybody who waits for news."""
        self._news.set()
        self._news = asyncio.Event()


async def _happens(news: asyncio.Event) -> bool:
    """Wait for it; return whether it came before it is time for a sign of life."""
    try:
        async with asyncio.timeout(BEAT_S):
            return await news.wait()
    except TimeoutError:
        return False


class Live:
    """The route of event streams: ``GET <address>?<query of the source>``.

    `names`: the parameters that the source knows, others are ignored; empty for all.
    """

    def __init__(self, source: Source, names: Collection[str] = ()) -> None:
        self._source, self._names = source, frozenset(names)
        self._channels: dict[tuple[tuple[str, str], ...], Channel] = {}
        self._bell: ShutdownBell | None = None

    @property
    def viewers(self) -> int:
        """How many streams are open."""
        return sum(channel.viewers for channel in self._channels.values())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        self._bell = self._bell or ShutdownBell(self.close)
        refusal = self._refusal()
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        with self._seat(dict(Request(scope).query_params)) as channel:
            answer = StreamingResponse(channel.messages(), media_type="text/event-stream", headers=HEADERS)
            await answer(scope, receive, send)

    def close(self) -> None:
        """End all streams: the server ends, and would wait for them for ever."""
        for channel in self._channels.values():
            channel.close()

    def _refusal(self) -> Response | None:
        if self.viewers < MAX_STREAMS:
            return None
        note(_log, "request refused", logging.WARNING, reason=f"{MAX_STREAMS} streams are open")
        return PlainTextResponse(f"{MAX_STREAMS} people are watching already, and this server allows no more.",
                                 503, HEADERS | {"Retry-After": "30"})

    @contextmanager
    def _seat(self, query: dict[str, str]) -> Iterator[Channel]:
        """Give a viewer a place in the channel of the query, which is opened by the first and closed by the last."""
        query = {name: value for name, value in query.items() if name in self._names or not self._names}
        key = tuple(sorted(query.items()))
        channel = self._channels.get(key) or Channel(self._source, query)
        self._channels[key] = channel
        channel.viewers += 1
        try:
            yield channel
        finally:
            channel.viewers -= 1
            if not channel.viewers:
                channel.close()
                self._channels.pop(key, None)


class ShutdownBell:
    """Calls back as soon as the server is told to end.

    The web server learns of it from a signal and then waits for open responses, all of them, before the application's
    lifespan ends: whoever streams must hear the signal itself. The server's own handler is called too. A server in a
    thread gets no signals, and there is nothing to hear.
    """

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._loop = asyncio.get_running_loop()
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._listen(number)

    def _listen(self, number: signal.Signals) -> None:
        before = signal.getsignal(number)

        def hear(received: int, frame: FrameType | None) -> None:
            self._loop.call_soon_threadsafe(self._ring)
            if callable(before):
                before(received, frame)

        signal.signal(number, hear)
        settings = getattr(getattr(before, "__self__", None), "config", None)
        if getattr(settings, "timeout_graceful_shutdown", 0) is None:  # uvicorn's, which Streamlit leaves unset
            settings.timeout_graceful_shutdown = GRACE_S  # type: ignore[union-attr]
