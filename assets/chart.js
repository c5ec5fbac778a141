// The one chart component: every figure is drawn here with Plotly.react, so a chart is never taken down to change it.
// It knows Plotly, Streamlit's theme variables and, for a chart that is live, the page's feed (assets/feed.js). It does not
// know what a figure shows. Keys are in assets/walk.js, which makes one module with this file.
//
// Traps this file is built around:
// - Streamlit runs the default export again on each change of data or theme, and when changes come quickly it cleans up the
//   overtaken run *after* the next one began: only the cleanup of the latest run may take the chart down.
// - Plotly writes into the layout it is given, so each painting gets a fresh copy.
// - Painting under a pressed pointer breaks a drag; painting drops the hover label.
// - Other settings make Plotly start anew, without the visitor's zoom: they are constant, words reach Plotly beside them.
// - Plotly refuses to resize what is not displayed, such as a chart on a page that is being left.
// - Live figures come faster than a slow machine paints: a painting shows what is there when its turn comes, one chart a frame.
// - Painting is done many times a second: what asks for a style makes the browser style the whole page anew. The theme is
//   read once for each time that Streamlit hands something over.
// - Live figures go on changing where they are: Plotly gets copies, as it does of everything.

const charts = new WeakMap(); // Streamlit's element -> the chart in it
let library; // promise of Plotly, one for the page
let frames = Promise.resolve(); // the last animation frame that was given to a chart

/** The mode bar: Plotly's name of a button -> what Plotly calls it. */
const BUTTONS = {
  toImage: "Download plot as a PNG",
  zoom2d: "Zoom",
  pan2d: "Pan",
  zoomIn2d: "Zoom in",
  zoomOut2d: "Zoom out",
  resetScale2d: "Reset axes",
};

const SETTINGS = {
  displaylogo: false,
  showSendToCloud: false, // on by default in plotly.js 4
  plotlyServerURL: "",
  modeBarButtons: [Object.keys(BUTTONS)],
  toImageButtonOptions: { format: "png", scale: 2, filename: "driftscope" },
  locale: "page",
};

export default function ({ data, parentElement, setTriggerValue }) {
  const chart = charts.get(parentElement) ?? mount(parentElement);
  const turn = ++chart.turn;
  Object.assign(chart, { data, theme: null, tell: setTriggerValue });
  follow(chart);
  repaint(chart);
  return () => {
    if (chart.turn === turn) unmount(parentElement, chart);
  };
}

function mount(parent) {
  const plot = document.createElement("div");
  plot.className = "driftscope-chart";
  plot.tabIndex = 0;
  plot.setAttribute("role", "figure");
  const said = Object.assign(document.createElement("div"), { className: "driftscope-said", role: "status" });
  parent.append(plot, said);
  const chart = {
    ...{ plot, said, at: null, turn: 0, data: null, due: false, pressed: false, hover: null, work: Promise.resolve(), end: new AbortController() },
    ...{ theme: null, feed: "", live: undefined, step: null, leave: () => {} },
  };
  charts.set(parent, chart);
  watchPointer(chart);
  watchKeys(chart);
  watchSight(chart);
  chart.observer = new ResizeObserver(() => plot._fullLayout && plot.clientWidth && window.Plotly.Plots.resize(plot));
  chart.observer.observe(plot);
  window.addEventListener("resize", () => chart.data?.scale && repaint(chart), { signal: chart.end.signal });
  return chart;
}

function unmount(parent, chart) {
  charts.delete(parent);
  chart.end.abort();
  chart.leave();
  chart.observer.disconnect();
  chart.work.then(() => window.Plotly?.purge(chart.plot));
  [chart.plot, chart.said].forEach((one) => one.remove());
}

/** Follow the feed that the page names. What was handed over is shown until it says more. */
function follow(chart) {
  const { feed, name, module } = chart.data;
  const wanted = JSON.stringify([feed, name]);
  if (chart.feed === wanted) return;
  const left = chart.leave; // afterwards, lest the stream that both share is closed
  Object.assign(chart, { feed: wanted, live: undefined, step: null, leave: () => {} });
  if (!feed) return left();
  import(new URL(module, document.baseURI).href)
    .then(({ subscribe, position }) => {
      if (chart.feed !== wanted || chart.end.signal.aborted) return;
      const moved = (step) => {
        chart.step = step;
        if (moves(chart)) repaint(chart);
      };
      moved(position.get(feed));
      const stops = [subscribe(feed, name, (figure) => ((chart.live = figure), repaint(chart))), position.listen(feed, moved)];
      chart.leave = () => stops.forEach((stop) => stop());
    })
    .catch(console.error) // what was handed over stays
    .finally(left);
}

