// How figures become an image, in the page that pages/ui/chromium.py opens for it: each is drawn by Plotly as SVG, in the pages'
// own type, which the SVG carries with it; a PNG is a picture of that, a PDF is printed. It knows nothing of what is drawn.
//
// Traps this file is built around:
// - Plotly measures texts when it lays them out: the type must be there before.
// - An SVG in a picture sees no type of the page, only what it has in itself.
// - kaleido loads the page anew after each call, which takes longer than a drawing: the frames of a film come several at a time.

const ROOM = 16; // around a figure, in which the ends of what stands at its edge are seen too

const face = document.getElementById("face").textContent;

/** Format -> what makes the content of a file of SVGs: of one, or PNGs one after the other. */
const FORMATS = {
  svg: async ([svg]) => svg,
  png: async (svgs, width, height) => {
    const pictures = [];
    for (const svg of svgs) pictures.push(await painted(svg, width, height));
    return inLetters(new Blob(pictures));
  },
  pdf: async ([svg], width, height) => {
    document.getElementById("paper").textContent = `@page { size: ${width}px ${height}px; margin: 0 }`;
    document.body.innerHTML = svg; // for kaleido to print
  },
};

async function painted(svg, width, height) {
  const picture = Object.assign(new Image(), { src: URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" })) });
  await picture.decode();
  const canvas = Object.assign(document.createElement("canvas"), { width, height });
  canvas.getContext("2d").drawImage(picture, 0, 0, width, height);
  return new Promise((resolve) => canvas.toBlob(resolve));
}

function inLetters(blob) {
  const reader = new FileReader();
  const read = new Promise((resolve) => (reader.onload = () => resolve(reader.result.split(",")[1])));
  reader.readAsDataURL(blob);
  return read;
}

const literal = (text) => Object.assign(document.createElement("p"), { textContent: text }).innerHTML;

/** Return a figure as an SVG of a size, with room around it, with the type of the page, and with what it shows in words. */
async function drawn({ data, layout, title, source }, width, height, scale) {
  const inner = { format: "svg", width: width - 2 * ROOM, height: height - 2 * ROOM, imageDataOnly: true };
  const figure = (await Plotly.toImage({ data, layout }, inner)).replace("<svg", `<svg x="${ROOM}" y="${ROOM}" overflow="visible"`);
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width * scale}" height="${height * scale}" viewBox="0 0 ${width} ${height}">` +
    `<title>${literal(title)}</title><desc>${literal(source)}</desc><style>${face}</style>` +
    `<rect width="100%" height="100%" fill="${layout.template.layout.paper_bgcolor}"/>${figure}</svg>`
  );
}

async function plotly({ data: { data: figures }, format, width, height, scale }) {
  document.title = figures[0].title;
  await document.fonts.load("16px 'Source Sans'");
  const svgs = [];
  for (const figure of figures) svgs.push(await drawn(figure, width, height, scale));
  return { code: 0, format, result: await FORMATS[format](svgs, Math.round(width * scale), Math.round(height * scale)) };
}

globalThis.kaleido_scopes = { plotly }; // what kaleido calls
