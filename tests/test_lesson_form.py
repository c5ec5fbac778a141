"""The lessons: every one is of its form, both languages say the same, and every state is one that its page takes."""

import re
from collections import Counter

import pytest

from pages.ui import lesson_link, lessons, link, softmax_link, tensor_link
from pages.ui.lesson_link import UNGUESSED, Visit
from pages.ui.lessons import Figure, LessonError, Way, read
from pages.ui.places import PLACES
from pages.ui.scenes import SCENES
from pages.ui.slides import slides
from pages.ui.text import LANGUAGES

LESSONS = lessons.names()
SLIDE = {"en": (re.compile(r"[^\W_]+(?:['’−-][^\W_]+)*"), 45), "zh": (re.compile(r"[一-鿿]|[A-Za-z0-9]+"), 80)}
"""What is counted on a slide, words or signs, and how many of them a room reads at once."""

FORMULA = re.compile(r"\$\$?[^$]+\$\$?|`[^`]+`")


def both(name):
    return [lessons.lesson(name, lang) for lang in LANGUAGES]


def paragraphs(one):
    return [text for section in one.sections
            for text in (section.slide, *(block for block in section.blocks if isinstance(block, str)))]


def test_there_are_fifteen_lessons_in_their_order():
    assert [lessons.lesson(name, "en").number for name in LESSONS] == list(range(1, 16))


@pytest.mark.parametrize("name", LESSONS)
def test_both_languages_have_the_same_sections_figures_ways_and_answer(name):
    first, *others = ([(section.name, len(section.options), bool(section.notes),
                        [(block.state, getattr(block, "picture", "")) for block in section.blocks
                         if isinstance(block, Figure | Way)]) for section in one.sections] for one in both(name))
    assert all(other == first for other in others)
    assert len({one.answer for one in both(name)}) == 1


@pytest.mark.parametrize("name", LESSONS)
def test_both_languages_say_the_same_numbers_and_set_the_same_formulas_apart(name):
    folder = next(path for path in lessons.FOLDER.iterdir() if path.name.endswith(f"_{name}"))
    raw = [(folder / f"{lang}.md").read_text("utf-8") for lang in LANGUAGES]
    first, second = ({*re.findall(r"\{([a-z]\w*)\}", FORMULA.sub("", text))} for text in raw)
    assert first == second
    apart = [Counter(re.sub(r"\\text\{[^}]*\}|\s", "", one) for one in re.findall(r"\$\$(.+?)\$\$", text, re.DOTALL))
             for text in raw]
    assert apart[0] == apart[1]


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("name", LESSONS)
def test_a_slide_is_short_and_every_section_has_notes_for_the_speaker(name, lang):
    counted, most = SLIDE[lang]
    for section in lessons.lesson(name, lang).sections:
        said = FORMULA.sub("x", section.slide)
        assert len(counted.findall(said)) <= most, section.slide
        assert section.notes or section.kind in ("predict", "try", "takeaway"), section.name


@pytest.mark.parametrize("name", LESSONS)
def test_every_state_of_a_lesson_is_taken_by_its_page_without_a_notice(name):
    one = lessons.lesson(name, "en")
    for state in (*one.states.values(), *(state for dial in one.dials for state in dial.states)):
        assert state.page in SCENES
        if place := PLACES.get(state.page):
            _, notices = link.read(state.query, place)
            known = {"preset", "x", *link.DIALS, *place.shown}
        else:
            page = {"softmax": softmax_link, "tensor": tensor_link}[state.page]
            _, notices = page.read(state.query)
            known = set(page.PARAMETERS)
        assert set(state.query) <= known
        assert notices == [], state


@pytest.mark.parametrize("name", LESSONS)
def test_every_state_is_used(name):
    one = lessons.lesson(name, "en")
    marked = {block.state for section in one.sections for block in section.blocks if isinstance(block, Figure | Way)}
    linked = {state for text in paragraphs(one) for state in re.findall(r"\]\((\w+)\)", text)}
    assert set(one.states) == marked | linked
    assert {dial.state for dial in one.dials} <= marked


@pytest.mark.parametrize("name", LESSONS)
def test_the_slides_say_all_sections_with_one_figure_at_a_time_and_the_answer_once(name):
    one = lessons.lesson(name, "en")
    made = slides(one)
    assert [slide.kind for slide in made].count("answer") == 1
    assert sum(slide.figure is not None for slide in made) == sum(len(section.figures) for section in one.sections)
    shown = [slide.revealed for slide in made]
    assert shown.index(True) > next(place for place, slide in enumerate(made) if slide.kind == "measure")


GOOD = """# Title

Lead.

## A {#question}

Slide.

## B {#predict}

Which?

- [ ] one
- [x] two

## C {#measure}

Slide.

![Caption](row#sweep)

## D {#reason}

Slide {half}.

## E {#try}

Slide.

- [There](row): why.

## F {#takeaway}

Slide.
"""
FACTS = 'minutes = 1\n[states.row]\npage = "softmax"\nquery = {}\n[numbers]\nhalf = "0.5"\n'


