"""A sweep's grid: every combination once, in order; what is refused is a cell with its reason."""

import pytest

from core.experiment import Experiment
from core.fields import ExperimentError
from core.sweep import MOST_CELLS, grid

DEPTHS, NORMS = [2, 4, 8], ["layernorm", "none"]


def test_the_cells_are_the_product_in_order_the_last_field_fastest():
    cells = grid(Experiment(), {"model.n_layers": DEPTHS, "model.norm": NORMS})
    assert [tuple(cell.values.values()) for cell in cells] == [(depth, norm) for depth in DEPTHS for norm in NORMS]
    for cell in cells:
        assert cell.experiment == Experiment().with_values(cell.values)
    assert cells[1].name == "model.n_layers=2, model.norm=none"
    assert [cell.name for cell in grid(Experiment(), {"model.n_layers": [3]})] == ["model.n_layers=3"]


def test_a_cell_whose_fields_refuse_each_other_says_why_and_the_others_stay():
    cells = grid(Experiment(), {"model.d_model": [64, 66], "model.n_heads": [4, 6]})
    assert [cell.experiment is None for cell in cells] == [False, True, True, False]
    assert "n_heads" in str(cells[1].refused) and cells[0].refused is None


@pytest.mark.parametrize(("axes", "said"), [
    ({}, "over 0 fields; allowed: one or two"),
    ({"model.norm": NORMS, "model.n_layers": DEPTHS, "protocol.seed": [0]}, "over 3 fields; allowed: one or two"),
    ({"model.norm": []}, "model.norm has no values to sweep over"),
    ({"model.n_layers": [2, 4, 2]}, "model.n_layers has a value twice; allowed: each value once"),
    ({"protocol.seed": list(range(MOST_CELLS + 1))}, f"the sweep has {MOST_CELLS + 1} cells; allowed: up to"),
    ({"model.nonsense": [1]}, r"model\.nonsense"), ({"nonsense": [1]}, "nonsense"),
])
def test_a_grid_that_cannot_be_is_refused_with_what_is_allowed(axes, said):
    with pytest.raises(ExperimentError, match=said):
        grid(Experiment(), axes)
