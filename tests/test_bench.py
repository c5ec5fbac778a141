"""The norm bench without a browser: its candidates, the bill of their norms, the ranking, and its pictures."""

import math
import re
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from probes import probed

from core import ranking
from core.bench import AXES, FIELDS, MOST, SCALINGS, candidates, chosen, idle, trained
from core.experiment import Experiment
from core.fields import ExperimentError
from core.look import DIRECTIONS, MEASURED, WAYS, NormCosts
from core.model import build
from core.norm_bill import bill, calls, is_fused, microseconds, passes, ratios, setting
from core.norms import NoNorm
from core.ranking import BY_ALARMS, CRITERIA, Row, findings, ranked
from core.tables import FAMILIES, INITS, NORMS, PLACEMENTS, load
from core.train import train
from pages.ui import bench as page
from pages.ui import charts, theme
from pages.ui.places import NORM_BENCH
from pages.ui.text import LANGUAGES, Words
from pages.ui.views import bench
from pages.ui.views import ranking as ranking_view
from pages.ui.views.bench import DEPTHS, Bench

SMALL = {"model.n_layers": 3, "model.d_model": 16, "model.n_heads": 2, "input.batch": 2, "input.seq_len": 8,
         "protocol.device": "cpu"}
BASE = Experiment().with_values(SMALL)
ONE = {"norms": ("layernorm",), "placements": ("pre",), "inits": ("xavier",), "scalings": ("plain",)}


def named(**axes):
    return candidates(BASE, ONE | axes)


def test_every_norm_placement_and_init_is_on_the_bench():
    for axis, table in {"norms": NORMS, "placements": PLACEMENTS, "inits": INITS}.items():
        assert list(AXES[axis]) == list(table)


@pytest.mark.parametrize("axis", AXES)
def test_every_name_of_an_axis_gives_a_candidate_that_has_it_and_nothing_else_of_another(axis):
    for name, changes in AXES[axis].items():
        (one,) = named(**{axis: (name,)})
        assert one.names == {other: names[0] for other, names in ONE.items()} | {axis: name}
        paths = one.cell.experiment.paths()
        assert {path: paths[path] for path in changes} == changes
        others = BASE.paths().keys() - FIELDS
        assert {path: paths[path] for path in others} == {path: BASE.paths()[path] for path in others}


def test_scalings_are_each_told_from_a_base_that_has_another():
    for one in SCALINGS:
        for base in SCALINGS:
            start = BASE.with_values(AXES["scalings"][base])
            (found,) = candidates(start, ONE | {"scalings": (one,)})
            assert found.cell.experiment == named(scalings=(one,))[0].cell.experiment


def test_combinations_are_all_there_the_last_axis_fastest_and_each_experiment_once():
    found = named(norms=("layernorm", "none"), placements=("pre", "post"), scalings=("plain", "rezero"))
    assert [tuple(one.names.values()) for one in found] == [
        ("layernorm", "pre", "xavier", "plain"), ("layernorm", "pre", "xavier", "rezero"),
        ("layernorm", "post", "xavier", "plain"), ("layernorm", "post", "xavier", "rezero"),
        ("none", "pre", "xavier", "plain"), ("none", "pre", "xavier", "rezero")]


@pytest.mark.parametrize(("changes", "axes"), [
    ({"model.layer_norms": {0: "layernorm"}}, {"norms": ("none", "layernorm")}),
    ({}, {"norms": ("none", "layernorm"), "scalings": ("inv_sqrt_layer",)}),
    ({}, {"norms": ("none",)}),
], ids=str)
def test_every_candidate_has_a_name_of_its_own(changes, axes):
    found = candidates(BASE.with_values(changes), ONE | {"placements": ("pre", "post")} | axes)
    assert list(page.named(found, Words("en")).values()) == found


def test_what_does_not_go_together_is_a_candidate_with_a_reason():
    found = named(placements=("pre", "post"), scalings=("inv_sqrt_layer",))
    assert [one.cell.experiment is None for one in found] == [False, True]
    assert "needs pre or sandwich" in str(found[1].cell.refused)


@pytest.mark.parametrize("family", FAMILIES)
def test_an_axis_is_idle_where_all_its_names_are_one_experiment_and_nowhere_else(family):
    base = BASE.with_values({"model.family": family})
    for axis, known in AXES.items():
        fitting = [one.cell.experiment for name in known for one in candidates(base, ONE | {axis: (name,)})]
        distinct = {one.canonical_json() for one in fitting if one is not None}
        assert (axis in idle(family)) == (len(distinct) == 1)


