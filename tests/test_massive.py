"""The table of massive activations, and how tokens are written."""

import numpy as np
import pytest
from made import recorded
from stacks import experiment

from core.columns import OUTLIERS
from core.corpus import batch
from core.massive import columns, full_lists, massive, observed
from core.model import build
from core.passes import step
from core.recorder import Recorder
from core.sites import sites_of
from core.token_table import above_median, place, symbol, symbols
from core.token_table import columns as token_columns
from core.trace import Outlier
from core.train import train

TEXT = {"source": "text", "seq_len": 6, "batch": 3, "text": "naïve 中\n" * 9}


def injected(value, where=(5, "resid_post"), entry=(0, 0, 7), **model):
    """A real stack of 8 layers with one entry (sequence, position, feature) of a site set to a value."""
    described = experiment(TEXT, n_layers=8, **model)
    stack, data = build(described), batch(described, 0)

    def put(_module, arguments):
        x = arguments[0].clone()
        x[entry] = value
        return (x,)

    sites_of(stack, 8)[where].register_forward_pre_hook(put)
    with Recorder(stack) as recorder:
        recorder.begin(data.mask, tokens=data.inputs)
        loss = step(stack, data, 0)
        return recorder.snapshot(0, float(loss)), data


@pytest.mark.parametrize(("value", "code"), [(1000.0, "outlier"), (-4000.0, "massive")])
def test_an_injected_activation_is_listed_with_layer_token_dimension_and_how_long_it_persists(value, code):
    snapshot, data = injected(value)
    (row, *_) = massive(snapshot, "text")
    assert (row.token, row.sequence, row.position, row.dim) == (0, 0, 0, 7)
    assert row.layers == (5, 6, 7) and row.depth == 3 and row.hidden == ()
    assert (row.code, row.persistence) == (code, "exact")  # 1000 is some 700 times the median here
    assert row.value == pytest.approx(value, rel=0.01) and 5 <= row.layer <= 7 and row.ratio > 500
    assert row.token_id == int(data.inputs[0, 0]) and row.symbol == symbol(snapshot, "text", 0) != ""
    assert (6, "resid_pre") in row.elsewhere and (5, "resid_post") not in row.elsewhere


def test_a_norm_after_the_sum_takes_the_persistence_away():
    (row, *_) = massive(injected(1000.0, (5, "attn_sum"), (2, 4, 3), placement="post")[0])
    assert (row.token, row.sequence, row.position, row.dim) == (16, 2, 4, 3)
    assert (row.site, row.layer, row.value) == ("attn_sum", 5, 1000.0)
    assert row.layers == () and row.depth == 0


def test_a_run_without_outliers_has_an_empty_table_that_knows_it_was_looked_for():
    (snapshot,) = train(experiment())
    assert massive(snapshot) == () and observed(snapshot)
    (standard,) = train(experiment(protocol={"detail": "standard"}))
    assert massive(standard) == () and not observed(standard)


def outlier(layer, token=0, dim=0, value=50.0, ratio=30.0, site="resid_post"):
    return Outlier(layer, site, token, dim, value, ratio)


def made(*outliers, n_layers=8, **settings):
    sites = {(layer, site): {} for layer in range(n_layers) for site in ("resid_post", "mlp_pre", "norm1", "attn_sum")}
    return recorded(sites, outliers=outliers, **settings).snapshots[0]


@pytest.mark.parametrize(("layers", "depth"), [((), 0), ((3,), 1), ((1, 2, 3), 3), ((0, 1, 3, 4, 5, 7), 3),
                                               ((7, 6), 2)])
def test_persistence_is_the_longest_run_of_consecutive_layers(layers, depth):
    entries = [outlier(layer) for layer in layers] or [outlier(0, site="attn_sum")]
    (row,) = massive(made(*entries))
    assert row.layers == tuple(sorted(layers)) and row.depth == depth


@pytest.mark.parametrize(("value", "ratio", "is_massive"), [
    (101, 1001, True), (-101, 1001, True), (100, 1001, False), (101, 1000, False), (1e30, 20, False),
    (1e-3, 1e9, False),
])
def test_massive_is_above_100_and_above_1000_times_the_median(value, ratio, is_massive):
    (row,) = massive(made(outlier(2, value=value, ratio=ratio)))
    assert row.massive == is_massive


def test_value_and_ratio_must_be_large_at_the_same_site():
    (row,) = massive(made(outlier(2, value=150, ratio=30), outlier(3, value=5, ratio=2000)))
    assert not row.massive and (row.value, row.ratio) == (5, 2000)


def test_rows_are_by_token_and_feature_the_largest_ratio_first():
    rows = massive(made(outlier(0, 1, 2, ratio=30), outlier(0, 1, 3, ratio=90), outlier(1, 1, 2, ratio=40),
                        outlier(0, 4, 2, ratio=90)))
    assert [(row.token, row.dim, row.ratio) for row in rows] == [(1, 3, 90), (4, 2, 90), (1, 2, 40)]


def test_sites_with_other_features_are_not_mixed_in_and_norms_alone_make_no_row():
    (row,) = massive(made(outlier(0), outlier(0, site="mlp_pre"), outlier(0, site="norm1"),
                          outlier(1, 5, site="norm1")))
    assert row.elsewhere == ((0, "norm1"),)


