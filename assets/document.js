// The document around every page: the language it is in, and two colours of the theme for what stands outside any component.
// It knows neither pages nor what is on them.
//
// Traps this file is built around:
// - Streamlit gives the theme's colours to components alone, only the browser knows which theme is on, and when a theme
//   changes the colours are there a moment after we are told.
// - Writing the document's language or style makes the browser style the whole page anew: it is done where it changes.

const COLORS = ["background-color", "primary-color"];

export default function ({ data, parentElement }) {
  const root = document.documentElement;
  if (root.lang !== data.lang) root.lang = data.lang;
  requestAnimationFrame(() => colour(root, getComputedStyle(parentElement)));
}

function colour(root, css) {
  for (const name of COLORS) {
    const color = css.getPropertyValue(`--st-${name}`).trim();
    if (root.style.getPropertyValue(`--driftscope-${name}`) !== color) root.style.setProperty(`--driftscope-${name}`, color);
  }
}
