"""The first value that is not finite is named: where, in which direction, of which kind."""

import math

import numpy as np
import pytest
import torch
from tiny import MASK, TOKENS, L, Tiny, one_step, record, row_of

from core.recorder import Recorder
from core.trace import NonFinite


def at(model, layer, site, value, padding=False):
    """Put a value into what passes a site."""
    def inject(_module, arguments):
        x = arguments[0].clone()
        x[-1, -1 if padding else 0, 0] = value
        return (x,)

    sites = model.sites if layer in (-1, L) else model.layers[layer].sites
    sites[site].register_forward_pre_hook(inject)
    return model


@pytest.mark.parametrize(("value", "kind"), [(math.nan, "nan"), (math.inf, "inf"), (-math.inf, "inf")])
@pytest.mark.parametrize(("layer", "site"), [(-1, "embed"), (0, "mlp_out"), (1, "norm1"), (L, "logits")])
def test_the_first_non_finite_value_is_named_where_the_forward_pass_meets_it(layer, site, value, kind):
    assert record(at(Tiny(), layer, site, value)).non_finite == NonFinite(0, layer, site, "forward", kind)


def test_a_value_at_padding_is_nobodys_fault():
    model = at(Tiny(), L - 1, "mlp_out", math.nan, padding=True)
    with Recorder(model) as recorder, torch.no_grad():
        recorder.begin(MASK)
        model(TOKENS, MASK)
        snapshot = recorder.snapshot(0, 0.0)
    assert snapshot.non_finite is None
    assert np.nansum(snapshot.activations["n_nan"]) == 0


def test_counts_of_non_finite_values_are_those_that_were_there():
    model = Tiny()

    def inject(_module, arguments):
        x = arguments[0].clone()
        x.view(-1)[:9] = torch.tensor([math.nan] * 4 + [math.inf] * 3 + [-math.inf] * 2)
        return (x,)

    model.sites["logits"].register_forward_pre_hook(inject)
    snapshot = record(model)
    row = row_of(snapshot, L, "logits")
    assert [snapshot.activations[name][row] for name in ("n_nan", "n_posinf", "n_neginf")] == [4, 3, 2]
    assert np.isfinite(snapshot.activations["rms"][row])


def test_a_gradient_that_is_not_finite_is_named_in_backward_order():
    model = Tiny()

    def spoil(_module, _arguments, x):
        x.register_hook(lambda g: g * math.inf)

    model.layers[0].sites["mlp_act"].register_forward_hook(spoil)
    found = record(model).non_finite
    assert (found.layer, found.direction) == (0, "gradient") and found.site in ("mlp_act", "mlp_pre")


def test_a_loss_and_a_parameter_gradient_that_are_not_finite_are_named_when_no_site_is():
    model = Tiny()
    with Recorder(model) as recorder:
        recorder.begin()
        one_step(model)
        assert recorder.snapshot(4, math.inf).non_finite == NonFinite(4, L, "loss", "forward", "inf")
    model.zero_grad()
    with Recorder(model) as recorder:
        recorder.begin()
        one_step(model)
        model.head.bias.grad[0] = math.nan
        snapshot = recorder.snapshot(4, 0.0)
    assert snapshot.non_finite == NonFinite(4, L, "head.bias", "gradient", "nan")
    assert math.isnan(snapshot.totals["grad_total_norm"])
