// The document around every page: the language it is in, two colours of the theme for what stands outside any component, and
// the way by keyboard into what unfolds. It knows neither pages nor what is on them.
//
// Traps this file is built around:
// - Streamlit gives the theme's colours to components alone, only the browser knows which theme is on, and when a theme
//   changes the colours are there a moment after we are told.
// - What unfolds stands at the end of the document, behind all that Tab reaches before.
// - Writing the document's language or style makes the browser style the whole page anew: it is done where it changes.

const COLORS = ["background-color", "primary-color"];

export default function ({ data, parentElement }) {
  const root = document.documentElement;
  if (root.lang !== data.lang) root.lang = data.lang;
  document.addEventListener("keydown", enterFold); // once, however often it is said
  requestAnimationFrame(() => colour(root, getComputedStyle(parentElement)));
}

function colour(root, css) {
  for (const name of COLORS) {
    const color = css.getPropertyValue(`--st-${name}`).trim();
    if (root.style.getPropertyValue(`--driftscope-${name}`) !== color) root.style.setProperty(`--driftscope-${name}`, color);
  }
}

/** From the button of an open fold Tab leads into it, as its place on the screen says; Escape leads back. */
function enterFold(event) {
  const fold = document.querySelector("[data-testid=stPopoverBody]");
  if (event.key !== "Tab" || event.shiftKey || !fold || !event.target.matches("[data-testid=stPopoverButton][aria-expanded=true]")) return;
  event.preventDefault();
  fold.tabIndex = -1;
  fold.focus();
}
