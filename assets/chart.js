// The one chart component: every figure is drawn here with Plotly.react, so a chart is never taken down to change it.
// It knows Plotly and Streamlit's theme variables. It does not know what a figure shows.
//
// Traps this file is built around:
// - Streamlit runs the default export again on each change of data or theme, and when changes come quickly it cleans up the
//   overtaken run *after* the next one began: only the cleanup of the latest run may take the chart down.
// - Plotly writes into the layout it is given, so each painting gets a fresh copy.
// - Painting under a pressed pointer breaks a drag; painting drops the hover label.
// - Other settings make Plotly start anew, without the visitor's zoom: they are constant, words reach Plotly beside them.
// - Plotly refuses to resize what is not displayed, such as a chart on a page that is being left.

const charts = new WeakMap(); // Streamlit's element -> the chart in it
let library; // promise of Plotly, one for the page

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
  chart.data = data;
  chart.tell = setTriggerValue;
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
  parent.append(plot);
  const chart = { plot, turn: 0, data: null, due: false, pressed: false, hover: null, work: Promise.resolve(), end: new AbortController() };
  charts.set(parent, chart);
  watchPointer(chart);
  chart.observer = new ResizeObserver(() => plot._fullLayout && plot.clientWidth && window.Plotly.Plots.resize(plot));
  chart.observer.observe(plot);
  return chart;
}

function unmount(parent, chart) {
  charts.delete(parent);
  chart.end.abort();
  chart.observer.disconnect();
  chart.work.then(() => window.Plotly?.purge(chart.plot));
  chart.plot.remove();
}

/** Ask for a painting of chart.data: at once, or when the pointer is up; several askings in between are one painting. */
function repaint(chart) {
  chart.due = true;
  if (!chart.pressed) chart.work = chart.work.then(() => paint(chart)).catch((error) => confess(chart, error));
}

async function paint(chart) {
  const Plotly = await load(chart.data.library);
  if (!chart.due || chart.pressed || chart.end.signal.aborted) return;
  chart.due = false;
  const { plot, data } = chart;
  const first = !plot._fullLayout;
  if (first) plot.replaceChildren(); // the message of a painting that failed
  plot.style.height = `${data.height}px`;
  plot.style.minWidth = `${data.width}px`;
  plot.parentElement.style.overflowX = data.width ? "auto" : "";
  plot.lang = document.documentElement.lang = data.lang;
  plot.setAttribute("aria-label", data.label);
  Plotly.register({ moduleType: "locale", name: SETTINGS.locale, dictionary: data.phrases, format: {} });
  await Plotly.react(plot, structuredClone(data.figure.data), dressed(data, plot), structuredClone(SETTINGS));
  labelButtons(plot, data.phrases);
  if (first) watchHover(chart);
  if (first) watchClicks(chart);
  plot.classList.toggle("driftscope-picks", data.picks);
  showHover(Plotly, chart);
}

/** Return a copy of the layout in the theme that Streamlit shows now. */
function dressed(data, plot) {
  const css = getComputedStyle(plot);
  const of = (name) => css.getPropertyValue(`--st-${name}`).trim();
  const template = structuredClone(data.templates[isDark(of("background-color")) ? "dark" : "light"]);
  Object.assign(template.layout, { paper_bgcolor: of("background-color"), plot_bgcolor: of("background-color") });
  Object.assign(template.layout.font, { color: of("text-color"), family: of("font") });
  return { ...structuredClone(data.figure.layout), template, autosize: true };
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

function watchHover(chart) {
  chart.plot.on("plotly_hover", ({ event }) => event && (chart.hover = { x: event.clientX, y: event.clientY }));
  chart.plot.addEventListener("pointerleave", () => (chart.hover = null), { signal: chart.end.signal });
}

/** Tell the page which row of a map was clicked, where the page asks for it. */
function watchClicks(chart) {
  chart.plot.on("plotly_click", ({ points }) => {
    if (chart.data.picks && points?.length) chart.tell("picked", String(points[0].y));
  });
}

/** Bring back the label that the pointer had called up. */
function showHover(Plotly, { plot, hover }) {
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
