"""Properties over the whole space of experiments: what is accepted runs and gives a complete table, what is refused
gets one sentence, and every state of a page survives its link.

The strategies are read from the JSON Schema, so a new field is tested over all its values without a line here; only
sizes, and fields that must fit each other, are drawn by hand. The examples are the same at every run; with
``EXAMPLES=20`` in the environment there are 20 times as many, others each time.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import math
import os
import re
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core import table
from core.__main__ import REFUSED, main
from core.experiment import Experiment, json_schema, parse
from core.fields import ExperimentError
from core.model import build
from core.presets import PRESETS, preset
from core.rules import layer_norms
from core.tables import NORMS, SOURCES, VECTOR_SOURCES
from core.trace import Trace
from core.train import train
from core.vocabulary import HEAD_MEASURES, STATISTICS, TOTALS
from pages.ui import link
from pages.ui.places import BATCHNORM, DRIFT, ENTROPY, GRADIENTS, LIVE

TIMES = int(os.environ.get("EXAMPLES", "1"))


def examples(count):
    """Run a test on this many examples."""
    return settings(max_examples=count * TIMES, derandomize=TIMES == 1, deadline=None,
                    suppress_health_check=list(HealthCheck))


# ── experiments from the schema ──

SCHEMA = json_schema()
PARTS = {part: SCHEMA["$defs"][part.capitalize()]["properties"] for part in Experiment.model_fields}
FIELDS = {f"{part}.{name}": field for part, fields in PARTS.items() for name, field in fields.items()}

SMALL = {
    "model.d_ff": st.none() | st.integers(8, 16),
    "model.norm_groups": st.sampled_from([1, 2, 4]), "protocol.device": st.sampled_from(["auto", "cpu"]),
    "protocol.steps": st.just(0),
}
"""Fields that are drawn within small bounds; `sizes`, `shapes` and `sources` draw those that must fit each other."""


def value_of(field):
    """Every value that a field's JSON Schema allows."""
    if "anyOf" in field:
        return st.one_of([value_of(option) for option in field["anyOf"]])
    if "enum" in field:
        return st.sampled_from(field["enum"])
    if "prefixItems" in field:
        return st.tuples(*map(value_of, field["prefixItems"])).map(list)
    return st.just(field["const"]) if "const" in field else KINDS[field["type"]](field)


HUGE = 1e300
"""The largest number where the schema has no limit: far beyond float32, and well inside float64."""

KINDS = {
    "null": lambda _: st.none(),
    "boolean": lambda _: st.booleans(),
    "integer": lambda field: st.integers(field.get("minimum"), field.get("maximum")),
    "number": lambda field: st.floats(
        field.get("minimum", field.get("exclusiveMinimum", -HUGE)),
        field.get("maximum", field.get("exclusiveMaximum", HUGE)),
        exclude_min="exclusiveMinimum" in field, exclude_max="exclusiveMaximum" in field, allow_nan=False,
        allow_infinity=False),
    "string": lambda field: st.from_regex(field["pattern"], fullmatch=True) if "pattern" in field
    else st.text(min_size=field.get("minLength", 0), max_size=12),
    "array": lambda field: st.lists(value_of(field["items"]), max_size=3),
    "object": lambda field: st.dictionaries(st.integers(0, 3).map(str), value_of(field["additionalProperties"]),
                                            max_size=2),
}


