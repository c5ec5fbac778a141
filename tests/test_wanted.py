"""Which runs nobody waits for any more."""

from pages.ui import wanted


def test_what_a_visit_leaves_is_left_only_when_nobody_else_wants_it():
    assert wanted.moves_to("a", ["1", "2"]) == set()
    assert wanted.moves_to("b", ["2", "3"]) == set()
    assert wanted.moves_to("a", ["4"]) == {"1"}
    assert wanted.moves_to("b", ["4"]) == {"2", "3"}


def test_old_visits_are_forgotten(monkeypatch):
    monkeypatch.setattr(wanted, "VISITS_KEPT", 2)
    for visit in ("x", "y", "z"):
        wanted.moves_to(visit, ["7"])
    assert len(wanted._WANTED) == 2
