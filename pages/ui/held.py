"""What the widgets of a page hold beside what was accepted: whether one was moved, and filling those that are empty.

It knows the session; it knows neither widgets nor what their values mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st


def moved(held: Mapping[str, Any]) -> bool:
    """Return whether a widget has another value than `held` (key → value) says: a visitor moved it."""
    return any(st.session_state[key] != value for key, value in held.items() if key in st.session_state)


def fill(held: Mapping[str, Any], force: bool) -> None:
    """Give every widget its value; without `force` only those that have none."""
    for key, value in held.items():
        if force or key not in st.session_state:
            st.session_state[key] = value