def test_an_idle_axis_multiplies_neither_candidates_nor_refusals():
    found = candidates(BASE.with_values({"model.family": "lstm"}),
                       ONE | {"norms": ("layernorm", "batchnorm"), "placements": tuple(PLACEMENTS),
                              "scalings": tuple(SCALINGS)})
    assert [(one.names["norms"], one.cell.refused is None) for one in found] == [("layernorm", True),
                                                                                ("batchnorm", False)]


def test_too_many_combinations_and_an_empty_axis_are_refused():
    every = {axis: tuple(names) for axis, names in AXES.items()}
    with pytest.raises(ExperimentError, match=rf"2016 combinations; allowed: up to {MOST}"):
        candidates(BASE, every)
    with pytest.raises(ExperimentError, match="placements has no name; allowed: pre, post"):
        named(placements=())


def test_a_training_of_a_candidate_records_its_first_and_its_last_step():
    cell = trained(named()[0], 7)
    assert [one.step for one in train(cell.experiment)] == [0, 7]


@pytest.mark.parametrize(("text", "axis", "names"), [
    ("layernorm,none", "norms", ("layernorm", "none")), ("pre", "placements", ("pre",)), ("", "norms", ()),
    ("none,none", "norms", ("none",)), ("pre", "norms", ()), ("none,", "norms", ()), ("plain,rezero", "scalings", (
        "plain", "rezero"))])
def test_a_text_names_what_an_axis_has_or_nothing(text, axis, names):
    assert chosen(text, axis) == names


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("changes", [{}, {"model.sublayers": "mlp"}, {"model.embed_norm": True}, {
    "model.layer_norms": {1: "rmsnorm", 2: "none"}}, {"model.final_norm": True}, {"model.norm": "none"}], ids=str)
def test_the_bill_counts_every_norm_that_the_built_stack_has(placement, changes):
    experiment = BASE.with_values({"model.placement": placement} | changes).resolved("cpu")
    kinds = {load(NORMS, name): name for name in NORMS}
    built = [kinds[type(module)] for module in build(experiment).modules()
             if type(module) in kinds and not isinstance(module, NoNorm)]
    assert calls(experiment) == {name: built.count(name) for name in set(built)}


@cache
def costs():
    return next(iter(train(setting(BASE), look=NormCosts()))).looks


def test_the_bill_is_calls_times_what_one_of_each_costs():
    experiment = BASE.with_values({"model.layer_norms": {1: "rmsnorm"}})
    found, (layer, rms) = bill(experiment, costs()), (MEASURED.index(name) for name in ("layernorm", "rmsnorm"))
    assert found.calls == 7
    for name, numbers in (("seconds", costs()["seconds"][..., 1]), ("bytes", costs()["bytes"])):
        np.testing.assert_allclose(getattr(found, name), 5 * numbers[layer, 0] + 2 * numbers[rms, 0], rtol=1e-12)
    written = bill(experiment.with_values({"model.norm_dtype": "compute"}), costs())
    assert sum(written.bytes) > sum(found.bytes)
    assert bill(BASE.with_values({"model.norm": "none"}), costs()).calls == 0


def test_norms_are_measured_on_tokens_like_the_bases_whatever_its_stack_is():
    deep = BASE.with_values({"model.n_layers": 9, "model.norm": "rmsnorm", "model.placement": "post", "model.d_ff": 64})
    assert setting(deep) == setting(BASE) and setting(deep).model.d_model == 16
    assert setting(BASE.with_values({"input.seq_len": 9})) != setting(BASE)


def test_passes_and_ratios_are_those_of_the_measured_numbers():
    found, row = passes(setting(BASE), costs()), MEASURED.index("layernorm")
    assert found[row, 0, 0] == costs()["bytes"][row, 0, 0] / (2 * 8 * 16 * 4)
    assert all(value == 1 for value in ratios(costs(), "layernorm", "layernorm").values())
    there, back = ratios(costs(), "rmsnorm", "layernorm"), ratios(costs(), "layernorm", "rmsnorm")
    assert all(there[name] * back[name] == pytest.approx(1) for name in there)
    assert microseconds(costs(), "dyt").keys() == {f"{way}_{direction}" for way in WAYS for direction in DIRECTIONS}
    assert is_fused(costs(), "layernorm") and not is_fused(costs(), "layernorm_std_eps")


