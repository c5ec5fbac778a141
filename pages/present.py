"""The presenter: one slide of a lesson, over the whole window."""

from __future__ import annotations

from pages.ui import document, lesson_page, lessons, presenter
from pages.ui.language import words

t = words()
visit = lesson_page.arrive(t)
if visit.lesson:
    lesson = lessons.lesson(visit.lesson, t.lang)
    document.entitle(lesson.title)
    presenter.present(lesson, visit, t)