def written(tmp_path, text, facts=FACTS):
    folder = tmp_path / "01_one"
    folder.mkdir()
    (folder / "en.md").write_text(text, "utf-8")
    (folder / "lesson.toml").write_text(facts, "utf-8")
    return folder


def test_a_lesson_is_read_with_its_numbers_filled_in(tmp_path):
    one = read(written(tmp_path, GOOD), "en")
    assert (one.title, one.lead, one.answer) == ("Title", "Lead.", 1)
    assert [section.kind for section in one.sections] == list(lessons.KINDS)
    assert one.sections[3].slide == "Slide 0.5."
    assert one.sections[2].figures == [Figure("Caption", "row", "sweep")]
    assert one.sections[4].blocks == (Way("There", "row", "why."),)


@pytest.mark.parametrize(("old", "new", "said"), [
    ("{#measure}", "{#measured}", "the sections are question, predict, measured, .* allowed: question, pre"),
    ("- [ ] one", "- [x] one", "2 of 2 options are right; allowed: 1"),
    ("row#sweep", "line#sweep", "a mark names the state 'line'; allowed: row"),
    ("[There](row)", "[There](line)", "a mark names the state 'line'; allowed: row"),
    ("why.", "why, [see](line).", "a mark names the state 'line'; allowed: row"),
    ("Lead.", "Lead [there](row).", r"a link in lead, option or notes: '\[there\]\(row\)'; allowed: in slides"),
    ("- [ ] one", "- [ ] one [there](row)", "a link in lead, option or notes"),
    ("Slide {half}.", "Slide.\n\n???\n[There](row)", "a link in lead, option or notes"),
    ("![Caption]", "![Caption [there](row)]", "a figure within a paragraph, or with a link in its caption"),
    ("# Title", "Title", "begins with 'Title'; allowed: # Title"),
    ("![Caption]", "See ![Caption]", "a figure within a paragraph"),
])
def test_a_lesson_that_is_not_of_the_form_is_refused_with_what_is_allowed(tmp_path, old, new, said):
    with pytest.raises(LessonError, match=f"01_one, en: .*{said}"):
        read(written(tmp_path, GOOD.replace(old, new, 1)), "en")


def test_braces_of_a_formula_are_left_as_they_are():
    assert lessons.filled(r"$\frac{a}{b}$ is {half}", {"half": "0.5"}) == r"$\frac{a}{b}$ is 0.5"


@pytest.mark.parametrize("name", LESSONS[:3])
def test_a_visit_to_a_lesson_is_written_and_read(name):
    one = lessons.lesson(name, "en")
    talk = tuple(dict.fromkeys([LESSONS[-1], name, LESSONS[0]]))
    visit = Visit(name, "2", {dial.state: len(dial.values) - 1 for dial in one.dials}, 3, talk)
    assert lesson_link.read(visit.write(), "en") == (visit, [])
    for dial in one.dials:
        assert visit.state(one, dial.state) == dial.states[-1]


@pytest.mark.parametrize("talk", [None, (), (LESSONS[2],)])
def test_a_talk_without_a_lesson_is_not_one_that_nobody_has_chosen(talk):
    assert lesson_link.read(Visit(talk=talk).write(), "en") == (Visit(talk=talk), [])
    assert Visit(LESSONS[0], talk=talk).order == LESSONS


@pytest.mark.parametrize(("query", "refused"), [
    ({"lesson": "hello"}, "lesson"), ({"lesson": LESSONS[0], "guess": "99"}, "guess"),
    ({"lesson": LESSONS[0], "guess": "<b>"}, "guess"), ({"lesson": LESSONS[0], "slide": "-1"}, "slide"),
    ({"lesson": LESSONS[0], "dials": "nothing.1"}, "dials"), ({"lesson": LESSONS[0], "talk": "x.<b>"}, "talk")])
def test_what_is_no_visit_is_replaced_with_a_notice(query, refused):
    visit, notices = lesson_link.read(query, "en")
    assert [notice.values["name"] for notice in notices] == [refused]
    assert visit in (Visit(), Visit(LESSONS[0]))


def test_beside_a_lesson_are_its_neighbours_in_the_talk_or_among_all():
    talk = (LESSONS[2], LESSONS[0], LESSONS[5])
    assert [Visit(LESSONS[0], talk=talk).beside(step) for step in (-1, 1)] == [LESSONS[2], LESSONS[5]]
    assert [Visit(LESSONS[1], talk=talk).beside(step) for step in (-1, 1)] == [LESSONS[0], LESSONS[2]]
    assert Visit(LESSONS[2], talk=talk).beside(-1) == Visit(LESSONS[-1]).beside(1) == ""


def test_a_visit_without_a_guess_is_not_one_who_wants_none():
    assert lesson_link.read({"lesson": LESSONS[0], "guess": UNGUESSED}, "en")[0].guess == UNGUESSED
    assert lesson_link.read({"lesson": LESSONS[0]}, "en")[0].guess == ""