NUMBERS = some.floats(allow_nan=True, allow_infinity=True)
ROWS = some.lists(some.builds(Row, some.text(max_size=3), some.dictionaries(some.sampled_from(list(CRITERIA)), NUMBERS),
                              some.lists(some.just("x"), max_size=3).map(tuple)), max_size=6)


@given(ROWS, some.sampled_from([BY_ALARMS, *CRITERIA]))
def test_a_ranking_has_every_row_once_and_is_in_order(rows, by):
    found = ranked(rows, by)
    assert sorted(map(id, found)) == sorted(map(id, rows))
    if by in CRITERIA:
        worth = [CRITERIA[by].worse(row.values[by]) if by in row.values else math.inf for row in found]
        assert worth == sorted(worth)
    else:
        assert [len(row.alarms) for row in found] == sorted(len(row.alarms) for row in rows)


@given(ROWS)
def test_findings_name_the_best_and_the_worst_of_those_that_have_the_number(rows):
    for one in findings(rows):
        worse = CRITERIA[one.criterion].worse
        known = [worse(row.values[one.criterion]) for row in rows if one.criterion in row.values]
        assert len(known) > 1
        assert worse(one.best.values[one.criterion]) == min(known)
        assert worse(one.worst.values[one.criterion]) == max(known)


@pytest.mark.parametrize(("criterion", "numbers", "code"), [
    ("loss", (1.0, 1.04), "same"), ("loss", (1.0, 1.06), "apart"), ("loss", (1.0, math.nan), "apart"),
    ("growth", (1.0, 1.2), "same"), ("growth", (0.5, 1.0), "apart"), ("growth", (0.0, 1.0), "apart"),
    ("growth", (math.inf, 1.0), "apart"), ("token_cosine", (0.9, 0.94), "same"), ("norm_seconds", (1.0, 1.3), "apart")])
def test_a_difference_counts_beyond_its_threshold_and_what_is_not_finite_is_the_worst(criterion, numbers, code):
    (found,) = findings([Row(str(value), {criterion: value}) for value in numbers])
    assert found.code == code
    if not all(map(math.isfinite, numbers)):
        assert not math.isfinite(found.worst.values[criterion])


@pytest.mark.parametrize("criterion", CRITERIA)
def test_nothing_is_said_where_no_number_is_finite(criterion):
    assert findings([Row(name, {criterion: value}) for name, value in (("a", math.nan), ("b", math.inf))]) == []


@cache
def measured(norms=("layernorm", "none", "batchnorm"), placements=("pre", "post"), inits=("xavier",)):
    found = named(norms=norms, placements=placements, inits=inits)
    ones = {"/".join(one.names.values()): one for one in found}
    probes = tuple(probed(name, {}, one.cell.experiment.differences(Experiment())) for name, one in ones.items())
    return Bench(ones, probes, {name: 2.0 + place for place, name in enumerate(ones)}, costs(), probes[0], 10)


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("number", DEPTHS)
def test_small_multiples_have_a_facet_a_placement_and_in_each_the_stack_without_a_norm(number, lang):
    t, found = Words(lang), measured()
    (picture,) = bench.multiples(found, NORM_BENCH.defaults | {"number": number}, t)
    titles = [note.text for note in picture.figure.layout.annotations]
    assert [f"<b>{t(f'placement.{name}')}</b>" for name in ("pre", "post")] == titles[:2]
    lines = [trace for trace in picture.figure.data if trace.mode != "markers"]
    norms = [t(f"norm.{name}") for name in ("layernorm", "none", "batchnorm")]
    assert [(line.name, line.xaxis) for line in lines] == [(name, axis) for axis in ("x", "x2") for name in norms]
    assert [line.showlegend for line in lines] == [True] * 3 + [False] * 3
    stand = [f"{norm}/{'pre' if norm == 'none' else placement}/xavier/plain"
             for placement in ("pre", "post") for norm in ("layernorm", "none", "batchnorm")]
    for line, name in zip(lines, stand, strict=True):
        one = next(one for one in found.measured if one.name == name)
        np.testing.assert_array_equal(line.y, DEPTHS[number].series(one).values)