@st.composite
def sizes(draw):
    """Width and heads that divide it, or heads of a width of their own."""
    heads = draw(st.sampled_from([1, 2, 3, 4]))
    own = draw(st.none() | st.integers(1, 8))
    width = draw(st.integers(8, 32)) if own else heads * draw(st.integers(math.ceil(8 / heads), 32 // heads))
    shared = draw(st.sampled_from([None, *(n for n in (1, 2, 3, 4) if heads % n == 0)]))
    return {"model.d_model": width, "model.n_heads": heads, "model.head_dim": own, "model.n_kv_heads": shared}


@st.composite
def shapes(draw):
    """Batch, length, and lengths that fit them."""
    batch, length = draw(st.integers(1, 3)), draw(st.integers(1, 8))
    exact = st.lists(st.integers(1, length), min_size=batch, max_size=batch)
    return {"input.batch": batch, "input.seq_len": length, "input.lengths": draw(st.none() | st.just("ragged") | exact)}


@st.composite
def sources(draw, width):
    """A source with what belongs to it alone."""
    name = draw(st.sampled_from(list(SOURCES)))
    scales = st.lists(value_of(FIELDS["input.feature_scales"]["anyOf"][0]["items"]), min_size=width, max_size=width)
    own = {"text": ("input.text", st.none() | st.text(min_size=1, max_size=12)),
           "tokens": ("input.vocab", st.none() | st.integers(2, 12)),
           "markov": ("input.vocab", st.none() | st.integers(2, 12)), "scaled": ("input.feature_scales", scales)}
    field, value = own.get(name, ("input.vocab", st.none()))
    return {"input.source": name, field: draw(value)}


TOGETHER = {"model.d_model", "model.n_heads", "model.head_dim", "model.n_kv_heads", "input.batch", "input.seq_len",
            "input.lengths", "input.source", "input.vocab", "input.feature_scales", "input.text"}
DEFAULTS = Experiment().paths()
OTHERS = {path: st.just(DEFAULTS[path]) | (SMALL[path] if path in SMALL else value_of(field))
          for path, field in FIELDS.items() if path not in TOGETHER and path != "model.n_layers"}


@st.composite
def experiments(draw):
    """A small experiment that is accepted; of fields that do not go together the later one is left as by default."""
    fitting = draw(sizes())
    fitting |= draw(shapes()) | draw(sources(fitting["model.d_model"]))
    drawn = draw(st.fixed_dictionaries(OTHERS))
    experiment = Experiment().with_values(fitting | {"model.n_layers": draw(st.integers(1, 3))})
    changes = {path: value for path, value in drawn.items() if value != DEFAULTS[path]}
    with contextlib.suppress(ExperimentError):
        return experiment.with_values(changes)
    for path, value in changes.items():
        with contextlib.suppress(ExperimentError):
            experiment = experiment.with_values({path: value})
    return experiment


# ── what an experiment must show, written down a second time ──

ATTENTION = ("q", "k", "v", "attn_scores", "attn_pattern", "attn_out", "resid_mid")
MLP = ("mlp_pre", "mlp_act", "mlp_out")
SCALING = ("loss_scale", "overflow", "overflow_steps")
BRANCHES = {"both": (1, 2), "attention": (1,), "mlp": (2,)}
OVER_TIME = {"lstm": ("gate_i", "gate_f", "gate_g", "gate_o", "cell", "hidden"),
             "gru": ("gate_r", "gate_z", "gate_n", "hidden")}
NORM_SITES = {"pre": ("norm{}",), "sandwich": ("norm{}", "norm{}_out"), "branch": ("norm{}_out",), "post": ()}


def block(model, norm):
    """The sites of one layer."""
    if model.family in OVER_TIME:
        return set(OVER_TIME[model.family])
    branches = BRANCHES[model.sublayers]
    found = {"resid_pre", "resid_post"} | {site for n in branches for site in {1: ATTENTION, 2: MLP}[n]}
    if norm != "none":
        found |= {name.format(n) for name in NORM_SITES[model.placement] for n in branches}
        if model.placement == "post" and model.residual:
            found |= {{1: "attn_sum", 2: "mlp_sum"}[n] for n in branches}
    return found


def present(canonical):
    """(layer, site) of everything that the configuration has."""
    model = canonical.model
    found = {(layer, site) for layer, norm in enumerate(layer_norms(canonical)) for site in block(model, norm)}
    after = ({"final_norm"} if model.final_norm else set()) | (
        set() if canonical.input.source in VECTOR_SOURCES else {"logits"})
    return found | {(-1, "embed")} | {(model.n_layers, site) for site in after}


def unseen(canonical, gradient):
    """The sites that are not observed."""
    hidden = {"attn_scores", "attn_pattern"} if canonical.protocol.attention == "fused" else set()
    if gradient and canonical.model.pattern != "softmax":
        hidden |= {"q", "k", "attn_scores"}
    return hidden | ({"logits"} if gradient and canonical.protocol.loss == "projection" else set())


def expected_rows(canonical):
    """(layer, site, head, statistic) of every row that has one of its own; histogram and outliers come on top."""
    model, full = canonical.model, canonical.protocol.detail == "full"
    totals = (*TOTALS, *(() if canonical.protocol.loss_scale is None else SCALING))
    rows = [(model.n_layers, "loss", None, "value")] + [(None, "all", None, name) for name in totals]
    for prefix, direction in (("", "forward"), ("grad_", "gradient")):
        seen = [row for row in present(canonical) if row[1] not in unseen(canonical, bool(prefix))]
        rows += [(*row, None, prefix + name) for name, entry in STATISTICS.items() for row in seen
                 if getattr(entry, direction) and (full or entry.detail == "standard")
                 and (entry.sites is None or row[1] in entry.sites) and (name != "branch_ratio" or model.residual)]
    attending = range(model.n_layers if model.sublayers != "mlp" and model.family == "transformer" else 0)
    rows += [(layer, "attn", head, name) for layer in attending for head in range(model.n_heads)
             for name, entry in HEAD_MEASURES.items() if full or entry.detail == "standard"]
    return rows + [row for name, _ in build(canonical).named_parameters() for row in parameter_rows(canonical, name)]


def expected_times(canonical, lengths):
    """(layer, site, statistic, time step) of every row over time."""
    model, full = canonical.model, canonical.protocol.detail == "full"
    return [(layer, site, prefix + name, step) for layer in range(model.n_layers if full else 0)
            for site in OVER_TIME.get(model.family, ()) for prefix in ("", "grad_")
            for name in ("mean", "rms", "absmax") for step in range(max(lengths))]


def parameter_rows(canonical, name):
    """The rows of one parameter."""
    parts = name.split(".")
    layer = int(parts[1]) if parts[0] == "layers" else -1 if parts[0] == "embed" else canonical.model.n_layers
    still = canonical.model.pattern != "softmax" and re.search(r"\.attn\.[qk](_norm)?\.", name)
    still = still or (name == "head.weight" and canonical.protocol.loss == "projection")
    names = ("weight_norm", "weight_rms") + (() if still else ("param_grad_norm",))
    return [(layer, name, None, statistic) for statistic in names]


def entries(canonical, lengths, site):
    """How many real entries a site has."""
    model = canonical.model
    pairs = sum(n * (n + 1) // 2 if model.causal else n * n for n in lengths)
    widths = {"q": model.n_heads * (model.head_dim or 0), "mlp_pre": model.d_ff, "logits": canonical.input.vocab}
    widths |= {"k": widths["q"], "v": widths["q"], "mlp_act": model.d_ff}
    if site in ("attn_scores", "attn_pattern"):
        return pairs * model.n_heads
    return sum(lengths) * widths.get(site, model.d_model)


SPECIAL = re.compile(r"(grad_)?log2_hist\[|outlier")
ROUNDING = 1e-6


@given(experiments())
@examples(80)
def test_every_accepted_experiment_runs_and_gives_a_complete_table(experiment):
    canonical, training = experiment.resolved(), train(experiment)
    every = table.tidy(Trace(tuple(training)), "run").to_pylist()
    times = [row for row in every if row["token"] is not None and not SPECIAL.match(row["statistic"])]
    rows = [row for row in every if row["token"] is None or SPECIAL.match(row["statistic"])]
    place = [(row["layer"], row["site"], row["head"], row["statistic"]) for row in rows]
    single = [key for key in place if not SPECIAL.match(key[3])]
    assert sorted(single, key=str) == sorted(expected_rows(canonical), key=str)
    lengths = training.provenance.get("lengths", [canonical.input.seq_len] * canonical.input.batch)
    at = [(row["layer"], row["site"], row["statistic"], row["token"]) for row in times]
    assert sorted(at) == sorted(expected_times(canonical, lengths))
    by_site = {}
    for row in rows:
        by_site.setdefault((row["layer"], row["site"], row["head"]), []).append((row["statistic"], row["value"]))
    for (layer, site, head), pairs in by_site.items():
        if head is not None:
            check_head(dict(pairs))
        elif (layer, site) in present(canonical):
            for prefix in ("", "grad_"):
                check_site({name.removeprefix(prefix): value for name, value in pairs
                            if name.startswith("grad_") == bool(prefix) and not name.startswith("outlier")},
                           entries(canonical, lengths, site), canonical.protocol.detail == "full")
    check_outliers(rows, canonical, lengths)


def check_site(found, n, full):
    """The laws of the statistics of one tensor."""
    if not found:
        return
    finite = found["n"] - found["n_nan"] - found["n_posinf"] - found["n_neginf"]
    assert found["n"] == n >= found["n_sample"] >= 0 <= finite
    histogram = {name: value for name, value in found.items() if name.startswith("log2_hist")}
    assert sum(histogram.values()) == (found["n_sample"] if full else 0)
    assert all(value > 0 for value in histogram.values())
    if finite == 0:
        assert all(math.isnan(found[name]) for name in ("mean", "std", "rms", "absmax", "min", "max"))
        return
    assert found["absmax"] == max(abs(found["min"]), abs(found["max"])) < math.inf
    slack = rounding(found)
    assert found["min"] - slack <= found["mean"] <= found["max"] + slack
    assert 0 <= found["std"] <= found["rms"] * (1 + ROUNDING)
    assert abs(found["mean"]) - slack <= found["rms"] <= found["absmax"] + slack
    assert all(0 <= found[name] <= 1 for name in ("zero_frac", "overflow_frac16", "subnormal_frac16"))
    for name in ("token_cosine", "layer_cosine"):
        assert math.isnan(found.get(name, 0.0)) or -1 <= found.get(name, 0.0) <= 1
    check_order(found, ("token_rms_p05", "token_rms_p50", "token_rms_p95"), 0, found["absmax"])
    if full:
        names = [name for name in STATISTICS if re.fullmatch(r"q\d\d", name)]
        check_order(found, names, found["min"], found["max"])
        assert math.isnan(found["kurtosis"]) or found["kurtosis"] >= 1 - 1e-3


def check_order(found, names, low, high):
    """Quantiles ascend between the extremes, but for the rounding of an interpolation."""
    values = [low, *(found[name] for name in names if name in found and not math.isnan(found[name])), high]
    assert all(one <= other + rounding(found) for one, other in itertools.pairwise(values))


def rounding(found):
    """What a sum of entries may be off, subnormal ones included."""
    return ROUNDING * found["absmax"] + sys.float_info.min


def check_head(found):
    """The laws of the measures of one head; one that is undefined is NaN."""
    for name, (low, high) in HEAD_LIMITS.items():
        assert math.isnan(found[name]) or low - ROUNDING <= found[name] <= high + ROUNDING


HEAD_LIMITS = {"entropy": (0, math.log(8)), "entropy_norm": (0, 1), "max_prob": (1 / 8, 1), "saturated_frac": (0, 1),
               "score_std": (0, math.inf), "score_absmax": (0, math.inf), "softmax_gain": (0, 1),
               "q_rms": (0, math.inf), "k_rms": (0, math.inf), "qk_cosine": (-1, 1)}


def check_outliers(rows, canonical, lengths):
    """Each is an entry of a real token, and no larger than what its site holds."""
    largest = {(row["layer"], row["site"]): row["value"] for row in rows if row["statistic"] == "absmax"}
    found = [row for row in rows if row["statistic"] in ("outliers", "outlier_ratio")]
    assert canonical.protocol.detail == "full" or not found
    for row in found:
        sequence, position = divmod(row["token"], canonical.input.seq_len)
        assert position < lengths[sequence]
        assert 0 <= row["dim"] < entries(canonical, lengths, row["site"]) / sum(lengths)
        limit = largest[row["layer"], row["site"]] if row["statistic"] == "outliers" else math.inf
        assert abs(row["value"]) <= limit


# ── what is refused ──

JUNK = st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3))
OUTSIDE = {"minimum": lambda limit: limit - 1, "maximum": lambda limit: limit + 1,
           "exclusiveMinimum": lambda limit: limit, "exclusiveMaximum": lambda limit: limit}
"""End of a range in a schema → the nearest round number that is out."""



def beyond(field):
    """Numbers just outside of a field's range."""
    options = field.get("anyOf", [field])
    found = [leave(option[end]) for option in options for end, leave in OUTSIDE.items() if end in option]
    return st.sampled_from(found) if found else st.nothing()


@st.composite
def mutations(draw):
    """(path, value): junk, a number out of range, or an allowed value, which may not go with the rest; or a new key."""
    path = draw(st.sampled_from(list(FIELDS)))
    value = draw(JUNK | beyond(FIELDS[path]) | value_of(FIELDS[path]))
    part, unknown = draw(st.sampled_from([*PARTS, None])), draw(st.text(max_size=8))
    return draw(st.sampled_from([(path, value)] * 4 + [(f"{part}.{unknown}" if part else unknown, value)]))


@st.composite
def documents(draw):
    """A document of an accepted experiment with up to three fields spoiled."""
    document = json.loads(draw(experiments()).model_dump_json())
    for path, value in draw(st.lists(mutations(), min_size=1, max_size=3)):
        part, _, field = path.partition(".")
        if part in document and isinstance(document[part], dict):
            document[part][field] = value
        else:
            document[part] = value
    return document


def refused(document):
    """The refusal of a document, or None."""
    try:
        parse(document)
    except ExperimentError as error:
        return error
    return None


SENTENCE = re.compile(r"(?P<field>.*?) (is|needs|cannot) .*; allowed: .+", re.DOTALL)


@given(documents())
@examples(150)
def test_every_refusal_is_one_sentence_with_field_value_and_what_is_allowed(document):
    error = refused(document)
    if error is None:
        assert parse(document).key() == parse(parse(document).canonical_json()).key()
        return
    found = SENTENCE.fullmatch(str(error))
    assert found
    assert len(str(error).splitlines()) == 1
    field = found["field"]
    if "is not a field" not in str(error):
        assert field in FIELDS or field in PARTS
    if error.key == "value":
        assert error.values["value"] in str(error)


@pytest.mark.parametrize("text", ["a\nb", "\x85", "\u2028", "\ud800", "x" * 9999])
def test_a_name_or_value_that_breaks_lines_or_has_no_end_is_said_on_one_line(text):
    for document in ({text: {}}, {"model": {text: 1}}, {"model": {"norm": text}}, {"input": {"lengths": [text]}}):
        said = str(refused(document))
        assert said.isprintable()
        assert len(said) < 1000


@given(documents())
@examples(60)
def test_the_command_line_says_the_same_sentence_and_leaves_with_status_2(document):
    text, error, said = json.dumps(document), refused(document), io.StringIO()
    if error is None:
        return
    with contextlib.redirect_stderr(said), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", io.StringIO(text))
        assert main(["run", "-", "--no-store"]) == REFUSED
    assert said.getvalue() == " ".join(str(error).split()) + "\n"


# ── round trips ──


@given(experiments())
@examples(150)
def test_the_canonical_form_is_the_same_experiment(experiment):
    canonical = experiment.resolved()
    assert canonical.resolved() == canonical
    assert parse(experiment.canonical_json()).key() == experiment.key()
    assert parse(experiment.model_dump_json()) == experiment


@given(experiments(), st.sampled_from(list(PRESETS)))
@examples(150)
def test_differences_rebuild_every_experiment(experiment, name):
    for base in (Experiment(), preset(name)):
        assert base.with_values(experiment.differences(base)) == experiment


def variants(place):
    """Changes that a page compares a base with."""
    fields = sorted(FIELDS.keys() - place.withheld)
    return st.lists(st.sets(st.sampled_from(fields), min_size=1, max_size=3).flatmap(
        lambda chosen: st.fixed_dictionaries({path: value_of(FIELDS[path]) for path in sorted(chosen)})),
        max_size=place.most)


def shown(place):
    """What the charts of a page show."""
    return st.fixed_dictionaries({name: st.sampled_from(list(values)) for name, values in place.shown.items()})


@pytest.mark.parametrize("place", [BATCHNORM, DRIFT, ENTROPY, GRADIENTS, LIVE], ids=lambda place: place.name)
@given(st.data(), st.sampled_from(list(PRESETS)), experiments())
@examples(80)
def test_a_view_of_any_fields_survives_its_link(place, data, name, base):
    origin = place.origin(name).paths()
    base = base.with_values({path: origin[path] for path in place.withheld})
    view = link.View(name, base, tuple(data.draw(variants(place))), data.draw(shown(place)))
    assert link.read(link.write(view, place), place) == (view, [])


QUERY = st.dictionaries(st.sampled_from(["preset", "x", *link.DIALS, *DRIFT.shown]) | st.text(max_size=5), st.one_of(
    st.text(max_size=20), st.sampled_from([*PRESETS, *NORMS, "-1", "1e9", "512"]),
    st.fixed_dictionaries({}, optional={
        "base": st.dictionaries(st.sampled_from(list(FIELDS)) | st.text(max_size=8), JUNK, max_size=4),
        "variants": st.lists(st.dictionaries(st.sampled_from(list(FIELDS)), JUNK, max_size=3), max_size=8)})
    .map(link.pack)))


@given(QUERY)
@examples(100)
def test_any_query_gives_a_view_that_can_be_compared_run_and_linked_again(query):
    view, _ = link.read(query)
    assert parse(view.base.canonical_json()).key() == view.base.key()
    found, _ = link.compared(view)
    assert found[0].experiment == view.base
    again, notices = link.read(link.write(view))
    assert (again, notices) == (view, [])
