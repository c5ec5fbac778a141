"""Headroom, silent norms and gaps between formats, through the real engine."""

import math
from functools import cache

import numpy as np
import pytest

from core.drift import THRESHOLDS
from core.experiment import parse
from core.float16_range import saving_scale, scaled
from core.format_gap import Numbers, gap, whole
from core.formats import FORMATS
from core.headroom import headroom, judge, passed
from core.presets import preset
from core.silent import READS, SILENT, STATES, findings
from core.silent import judge as judge_silence
from core.tables import NORMS, PLACEMENTS
from core.trace import Trace
from core.train import train

SMALL = {"model.n_layers": 3, "model.d_model": 16, "input.batch": 2, "input.seq_len": 16}
ONE_SITE = {**SMALL, "model.norm": "none", "model.n_layers": 1, "input.source": "scaled",
            "input.feature_scales": [1000.0] * 16, "model.value_gain": 0.01, "model.output_gain": 0.01,
            "model.bias": False}
"""A stack without norms whose queries and keys alone are enlarged by qk_gain."""


@cache
def traced(changes=(), base="small"):
    start = preset(base) if base != "small" else parse({}).with_values(SMALL)
    return Trace(tuple(train(start.with_values(dict(changes)))))


def run(**changes):
    return traced(tuple((name.replace("__", "."), value) for name, value in changes.items()))


def one_site(dtype, gain):
    scaled_input = {**ONE_SITE, "model.qk_gain": gain, "protocol.dtype": dtype}
    return Trace(tuple(train(parse({}).with_values(scaled_input))))


def largest(trace, site):
    return float(trace.profile(site, "absmax")[1].max())


@cache
def at_66246(site):
    """The gain at which the largest |x| of the site is 66246, and the other of q and k is below it."""
    start = one_site("float32", 1.0)
    assert largest(start, site) > 1.02 * largest(start, {"q": "k", "k": "q"}[site])
    return 66246 / largest(start, site)


def test_a_run_scaled_to_66246_flags_exactly_that_site_for_float16_and_none_for_bfloat16():
    start = one_site("float32", 1.0)
    site = max("qk", key=lambda name: largest(start, name))
    trace = one_site("float32", at_66246(site))
    assert largest(trace, site) == pytest.approx(66246, rel=1e-5)
    (only,) = passed(trace, "float16")
    assert (only.layer, only.site, only.infinite) == (0, site, False)
    assert passed(trace, "bfloat16") == passed(trace, "float32") == ()
    said = judge(trace, "float16")
    assert (said.code, said.alarm, said.site, said.numbers["count"]) == ("headroom_overflows", True, site, 1)
    assert said.numbers["factor"] == pytest.approx(66246 / 65504, rel=1e-5)
    assert judge(trace, "bfloat16").code == "headroom_fits"
    found = headroom(trace, "float16")
    assert [found.sites[row] for row, _ in np.argwhere(found.values < 0)] == [site]


def test_the_run_in_float16_breaks_where_the_float32_run_foretold_and_the_one_in_bfloat16_does_not():
    site = max("qk", key=lambda name: largest(one_site("float32", 1.0), name))
    narrow = one_site("float16", at_66246(site))
    (first, *_) = passed(narrow, "float16")
    assert (first.layer, first.site, first.infinite) == (0, site, True)
    made = narrow.snapshots[-1].non_finite
    assert (made.layer, made.site, made.kind) == (0, site, "inf")
    assert judge(narrow, "float16").code == "headroom_infinite"
    assert headroom(narrow, "float16").values[headroom(narrow, "float16").sites.index(site), 1] == -math.inf
    other = one_site("bfloat16", at_66246(site))
    assert other.snapshots[-1].non_finite is None and passed(other, "bfloat16") == ()


@pytest.mark.parametrize("name", FORMATS)
def test_headroom_is_the_decades_between_absmax_and_the_largest_number(name):
    found, trace = headroom(run(), name), run()
    for row, (layer, site) in enumerate(trace.layout.sites):
        absmax = trace.snapshots[-1].activations["absmax"][row]
        if not np.isnan(absmax):
            decades = found.values[found.sites.index(site), found.layers.index(layer)]
            assert 10.0 ** -decades * FORMATS[name].largest == pytest.approx(absmax) if decades < 300 else True


def test_zeros_have_endless_room_and_a_stack_of_zeros_is_judged():
    zero = run(model__embed_scale=0.0, model__positions="none", model__norm="none")
    found = headroom(zero, "float16")
    assert found.values[found.sites.index("embed"), 0] == math.inf
    assert judge(zero, "float16").code in ("nothing_undefined", "headroom_fits")


# silent failures


