"""The one Chromium of this process that draws images: started for the first, kept for a while, ended with the process.

kaleido drives it; pictures wait for their turn. It asks nothing of a network: plotly.js is the installed one, no host
has an address, and the page in which figures are drawn may load nothing else. The file does not know what is drawn.

Traps this file is built around:
- kaleido's own server waits forever for a browser that does not start; here nothing waits without an end.
- A thread that reads the browser's messages keeps the process alive until the browser has ended, and whoever closes it
  when the interpreter is left comes too late: it is closed when the main thread has ended.
- What waits in kaleido for a browser that hangs cannot be cancelled, only left behind: the browser is killed.
- A browser that is killed leaves folders in the place for such, and that place is its own.
- A PDF is a printed page: without a rule of ours it has white margins, and the picture is cut by as much.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Coroutine, MutableMapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import kaleido
from choreographer.browsers import Chromium
from choreographer.channels import Pipe
from kaleido.errors import JavascriptError, KaleidoError

_log = logging.getLogger(__name__)
logging.getLogger("choreographer").setLevel(logging.CRITICAL)  # what goes wrong is said by whoever asked

T = TypeVar("T")
Figure = dict[str, Any]

START_S, DRAW_S, CLOSE_S = 60.0, 60.0, 4.0
"""So long at most something takes before it counts as failed."""

IDLE_S = 120.0
"""So long a browser is kept that draws nothing, and up to twice as long."""

FLAGS = ("--disable-background-networking", "--disable-extensions", "--host-resolver-rules=MAP * ~NOTFOUND")

PAGE = """<!DOCTYPE html>
<html>
  <head>
    <meta charset="utf-8">
    <meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src file:; style-src 'unsafe-inline';
      img-src data: blob:; font-src data:">
    <title>Driftscope</title>
    <style>body {{ margin: 0 }} svg {{ display: block }}</style>
    <style id="paper"></style>
    <style id="face">{face}</style>
    <script src="{plotly}" charset="utf-8"></script>
  </head>
  <body><script src="{script}"></script></body>
