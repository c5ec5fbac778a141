"""A norm of one's own, as docs/your-own-norm.md has it: one class, one entry, and then it is everywhere."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOC = (ROOT / "docs" / "your-own-norm.md").read_text("utf-8")
CLASS, ENTRY = re.findall(r"```python\n(.*?)```", DOC, re.S)

EVERYWHERE = """
import core.tables
from core.tables import Norm
core.tables.NORMS |= {ENTRY}

import dataclasses, math, numpy as np, torch
from core.bench import AXES
from core.cost import cost
from core.experiment import json_schema, parse
from core.look import MEASURED, NormCosts
from core.model import build
from core.norms import normalize
from core.train import train
from probes import probed
from pages.ui import explain, fields
from pages.ui.places import DRIFT, ENTROPY, GRADIENTS
from pages.ui.text import LANGUAGES, Words
from pages.ui.views import ENTROPY_VIEWS, GRADIENT_VIEWS, VIEWS, block

small = {"n_layers": 3, "d_model": 16, "n_heads": 2}
own = parse({"model": {**small, "norm": "l1norm"}, "input": {"batch": 2, "seq_len": 8}, "protocol": {"device": "cpu"}})
x = torch.tensor([[1.0, -2.0, 3.0, 0.0]])
assert torch.allclose(normalize("l1norm", x), x / 1.5, atol=1e-4)
assert "l1norm" in json_schema()["$defs"]["Model"]["properties"]["norm"]["enum"]
assert "l1norm" in AXES["norms"] and "l1norm" in MEASURED and "norm=l1norm" in fields.all_codes()
assert cost(own).parameters == sum(one.numel() for one in build(own).parameters())
seen = probed("own", {}, own.differences(parse({})))
layers, rms = seen.trace.profile("norm1", "rms")
assert len(layers) == 3 and np.isfinite(rms).all() and np.isfinite(seen.trace.profile("norm1", "rms", True)[1]).all()
measured = next(iter(train(parse({"model": small, "protocol": {"device": "cpu"}}), look=NormCosts()))).looks
assert (measured["seconds"][MEASURED.index("l1norm")] > 0).all()
for lang in LANGUAGES:
    t = Words(lang)
    assert "l1norm" in fields.spoken("norm=l1norm", t)
    for views, place in ((VIEWS, DRIFT), (GRADIENT_VIEWS, GRADIENTS), (ENTROPY_VIEWS, ENTROPY)):
        for view in views.values():
            view.make([seen], place.defaults, t)
            for verdict in view.judge(seen.trace, seen.experiment, place.defaults):
                assert explain.sentence(verdict, t)
broken = parse({"model": {**small, "norm": "l1norm"}, "protocol": {"dtype": "float16", "device": "cpu"}}).with_values(
    {"model.embed_scale": 1e30})
from core.autopsy import autopsy
from core.trace import Trace
case = Trace(tuple(train(broken)))
assert autopsy(case, broken) is not None
print("everywhere")
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """Run code in a process in which a module `own_norm` stands beside ours."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "own_norm.py").write_text(CLASS)
    paths = os.pathsep.join(map(str, (ROOT, folder, ROOT / "tests")))
    return lambda code: subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT, text=True,
                                       capture_output=True, env=os.environ | {"PYTHONPATH": paths})


def test_the_class_and_its_entry_are_ten_lines_of_code():
    code = [line for line in (CLASS + ENTRY).splitlines() if line.strip() and not line.strip().startswith('"""')]
    assert len(code) <= 10


def test_one_class_and_one_entry_are_a_norm_in_every_menu_run_view_and_bench(python):
    entry = "{" + ENTRY.strip().replace("core.norms:", "own_norm:") + "}"
    ended = python(EVERYWHERE.replace("{ENTRY}", entry))
    assert ended.stdout == "everywhere\n" and ended.returncode == 0, ended.stderr[-2000:]
