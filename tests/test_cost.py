"""The cost estimate: parameters exactly as the stack has them, and an order of magnitude for the rest."""

import json
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.cost import check_limits, cost, parameters
from core.experiment import Experiment, parse
from core.fields import ExperimentError
from core.model import build
from core.presets import PRESETS, preset
from core.tables import ACTIVATIONS, FAMILIES, NORMS, PLACEMENTS, POSITIONS, QK_NORMS, SOURCES
from core.train import train

SMALL = {"model.d_model": 16, "model.n_heads": 4, "model.n_layers": 2, "input.batch": 2, "input.seq_len": 8}
SOURCE = st.sampled_from([name for name in SOURCES if name != "scaled"])
OPTIONS = st.fixed_dictionaries({
    "model.norm": st.sampled_from(list(NORMS)), "model.placement": st.sampled_from(list(PLACEMENTS)),
    "model.activation": st.sampled_from(list(ACTIVATIONS)), "model.positions": st.sampled_from(list(POSITIONS)),
    "model.qk_norm": st.sampled_from(list(QK_NORMS)), "model.qk_norm_scope": st.sampled_from(["head", "full"]),
    "input.source": SOURCE,
    "model.sublayers": st.sampled_from(["both", "attention", "mlp"]), "model.bias": st.booleans(),
    "model.norm_affine": st.booleans(), "model.tie_embeddings": st.booleans(), "model.embed_norm": st.booleans(),
    "model.branch_scale": st.sampled_from([1.0, "rezero", "layerscale"]),
    "model.n_kv_heads": st.sampled_from([None, 2]), "model.head_dim": st.sampled_from([None, 6]),
    "model.d_ff": st.sampled_from([None, 24]),
    "model.layer_norms": st.sampled_from([{}, {"0": "none"}, {"1": "dyt"}])})


@given(OPTIONS)
@settings(max_examples=150, deadline=None)
def test_the_number_of_parameters_is_exact(options):
    canonical = Experiment().with_values({**SMALL, **options}).resolved()
    assert parameters(canonical) == sum(tensor.numel() for tensor in build(canonical).parameters())


RECURRENT = st.fixed_dictionaries({
    "model.family": st.sampled_from([name for name, family in FAMILIES.items() if family.recurrent]),
    "model.norm": st.sampled_from([name for name, norm in NORMS.items() if not norm.over_tokens]),
    "input.source": SOURCE,
    **{f"model.{name}": st.booleans()
       for name in ("bias", "norm_affine", "tie_embeddings", "embed_norm", "final_norm")},
    "model.layer_norms": st.sampled_from([{}, {"0": "none"}, {"1": "dyt"}])})


@given(RECURRENT)
@settings(max_examples=60, deadline=None)
def test_the_number_of_parameters_of_a_recurrent_stack_is_exact(options):
    canonical = Experiment().with_values({**SMALL, **options}).resolved()
    assert parameters(canonical) == sum(tensor.numel() for tensor in build(canonical).parameters())


@pytest.mark.parametrize("family", ["lstm", "gru"])
def test_operations_of_a_recurrent_stack_are_those_of_its_matrices(family):
    described = Experiment().with_values({"model.family": family, "input.source": "gaussian"})
    gates = len(FAMILIES[family].gates)
    assert cost(described).flops == 3 * 2 * 8 * 64 * 12 * gates * 2 * 128**2


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_fits_a_small_server(name):
    check_limits([preset(name)], {"peak_bytes": 2**30, "flops": 1e12, "parameters": 1e8})


def test_what_is_over_a_limit_is_refused_with_both_numbers():
    with pytest.raises(ExperimentError, match=r"would need 2,453,248 parameters; allowed: up to 1,000 parameters"):
        check_limits([Experiment()], {"parameters": 1000})


def test_operations_and_bytes_add_up_over_variants_and_memory_does_not():
    one = cost(Experiment())
    check_limits([Experiment()] * 3, {"peak_bytes": one.peak_bytes, "flops": 3 * one.flops})
    with pytest.raises(ExperimentError, match="GFLOP"):
        check_limits([Experiment()] * 3, {"flops": 2 * one.flops})


@pytest.mark.parametrize("family", FAMILIES)
def test_stored_bytes_are_estimated_on_the_high_side_but_not_absurdly(family):
    described = Experiment().with_values({"model.family": family})
    (snapshot,) = list(train(described))
    assert len(snapshot.to_bytes()) < cost(described).stored_bytes < 40 * len(snapshot.to_bytes())


@pytest.mark.parametrize("family", FAMILIES)
def test_peak_memory_is_estimated_within_a_factor_of_three(family):
    document = {"model": {"family": family, "n_layers": 12, "d_model": 256}, "input": {"seq_len": 256}}
    code = ("import json, re, sys, torch; from pathlib import Path; from core.experiment import parse; "
            "from core.train import train; torch.set_num_threads(1); "
            "peak = lambda: int(re.search(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[1]) * 1024; "
            "list(train(parse('{}'))); before = peak(); list(train(parse(json.loads(sys.argv[1])))); "
            "print(peak() - before)")
    command = [sys.executable, "-c", code, json.dumps(document)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    measured, estimated = int(done.stdout), cost(parse(document)).peak_bytes
    assert measured / 3 < estimated < measured * 3
