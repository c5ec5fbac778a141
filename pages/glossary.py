"""The glossary: what every site, statistic and measure is, and its formula."""

from __future__ import annotations

import streamlit as st

from pages.ui import glossary, query
from pages.ui.glossary import MOST_LETTERS, SECTIONS
from pages.ui.language import words
from pages.ui.text import escaped

t = words()
linked = query.read(("term",)).get("term", "")[:MOST_LETTERS]
if query.is_another({"term": linked} if linked else {}, st.session_state.get("glossary.query")):
    st.session_state["glossary.term"] = linked

st.title(t("glossary.title"))
asked = st.text_input(t("glossary.search"), key="glossary.term", max_chars=MOST_LETTERS).strip()
st.session_state["glossary.query"] = {"term": asked} if asked else {}
query.write(st.session_state["glossary.query"], ("term",))

known = glossary.terms(t)
exact = [term for term in known if term.code == asked]
found = exact or [term for term in known if term.has(asked)]
st.caption(t("glossary.count", count=len(found), total=len(known)))
if not found:
    st.info(t("glossary.none", asked=escaped(asked)), icon=":material/search_off:")
for kind in SECTIONS:
    chosen = [term for term in found if term.kind == kind]
    if chosen:
        st.header(t(f"glossary.{kind}"))
        if kind == "site":
            st.caption(t("glossary.axes"))
    for column, mine in zip(st.columns(2), (chosen[::2], chosen[1::2]), strict=True):
        for term in mine:
            with column.container(border=True):
                st.markdown(f"**{term.name}** (`{term.code}`)  \n{term.said}")
                if term.formula:
                    st.code(term.formula, language=None, wrap_lines=True)
