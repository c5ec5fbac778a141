"""The entry: the web application with its own routes. Start it with ``streamlit run app.py``.

It knows where the pages and the engine's door are, not what they do.
"""

import gc
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import streamlit as st

from core import logs, service
from pages.ui import chromium, feed, stream

try:
    service.check()
    logs.begin()
except (service.SettingError, service.StoreError) as error:
    sys.exit(f"Driftscope cannot start: {error}")  # here, since a server that has begun to start shows a traceback


@asynccontextmanager
async def lifespan(_app: st.App) -> AsyncIterator[None]:
    """Start the engine in the background, so that the first paint does not wait for it, and stop all at the end."""
    service.start()
    gc.collect()
    gc.freeze()  # imported modules are never garbage: later collections skip them
    try:
        yield
    finally:
        chromium.STUDIO.stop()
        service.stop()


app = st.App("pages/ui/shell.py", routes=stream.routes(feed.look, feed.PARAMETERS), lifespan=lifespan)
