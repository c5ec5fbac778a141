"""Laws of gradients in float64: those of the norms, and those recorded on the real stack, against differences."""

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from stacks import experiment
from torch import Tensor

from core.corpus import batch
from core.model import build
from core.norms import normalize
from core.passes import step
from core.recorder import Recorder
from core.sites import sites_of
from core.tables import NORMS, PLACEMENTS

DOUBLE = {"dtype": "float64", "attention": "explicit"}
RAGGED = {"source": "tokens", "seq_len": 6, "batch": 3, "lengths": [6, 4, 1]}


def played(described):
    """The stack, its batch, the snapshot of one step, and the gradient at each site that has one."""
    stack, data, gradients = build(described), batch(described, 0), {}

    def listen(place: tuple[int, str], x: Tensor) -> None:
        x.register_hook(lambda gradient: gradients.update({place: gradient}))

    handles = [site.register_forward_hook(lambda _m, _a, x, place=place: listen(place, x))
               for place, site in sites_of(stack, len(stack.layers)).items()]
    with Recorder(stack, gradients=True) as recorder:
        recorder.begin(data.mask)
        snapshot = recorder.snapshot(0, float(step(stack, data, 0)))
    for handle in handles:
        handle.remove()
    return stack, data, snapshot, gradients


def difference(stack, data, site, direction):
    """The central difference of the loss when what passes `site` is moved along `direction`."""
    losses, size = [], 1e-5
    for moved in (size * direction, -size * direction):
        handle = site.register_forward_hook(lambda _m, _a, x, moved=moved: x + moved)
        losses.append(float(step(stack, data, 0)))
        handle.remove()
    return (losses[0] - losses[1]) / (2 * size)


@pytest.mark.parametrize("protocol", ["explicit", "fused"])
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_the_gradient_at_every_site_is_the_difference_of_the_loss_when_what_passes_it_is_moved(placement, protocol):
    described = experiment(protocol={**DOUBLE, "attention": protocol}, placement=placement, n_layers=3)
    stack, data, snapshot, gradients = played(described)
    hidden = {"attn_scores", "attn_pattern"} if protocol == "fused" else set()
    assert gradients.keys() == {place for place in snapshot.layout.sites if place[1] not in hidden}
    for row, place in enumerate(snapshot.layout.sites):
        if place[1] not in hidden:
            pairs = place[1] in ("attn_scores", "attn_pattern")  # of which those are recorded that a query may see
            recorded = gradients[place].tril() if pairs else gradients[place]
            moved = partial(difference, stack, data, sites_of(stack, 3)[place])
            check_differences(moved, gradients[place], recorded, snapshot.gradients["norm"][row])


def check_differences(moved, gradient, recorded, norm):
    """Along any direction the loss climbs at ⟨gradient, direction⟩, and straight up what is recorded at its norm.

    A loss is rounded at 1e-16, a difference over steps of 1e-5 therefore at 1e-11, and off by their square besides.
    """
    random = draws(*gradient.shape, seed=1)
    assert moved(random) == pytest.approx(float((gradient * random).sum()), rel=1e-6, abs=1e-9)
    assert moved(recorded / recorded.norm()) == pytest.approx(norm, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("source", [RAGGED, {**RAGGED, "lengths": None}])
@pytest.mark.parametrize("norm", NORMS)
def test_the_gradients_of_a_querys_scores_sum_to_zero_over_the_keys(norm, source, causal):
    _, _, snapshot, gradients = played(experiment(source, DOUBLE, norm=norm, causal=causal, qk_gain=2.0))
    for layer in range(2):
        gradient = gradients[layer, "attn_scores"]  # (B, H, T, T)
        size = gradient.abs().sum(-1)
        assert size.max() > 1e-4
        assert gradient.sum(-1).abs().max() <= 1e-14 * size.max()
        row = snapshot.layout.sites.index((layer, "attn_scores"))
        mean, rms = (snapshot.gradients[name][row] for name in ("mean", "rms"))
        assert rms > 0 and abs(mean) < 1e-12 * rms


# The norms

WITH_SCALE = ("dyt", "none")
SCALE_FREE = [name for name in NORMS if name not in WITH_SCALE]
TOGETHER = {"groupnorm": lambda x: x.unflatten(-1, (4, -1)), "batchnorm": lambda x: x.flatten(0, 1).T}
"""What a norm divides by one number, along the last axis, where that is not a token."""


def draws(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def gradient_at(name, x):
    """The gradient of a weighted sum of the norm of `x`, without ε."""
    x = x.detach().requires_grad_()
    (normalize(name, x, eps=0) * draws(*x.shape, seed=1)).sum().backward()
    return x.grad


@pytest.mark.parametrize("name", SCALE_FREE)
@given(scale=st.floats(-20, 20).map(np.exp2))
@settings(max_examples=20)
def test_the_gradient_shrinks_as_the_input_grows(name, scale):
    x = draws(2, 6, 16)
    torch.testing.assert_close(scale * gradient_at(name, scale * x), gradient_at(name, x), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", SCALE_FREE)
def test_the_gradient_is_orthogonal_to_what_is_normalized_together_and_sums_to_zero_where_that_is_centred(name):
    x, together = draws(2, 6, 16), TOGETHER.get(name, lambda given: given)
    gradient, x = together(gradient_at(name, x)), together(x)
    assert gradient.abs().sum(-1).min() > 0.1
    assert (x * gradient).sum(-1).abs().max() < 1e-12
    assert (gradient.sum(-1).abs().max() < 1e-12) == (name not in ("rmsnorm", "scalenorm"))


@pytest.mark.parametrize("name", WITH_SCALE)
def test_no_other_norm_takes_the_scale_away(name):
    x = draws(2, 6, 16)
    found, gradient = normalize(name, x, eps=0), gradient_at(name, x)
    assert ((normalize(name, 2 * x, eps=0) - found).abs() > 0.1 * found.abs()).float().mean() > 0.5
    assert (x * gradient).sum(-1).abs().min() > 1e-3
    assert not torch.allclose(2 * gradient_at(name, 2 * x), gradient)
