"""The lessons: a list of them, and one to read."""

from __future__ import annotations

import streamlit as st

from pages.ui import explain, lesson_link, lesson_page, lessons, query
from pages.ui.language import words

t = words()
visit, notices = lesson_link.read(query.read(lesson_link.PARAMETERS), t.lang)
for notice in notices:
    st.warning(explain.notice(notice, t), icon=":material/link_off:")
if visit.lesson:
    lesson_page.draw(lessons.lesson(visit.lesson, t.lang), visit, t)
else:
    st.title(t("lessons.title"))
    lesson_page.listing(t)
