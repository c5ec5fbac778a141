"""The part of the address that belongs to a page: its own parameters, beside those of others such as the language.

It knows Streamlit's query; it does not know what a parameter means.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import streamlit as st

from pages.ui import language


def read(names: Collection[str]) -> dict[str, str]:
    """Return the parameters of these names that the address has."""
    return {name: value for name, value in st.query_params.items() if name in names}


def is_another(query: Mapping[str, str], known: Mapping[str, str] | None,
               touched: Callable[[], bool] = lambda: False) -> bool:
    """Return whether the page's part of the address, `query`, is a link to be taken, and not what the page wrote there.

    `known`: what it wrote or took last, None on a first visit; `touched`: whether the visitor moved a widget, so that
    the address is only late.
    """
    return known is None or (query != known and (bool(query) or language.stayed()) and not touched())


def write(query: Mapping[str, str], names: Collection[str]) -> None:
    """Put `query` into the address in place of the parameters of these names; nothing where it says so already."""
    whole = {name: value for name, value in st.query_params.items() if name not in names} | dict(query)
    if whole != st.query_params.to_dict():
        st.query_params.from_dict(whole)  # at once: each change is an entry in the browser's history
