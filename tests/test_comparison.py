"""Comparisons: the variants of a base, and how runs are paired."""

import pytest

from core.comparison import differing_fields, pairing, variants
from core.experiment import Experiment, parse
from core.fields import ExperimentError


def print_of(data="d", **tensors):
    return {"data": data, "tensors": tensors}


TWO = [parse({}), parse({"model": {"norm": "none"}})]
INITS = [parse({}), parse({"model": {"init": "kaiming"}})]


def test_equal_shared_tensors_are_the_same_weights():
    found = pairing(TWO, [print_of(a=["x", "1"], norm=["n", "1"]), print_of(a=["x", "1"])])
    assert (found.code, found.fields) == ("same_weights", ())


def test_equal_draws_with_other_scale_name_the_fields():
    found = pairing(INITS, [print_of(a=["x", "1"]), print_of(a=["x", "2"])])
    assert (found.code, found.fields) == ("same_draws", ("model.init",))


@pytest.mark.parametrize("other", [print_of(a=["y", "1"]), print_of("e", a=["x", "1"])])
def test_other_draws_or_other_data_are_unpaired(other):
    assert pairing(INITS, [print_of(a=["x", "1"]), other]).code == "unpaired"


def test_variants_are_the_product_in_the_order_given():
    found = variants(Experiment(), {"model.norm": ["none", "rmsnorm"], "model.n_layers": [2, 3]})
    assert list(found) == ["model.norm=none, model.n_layers=2", "model.norm=none, model.n_layers=3",
                           "model.norm=rmsnorm, model.n_layers=2", "model.norm=rmsnorm, model.n_layers=3"]
    assert found["model.norm=none, model.n_layers=3"].model.n_layers == 3


def test_a_refused_variant_refuses_the_comparison():
    with pytest.raises(ExperimentError, match=r"model\.norm is"):
        variants(Experiment(), {"model.norm": ["none", "foo"]})
    with pytest.raises(ExperimentError, match="no values"):
        variants(Experiment(), {"model.norm": []})


def test_differing_fields_are_canonical():
    assert differing_fields([parse({}), parse({"model": {"d_ff": 512, "norm": "rmsnorm"}})]) == ["model.norm"]
