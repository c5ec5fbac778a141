"""Marks and z-scores: what normalizing keeps, what it removes, and what becomes of marks that are all equal."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.exams import Exam, better

MARKS = st.lists(st.integers(0, 1000), min_size=1, max_size=12).map(lambda marks: tuple(map(float, marks)))


@given(MARKS)
def test_z_scores_keep_the_order_of_the_marks_and_nothing_else_of_them(marks):
    z = Exam(marks, 100.0).z
    np.testing.assert_array_equal(np.sign(np.subtract.outer(z, z)), np.sign(np.subtract.outer(marks, marks)))
    assert z.mean() == pytest.approx(0, abs=1e-12)
    assert z.std() == pytest.approx(float(len(set(marks)) > 1), abs=1e-9)


@given(MARKS, st.integers(-500, 500), st.sampled_from((0.25, 0.5, 3.0, 40.0)), st.integers(1, 999))
def test_another_unit_another_zero_and_other_full_marks_change_no_z_score(marks, shift, factor, full):
    moved = tuple(factor * mark + shift for mark in marks)
    np.testing.assert_allclose(Exam(moved, float(full)).z, Exam(marks, 100.0).z, rtol=0, atol=1e-8)


@given(MARKS)
def test_mean_and_spread_are_numpy_s_and_the_spread_is_the_biased_one(marks):
    one = Exam(marks, 50.0)
    assert (one.mean, one.std) == (pytest.approx(np.mean(marks), abs=1e-9), pytest.approx(np.std(marks), abs=1e-9))
    assert one.alike == (np.ptp(marks) == 0)
    np.testing.assert_array_equal(one.shares, np.array(marks) / 50)


@pytest.mark.parametrize("marks", [(0.1,) * 3, (7.0,), (0.0, 0.0), (999999.999,) * 12])
def test_marks_that_are_all_equal_stand_at_exactly_0(marks):
    assert Exam(marks, 1.0).z.tolist() == [0.0] * len(marks)


def test_120_of_150_and_80_of_100_are_the_same_share_and_not_the_same_standing():
    exams = {"a": Exam((61, 120, 75, 98), 150), "b": Exam((40, 80, 55, 62), 100)}
    assert [one.shares[1] for one in exams.values()] == [0.8, 0.8]
    assert [one.z[1] for one in exams.values()] == pytest.approx([1.40138, 1.44331], abs=1e-5)
    assert [better(exams, who) for who in range(4)] == ["a", "b", "b", "a"]
    assert better({"a": exams["a"], "b": Exam((62, 121, 76, 99), 9)}, 1) == ""


@pytest.mark.parametrize(("marks", "full"), [((), 100.0), ((1.0,), 0.0), ((1.0,), -5.0), ((1.0,), float("nan"))])
def test_an_exam_without_marks_or_full_marks_is_refused(marks, full):
    said = f"there are {len(marks)} marks and full marks are {full:g}; allowed: one mark or more, full marks above 0"
    with pytest.raises(ValueError, match=re.escape(said)):
        Exam(marks, full)