/** The figure to paint: the feed's, else the one that was handed over. */
const figureOf = (chart) => chart.live ?? chart.data.figure;

/** Whether the picture depends on where the player stands. */
const moves = (chart) => ["film", "cursor"].some((one) => figureOf(chart).layout.meta?.[one]);

/** Ask for a painting: at once, or when the pointer is up and the page in sight; several askings in between are one painting. */
function repaint(chart) {
  chart.due = true;
  if (isReady(chart)) chart.work = chart.work.then(() => paint(chart)).catch((error) => confess(chart, error));
}

const isReady = (chart) => !chart.pressed && !document.hidden && !chart.end.signal.aborted;

async function paint(chart) {
  const Plotly = await load(chart.data.library);
  if (chart.due) await nextFrame();
  if (!chart.due || !isReady(chart)) return;
  chart.due = false;
  const { plot, data } = chart;
  const first = !plot._fullLayout;
  if (first) plot.replaceChildren(); // the message of a painting that failed
  plot.style.height = `${heightOf(chart)}px`;
  plot.style.minWidth = `${data.width}px`;
  plot.parentElement.style.overflowX = data.width ? "auto" : "";
  for (const one of [plot, chart.said]) if (one.lang !== data.lang) one.lang = data.lang;
  plot.setAttribute("aria-label", data.label);
  Plotly.register({ moduleType: "locale", name: SETTINGS.locale, dictionary: data.phrases, format: {} });
  const figure = figureOf(chart);
  const factor = enlargement(data);
  const [traces, layout] = [played(figure, chart.step), dressed(chart, figure)].map((part) => enlarged(part, factor));
  await Plotly.react(plot, traces, layout, structuredClone(SETTINGS));
  labelButtons(plot, data.phrases);
  if (first) watchHover(chart), watchClicks(chart);
  plot.classList.toggle("driftscope-picks", data.picks);
  hint(chart);
  showHover(Plotly, chart);
  if (data.scale) chart.room ??= watchRoom(chart);
}

/** On a slide, paint anew whenever what stands above the chart is laid out otherwise, which changes the room of some parent. */
function watchRoom(chart) {
  const fits = () => Math.abs(heightOf(chart) - parseFloat(chart.plot.style.height)) < 1;
  const room = new ResizeObserver(() => fits() || repaint(chart));
  for (let one = chart.plot.parentElement; one; one = one.parentElement) room.observe(one);
  chart.end.signal.addEventListener("abort", () => room.disconnect());
  return room;
}

/** Its own height, or on a slide all that is left of the window above the presenter's bar. */
function heightOf({ data, plot }) {
  if (!data.scale) return data.height;
  return Math.max(data.height, window.innerHeight * 0.94 - plot.getBoundingClientRect().top);
}

/** How much larger type is on a slide, which is read from afar however many pixels it has. */
const enlargement = ({ scale }) => (scale ? scale * Math.max(1, window.innerHeight / 720) : 1);

/** Return a part of a figure, `name` in its owner, with all type in it so many times larger. */
function enlarged(part, factor, name = "") {
  if (factor === 1 || part === null || ArrayBuffer.isView(part)) return part;
  if (name === "standoff") return part * factor * factor; // between an axis's title and its numbers, which grow both
  if (typeof part !== "object") return part;
  if (Array.isArray(part)) return part.map((one) => enlarged(one, factor));
  const inner = Object.fromEntries(Object.entries(part).map(([key, one]) => [key, enlarged(one, factor, key)]));
  return /font$/i.test(name) && typeof part.size === "number" ? { ...inner, size: part.size * factor } : inner;
}

function nextFrame() {
  frames = frames.then(() => new Promise(requestAnimationFrame));
  return frames;
}

/** Return which row of a film belongs to a step: that of the recorded step there, or of the one before. */
const frame = (film, step) => Math.max(0, film.steps.findLastIndex((one) => one <= step));

/** Return a copy of the traces, those of a film as they were at the player's step. */
function played({ data, layout }, step) {
  const film = layout.meta?.film;
  if (!film || step === null) return structuredClone(data);
  const row = frame(film, step);
  const then = (rows) => Object.fromEntries(Object.entries(rows ?? {}).map(([name, values]) => [name, values[row]]));
  return structuredClone(data.map((trace, index) => ({ ...trace, ...then(film.traces[index]) })));
}

/** Return a copy of the layout in the theme that Streamlit shows now. */
function dressed(chart, figure) {
  const template = structuredClone((chart.theme ??= themeOf(chart)));
  const { step } = chart;
  const { meta: { film, cursor, ...meta } = {}, ...layout } = figure.layout; // films are long, and not for Plotly
  const shapes = [...(layout.shapes ?? []), ...(cursor && step !== null ? cursors(figure, step, template.layout.font.color) : [])];
  const copy = structuredClone({ ...layout, meta, shapes });
  if (film?.notes && step !== null) copy.title.subtitle.text = film.notes[frame(film, step)];
  return { ...copy, template, autosize: true };
}

