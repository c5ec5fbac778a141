"""The web server's own routes, beside Streamlit's: plotly.js out of the installed plotly package.

The browser keeps it for a year: the version is part of the address. Nothing here knows a page or a run.
"""

from __future__ import annotations

import gzip
from functools import cache
from importlib.metadata import version
from importlib.resources import files

import streamlit as st
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

PREFIX = "driftscope"
"""All our routes live under it."""

PLOTLY = f"{PREFIX}/plotly-{version('plotly')}.js"
"""Address of plotly.js, relative to the application's root."""

YEAR_S = 365 * 24 * 3600


def routes() -> list[Route]:
    """Return the routes for ``st.App``; they follow ``server.baseUrlPath``, which Streamlit does not do for us."""
    base = str(st.get_option("server.baseUrlPath") or "").strip("/")
    return [Route(f"/{base}/{PLOTLY}" if base else f"/{PLOTLY}", _plotly)]


async def _plotly(request: Request) -> Response:
    """Serve plotly.js, compressed for a browser that accepts it."""
    packed = "gzip" in request.headers.get("accept-encoding", "")
    headers = {
        "Cache-Control": f"public, max-age={YEAR_S}, immutable",
        "ETag": f'"{version("plotly")}{"-gzip" if packed else ""}"',
        "Vary": "Accept-Encoding",
    }
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    if packed:
        headers["Content-Encoding"] = "gzip"
    body = await run_in_threadpool(_library, packed)
    return Response(body, media_type="text/javascript", headers=headers)


@cache
def _library(packed: bool) -> bytes:
    """Read plotly.js, once; compressing takes a fraction of a second."""
    raw = (files("plotly") / "package_data" / "plotly.min.js").read_bytes()
    return gzip.compress(raw, compresslevel=6, mtime=0) if packed else raw