</html>
"""
"""The page in which figures are drawn; its title is that of a PDF."""

SCRIPT = Path(__file__).resolve().parents[2] / "assets" / "images.js"
PLOTLY = Path(str(files("plotly"))) / "package_data" / "plotly.min.js"
TYPE = Path(str(files("streamlit"))) / "static" / "static" / "media"
"""Where the type of the pages is."""


OF_THE_FIGURE = (JavascriptError, KaleidoError)
"""What Chromium says when there is something wrong with a figure, and nothing with Chromium."""


class ImageError(RuntimeError):
    """No image was made; the message is one sentence without its full stop, `key` names its words in another language.

    `values`: what the sentence is about.
    """

    def __init__(self, message: str, key: str, **values: object) -> None:
        super().__init__(message)
        self.key, self.values = f"image.{key}", values


def found() -> str:
    """Return the path of a Chromium, that of BROWSER_PATH or an installed one; empty where there is none."""
    path = Path(Chromium.find_browser(skip_local=True) or "")
    return str(path) if path.is_file() and os.access(path, os.X_OK) else ""


class _Browser(Chromium):
    """A Chromium that keeps to itself. All its files are in one folder, which goes when it has ended."""

    def get_cli(self) -> Sequence[str]:
        return [*super().get_cli(), *FLAGS]

    def get_env(self) -> MutableMapping[str, str]:
        return {**super().get_env(), "TMPDIR": str(self.tmp_dir.path)}


class Studio:
    """Draws figures, one after another; threads may share it."""

    def __init__(self, idle_s: float = IDLE_S) -> None:
        self._idle_s = idle_s
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._kaleido: Any = None
        self._process: subprocess.Popen[bytes] | None = None  # of a browser that has started
        self._used = 0.0

    def draw(self, figures: Sequence[Figure], **options: object) -> bytes:
        """Return the image of a figure, or the PNGs of several one after another.

        `figures`: with the title and the source that an image says; `options`: kaleido's format, width, height (CSS
        pixels) and scale. Errors: ImageError.
        """
        return self._asked(self._draw({"data": list(figures)}, options))

    def open(self) -> None:
        """Start the browser, if there is none: later ones need not wait for it. Errors: ImageError.

        Where one runs, nobody waits, whatever it is drawing.
        """
        process = self._process
        if process is not None and process.poll() is None:
            self._used = time.monotonic()
            return
        self._asked(self._draw(None, {}))

    def stop(self) -> None:
        """End the browser and all that waits for it; whatever is asked for meanwhile or later starts another."""
        with self._lock:
            loop, self._loop = self._loop, None
            if loop is not None:
                loop.call_soon_threadsafe(self._over.set)
                self._thread.join()

    def _asked(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what `work` comes to in the thread of the browser."""
        with self._lock:
            self._loop = self._loop or self._started()
            answer, over = asyncio.run_coroutine_threadsafe(work, self._loop), self._over
        try:
            return answer.result()
        except (Exception, asyncio.CancelledError) as error:
            raise _why(error, over.is_set()) from error

    def _started(self) -> asyncio.AbstractEventLoop:
        """Start the thread of the browser, and one that ends it when the main thread has ended."""
        begun: Future[asyncio.AbstractEventLoop] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._live(begun)), name="images", daemon=True)
        self._thread.start()
        threading.Thread(target=_when_over, args=(self.stop,), name="images at the end").start()
        return begun.result()

    async def _live(self, begun: Future[asyncio.AbstractEventLoop]) -> None:
        """Close the browser when it has drawn nothing for a while, and at the end."""
        self._turn, self._over = asyncio.Lock(), asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda *_: None)  # what is left behind fails when its browser is killed
        begun.set_result(loop)
        while not self._over.is_set():
            try:
                await asyncio.wait_for(self._over.wait(), self._idle_s)
            except TimeoutError:
                async with self._turn:
                    if time.monotonic() - self._used >= self._idle_s:
                        await self._close()
        await self._close()

    async def _draw(self, figure: Figure | None, options: Figure) -> bytes:
        async with self._turn:
            kept = self._kaleido is not None
            try:
                return await self._drawn(figure, options)
            except OF_THE_FIGURE:
                raise
            except Exception:
                if not kept:
                    raise
            return await self._drawn(figure, options)  # the one that was kept may have died since

    async def _drawn(self, figure: Figure | None, options: Figure) -> bytes:
        """Draw a figure, or nothing; a browser that fails is not kept. One that says what is wrong does not fail."""
        try:
            if self._over.is_set():
                raise asyncio.CancelledError
            if self._kaleido is not None and self._kaleido.subprocess.poll() is not None:
                await self._close()
            if self._kaleido is None:
                await self._open(found())
            return await _within(self._kaleido.calc_fig(figure, options), DRAW_S) if figure else b""
        except OF_THE_FIGURE:
            raise
        except BaseException:
            await self._close()
            raise
        finally:
            self._used = time.monotonic()

    async def _open(self, path: str) -> None:
        if not path:
            raise ImageError("there is no Chromium; the environment variable BROWSER_PATH may name one", "none")
        pipe = self._pipe = Pipe()
        self._kaleido = kaleido.Kaleido(path=path, browser_cls=_Browser, channel_cls=lambda: pipe, timeout=None,
                                        page_generator=_Page())
        try:
            await _within(self._kaleido.open(), START_S)
        except Exception as error:
            _log.warning("%s does not start: %r", path, error)
            raise ImageError(f"{path} does not start as a browser", "no_start", path=path) from error
        self._process = self._kaleido.subprocess

    async def _close(self) -> None:
        old, self._kaleido, self._process = self._kaleido, None, None
        process = getattr(old, "subprocess", None)
        if process is not None and process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)  # it began a group of its own, and there is nothing to keep
            process.wait()
        if old is not None:
            self._pipe.close()  # what waits for an answer need not wait longer
            with suppress(Exception):
                await _within(old.close(), CLOSE_S)


def _when_over(act: Any) -> None:
    threading.main_thread().join()
    act()


class _Page:
    """The page in which figures are drawn, as kaleido asks for it."""

    def generate_index(self) -> str:
        return PAGE.format(face=_face(), plotly=PLOTLY.as_uri(), script=SCRIPT.as_uri())


def _face() -> str:
    """Return the rule that brings the type of the pages; an empty one where Streamlit keeps it elsewhere."""
    found = next(TYPE.glob("SourceSansVF-Upright*.woff2"), None)
    if found is None:
        return ""
    content = base64.b64encode(found.read_bytes()).decode()
    return ("@font-face { font-family: 'Source Sans'; font-weight: 100 900; "
            f"src: url(data:font/woff2;base64,{content}) format('woff2') }}")


def _why(error: BaseException, stopped: bool) -> ImageError:
    """Return what is said of a failure; what only a developer understands is for the log."""
    if stopped:
        return ImageError("Chromium is being stopped", "stopped")
    if isinstance(error, ImageError):
        return error
    _log.warning("Chromium did not draw: %r", error)
    if isinstance(error, TimeoutError):
        return ImageError(f"Chromium takes longer than {DRAW_S:.0f} s", "slow", seconds=f"{DRAW_S:.0f}")
    if isinstance(error, OF_THE_FIGURE):
        return ImageError("Chromium cannot draw this figure", "undrawn")
    return ImageError("Chromium ended before it was done", "lost")


async def _within(work: Coroutine[Any, Any, T], seconds: float) -> T:
    """Return what `work` comes to. Errors: TimeoutError; ConnectionError where the browser ended meanwhile."""
    task = asyncio.ensure_future(work)
    await asyncio.wait({task}, timeout=seconds)
    if not task.done():
        raise TimeoutError(f"it takes longer than {seconds:.0f} s")
    if task.cancelled():
        raise ConnectionError("it has ended")
    return task.result()


STUDIO = Studio()
"""The one of this process."""
