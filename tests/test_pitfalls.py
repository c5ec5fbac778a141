"""Wrong LayerNorms: the code that is shown is the code that was run, and each is wrong where it is said to be."""

import numpy as np
import pytest
import torch

from core.pitfalls import PITFALLS, RIGHT, outcome, preface, right
from core.worked import Dials, worked

CUBE = np.array([[[2, 4, 6, 8], [1, 3, 5, 7], [0, 2, 4, 6]], [[-1, 0, 1, 2], [3, 3, 3, 3], [-2, -1, 0, 1]]], float)
TENSORS = {"cube": CUBE, "square": CUBE[:1, :, :3], "tiny": np.array([[[1e-4, 2e-4, 3e-4, 4e-4]]]),
           "broken": np.where(CUBE == 8, np.nan, np.where(CUBE == -2, -np.inf, CUBE))}


@pytest.mark.parametrize("scale", [1.0, 1e-4])
@pytest.mark.parametrize("name", TENSORS)
@pytest.mark.parametrize("pitfall", [*PITFALLS, "right"])
def test_the_code_that_is_shown_runs_by_itself_and_gives_what_is_shown(pitfall, name, scale):
    x = TENSORS[name] * scale
    code = f"{preface(TENSORS[name], 1e-5, scale)}\n\n{PITFALLS.get(pitfall, RIGHT)}"
    scope: dict[str, object] = {}
    shown = outcome(pitfall, x, 1e-5) if pitfall in PITFALLS else None
    with np.errstate(all="ignore"):
        if shown is not None and shown.error:
            with pytest.raises(ValueError) as raised:
                exec(code, scope)
            assert str(raised.value).strip() == shown.error
            return
        exec(code, scope)
    np.testing.assert_array_equal(scope["x"], x)
    np.testing.assert_array_equal(scope["y"], right(x, 1e-5) if shown is None else shown.y)


def test_the_right_one_is_the_norm():
    for x in TENSORS.values():
        np.testing.assert_allclose(right(x, 1e-5), worked("layernorm", x).values("output"), rtol=1e-12, atol=1e-12)


def test_without_eps_a_constant_token_is_lost_and_nothing_else_moves():
    found = outcome("no_eps", CUBE, 1e-5)
    assert found.lost == 4 and np.isnan(found.y[1, 1]).all()
    assert found.difference < 1e-5 and found.worst == (1, 1)


@pytest.mark.parametrize(("pitfall", "axis"), [("axis_0", 0), ("axis_1", 1)])
def test_another_axis_is_another_norm_without_an_error(pitfall, axis):
    found = outcome(pitfall, CUBE, 0.0)
    mean, std = CUBE.mean(axis, keepdims=True), CUBE.std(axis, keepdims=True)
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(found.y, (CUBE - mean) / std)
    assert not found.error and found.difference > 0.5
    if axis == 0:
        np.testing.assert_allclose(found.y, worked("batchnorm", CUBE, Dials(eps=0, alone=True)).values("output"))


def test_no_keepdims_is_refused_by_numpy_where_the_shapes_do_not_fit():
    found = outcome("no_keepdims", CUBE, 1e-5)
    assert found.y is None
    assert found.error == "operands could not be broadcast together with shapes (2,3,4) (2,3)"


def test_no_keepdims_is_silently_wrong_where_the_shapes_happen_to_fit():
    x = TENSORS["square"]
    found = outcome("no_keepdims", x, 1e-5)
    assert not found.error and found.y.shape == x.shape and found.difference > 0.5
    single = outcome("no_keepdims", CUBE[:, :1], 1e-5)  # one token a sample: another shape comes out
    assert single.y.shape == (2, 2, 4) and np.isnan(single.difference)
    mean = x.mean(-1)  # of token d, taken off feature d of every token
    np.testing.assert_allclose(found.y, (x - mean[:, None, :]) / np.sqrt(x.var(-1)[:, None, :] + 1e-5))


@pytest.mark.parametrize(("scale", "ratio"), [(1.0, 1.0), (1e-4, 25.98)])
def test_std_plus_eps_agrees_at_scale_one_and_differs_26_fold_at_a_ten_thousandth(scale, ratio):
    x = np.array([[[1.0, 2, 3, 4]]]) * scale
    found = outcome("std_eps", x, 1e-5)
    assert found.y[0, 0, 3] / right(x, 1e-5)[0, 0, 3] == pytest.approx(ratio, abs=0.01)
    assert found.ratio == pytest.approx(ratio, abs=0.01)
    np.testing.assert_allclose(found.y, worked("layernorm_std_eps", x).values("output"))


def test_the_unbiased_variance_is_torchs_default_and_gives_one_and_a_half():
    x = np.array([[[1.0, 0, 0, 0]]])
    found = outcome("unbiased", x, 1e-5)
    assert (right(x, 1e-5)[0, 0, 0], found.y[0, 0, 0]) == pytest.approx((1.732, 1.5), abs=5e-4)
    assert found.difference == pytest.approx(0.232, abs=5e-4)
    y = torch.from_numpy(x)
    np.testing.assert_allclose(found.y, (y - y.mean(-1, keepdim=True)) / (y.var(-1, keepdim=True) + 1e-5).sqrt())


def test_what_is_lost_in_the_right_one_too_is_not_held_against_a_pitfall():
    found = outcome("unbiased", TENSORS["broken"], 1e-5)
    off = np.abs(found.y - right(TENSORS["broken"], 1e-5))
    assert found.difference == off[found.worst].max() == np.nanmax(off)
    assert found.lost == 0 and np.isfinite(found.difference)
