"""The picture of a wiring: every node and site is in it with its words, and nothing overlaps."""

import re

import pytest

from core.equations import equations
from core.experiment import parse
from core.placements import Placement
from core.presets import PRESETS, preset
from core.rules import is_recurrent
from core.tables import NORMS, PATTERNS, PLACEMENTS
from core.wiring import KINDS, wirings
from pages.ui import theme
from pages.ui.charts import nodes
from pages.ui.charts.wiring import HALF_PANEL, MAX_COLUMNS, SCALES, Panel, wiring
from pages.ui.text import LANGUAGES, Words

T = Words("en")
RICH = {"placement": "sandwich", "norm": "rmsnorm", "attn_softcap": 50, "final_softcap": 30, "activation": "geglu",
        "positions": "rotary", "embed_scale": 11.3, "n_heads": 8, "n_kv_heads": 2, "qk_norm": "rmsnorm", "dropout": 0.1,
        "tie_embeddings": True, "branch_scale": "layerscale", "depth_scaling": "inv_sqrt_layer", "embed_norm": True}
MODELS = [
    {}, RICH, {"placement": "post", "residual_alpha": "deepnorm"}, {"residual": False, "norm": "none"},
    {"layer_norms": {"3": "none", "5": "batchnorm"}}, {"sublayers": "attention", "causal": False, "n_heads": 1},
    {"branch_scale": 0.2, "positions": "sinusoidal"}, *({"norm": name, "placement": "branch"} for name in NORMS),
    *({"pattern": name} for name in PATTERNS),
]

BLOCKS = [name for name in PRESETS if not is_recurrent(preset(name))]
"""The presets whose layers are blocks."""


def panels(*models, source="text"):
    described = [parse({"model": model, "input": {"source": source}}) for model in models]
    return [Panel(f"variant {index}", one) for index, each in enumerate(described) for one in wirings(each)]


def plain(text):
    return re.sub(r"<[^>]*>", "", text.replace("<br>", "\n"))


def everything(drawing):
    return (*drawing.before, *drawing.nodes, *drawing.after)


def every(drawing, kind):
    return [node for node in everything(drawing) if node.kind == kind]


@pytest.mark.parametrize("source", ["text", "gaussian"])
@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_every_node_and_every_site_has_its_text_and_says_what_it_is(model, lang, source):
    t = Words(lang)
    for panel in panels(model, source=source):
        notes = wiring([panel], t).layout.annotations
        hovers = [(plain(note.text), plain(note.hovertext or "")) for note in notes]
        for node in everything(panel.wiring):
            if node.kind != "stream":
                said = ("\n".join(nodes.lines(node, t)), plain(nodes.hover(node, t)))
                assert said in hovers
                assert t(f"wiring_help.{node.kind}").replace(" ", "") in re.sub(r"\s", "", said[1])
                assert not re.search("\n[，。；：、）]", said[1])
            for site in node.sites:
                shown = [hover for text, hover in hovers if text == site]
                assert shown and all(t(f"site.{site}") in hover for hover in shown)
        drawn = {note.text for note in notes} - {"●"}
        sites = {site for node in everything(panel.wiring) for site in node.sites}
        assert {plain(text) for text in drawn} >= sites


@pytest.mark.parametrize("name", BLOCKS)
def test_every_preset_draws(name):
    figure = wiring([Panel(name, one) for one in wirings(preset(name))], T)
    assert figure.layout.height > 300
    assert len(figure.layout.shapes) > 10


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_the_hover_of_a_norm_is_its_formula_and_that_of_a_sum_its_factor(placement):
    (panel,) = panels({"placement": placement, "residual_alpha": 0.5, "norm": "rmsnorm"})
    (norm_hover,) = {nodes.hover(node, T) for node in panel.wiring.nodes if node.kind == "norm"}
    assert "RMSNorm(x) = γ ⊙ x/√(mean_D(x²) + ε)" in norm_hover
    (add_hover,) = {nodes.hover(node, T) for node in every(panel.wiring, "add")}
    assert "y = 0.5·x + f" in add_hover


def test_an_attention_says_in_its_box_what_is_special_and_in_its_label_which_sites_are_inside():
    (panel,) = panels(RICH)
    (attention,) = every(panel.wiring, "attention")
    assert nodes.lines(attention, T) == ["Attention", "8 heads, 2 KV", "causal · RoPE", "QK RMSNorm", "soft cap 50"]
    assert "q, k, v, attn_scores, attn_pattern" in plain(nodes.hover(attention, T)).replace("\n", " ")
    (mlp,) = every(panel.wiring, "mlp")
    assert nodes.lines(mlp, T) == ["MLP", "GEGLU", "width 512"]
    (mlp,) = every(panels({})[0].wiring, "mlp")
    assert nodes.lines(mlp, T) == ["MLP", "GELU · width 512"]


