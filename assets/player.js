// The player of a training: a button, a range over the recorded steps, and where it stands. The charts that follow the same
// feed move with it, without Python, which is told only where the visitor let go.
// It knows the page's feed (assets/feed.js). It does not know Plotly.
//
// Traps this file is built around:
// - What we tell Python comes back as the step to stand at, while the visitor may be elsewhere already: an echo moves nothing.
// - Steps are recorded while the film runs: it goes on to what is the last one then.
// - A slow machine shows fewer pictures and not a longer film: the place follows the clock.
// - Streamlit cleans up a run that was overtaken after the next one began (see assets/chart.js).

const FILM_MS = 12_000; // the whole training, however many steps
const PICTURE_MS = 100;
const TELL_MS = 250; // of several keys pressed one after the other, Python hears the last

const players = new WeakMap(); // Streamlit's element -> the player in it

export default function ({ data, parentElement, setTriggerValue }) {
  const player = players.get(parentElement) ?? mount(parentElement);
  const turn = ++player.turn;
  player.data = data;
  player.send = setTriggerValue;
  follow(player);
  return () => {
    if (player.turn === turn) unmount(parentElement, player);
  };
}

function mount(parent) {
  const box = document.createElement("div");
  box.className = "driftscope-player";
  box.setAttribute("role", "group");
  const [button, newest] = ["driftscope-play", "driftscope-newest"].map((name) => {
    const made = document.createElement("button");
    made.type = "button";
    made.className = name;
    return made;
  });
  const range = Object.assign(document.createElement("input"), { type: "range", min: 0, step: 1, value: 0, max: 0 });
  const readout = document.createElement("span");
  readout.className = "driftscope-readout";
  readout.setAttribute("aria-hidden", "true"); // the range says it
  box.append(button, range, readout, newest);
  parent.append(box);
  const player = {
    ...{ box, button, range, readout, newest, turn: 0, data: null, feed: "", leave: () => {}, position: null },
    ...{ steps: [], trouble: "", asked: undefined, echoes: [], film: 0, timer: 0 },
  };
  players.set(parent, player);
  button.addEventListener("click", () => (player.film ? pause(player) : play(player)));
  newest.addEventListener("click", () => (pause(player), go(player, null), tell(player)));
  range.addEventListener("input", () => (pause(player), go(player, player.steps[range.valueAsNumber] ?? null)));
  range.addEventListener("change", () => tell(player));
  return player;
}

function unmount(parent, player) {
  players.delete(parent);
  clearInterval(player.film);
  clearTimeout(player.timer);
  player.leave();
  player.position?.set(player.data.feed, null);
  player.box.remove();
}

/** Follow the feed that the page names, and stand where the page says, unless that is only what we told it. */
function follow(player) {
  const { feed, name, module, step } = player.data;
  const wanted = JSON.stringify([feed, name]);
  const echo = player.echoes.lastIndexOf(step);
  if (echo >= 0) player.echoes.splice(0, echo + 1);
  const told = echo < 0 && step !== player.asked;
  player.asked = step;
  if (player.feed === wanted) {
    if (told) pause(player), go(player, step);
    return show(player);
  }
  const left = player.leave;
  const before = player.place;
  Object.assign(player, { feed: wanted, place: feed, leave: () => {} });
  import(new URL(module, document.baseURI).href)
    .then(({ subscribe, position }) => {
      if (player.feed !== wanted || !player.box.isConnected) return;
      const stands = told ? step : before === undefined ? null : position.get(before); // in another language, the same step
      if (before !== undefined) position.set(before, null);
      player.position = position;
      const stops = [position.listen(feed, () => show(player)), subscribe(feed, name, (figure, trouble) => learn(player, figure, trouble))];
      player.leave = () => stops.forEach((stop) => stop());
      go(player, stands);
      show(player);
    })
    .catch(console.error)
    .finally(left);
  show(player);
}

function learn(player, figure, trouble) {
  player.steps = figure?.layout.meta?.steps ?? player.steps;
  player.trouble = trouble;
  show(player);
}

const stand = ({ position, data }) => position?.get(data.feed) ?? null;

function go({ position, data }, step) {
  position?.set(data.feed, step);
}

/** Index of the recorded step where the player stands: the nearest at or below it. */
function indexOf(player) {
  const step = stand(player);
  if (step === null) return player.steps.length - 1;
  return Math.max(0, player.steps.findLastIndex((one) => one <= step));
}

/** Run the film from where the player stands, or from the beginning; it ends with the newest. */
function play(player) {
  const begin = indexOf(player) >= player.steps.length - 1 ? 0 : indexOf(player);
  const started = performance.now();
  const picture = () => {
    const index = begin + Math.floor(((performance.now() - started) / FILM_MS) * (player.steps.length - 1));
    if (index < player.steps.length - 1) return go(player, player.steps[index]);
    pause(player);
    go(player, null);
    tell(player);
  };
  player.film = setInterval(picture, PICTURE_MS);
  picture();
  show(player);
}

/** Stop the film; where it stopped is where the visitor let go. */
function pause(player) {
  if (!player.film) return;
  clearInterval(player.film);
  player.film = 0;
  tell(player);
  show(player);
}

/** Tell Python where the player stands, once the visitor has let go of it. */
function tell(player) {
  clearTimeout(player.timer);
  player.timer = setTimeout(() => {
    if (player.film) return;
    const step = stand(player);
    player.echoes = [...player.echoes.slice(-7), step];
    player.send("stood", { step });
  }, TELL_MS);
}

function show(player) {
  const { box, button, range, readout, newest, data, steps, film, trouble } = player;
  const { words } = data;
  const index = indexOf(player);
  const atNewest = stand(player) === null;
  const said = (text) => text.replaceAll("{step}", steps[index]).replaceAll("{last}", steps.at(-1));
  const place = steps.length ? said(atNewest ? words.at_newest : words.at) : trouble || words.waiting;
  box.lang = data.lang;
  box.setAttribute("aria-label", words.range);
  button.textContent = film ? words.pause : words.play;
  button.classList.toggle("driftscope-playing", Boolean(film));
  newest.textContent = words.newest;
  newest.setAttribute("aria-pressed", String(atNewest));
  button.disabled = range.disabled = newest.disabled = steps.length < 2;
  range.max = Math.max(0, steps.length - 1);
  range.value = index;
  range.setAttribute("aria-label", words.range);
  range.setAttribute("aria-valuetext", place);
  readout.textContent = place;
}