def test_a_full_list_that_may_hide_an_entry_is_said():
    crowd = [outlier(3, token=token) for token in range(1, 1 + OUTLIERS)]
    rows = massive(made(outlier(2), *crowd, outlier(4)))
    lone = next(row for row in rows if row.token == 0)
    assert lone.layers == (2, 4) and lone.hidden == (3,) and lone.persistence == "at_least"
    assert next(row for row in rows if row.token == 1).hidden == ()
    assert full_lists(made(*crowd)) == ((3, "resid_post"),)
    assert full_lists(made(*crowd[1:])) == ()


def test_what_is_not_known_of_a_token_is_left_open():
    (row,) = massive(made(outlier(0, token=9)))
    assert (row.sequence, row.position, row.token_id, row.symbol) == (-1, -1, -1, "")


def test_the_table_can_be_written_to_a_file():
    table = columns(massive(made(outlier(2), outlier(3), outlier(1, site="attn_sum"), batch_shape=(2, 4))))
    assert len({len(column) for column in table.values()}) == 1
    assert (table["layers"], table["elsewhere"], table["persistence"]) == (["2 3"], ["1:attn_sum"], ["exact"])
    assert set(columns(())) == set(table) and not any(columns(()).values())


# how tokens are written


def ids(text, length=None, **settings):
    values = np.array(list(text) if isinstance(text, bytes) else list(text.encode()), np.int32)
    shape = (1, length or len(values))
    return recorded({(0, "resid_post"): {}}, tokens=values, batch_shape=shape, **settings).snapshots[0]


@pytest.mark.parametrize(("text", "written"), [
    ("aZ~!", ["a", "Z", "~", "!"]), (" \n\t\0\x7f", ["·", "↵", "→", "␀", "␡"]), ("é", ["é₁", "é₂"]),
    ("a中", ["a", "中₁", "中₂", "中₃"]), ("😀", ["😀₁", "😀₂", "😀₃", "😀₄"]),
    (b"\xe4\xb8", ["\\xe4", "\\xb8"]), (b"\x80a\xff", ["\\x80", "a", "\\xff"]), (b"\xc3a", ["\\xc3", "a"]),
    ("\u200b", ["\\xe2", "\\x80", "\\x8b"]), ("", []),
])
def test_every_byte_is_written_so_that_it_can_be_told(text, written):
    assert symbols(ids(text), "text") == written
    assert [symbol(ids(text), "text", token) for token in range(len(written))] == written


def test_a_character_that_a_sequence_cuts_is_not_put_together_over_the_cut():
    assert symbols(ids("中中", length=2), "text") == [f"\\x{byte:02x}" for byte in "中中".encode()]


def test_padding_and_tokens_that_were_not_kept_are_written_as_nothing():
    snapshot = recorded({(0, "resid_post"): {}}, tokens=np.array([97, -1, 98], np.int32)).snapshots[0]
    assert symbols(snapshot, "text") == ["a", "", "b"]
    assert symbols(snapshot, "markov") == ["97", "", "98"]
    assert [symbol(snapshot, source, token) for source in ("text", "tokens") for token in (1, 3)] == [""] * 4


def test_a_generated_token_is_its_number():
    snapshot = recorded({(0, "resid_post"): {}}, tokens=np.array([5, 300], np.int32)).snapshots[0]
    assert symbols(snapshot, "tokens") == ["5", "300"] and symbol(snapshot, "markov", 1) == "300"


def test_a_position_is_a_sequence_and_a_place_in_it():
    snapshot = recorded({(0, "resid_post"): {}}, batch_shape=(2, 4)).snapshots[0]
    assert [place(snapshot, token) for token in (0, 3, 4, 7)] == [(0, 0), (0, 3), (1, 0), (1, 3)]


@pytest.mark.parametrize("source", ["text", "gaussian"])
@pytest.mark.parametrize("detail", ["full", "standard"])
def test_the_tokens_can_be_written_to_a_file_and_padding_is_left_out(source, detail):
    described = experiment({"source": source, "seq_len": 6, "batch": 3, "lengths": [6, 2, 4]}, {"detail": detail})
    (snapshot,) = train(described)
    table = token_columns(snapshot, source)
    assert {len(column) for column in table.values()} == {12 if detail == "full" else 0}
    if detail == "full":
        sizes = [f"token_rms_{place}" for place in ("embed", 0, 1)]
        assert list(table) == ["token", "sequence", "position", "id", "symbol", *sizes]
        assert table["sequence"] == [0] * 6 + [1] * 2 + [2] * 4 and table["token"][6:9] == [6, 7, 12]
        assert table["token_rms_1"] == snapshot.token_rms[2, table["token"]].tolist()
        assert all((written is None) == (source == "gaussian") for written in table["symbol"])


def test_a_token_is_compared_with_the_median_token_of_its_layer():
    sizes = np.array([[1, 2, 3, np.nan], [0, 0, 5, 0], [np.nan] * 4], np.float32)
    found = above_median(recorded({(0, "resid_post"): {}}, token_rms=sizes).snapshots[0])
    assert np.array_equal(found, [[0.5, 1, 1.5, np.nan], [np.nan] * 4, [np.nan] * 4], equal_nan=True)
