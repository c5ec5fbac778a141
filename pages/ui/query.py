"""The part of the address that belongs to a page: its own parameters, beside those of others such as the language.

It knows Streamlit's query; it does not know what a parameter means.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import streamlit as st


def read(names: Collection[str]) -> dict[str, str]:
    """Return the parameters of these names that the address has."""
    return {name: value for name, value in st.query_params.items() if name in names}


def write(query: Mapping[str, str], names: Collection[str]) -> None:
    """Put `query` into the address in place of the parameters of these names; nothing where it says so already."""
    whole = {name: value for name, value in st.query_params.items() if name not in names} | dict(query)
    if whole != st.query_params.to_dict():
        st.query_params.from_dict(whole)  # at once: each change is an entry in the browser's history
