"""The web server's own routes, beside Streamlit's: plotly.js, the module that charts share, live figures, metrics.

The browser keeps a script for a year: what it holds is part of its address. Nothing here knows a page or a run.
"""

from __future__ import annotations

import gzip
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from urllib.parse import urlencode

import streamlit as st
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from core import service
from pages.ui import metrics
from pages.ui.events import Live, Source

PREFIX = "driftscope"
"""All our routes live under it."""

_FEED = Path(__file__).resolve().parents[2] / "assets" / "feed.js"

PLOTLY = f"{PREFIX}/plotly-{version('plotly')}.js"
"""Address of plotly.js, relative to the application's root."""

FEED = f"{PREFIX}/feed-{sha256(_FEED.read_bytes()).hexdigest()[:16]}.js"
"""Address of the module through which the charts of a page share one event stream."""

LIVE = f"{PREFIX}/live"
"""Address of the event streams."""

METRICS = f"{PREFIX}/metrics"
"""Address of what Prometheus reads."""

YEAR_S = 365 * 24 * 3600

Endpoint = Callable[[Request], Awaitable[Response]]


def routes(source: Source | None = None, names: Collection[str] = ()) -> list[Route]:
    """Return the routes for ``st.App``; they follow ``server.baseUrlPath``, which Streamlit does not do for us.

    `source`: makes the live figures of a query; without it there are neither them nor metrics. `names`: the parameters
    that it knows.
    """
    base = str(st.get_option("server.baseUrlPath") or "").strip("/")
    root = f"/{base}/" if base else "/"
    scripts = [Route(root + path, _script(path)) for path in _SCRIPTS]
    if source is None:
        return scripts
    streams = Live(source, names)
    return [*scripts, Route(root + METRICS, _metrics(streams)), Route(root + LIVE, streams, methods=["GET"])]


def live(query: Mapping[str, object]) -> str:
    """Return the address of the event stream of a query, the same for the same query."""
    return f"{LIVE}?{urlencode(sorted((name, str(value)) for name, value in query.items()))}"


def _script(path: str) -> Endpoint:
    """Return what serves a script, compressed for a browser that accepts it."""

    async def serve(request: Request) -> Response:
        packed = "gzip" in request.headers.get("accept-encoding", "")
        headers = {
            "Cache-Control": f"public, max-age={YEAR_S}, immutable",
            "ETag": f'"{path.rpartition("-")[2]}{"-gzip" if packed else ""}"',
            "Vary": "Accept-Encoding",
        }
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        if packed:
            headers["Content-Encoding"] = "gzip"
        body = await run_in_threadpool(_body, path, packed)
        return Response(body, media_type="text/javascript", headers=headers)

    return serve


def _metrics(streams: Live) -> Endpoint:
    """Return what serves the metrics; a store that cannot be read makes it fail, in one sentence."""

    async def serve(_request: Request) -> Response:
        try:
            health = await run_in_threadpool(service.health)
        except service.StoreError as error:
            return PlainTextResponse(str(error), 503)
        return Response(metrics.exposition(health, streams.viewers), media_type=metrics.CONTENT_TYPE,
                        headers={"Cache-Control": "no-store"})

    return serve


@cache
def _body(path: str, packed: bool) -> bytes:
    """Read a script, once; compressing plotly.js takes a fraction of a second."""
    raw = _SCRIPTS[path]()
    return gzip.compress(raw, compresslevel=6, mtime=0) if packed else raw


_SCRIPTS: dict[str, Callable[[], bytes]] = {
    PLOTLY: (files("plotly") / "package_data" / "plotly.min.js").read_bytes,
    FEED: _FEED.read_bytes,
}
"""Address of a script → what reads it."""
