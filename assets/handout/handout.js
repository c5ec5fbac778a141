// What a hand-out does when it is opened: it unpacks plotly.js and the figures that are in the file, has the pages' own chart
// component (assets/chart.js) draw them, and switches the theme. It fetches nothing, and knows nothing of what is drawn.

const text = (id) => document.getElementById(id).textContent;

async function unpacked(id) {
  const packed = Uint8Array.from(atob(text(id)), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

/** Return an address of a script that is in the file: the only kind that the file's policy lets run. */
const addressOf = (script) => URL.createObjectURL(new Blob([script], { type: "text/javascript" }));

function run(script) {
  return new Promise((resolve, reject) => {
    const element = document.createElement("script");
    Object.assign(element, { src: addressOf(script), onload: resolve, onerror: reject });
    document.head.append(element);
  });
}

const dark = matchMedia("(prefers-color-scheme: dark)");
const chosen = () => document.documentElement.dataset.theme ?? (dark.matches ? "dark" : "light");

await run(await unpacked("plotly"));
const { default: draw } = await import(addressOf(await unpacked("chart")));
const { shared, figures } = JSON.parse(await unpacked("sheet"));
const places = [...document.querySelectorAll(".chart")];

function drawAll() {
  for (const place of places)
    draw({ data: { ...shared, ...figures[place.dataset.figure] }, parentElement: place, setTriggerValue() {} });
}

const button = document.getElementById("theme");
button.hidden = false;
button.addEventListener("click", () => {
  document.documentElement.dataset.theme = chosen() === "dark" ? "light" : "dark";
  drawAll();
});
dark.addEventListener("change", drawAll);
document.getElementById("failure").remove();
drawAll();
