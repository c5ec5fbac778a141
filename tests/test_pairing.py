"""Pairing: what leaves a tensor's draws and weights alone, what rescales them, what unpairs."""

import json

import pytest
import torch

from core.comparison import pairing
from core.corpus import batch
from core.experiment import parse
from core.model import build
from core.pairing import fingerprint
from core.tables import INITS, NORMS

SMALL = {"n_layers": 2, "d_model": 16, "n_heads": 2}


def prints(source=None, seed=0, **model):
    described = parse({"model": {**SMALL, **model}, "input": {"seq_len": 8, "batch": 2, **(source or {})},
                       "protocol": {"seed": seed}})
    return described, fingerprint(build(described), batch(described, 0))


def paired(one, other):
    return pairing([one[0], other[0]], [one[1], other[1]])


UNSHIFTING = [
    *({"norm": name} for name in NORMS), {"placement": "post"}, {"placement": "sandwich"}, {"qk_norm": "rmsnorm"},
    {"branch_scale": "layerscale"}, {"branch_scale": "rezero"}, {"n_layers": 5}, {"bias": False}, {"causal": False},
    {"residual": False}, {"activation": "swiglu"}, {"dropout": 0.1}, {"tie_embeddings": True}, {"positions": "rotary"},
    {"final_norm": False},
]


@pytest.mark.parametrize("change", UNSHIFTING, ids=str)
def test_another_norm_module_or_depth_never_shifts_another_tensor(change):
    assert paired(prints(), prints(**change)).code == "same_weights"


@pytest.mark.parametrize("change", [{"norm": "none"}, {"norm": "rmsnorm"}, {"n_layers": 5}, {"bias": False},
                                    {"layer_norms": {"1": "none"}}, {"final_norm": True}, {"dropout": 0.1}], ids=str)
@pytest.mark.parametrize("family", ["lstm", "gru"])
def test_no_norm_nor_a_bigger_depth_shifts_a_tensor_of_a_recurrent_stack(family, change):
    assert paired(prints(family=family), prints(family=family, **change)).code == "same_weights"


def test_every_matrix_of_every_gate_is_drawn_by_its_own_name():
    tensors = prints(family="gru")[1]["tensors"]
    gates = ("gate_r", "gate_z", "gate_n")
    assert set(tensors) == {"embed.token.weight", "head.weight", *(
        f"layers.{layer}.{gate}.{letter}.weight" for layer in (0, 1) for gate in gates for letter in "xh")}
    assert len({draws for draws, _ in tensors.values()}) == len(tensors)


@pytest.mark.parametrize("init", [name for name in INITS if name != "xavier"])
def test_another_init_rescales_the_same_draws(init):
    found = paired(prints(), prints(init=init))
    assert (found.code, found.fields) == ("same_draws", ("model.init",))


def test_a_gain_rescales_its_matrices_and_leaves_the_rest_equal():
    plain, gained = prints()[1]["tensors"], prints(qk_gain=2.0)[1]["tensors"]
    changed = {name for name in plain if plain[name] != gained[name]}
    assert changed == {f"layers.{layer}.attn.{part}.weight" for layer in (0, 1) for part in "qk"}
    assert all(plain[name][0] == gained[name][0] for name in plain)


@pytest.mark.parametrize("change", [{"seed": 1}, {"source": {"source": "tokens"}}, {"source": {"lengths": [8, 4]}},
                                    {"d_model": 32}], ids=str)
def test_another_seed_other_data_or_another_width_unpairs(change):
    assert paired(prints(), prints(**change)).code == "unpaired"


def test_only_drawn_parameters_are_paired():
    tensors = prints()[1]["tensors"]
    block = ("attn.q", "attn.k", "attn.v", "attn.o", "mlp.in", "mlp.out")
    assert set(tensors) == {"embed.token.weight", "embed.position.weight", "head.weight",
                            *(f"layers.{layer}.{part}.weight" for layer in (0, 1) for part in block)}


def test_a_weight_that_was_changed_shows():
    described = parse({"model": SMALL})
    stack = build(described)
    before = fingerprint(stack)
    with torch.no_grad():
        stack.layers[0].mlp.out.weight[0, 0] += 1
    after = fingerprint(stack)
    changed = [name for name in before["tensors"] if before["tensors"][name] != after["tensors"][name]]
    assert changed == ["layers.0.mlp.out.weight"]
    assert before["tensors"][changed[0]][0] == after["tensors"][changed[0]][0]


def test_a_fingerprint_survives_json_and_is_the_same_again():
    first = prints()[1]
    assert json.loads(json.dumps(first)) == first == prints()[1]


def test_data_of_several_batches_is_one_hash():
    described = parse({"model": SMALL})
    stack = build(described)
    data = [batch(described, step) for step in range(2)]
    assert fingerprint(stack, *data)["data"] != fingerprint(stack, data[0])["data"]
