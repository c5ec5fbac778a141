"""Ways from page to page: each opens the same base, with what it promises."""

from types import SimpleNamespace

import pytest

from core.presets import preset
from pages.ui import link
from pages.ui.places import DRIFT, LIVE
from pages.ui.views import onward


@pytest.mark.parametrize("name", ["pre_layernorm", "no_norm", "deep_post", "gpt2", "llama", "vit"])
def test_the_switches_are_three_variants_of_the_same_stack(name):
    base = SimpleNamespace(experiment=preset(name))
    view, notices = link.read(onward.switches([base], name), DRIFT)
    assert notices == []
    assert view.base == preset(name)
    variants, refused = link.compared(view)
    assert refused == []
    assert [one.changes for one in variants] == [{}, *onward.SWITCHES]


def test_without_a_residual_already_its_switch_is_said_to_change_nothing():
    base = SimpleNamespace(experiment=preset("vanishing"))
    view, _ = link.read(onward.switches([base], "vanishing"), DRIFT)
    variants, refused = link.compared(view)
    assert [notice.key for notice in refused] == ["link.duplicate"]
    assert len(variants) == 3


def test_the_way_to_a_training_opens_the_same_heads():
    base = preset("no_norm")
    measured = [SimpleNamespace(experiment=one) for one in (base, base.with_values({"model.norm": "rmsnorm"}))]
    view, notices = link.read(onward.training(measured, "no_norm", view="entropy", measure="score_std"), LIVE)
    assert notices == []
    assert (view.shown["view"], view.shown["measure"]) == ("entropy", "score_std")
    assert view.base == LIVE.origin("no_norm")
    assert [one.experiment.model.norm for one in link.compared(view)[0]] == ["none", "rmsnorm"]
