"""Looks: colours that stay apart for everybody, on both backgrounds."""

import numpy as np
import pytest

from core import tables
from pages.ui import theme, worksheet
from pages.ui.charts import grids, states

# Linear-RGB matrices of full colour blindness: Machado, Oliveira, Fernandes 2009.
VISION = {
    "normal": np.eye(3),
    "protan": np.array([[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.0520]]),
    "deutan": np.array([[0.3673, 0.8606, -0.2280], [0.2801, 0.6725, 0.0474], [-0.0118, 0.0429, 0.9689]]),
    "tritan": np.array([[1.2555, -0.0767, -0.1788], [-0.0784, 0.9308, 0.1476], [0.0047, 0.6914, 0.3039]]),
}
CONES = np.array([[0.41222, 0.53633, 0.05145], [0.21190, 0.68070, 0.10740], [0.08830, 0.28172, 0.62998]])
OKLAB = np.array([[0.21045, 0.79362, -0.00407], [1.97800, -2.42859, 0.45059], [0.02590, 0.78277, -0.80868]])


def linear(color: str) -> np.ndarray:
    srgb = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    luminance = sorted(float(linear(color) @ [0.2126, 0.7152, 0.0722]) for color in (one, other))
    return (luminance[1] + 0.05) / (luminance[0] + 0.05)


def perceived(color: str, vision: str) -> np.ndarray:
    seen = np.clip(VISION[vision] @ linear(color), 0, 1)
    return OKLAB @ np.cbrt(CONES @ seen)


def test_every_norm_placement_and_init_of_the_engine_has_a_look() -> None:
    assert set(theme.NORM_COLORS) == set(tables.NORMS)
    assert set(theme.PLACEMENT_DASHES) == set(tables.PLACEMENTS)
    assert set(theme.INIT_SYMBOLS) == set(tables.INITS)


def test_no_two_looks_are_the_same() -> None:
    for table in (theme.NORM_COLORS, theme.PLACEMENT_DASHES, theme.INIT_SYMBOLS):
        assert len(set(table.values())) == len(table)


@pytest.mark.parametrize("base", theme.PALETTES)
def test_every_colour_stands_out_from_the_background(base: str) -> None:
    palette = theme.PALETTES[base]
    for color in (*theme.NORM_COLORS.values(), theme.OTHER_COLOR):
        assert contrast(color, palette.background) >= 3.0
    assert contrast(palette.text, palette.background) >= 7.0
    assert contrast(palette.muted, palette.background) >= 4.5


def mixed(color: str, background: str, opacity: float) -> str:
    parts = [round(opacity * int(color[i : i + 2], 16) + (1 - opacity) * int(background[i : i + 2], 16))
             for i in (1, 3, 5)]
    return "#" + "".join(f"{part:02x}" for part in parts)


@pytest.mark.parametrize("base", theme.PALETTES)
def test_words_can_be_read_on_everything_that_lies_behind_them(base: str) -> None:
    palette = theme.PALETTES[base]
    for opacity in (0x2E / 0xFF, worksheet.STRONGEST):  # a norm's box in the wiring, a cell of a worked step
        behind = [mixed(color, palette.background, opacity) for color in
                  (*theme.NORM_COLORS.values(), theme.OTHER_COLOR, theme.ABOVE_COLOR, theme.BELOW_COLOR)]
        words = palette.muted if opacity < 0.2 else palette.text
        assert min(contrast(words, color) for color in behind) >= 4.5
    assert contrast(mixed(palette.text, palette.background, 0.6), palette.background) >= 4.5  # small print
    assert contrast(palette.accent, palette.background) >= 4.5  # links, and what is chosen
    assert contrast(palette.background, palette.accent) >= 4.5  # buttons, and the hint of how a chart is walked
    label = theme.template(base).layout.hoverlabel
    assert contrast(label.font.color, label.bgcolor) >= 7


def test_letters_in_cells_can_be_read() -> None:
    plotlys = "#444444"  # on a light colour; white on a dark one, which this scale has none of
    assert min(contrast(plotlys, color) for _, color in grids.LIGHT_SCALE) >= 4.5
    assert contrast(states.LIGHT, theme.WARNING_COLOR) >= 4.5


@pytest.mark.parametrize("vision", VISION)
def test_the_colours_stay_apart_in_every_kind_of_colour_vision(vision: str) -> None:
    seen = [perceived(color, vision) for color in theme.NORM_COLORS.values()]
    apart = [float(np.linalg.norm(one - other)) for i, one in enumerate(seen) for other in seen[:i]]
    assert min(apart) > 0.06  # OKLab, where 0.02 can just be noticed


def test_the_type_and_the_palettes_are_those_of_the_configuration() -> None:
    import tomllib
    from pathlib import Path

    config = tomllib.loads((Path(__file__).parents[1] / ".streamlit" / "config.toml").read_text("utf-8"))["theme"]
    assert config["font"] == theme.FONT
    for base, palette in theme.PALETTES.items():
        assert config[base]["backgroundColor"] == palette.background
        assert config[base]["textColor"] == palette.text
        assert config[base]["primaryColor"] == palette.accent


def test_a_norm_that_is_not_ours_gets_the_neutral_look() -> None:
    assert theme.style("mynorm").color == theme.OTHER_COLOR


def test_norm_none_has_no_placement_to_show() -> None:
    assert theme.style("none", "post") == theme.style("none", "pre")


def test_variants_that_would_look_alike_get_colours_that_no_other_has():
    looks = theme.distinct([theme.style("none"), theme.style("none"), theme.style("layernorm"), theme.style("none")])
    assert len({look.color for look in looks}) == 4
    assert [looks[0].color, looks[2].color] == [theme.NORM_COLORS["none"], theme.NORM_COLORS["layernorm"]]


def test_a_norm_keeps_its_colour_where_the_dash_tells_variants_apart():
    looks = theme.distinct([theme.style("layernorm", placement) for placement in theme.PLACEMENT_DASHES])
    assert {look.color for look in looks} == {theme.NORM_COLORS["layernorm"]}


def test_where_the_colours_run_out_symbols_tell_variants_apart():
    looks = theme.distinct([theme.style("layernorm")] * 12)
    assert len(set(looks)) == 12


def test_whoever_sees_no_colour_tells_variants_apart_by_dash_and_symbol():
    styles = [theme.style(norm, placement) for norm in theme.NORM_COLORS for placement in ("pre", "post")]
    looks = theme.distinct([*styles, *styles[:3]])
    assert len({(look.dash, look.symbol) for look in looks}) == len(looks)
    assert [look.symbol for look in looks[:1]] == [theme.INIT_SYMBOLS["xavier"]]
    alike = theme.distinct([theme.style(norm) for norm in ("layernorm", "none", "rmsnorm")])
    assert {look.symbol.partition("-")[0] for look in alike} == {theme.INIT_SYMBOLS["xavier"]}