def _boxes(figure):
    """Return (left, right, top, bottom, across) of every filled or outlined box but the frames, in pixels."""
    return [(shape.x0, shape.x1, -shape.y0, -shape.y1, shape.xanchor) for shape in figure.layout.shapes
            if shape.type in ("rect", "circle") and shape.line.dash is None]


def test_a_new_placement_is_drawn_by_itself(monkeypatch):
    monkeypatch.setitem(PLACEMENTS, "twice", Placement(lambda x, s, v: s.inside(s.add(x, s.branch(x, v)), v)))
    (panel,) = panels({"placement": "twice", "norm": "rmsnorm"})
    kinds = [node.kind for node in panel.wiring.nodes]
    assert kinds == ["stream", "attention", "add", "norm", "mlp", "add", "norm"]
    texts = [plain(note.text) for note in wiring([panel], T).layout.annotations]
    assert texts.count("RMSNorm") == 3 and "norm1_out" in texts


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_boxes_stay_in_their_panel_and_do_not_overlap(model):
    for panel in panels(model):
        found = [box for box in _boxes(wiring([panel, panel], T)) if box[-1] == 0.25]
        half = HALF_PANEL * SCALES[2]
        for index, (left, right, top, bottom, _) in enumerate(found):
            assert -half <= left < right <= half and top < bottom
            for other_left, other_right, other_top, other_bottom, _ in found[index + 1:]:
                apart = other_left >= right or other_right <= left or other_top >= bottom or other_bottom <= top
                assert apart


def test_three_panels_fit_beside_a_sidebar_on_a_screen_of_1280_pixels():
    assert 2 * HALF_PANEL * SCALES[3] * 3 <= 792
    assert 2 * HALF_PANEL * SCALES[2] * 2 <= 792


def test_up_to_three_panels_stand_side_by_side_and_a_row_below_another_starts_where_it_ends():
    for count in range(1, 8):
        figure = wiring(panels(*[{"n_layers": 12}] * count), T)
        across = {shape.xanchor for shape in figure.layout.shapes}
        columns = -(-count // -(-count // MAX_COLUMNS))
        middles = [(place + 0.5) / columns for place in range(columns)]
        assert sorted(across) == pytest.approx(middles if count > 1 else [0])
        titles = [note for note in figure.layout.annotations if "variant" in note.text]
        assert len(titles) == count
        depths = sorted({round(-note.yshift) for note in titles})
        assert len(depths) == -(-count // MAX_COLUMNS)
        lowest = max(-note.yshift for note in figure.layout.annotations)
        assert lowest < figure.layout.height


def test_no_variant_draws_an_empty_figure():
    figure = wiring([], T)
    assert not figure.layout.shapes and figure.layout.height > 0


def test_only_norms_have_a_colour_of_their_own_and_text_leaves_its_colour_to_the_theme():
    figure = wiring(panels({"norm": "layernorm"}, {"norm": "rmsnorm", "placement": "sandwich"}), T)
    colors = {shape.line.color for shape in figure.layout.shapes} - {None}
    assert colors == {theme.NORM_COLORS["layernorm"], theme.NORM_COLORS["rmsnorm"]}
    assert all(note.font.color is None for note in figure.layout.annotations)


def test_the_smallest_type_can_be_read_from_the_last_row():
    figure = wiring(panels(RICH, {}, {}), T)
    notes = figure.layout.annotations
    small = [float(size) for note in notes for size in re.findall(r"font-size:([\d.]+)px", note.text)]
    assert min([*small, *(note.font.size for note in notes)]) >= 14


def test_a_block_without_a_residual_has_no_thick_line():
    widest = [max(shape.line.width for shape in wiring(panels({"residual": residual}), T).layout.shapes)
              for residual in (True, False)]
    assert widest[0] > 2 * widest[1]


def test_the_caption_names_the_layers_and_shortens_a_long_list():
    short, full = nodes.caption(panels({"layer_norms": {"3": "none"}})[0].wiring, T)
    assert (short, full) == ("layers 0–2, 4–11 of 12",) * 2
    assert nodes.caption(panels({})[0].wiring, T) == ("block × 12", "")
    many = {"n_layers": 40, "layer_norms": {str(layer): "none" for layer in range(0, 40, 2)}}
    short, full = nodes.caption(panels(many)[0].wiring, T)
    assert short == "layers 0, 2, 4, 6, … of 40"
    assert full.startswith("layers 0, 2, 4, 6, 8") and full.endswith("38 of 40")


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_kind_and_every_section_has_words(lang):
    t = Words(lang)
    for kind in KINDS:
        assert t(f"wiring_kind.{kind}") and t(f"wiring_help.{kind}")
    for model in MODELS:
        for section in equations(panels(model)[0].wiring):
            assert t(f"wiring_about.{section.about}", name=section.name) and t(f"wiring_legend.{section.about}")


def test_a_visitors_name_is_shown_as_it_is():
    (panel,) = panels({})
    title = wiring([Panel("<b>x</b>", panel.wiring)], T).layout.annotations[0].text
    assert title == "<b>&lt;b&gt;x&lt;/b&gt;</b>"
