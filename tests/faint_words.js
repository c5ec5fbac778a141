// Which words of the page's charts have a contrast below 4.5 (3, from 24 pixels on) to what is behind them: the page, or the
// box of an annotation or a hover label. Letters in coloured cells are left to tests/test_theme.py.
() => {
  const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const read = (color) => {
    pen.fillStyle = color;
    pen.fillRect(0, 0, 1, 1);
    return [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map((one) => one / 255).map((one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const opacity = (node, end) => (node === end ? 1 : getComputedStyle(node).opacity * opacity(node.parentElement, end));
  const behind = (text, chart) => {
    const box = text.closest(".annotation, .hovertext")?.querySelector("rect, path");
    const css = box && getComputedStyle(box);
    return read(css && css.fillOpacity > 0.5 && css.fill !== "none" ? css.fill : chart._fullLayout.paper_bgcolor);
  };
  const ratio = (text, chart) => {
    const back = behind(text, chart);
    const share = getComputedStyle(text).fillOpacity * opacity(text, chart);
    const fore = read(getComputedStyle(text).fill).map((one, place) => share * one + (1 - share) * back[place]);
    const [low, high] = [light(fore), light(back)].sort((one, other) => one - other);
    return (high + 0.05) / (low + 0.05);
  };
  const words = (chart) => [...chart.querySelectorAll("text")].filter((text) => text.textContent.trim() && !text.closest(".heatmaplayer"));
  return [...document.querySelectorAll(".driftscope-chart")].flatMap((chart) =>
    words(chart)
      .map((text) => [text.textContent, ratio(text, chart), parseFloat(getComputedStyle(text).fontSize)])
      .filter(([, found, size]) => found < (size >= 24 ? 3 : 4.5))
      .map(([said, found]) => `${said}: ${found.toFixed(2)}`));
}
