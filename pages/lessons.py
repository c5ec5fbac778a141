"""The lessons: a list of them, and one to read."""

from __future__ import annotations

from pages.ui import document, lesson_page, lessons
from pages.ui.language import words

t = words()
visit = lesson_page.arrive(t)
if visit.lesson:
    lesson = lessons.lesson(visit.lesson, t.lang)
    document.entitle(lesson.title)
    lesson_page.draw(lesson, visit, t)
