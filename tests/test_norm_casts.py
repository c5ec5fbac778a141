"""The two orders of cast and γ: beside the engine's own norm, and the same bit for bit where γ is 1."""

import numpy as np
import pytest
import torch

from core.formats import FORMATS, rounded
from core.norm_casts import casts
from core.norms import NormSettings, RMSNorm

TORCH = {"float16": torch.float16, "bfloat16": torch.bfloat16}


def by_engine(name, n, spread, draw, cast_first):
    random = np.random.default_rng(draw)
    x = torch.from_numpy(rounded(random.standard_normal(n), name)).to(TORCH[name])
    norm = RMSNorm(n, NormSettings(cast_first=cast_first))
    with torch.no_grad():
        norm.weight.copy_(torch.from_numpy(1 + spread * random.standard_normal(n)))
    return norm(x.reshape(1, 1, n)).detach().double().numpy().ravel()


@pytest.mark.parametrize("name", TORCH)
@pytest.mark.parametrize("spread", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("draw", range(3))
def test_both_orders_are_those_of_the_engine_s_norm(name, spread, draw):
    found = casts(name, 256, spread, draw)
    for output, cast_first in ((found.after, False), (found.before, True)):
        engine = by_engine(name, 256, spread, draw, cast_first)
        assert (output == engine).mean() > 0.99  # the mean square is summed in another order in torch
        np.testing.assert_allclose(output, engine, rtol=2 * FORMATS[name].epsilon)


@pytest.mark.parametrize("name", TORCH)
def test_with_a_gain_of_1_the_order_makes_no_difference_and_otherwise_it_does(name):
    assert not casts(name, 256, 0.0).apart.any()
    found = casts(name, 256, 0.1)
    assert found.apart.any()
    assert 1 <= np.abs(found.places).max() <= 2
    assert found.error(found.before) > found.error(found.after)
    ours = found.after + found.places * np.exp2(np.floor(np.log2(np.abs(found.after)))) * FORMATS[name].epsilon
    np.testing.assert_allclose(ours, found.before, rtol=1e-12)
