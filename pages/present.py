"""The presenter: one slide of a lesson, over the whole window."""

from __future__ import annotations

from pages.ui import lesson_page, lessons, presenter
from pages.ui.language import words

t = words()
visit = lesson_page.arrive(t)
if visit.lesson:
    presenter.present(lessons.lesson(visit.lesson, t.lang), visit, t)
