"""Trainings of recurrent stacks: they learn, stop and go on bit for bit, and run from the command line."""

import json

import numpy as np
import pytest

from core.__main__ import main
from core.experiment import parse
from core.trace import Trace
from core.train import train

BASE = {"model.n_layers": 1, "model.d_model": 32, "input.batch": 4, "input.seq_len": 24, "protocol.lr": 0.01}


def described(**changes):
    return parse({}).with_values(BASE | changes)


@pytest.mark.parametrize("norm", ["none", "layernorm"])
@pytest.mark.parametrize("family", ["lstm", "gru"])
def test_the_loss_falls_on_text(family, norm):
    trace = Trace(tuple(train(described(**{"model.family": family, "model.norm": norm, "protocol.steps": 40,
                                           "protocol.record_every": 5}))))
    losses = [snapshot.loss for snapshot in trace.snapshots]
    assert max(losses[-3:]) < losses[0] - 1.5


@pytest.mark.parametrize("family", ["lstm", "gru"])
def test_a_training_goes_on_from_a_checkpoint_bit_for_bit(family):
    experiment = described(**{"model.family": family, "model.dropout": 0.1, "model.n_layers": 2, "protocol.steps": 6})
    whole = list(train(experiment))
    first = train(experiment)
    for _ in range(3):
        first.play()
    checkpoint = first.checkpoint()
    first.close()
    rest = list(train(experiment, checkpoint=checkpoint))
    assert [one.step for one in rest] == [3, 4, 5, 6]
    for ours, theirs in zip(rest, whole[3:], strict=True):
        assert ours.loss == theirs.loss
        assert np.array_equal(ours.gradients["rms"], theirs.gradients["rms"], equal_nan=True)
        assert np.array_equal(ours.over_time, theirs.over_time)


def test_the_first_and_the_last_step_of_a_training_are_taken_over_time():
    snapshots = list(train(described(**{"model.family": "gru", "protocol.steps": 3})))
    assert [one.over_time.size > 0 for one in snapshots] == [True, False, False, True]


def test_a_state_that_is_not_finite_stops_a_training_and_says_where():
    training = train(described(**{"model.family": "lstm", "protocol.steps": 20, "protocol.lr": 1000.0,
                                  "protocol.optimizer": "sgd", "protocol.dtype": "float16"}))
    assert list(training) and training.stopped is not None


@pytest.mark.parametrize("evaluation", ["train", "eval"])
def test_the_command_line_compares_families(tmp_path, evaluation):
    target = tmp_path / "table.json"
    document = tmp_path / "experiment.json"
    document.write_text(json.dumps({"model": {"n_layers": 2, "d_model": 16, "n_heads": 2},
                                    "input": {"batch": 2, "seq_len": 8}, "protocol": {"mode": evaluation}}))
    assert main(["compare", str(document), "--vary", "model.family=transformer,lstm,gru", "--out", str(target),
                 "--no-store"]) == 0
    rows = json.loads(target.read_text())
    sites = {variant: {row["site"] for row in rows if row["variant"] == variant} for variant in
             {row["variant"] for row in rows}}
    assert len(sites) == 3
    assert sum("resid_post" in one for one in sites.values()) == 1
    assert sum("hidden" in one for one in sites.values()) == 2 and sum("cell" in one for one in sites.values()) == 1


def test_the_command_line_refuses_what_makes_no_sense_in_one_line(capsys):
    assert main(["run", "--preset", "lstm_layernorm", "--set", "model.norm=batchnorm", "--no-store"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "on each token alone" in said