/** Return Plotly's template in the colours of the page. */
function themeOf({ data, plot }) {
  const css = getComputedStyle(plot);
  const of = (name) => css.getPropertyValue(`--st-${name}`).trim();
  const { layout, ...template } = data.templates[isDark(of("background-color")) ? "dark" : "light"];
  const [back, font] = [of("background-color"), { ...layout.font, color: of("text-color"), family: of("font") }];
  return { ...template, layout: { ...layout, paper_bgcolor: back, plot_bgcolor: back, font } };
}

/** Return a line at the step over each x axis. */
function cursors({ layout }, step, color) {
  const names = Object.keys(layout).filter((name) => /^xaxis\d*$/.test(name));
  return (names.length ? names : ["xaxis"]).flatMap((name) => {
    const axis = layout[name] ?? {};
    const number = name.slice("xaxis".length);
    const x = placeOf(step, axis);
    const yref = `${/^y/.test(axis.anchor) ? axis.anchor : `y${number}`} domain`;
    const line = { color, width: 2 };
    return x === null ? [] : [{ type: "line", xref: `x${number}`, yref, x0: x, x1: x, y0: 0, y1: 1, line }];
  });
}

/** Return where a step stands on an axis: among categories beside the last one before it; null where it has no place. */
function placeOf(step, { type, categoryarray }) {
  if (type === "log" && step <= 0) return null;
  if (type !== "category") return step;
  const place = Array.from(categoryarray ?? []).findLastIndex((one) => Number(one) <= step);
  return place < 0 ? null : place;
}

function isDark(color) {
  const pen = document.createElement("canvas").getContext("2d");
  pen.fillStyle = color;
  pen.fillRect(0, 0, 1, 1);
  const [red, green, blue] = pen.getImageData(0, 0, 1, 1).data;
  return 0.299 * red + 0.587 * green + 0.114 * blue < 128;
}

/** Name the buttons of the mode bar, which Plotly does not do again in another language. */
function labelButtons(plot, phrases) {
  const said = Object.values(BUTTONS);
  plot.querySelectorAll(".modebar-btn").forEach((button, index) => {
    const words = phrases[said[index]] ?? said[index];
    button.dataset.title = words;
    button.setAttribute("aria-label", words);
  });
}

function load(path) {
  if (window.Plotly) return Promise.resolve(window.Plotly);
  library ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = new URL(path, document.baseURI);
    script.onload = () => resolve(window.Plotly);
    script.onerror = () => {
      library = undefined; // the next painting tries again
      reject(new Error(`could not load ${script.src}`));
    };
    document.head.append(script);
  });
  return library;
}

function watchPointer(chart) {
  const { signal } = chart.end;
  const release = () =>
    setTimeout(() => {
      // after Plotly has finished its drag, which it does on mouseup
      if (!chart.pressed) return;
      chart.pressed = false;
      if (chart.due) repaint(chart);
    });
  chart.plot.addEventListener("pointerdown", () => (chart.pressed = true), { capture: true, signal });
  for (const name of ["pointerup", "pointercancel", "blur"]) window.addEventListener(name, release, { capture: true, signal });
}

/** Catch up on what was not painted while nobody could see it. */
function watchSight(chart) {
  const caughtUp = () => chart.due && repaint(chart);
  document.addEventListener("visibilitychange", caughtUp, { signal: chart.end.signal });
}

function watchHover(chart) {
  chart.plot.on("plotly_hover", ({ event }) => event && (chart.hover = { x: event.clientX, y: event.clientY }));
  chart.plot.addEventListener("pointerleave", () => (chart.hover = null), { signal: chart.end.signal });
}

const watchClicks = (chart) => chart.plot.on("plotly_click", ({ points }) => pick(chart, points?.[0]));

/** Bring back the label that the pointer or the keys had called up. */
function showHover(Plotly, chart) {
  const { plot, hover } = chart;
  if (chart.at) return stand(chart);
  if (!hover) return;
  for (const drawing of plot.querySelectorAll(".nsewdrag")) {
    const { left, right, top, bottom } = drawing.getBoundingClientRect();
    if (hover.x < left || hover.x > right || hover.y < top || hover.y > bottom) continue;
    Plotly.Fx.hover(plot, { xpx: hover.x - left, ypx: hover.y - top }, drawing.dataset.subplot);
  }
}

function confess(chart, error) {
  console.error(error);
  window.Plotly?.purge(chart.plot);
  chart.plot.textContent = chart.data.failure;
}
