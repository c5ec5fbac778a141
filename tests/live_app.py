"""A small web application for the tests of live charts: one page, made-up numbers, the real components and routes."""

import live_numbers
import streamlit as st
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from pages.ui import stream


async def steer(request: Request) -> JSONResponse:
    """Set how far the training is, and the like; say what it is now."""
    live_numbers.now.update({name: int(value) for name, value in request.query_params.items()})
    return JSONResponse(live_numbers.now)


app = st.App("live_page.py", routes=[*stream.routes(live_numbers.look), Route("/steer", steer)])
