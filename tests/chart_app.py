"""A small web application for the chart tests: one page, one chart, three controls, the real component and routes."""

import streamlit as st

from pages.ui import stream

app = st.App("chart_page.py", routes=stream.routes())
