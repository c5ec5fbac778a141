"""Golden traces: a few whole profiles, kept in golden.json, so that a change of numbers is seen as a diff.

The input is drawn: the text that comes with Python is another in another version. Tolerance 1e-4 relative: another
machine's float32 rounding passes, another formula does not. To renew them after a change that is meant:
python tests/test_golden.py
"""

import json
import sys
from pathlib import Path

import pytest

FILE = Path(__file__).with_name("golden.json")
SMALL = {"model.n_layers": 4, "model.d_model": 32, "input.batch": 2, "input.seq_len": 16, "input.source": "tokens"}
CASES = {
    "pre": {}, "post": {"model.placement": "post"}, "sandwich": {"model.placement": "sandwich"},
    "branch": {"model.placement": "branch"}, "none": {"model.norm": "none"}, "rmsnorm": {"model.norm": "rmsnorm"},
    "rotary": {"model.positions": "rotary", "model.activation": "swiglu", "model.n_kv_heads": 2},
}


def profile(changes):
    from core.experiment import parse
    from core.train import train

    snapshot = next(train(parse({}).with_values({**SMALL, **changes})))
    rows = [row for row, (_, site) in enumerate(snapshot.layout.sites) if site == "resid_post"]
    return {"loss": snapshot.loss, "rms": snapshot.activations["rms"][rows].tolist(),
            "grad_rms": snapshot.gradients["rms"][rows].tolist(),
            "entropy": snapshot.heads["entropy"].mean(1).tolist()}


@pytest.mark.parametrize("name", CASES)
def test_the_profile_is_the_one_that_was_kept(name):
    kept = json.loads(FILE.read_text())[name]
    found = profile(CASES[name])
    assert found.keys() == kept.keys()
    for measure, values in kept.items():
        assert found[measure] == pytest.approx(values, rel=1e-4), measure


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    FILE.write_text(json.dumps({name: profile(changes) for name, changes in CASES.items()}, indent=1) + "\n")
