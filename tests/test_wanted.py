"""Which runs nobody waits for any more."""

from pages.ui import wanted


def test_what_a_visit_leaves_is_left_only_when_nobody_else_wants_it():
    assert wanted.moves_to("a", "", ["1", "2"]) == set()
    assert wanted.moves_to("b", "", ["2", "3"]) == set()
    assert wanted.moves_to("a", "", ["4"]) == {"1"}
    assert wanted.moves_to("b", "", ["4"]) == {"2", "3"}
    assert wanted.leaves("a") == set() and wanted.leaves("b") == {"4"}


def test_a_visit_wants_different_runs_at_different_places_of_a_page_until_it_leaves():
    assert wanted.moves_to("c", "above", ["1"]) == set()
    assert wanted.moves_to("c", "below", ["1", "2"]) == set()
    assert wanted.moves_to("c", "below", ["3"]) == {"2"}
    assert wanted.leaves("c") == {"1", "3"}
    assert wanted.leaves("c") == set()


def test_what_old_visits_wanted_is_forgotten(monkeypatch):
    monkeypatch.setattr(wanted, "PLACES_KEPT", 2)
    for visit in ("x", "y", "z"):
        wanted.moves_to(visit, "", ["7"])
    assert len(wanted._WANTED) == 2
