// A walk through the values of a chart that has the focus: arrows go from one to the next, which is shown and said, Enter
// chooses it where the page takes a choice, Escape ends the walk. The same module as assets/chart.js, its second half.
// It knows Plotly's traces; it does not know what they show.
//
// Traps this file is built around:
// - Plotly finds a point by its number, a cell only by where it is.
// - Plotly writes the label a moment later, maybe after the next key, and all numbers of a trace that is hidden are gone.
// - On a slide the arrows are the presenter's.

const WALKED = ["scatter", "bar", "heatmap"];
const LABEL_MS = 80;

/** Key -> columns to the right and rows down. */
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

function watchKeys(chart) {
  const { plot } = chart;
  const { signal } = chart.end;
  const acts = { Enter: () => chart.at && pick(chart, named(plot, chart.at)), Escape: () => leave(chart) };
  const pressed = (event) => {
    if (event.target !== plot || event.ctrlKey || event.metaKey || event.altKey || !plot.dataset.hint) return;
    const act = ARROWS[event.key] ? () => walk(chart, ARROWS[event.key]) : acts[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  };
  plot.addEventListener("keydown", pressed, { signal });
  plot.addEventListener("blur", () => leave(chart), { signal });
}

/** Say how one walks, where there is something to walk through. */
function hint({ plot, data }) {
  const words = data.scale || !tracks(plot).length ? "" : data.picks ? data.hint_pick : data.hint;
  if (plot.dataset.hint === words) return;
  plot.dataset.hint = words;
  plot.setAttribute("aria-description", words);
}

/** Tell the page which column and row of a map were chosen, or the two names in a point's id, where it asks for it. */
function pick(chart, point) {
  if (chart.data.picks && point) chart.tell("picked", point.id?.split("|") ?? [String(point.x), String(point.y)]);
}

function walk(chart, way) {
  chart.at = next(chart.plot, chart.at, way);
  if (chart.at) stand(chart);
}

/** Show the value where the walk stands, and say it. */
function stand(chart) {
  const { plot, at, said } = chart;
  if (!has(plot, at)) return leave(chart);
  const { xaxis, yaxis } = plot._fullData[at.curve];
  window.Plotly.Fx.hover(plot, [pointAt(plot, at)], xaxis + yaxis);
  const lines = () => [...plot.querySelectorAll(".hoverlayer .hovertext text")].flatMap(
    (text) => (text.querySelector("tspan.line") ? [...text.querySelectorAll("tspan.line")] : [text]).map((one) => one.textContent));
  setTimeout(() => chart.at === at && (said.textContent = lines().join(", ")), LABEL_MS);
}

function leave(chart) {
  if (!chart.at) return;
  chart.at = null;
  chart.said.textContent = "";
  window.Plotly.Fx.unhover(chart.plot);
}

/** Return the numbers of the traces that have a value to stand at. */
function tracks(plot) {
  return plot._fullData.map((_, curve) => curve).filter((curve) => {
    const { visible, hoverinfo, type } = plot._fullData[curve];
    return visible === true && hoverinfo !== "skip" && WALKED.includes(type) && end(plot, curve, 1);
  });
}

const isCells = (plot, curve) => plot._fullData[curve].type === "heatmap";

/** Return how many rows and columns a trace has; what is not cells is one row. */
function extent(plot, curve) {
  const calc = plot.calcdata[curve];
  if (!isCells(plot, curve)) return [1, calc.length];
  return [calc[0].z?.length ?? 0, Math.max(0, ...Array.from(calc[0].z ?? [], (row) => row.length))];
}

/** Whether a trace has a value there. */
function has(plot, { curve, row, column }) {
  const calc = plot.calcdata[curve];
  if (!calc || plot._fullData[curve].visible !== true) return false;
  if (isCells(plot, curve)) return Number.isFinite(calc[0].z?.[row]?.[column]);
  const one = calc[column];
  return row === 0 && (one?.x ?? one?.p) !== undefined && (one?.y ?? one?.s) !== undefined;
}

/** Return the next value of a trace, every `step`-th counted row by row from a place on; null where there is none. */
function seek(plot, curve, from, step) {
  const [rows, columns] = extent(plot, curve);
  for (let number = from; number >= 0 && number < rows * columns; number += step) {
    const at = { curve, row: Math.floor(number / columns), column: number % columns };
    if (has(plot, at)) return at;
  }
  return null;
}

/** Return the first value of a trace, or its last. */
function end(plot, curve, way) {
  const [rows, columns] = extent(plot, curve);
  return seek(plot, curve, way > 0 ? 0 : rows * columns - 1, way);
}

/** Return where a step leads: on over gaps in the trace, off its end into the next one, up and down from line to line. */
function next(plot, at, [right, down]) {
  const order = tracks(plot);
  if (!at || !has(plot, at)) return order.length ? end(plot, order[0], 1) : null;
  const columns = extent(plot, at.curve)[1];
  const step = right || (isCells(plot, at.curve) ? down * downwards(plot, at.curve) * columns : 0);
  const found = step ? seek(plot, at.curve, at.row * columns + at.column + step, step) : null;
  if (found || (step && !right)) return found ?? at;
  const other = order[order.indexOf(at.curve) + right + down];
  if (other === undefined) return at;
  const beside = { ...at, curve: other };
  return !right && has(plot, beside) ? beside : end(plot, other, right || 1);
}

/** Return whether rows are counted from the top, 1, or from the bottom, -1. */
function downwards(plot, curve) {
  const [start, end] = plot._fullLayout[plot._fullData[curve].yaxis.replace("y", "yaxis")].range;
  return start > end ? 1 : -1;
}

/** Return what a value is called on both axes, and its id. */
function named(plot, { curve, row, column }) {
  const { x, y, ids } = plot._fullData[curve];
  const [across, up] = [x, y].map((one) => one._inputArray ?? one);
  return { x: across[column], y: up[isCells(plot, curve) ? row : column], id: ids?.[column] };
}

/** Return a value as Plotly is asked for its label. */
function pointAt(plot, { curve, row, column }) {
  if (!isCells(plot, curve)) return { curveNumber: curve, pointNumber: column };
  const { x, y } = plot.calcdata[curve][0];
  const middle = (edges, index) => (edges[index] + edges[index + 1]) / 2;
  return { curveNumber: curve, xval: middle(x, column), yval: middle(y, row) };
}
