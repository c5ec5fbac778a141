"""Attention over 4096 positions: exact entropy, nothing else changed, and never a tensor of all pairs, on a real stack.

Run as a script, the file prints by how much the memory of its own process grows in each of STEPS.
"""

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.profiler import ProfilerActivity, profile

from core import attention_measures, fused
from core.corpus import batch
from core.experiment import parse
from core.model import build
from core.passes import step
from core.recorder import Recorder
from core.trace import Snapshot

T, H = 4096, 2
MIB = 2**20
MASKS = {"causal": (True, None), "free": (False, None),
         "causal, padded": (True, (3000,)), "free, padded": (False, (3000,))}
"""Causality, and the lengths of the sequences."""


def described(causal=True, lengths=None, length=T, **protocol):
    """One layer of two heads whose scores differ enough to be far from uniform and from one-hot."""
    return parse({"model": {"n_layers": 1, "d_model": 32, "n_heads": H, "d_ff": 32, "causal": causal, "qk_gain": 2.0},
                  "input": {"source": "tokens", "vocab": 64, "batch": len(lengths or (0,)), "seq_len": length,
                            "lengths": lengths}, "protocol": {"attention": "fused", **protocol}})


class Step(NamedTuple):
    """What one step left: loss, gradients by parameter; queries, keys (B, H, T, K) and mask; what was recorded."""

    loss: torch.Tensor
    gradients: dict[str, torch.Tensor]
    heads: tuple[torch.Tensor, ...]
    snapshot: Snapshot | None


def play(experiment, record=True):
    stack, data, shown = build(experiment), batch(experiment, 0), []
    stack.layers[0].heads.register_forward_pre_hook(lambda _m, given: shown.extend(given))
    with Recorder(stack, gradients=True) as recorder:
        if record:
            recorder.begin(data.mask)
        loss = step(stack, data, 0)
        snapshot = recorder.snapshot(0, float(loss)) if record else None
    gradients = {name: p.grad for name, p in stack.named_parameters() if p.grad is not None}
    return Step(loss, gradients, tuple(shown), snapshot)


@pytest.fixture(scope="module", params=MASKS)
def case(request):
    """A step without the recorder, the same with it, and the largest memory that one operation of this one took."""
    experiment = described(*MASKS[request.param])
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as watched:
        recorded = play(experiment)
    return play(experiment, record=False), recorded, max(event.self_cpu_memory_usage for event in watched.events())


def entropy(q, k, mask, causal):
    """Entropy and its share of ln n, of each head, by the formula in float64, p written out for 512 queries at once."""
    q, k = q[0].detach().double(), k[0].detach().double()
    real = torch.ones(q.shape[1], dtype=torch.bool) if mask is None else mask[0]
    total, share, places = 0, 0, torch.arange(q.shape[1])
    for queries in places[real].split(512):
        seen = (real & (places <= queries[:, None])) if causal else real.expand(len(queries), -1)
        p = (q[:, queries] @ k.mT / math.sqrt(q.shape[2])).masked_fill(~seen, -math.inf).softmax(-1)  # (H, Q, T)
        rows, n = torch.special.entr(p).sum(-1), seen.sum(-1)
        total, share = total + rows.sum(-1), share + torch.where(n > 1, rows / n.log(), 0).sum(-1)
    return total / real.sum(), share / (int(real.sum()) - causal)  # the first causal query has no choice


def test_loss_and_gradients_are_bit_identical_with_the_recorder_on_and_off(case):
    bare, recorded, _ = case
    assert torch.equal(bare.loss, recorded.loss)
    assert bare.gradients.keys() == recorded.gradients.keys() >= {f"layers.0.attn.{part}.weight" for part in "qkvo"}
    assert all(torch.equal(recorded.gradients[name], gradient) for name, gradient in bare.gradients.items())


def test_the_entropy_of_every_head_is_that_of_the_formula(case, request):
    _, recorded, _ = case
    causal, _ = MASKS[request.node.callspec.params["case"]]
    whole, share = entropy(*recorded.heads, causal)
    assert share.min() > 0.2 and share.max() < 0.9
    assert recorded.snapshot.heads["entropy"][0] == pytest.approx(whole.numpy(), rel=0, abs=1e-5)
    assert recorded.snapshot.heads["entropy_norm"][0] == pytest.approx(share.numpy(), rel=0, abs=1e-5)


def test_no_operation_of_a_recorded_step_takes_the_memory_of_all_pairs(case):
    assert 0 < case[2] < T * T  # at one byte a pair, which is what a mask of them would take


# The memory of the whole process, in which what is not torch's is seen as well

STEPS = {"bare": ({}, False), **{name: (dict(zip(("causal", "lengths"), mask, strict=True)), True)
                                 for name, mask in MASKS.items()},
         "written out": ({"attention": "explicit"}, False)}
"""What is described, and whether it is recorded."""


def grown(changes, record):
    """The MiB by which a step exceeds what was held before: the high-water mark of the process."""
    play(described(**{**changes, "length": 64, "lengths": changes.get("lengths") and (40,)}), record)  # nothing is new
    Path("/proc/self/clear_refs").write_text("5")  # the mark begins anew
    before = status("VmRSS")
    play(described(**changes), record)
    return (status("VmHWM") - before) / 1024


def status(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return float(next(line for line in lines if line.startswith(field)).split()[1])


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="Linux tells a process its high-water mark")
def test_a_recorded_step_needs_less_memory_than_the_scores_of_one_head():
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "OMP_NUM_THREADS": "1",
                   "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1"}  # what is freed is given back
    done = subprocess.run([sys.executable, "-W", "error", __file__], capture_output=True, text=True, check=True,
                          env=environment)
    mib = json.loads(done.stdout)
    scores = 4 * T * T / MIB
    assert mib["written out"] > 2 * H * scores  # scores and pattern: what is there is seen
    assert max(mib[name] for name in MASKS) < scores
    assert max(mib[name] for name in MASKS) < mib["bare"] + scores / 4


# Where pieces begin and end


@settings(max_examples=30)
@given(length=st.integers(2, 24), sequences=st.lists(st.integers(1, 24), min_size=1, max_size=3), causal=st.booleans(),
       padded=st.booleans(), at_once=st.integers(1, 1500))
def test_the_bounds_of_pieces_do_not_matter(length, sequences, causal, padded, at_once):
    lengths = tuple(min(one, length) for one in sequences) if padded else None
    described_so = described(causal, lengths, length, dtype="float64")
    whole = play(described_so)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fused, "PIECE", at_once)
        patch.setattr(attention_measures, "PIECE", at_once)
        split = play(described_so)
    written_out = play(described(causal, lengths, length, dtype="float64", attention="explicit"))
    for other in (split, written_out):
        torch.testing.assert_close(other.loss, whole.loss, rtol=1e-12, atol=0)
        torch.testing.assert_close(other.gradients, whole.gradients, rtol=1e-9, atol=1e-12)
        for name, values in whole.snapshot.heads.items():
            assert other.snapshot.heads[name] == pytest.approx(values, rel=1e-9, abs=1e-12, nan_ok=True), name


if __name__ == "__main__":
    print(json.dumps({name: grown(*given) for name, given in STEPS.items()}))
