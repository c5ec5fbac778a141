"""How large the numbers inside an operation can become: the bounds hold wherever everything is finite."""

import math
from functools import cache

import pytest
from stacks import TOKENS, VECTORS, experiment, shrunk
from test_lineage import VARIED

from core.evidence import Evidence
from core.experiment import parse
from core.lineage import LOSS, lineage
from core.presets import PRESETS
from core.reach import reach, reach_back
from core.rules import is_recurrent
from core.shapes import LARGEST, dtype_of, shape_of
from core.train import train

DTYPES = ("float32", "float16")
EXPERIMENTS = [
    *(pytest.param(experiment(source, {"dtype": dtype}, **model), id=f"{name}, {source['source']}, {dtype}")
      for name, model in VARIED.items() for source, dtype in zip((TOKENS, VECTORS), DTYPES, strict=True)),
    *(pytest.param(experiment(TOKENS, {"dtype": dtype, "attention": "explicit"}, norm=norm, init_gain=gain),
                   id=f"{norm}, gain {gain}, {dtype}")
      for norm in ("none", "layernorm", "batchnorm", "groupnorm") for gain in (0.1, 4.0) for dtype in DTYPES),
    *(pytest.param(shrunk(name), id=name) for name in PRESETS if not is_recurrent(shrunk(name))),
]


def evidence(described):
    return _evidence(described.canonical_json())


@cache
def _evidence(described):
    """One pass for all the laws."""
    found = parse(described)
    (snapshot,) = train(found)
    return Evidence(snapshot, found.resolved(), lineage(found))


@pytest.mark.parametrize("described", EXPERIMENTS)
def test_no_finite_activation_passes_the_bound_of_its_operation(described):
    seen = evidence(described)
    for place in seen.places:
        made, dtype = seen.measured(place), dtype_of(place[1], seen.experiment)
        if made.observed and made.finite and seen.forward(place).inputs_finite:
            assert made.absmax <= reach(seen.forward(place), dtype, seen.experiment) * LARGEST[dtype], place


@pytest.mark.parametrize("described", EXPERIMENTS)
def test_no_finite_gradient_passes_the_bound_of_its_operations(described):
    seen = evidence(described)
    limit = LARGEST[seen.experiment.protocol.dtype]
    for place in seen.places:
        made = seen.measured(place, gradient=True)
        if place[1] != LOSS and made.observed and made.finite:
            making = seen.backward(place)
            assert making.kinds != ("update",)
            if making.inputs_finite:
                assert made.absmax <= reach_back(making, seen.experiment, _incoming(making)) * limit, place


@pytest.mark.parametrize("described", EXPERIMENTS)
def test_no_finite_gradient_of_a_parameter_passes_the_bound_of_the_operations_that_read_it(described):
    seen = evidence(described)
    limit, observed = LARGEST[seen.experiment.protocol.dtype], seen.snapshot.observed_parameters("param_grad_norm")
    for place, came in zip(seen.snapshot.layout.parameters, observed, strict=True):
        making = seen.of_parameter(place)
        if came and making.output.finite and making.inputs_finite:
            entries = math.prod(size for _, size in shape_of(place[1], seen.experiment))
            bound = reach_back(making, seen.experiment, _incoming(making)) * limit
            assert making.output.rms <= math.sqrt(entries) * bound, place


def _incoming(making):
    return max(one.absmax for one in making.inputs if one.gradient)


@pytest.mark.parametrize("described", [pytest.param(experiment(source), id=source["source"])
                                       for source in (TOKENS, VECTORS)])
def test_the_bounds_of_a_small_stack_rule_an_overflow_of_float32_out(described):
    seen = evidence(described)
    shares = [reach(seen.forward(place), "float32", seen.experiment) for place in seen.places
              if seen.measured(place).observed and place[1] != "embed"]
    assert shares and max(shares) < 1e-20