def test_small_multiples_of_what_no_stack_has_say_so():
    found = named(norms=("layernorm", "none"))
    ones = {"/".join(one.names.values()): one for one in found}
    changes = {"model.sublayers": "mlp"}
    probes = tuple(probed(name, changes, one.cell.experiment.differences(Experiment())) for name, one in ones.items())
    (picture,) = bench.multiples(Bench(ones, probes), NORM_BENCH.defaults | {"number": "entropy"}, Words("en"))
    assert picture.figure is None and "attention" in picture.remarks[0]


def test_the_overlay_has_a_line_a_candidate_in_each_of_four_charts():
    pictures = bench.overlay(measured(), NORM_BENCH.defaults, Words("en"))
    assert len(pictures) == 4
    for picture in pictures:
        assert len({trace.name for trace in picture.figure.data if trace.showlegend is not False}) == 5


@pytest.mark.parametrize("lang", LANGUAGES)
def test_costs_are_drawn_as_measured_and_said_against_the_first_norm(lang):
    t, found = Words(lang), measured()
    for direction, way in enumerate(DIRECTIONS):
        seconds, counts = bench.costs(found, NORM_BENCH.defaults | {"way": way}, t)
        for place in range(2):
            np.testing.assert_allclose(seconds.figure.data[place].y, 1e6 * costs()["seconds"][:, place, direction, 1])
            np.testing.assert_allclose(counts.figure.data[place].y, passes(setting(BASE), costs())[:, place, direction])
    said = bench.said_of_costs(found, t)
    assert t("norm.layernorm") in said[0] and t("norm.batchnorm") in said[1]
    table = seconds.columns()
    assert len(table["bytes"]) == len(MEASURED) * 4


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("by", NORM_BENCH.shown["by"])
def test_the_ranking_is_a_table_with_every_candidate_and_its_numbers(by, lang):
    t, found = Words(lang), measured()
    rows = ranking_view.rows(found)
    lines = ranking_view.table(found, rows, by, t).splitlines()
    assert len(lines) == 2 + 5 and all(line.count("|") == lines[0].count("|") for line in lines)
    order = [re.search(r"\*\*(.+?)\*\*", line)[1].replace("\\", "") for line in lines[2:]]
    assert order == [row.name for row in ranked(ranking_view.rows(found), by)]
    assert "–" in next(line for line in lines if "none/" in line)
    said = ranking_view.said(rows, t)
    assert len(said) == 6 and not any("{" in one for one in said)
    short = ranking_view.summary(rows, t)
    heads = [t(f"bench.column_{one.criterion}") for one in findings(ranking_view.rows(found))]
    assert all(re.split(r"[ (（]", head)[0] in short for head in heads)  # Chinese joins brackets
    assert ranking_view.columns(rows, t).keys() >= {*CRITERIA, "entropy_norm"}


def test_a_stack_without_attention_has_no_entropy_in_the_ranking_and_no_number_that_is_not_one():
    found = candidates(BASE.with_values({"model.family": "gru"}), ONE | {"norms": ("layernorm", "none")})
    probes = tuple(probed(one.names["norms"], {}, one.cell.experiment.differences(Experiment())) for one in found)
    stacks = Bench({one.names["norms"]: one for one in found}, probes)
    t = Words("en")
    rows = ranking_view.rows(stacks)
    said = ranking_view.table(stacks, rows, BY_ALARMS, t)
    assert t("bench.column_entropy_norm") not in said and "NaN" not in said
    assert "entropy_norm" not in ranking_view.columns(rows, t)


def test_a_number_that_is_not_finite_is_no_bar_and_a_norm_of_ones_own_is_called_by_its_code():
    drawn = charts.groups(["a", "b (c)"], [charts.Member("m", np.array([np.nan, 2.0]))], charts.Frame("T", "s", "y"),
                          Words("en"))
    assert list(drawn.data[0].text) == ["–", "2"] and list(drawn.data[0].x) == ["a", "b<br>(c)"]
    assert bench.spoken("norms", "mynorm", Words("en")) == "mynorm"
    assert theme.style("mynorm").color == theme.OTHER_COLOR


def test_an_unknown_criterion_is_no_ranking():
    with pytest.raises(KeyError):
        ranking.ranked([Row("a", {"nonsense": 1.0})], "nonsense")