def test_a_naive_float16_norm_of_300_times_normal_returns_all_zeros_silently_and_in_float32_it_does_not():
    naive = preset("float16_naive_norm")
    trace = Trace(tuple(train(naive)))
    assert trace.snapshots[-1].non_finite is None  # nothing tells
    found = findings(trace, naive)
    assert {one.state for one in found} == {"zero"} and len(found) == 2 * naive.model.n_layers + 1
    assert found[0].rms == 0 and 290 < found[0].read_rms < 310
    said = judge_silence(trace, naive)
    assert (said.code, said.alarm, said.site, said.numbers["count"]) == ("silent_zero", True, "norm1", len(found))
    for changes in ({"model.norm_dtype": "float32"}, {"protocol.dtype": "bfloat16"}, {"protocol.dtype": "float32"}):
        other = naive.with_values(changes)
        assert judge_silence(Trace(tuple(train(other))), other).code == "silent_kept", changes


def test_a_naive_float16_norm_of_smaller_numbers_zeroes_a_part_of_the_tokens():
    naive = preset("float16_naive_norm").with_values({"input.feature_scales": [90.0] * 128, "model.n_layers": 2})
    states = [one.state for one in findings(Trace(tuple(train(naive))), naive)]
    assert states[0] == "part"


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_no_norm_in_order_is_called_a_silent_failure(norm, placement, dtype):
    experiment = parse({}).with_values({**SMALL, "model.norm": norm, "model.placement": placement,
                                        "protocol.dtype": dtype})
    found = findings(Trace(tuple(train(experiment))), experiment)
    assert {one.state for one in found} <= {"kept", "unjudged"}
    assert all(one.read == READS[one.site] and one.state in STATES for one in found)
    judged = norm not in ("none", "dyt")
    assert bool(found) == (norm != "none")
    assert all((one.state == "kept") == judged for one in found)


@pytest.mark.parametrize("changes", [
    {"model.depth_scaling": "inv_sqrt_layer"}, {"model.residual": False, "model.placement": "post"},
    {"model.sublayers": "mlp"}, {"model.layer_norms": {"1": "rmsnorm", "2": "none"}},
    {"model.norm": "batchnorm", "protocol.mode": "eval"}, {"model.embed_std": 1e-4, "model.pos_std": 0.0},
    {"model.embed_scale": 0.0, "model.positions": "none"}, {"input.lengths": "ragged"},
])
def test_what_is_small_by_right_is_no_silent_failure(changes):
    experiment = parse({}).with_values({**SMALL, **changes})
    found = findings(Trace(tuple(train(experiment))), experiment)
    assert not SILENT & {one.state for one in found}


def test_values_that_are_not_finite_are_no_silence():
    experiment = parse({}).with_values({**SMALL, "model.embed_scale": 1e30, "protocol.dtype": "float16"})
    said = judge_silence(Trace(tuple(train(experiment))), experiment)
    assert said.code == "silent_loud" and said.alarm


# gaps


def test_a_run_lies_nowhere_from_itself_and_within_the_roundoff_of_the_narrow_formats():
    reference = run()
    assert np.nanmax(gap(reference, reference, "rms").values) == 0
    for name in ("bfloat16", "float16"):
        found = gap(run(protocol__dtype=name), reference, "rms")
        assert 0 < np.nanmax(found.values) < 4 * FORMATS[name].unit
        both = whole(run(protocol__dtype=name), reference)
        assert abs(both["loss"].relative) < FORMATS[name].epsilon
        assert both["grad_total_norm"].value == run(protocol__dtype=name).snapshots[-1].totals["grad_total_norm"]


def test_a_gap_to_zero_is_infinite_and_of_two_zeros_none():
    assert math.isnan(Numbers(1.0, math.nan).relative) and Numbers(3.0, -2.0).relative == 2.5
    zero = run(model__embed_scale=0.0, model__positions="none", model__norm="none")
    found = gap(run(model__norm="none"), zero, "rms")
    assert found.values[found.sites.index("embed"), 0] == math.inf
    assert gap(zero, zero, "rms").values[found.sites.index("embed"), 0] == 0


def test_runs_of_other_sites_are_refused_in_a_sentence():
    with pytest.raises(ValueError, match=r"^the runs have other sites; allowed: runs that differ in their number "
                                         r"format only$"):
        gap(run(), run(model__norm="none"), "rms")


# loss scales


def test_a_loss_scale_saves_what_the_histogram_says_and_the_saving_one_is_the_first_that_does():
    snapshot = run().snapshots[-1]
    found = scaled(snapshot)
    assert found.scales[0] == 1 and (np.diff(found.below) <= 0).all() and (np.diff(found.beyond) >= 0).all()
    assert (found.gone <= found.below).all()
    counts = snapshot.histograms["gradients"]
    entries = counts[:, :-1].sum(1)
    seen = entries > 0
    shares = counts[seen, :149 - 14].sum(1) / entries[seen]  # exponents −149 … −15
    assert found.below[0] == pytest.approx(shares.max())
    np.testing.assert_allclose(shares.max(), np.nanmax(snapshot.gradients["subnormal_frac16"]), atol=0.01)
    scale = saving_scale(snapshot)
    place = int(np.log2(scale))
    assert found.below[place] <= THRESHOLDS["lost_share16"] < found.below[place - 1] and found.beyond[place] == 0
