// The presenter: keys and clickers turn the pages, a bar says where one is, a second window has the notes and a clock.
// Windows of one browser move together. It knows addresses and keys; what is on a slide it does not know.
// A place is a lesson and a slide of it; beyond a lesson's ends are its neighbours in the talk.
//
// Traps this file is built around:
// - Another address would end the full screen: lessons too are turned by telling Python.
// - Python answers after a moment: what we sent comes back, maybe late or overtaken, and turns nothing a second time.
// - A key meant for a control (a field, an open menu) is not a key of ours; of a slider only the arrows are, and only while
//   it is reached by keys: after the pointer has let go of it a clicker turns pages again.
// - Streamlit cleans up a run that was overtaken after the next one began (see assets/chart.js).

const presenters = new WeakMap(); // Streamlit's element -> the presenter in it
const STARTED = "driftscope-talk"; // when the talk began, for all windows
const LONGEST_MS = 6 * 3600 * 1000; // a talk that began earlier is over

/** Key -> what it does. Clickers send the page keys. */
const KEYS = {
  ArrowRight: (one) => step(one, 1),
  PageDown: (one) => step(one, 1),
  " ": (one) => step(one, 1),
  ArrowLeft: (one) => step(one, -1),
  PageUp: (one) => step(one, -1),
  Home: (one) => go(one, [one.at[0], 0]),
  End: (one) => go(one, [one.data.lesson, one.data.count - 1]),
  f: () => (document.fullscreenElement ? document.exitFullscreen() : document.documentElement.requestFullscreen()),
  n: (one) => window.open(one.data.notes, "driftscope-notes", "popup,width=900,height=700"),
  r: (one) => restart(one),
  Escape: (one) => !document.fullscreenElement && window.location.assign(one.data.leave),
};

export default function ({ data, parentElement, setTriggerValue }) {
  const one = presenters.get(parentElement) ?? mount(parentElement);
  const turn = ++one.turn;
  Object.assign(one, { data, send: setTriggerValue });
  hear(one, [data.lesson, data.slide]);
  show(one);
  return () => {
    if (one.turn === turn) unmount(parentElement, one);
  };
}

function mount(parent) {
  const bar = document.createElement("div");
  bar.className = "driftscope-presenter";
  bar.setAttribute("role", "toolbar");
  const buttons = Object.fromEntries(["back", "next", "full", "notes", "leave"].map((name) => {
    const made = document.createElement("button");
    made.type = "button";
    made.dataset.name = name;
    return [name, made];
  }));
  const [counter, part, clock] = ["counter", "part", "clock"].map((name) => {
    const made = document.createElement("span");
    made.className = `driftscope-${name}`;
    return made;
  });
  bar.append(buttons.back, counter, buttons.next, part, clock, buttons.full, buttons.notes, buttons.leave);
  parent.append(bar);
  const one = {
    ...{ bar, buttons, counter, part, clock, turn: 0, data: null, at: ["", 0], heard: "", echoes: [], end: new AbortController() },
    channel: new BroadcastChannel("driftscope-presenter"),
  };
  presenters.set(parent, one);
  const keys = { back: "ArrowLeft", next: "ArrowRight", full: "f", notes: "n", leave: "Escape" };
  for (const [name, key] of Object.entries(keys)) buttons[name].addEventListener("click", () => KEYS[key](one));
  document.addEventListener("keydown", (event) => pressed(one, event), { capture: true, signal: one.end.signal });
  document.addEventListener("pointerup", letGo, { signal: one.end.signal });
  one.channel.onmessage = ({ data: [lesson, slide] }) => one.data.lessons.includes(lesson) && go(one, [lesson, slide], false);
  one.tick = setInterval(() => tick(one), 1000);
  return one;
}

function unmount(parent, one) {
  presenters.delete(parent);
  clearInterval(one.tick);
  one.end.abort();
  one.channel.close();
  one.bar.remove();
}

/** Take the place that the address says, unless it is what we sent, or has not changed. */
function hear(one, place) {
  const name = place.join("/");
  const echo = one.echoes.lastIndexOf(name);
  if (echo < 0 && name !== one.heard) Object.assign(one, { at: place, echoes: [] });
  one.echoes.splice(0, echo + 1);
  one.heard = name;
}

function pressed(one, event) {
  if (event.ctrlKey || event.metaKey || event.altKey || isFor(event.target, event.key)) return;
  const act = KEYS[event.key];
  if (!act || (event.key === " " && event.target.closest?.("button, a"))) return;
  event.preventDefault();
  event.stopPropagation(); // a slider would take the page keys too
  act(one);
}

/** Whether a key belongs to what has the focus. */
function isFor(target, key) {
  if (target.closest?.("input[type=range]")) return /^(Arrow|Home$|End$)/.test(key);
  return Boolean(target.closest?.("input, textarea, select, [role=slider], [role=listbox], [contenteditable]"));
}

/** Take the focus from a slider that the pointer has let go of. */
const letGo = () => setTimeout(() => document.activeElement?.closest?.("input[type=range]")?.blur());

/** Turn a page forth or back. Of a lesson that Python has not shown yet it is not known where it ends. */
function step(one, by) {
  const [lesson, slide] = one.at;
  const { before, after, count } = one.data;
  const there = slide + by;
  const known = lesson === one.data.lesson;
  const place = there < 0 ? known && before : known && there >= count ? after : [lesson, there];
  if (place) go(one, place);
}

/** Turn to a place; `tell`: whether the other windows are told. */
function go(one, place, tell = true) {
  if (place.join("/") === one.at.join("/")) return;
  one.at = place;
  one.echoes.push(place.join("/"));
  if (!begun()) restart(one);
  if (tell) one.channel.postMessage(place);
  const [lesson, slide] = place;
  one.send("turned", { lesson, slide });
  show(one);
}

/** When the talk began; nothing where there is none under way. */
function begun() {
  const started = Number(localStorage.getItem(STARTED));
  return Date.now() - started < LONGEST_MS ? started : null;
}

function restart(one) {
  localStorage.setItem(STARTED, String(Date.now()));
  tick(one);
}

function tick({ clock, data }) {
  const seconds = Math.max(0, Math.floor((Date.now() - (begun() ?? Date.now())) / 1000));
  const two = (number) => String(number).padStart(2, "0");
  clock.textContent = data?.clock ? `${two(Math.floor(seconds / 60))}:${two(seconds % 60)}` : "";
}

function show(one) {
  const { bar, buttons, counter, part, data } = one;
  const [lesson, slide] = one.at;
  const known = lesson === data.lesson;
  bar.lang = data.lang;
  bar.setAttribute("aria-label", data.words.bar);
  for (const [name, button] of Object.entries(buttons)) {
    button.textContent = data.words[name];
    button.setAttribute("aria-label", data.words[`${name}_label`]);
    button.title = data.words[`${name}_label`];
  }
  buttons.notes.hidden = buttons.leave.hidden = data.clock;
  buttons.back.disabled = known && slide === 0 && !data.before;
  buttons.next.disabled = known && slide === data.count - 1 && !data.after;
  counter.textContent = known ? `${slide + 1} / ${data.count}` : "…";
  part.textContent = known ? data.words.part : "";
  tick(one);
}
