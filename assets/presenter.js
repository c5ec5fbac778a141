// The presenter: keys and clickers turn the pages, a bar says where one is, a second window has the notes and a clock.
// Windows of one browser move together. It knows addresses and keys; what is on a slide it does not know.
//
// Traps this file is built around:
// - Python answers after a moment: what we sent comes back, maybe late or overtaken, and turns nothing a second time.
// - A key meant for a control (a slider, a field, an open menu) is not a key of ours.
// - Streamlit cleans up a run that was overtaken after the next one began (see assets/chart.js).

const presenters = new WeakMap(); // Streamlit's element -> the presenter in it
const STARTED = "driftscope-talk"; // when the talk began, for all windows

/** Key -> what it does. Clickers send the page keys. */
const KEYS = {
  ArrowRight: (one) => go(one, one.slide + 1),
  PageDown: (one) => go(one, one.slide + 1),
  " ": (one) => go(one, one.slide + 1),
  ArrowLeft: (one) => go(one, one.slide - 1),
  PageUp: (one) => go(one, one.slide - 1),
  Home: (one) => go(one, 0),
  End: (one) => go(one, one.data.count - 1),
  f: () => (document.fullscreenElement ? document.exitFullscreen() : document.documentElement.requestFullscreen()),
  n: (one) => window.open(one.data.notes, "driftscope-notes", "popup,width=900,height=700"),
  r: (one) => restart(one),
  Escape: (one) => !document.fullscreenElement && window.location.assign(one.data.leave),
};

export default function ({ data, parentElement, setTriggerValue }) {
  const one = presenters.get(parentElement) ?? mount(parentElement);
  const turn = ++one.turn;
  Object.assign(one, { data, send: setTriggerValue });
  hear(one, data.slide);
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
  const [counter, clock] = ["counter", "clock"].map((name) => {
    const made = document.createElement("span");
    made.className = `driftscope-${name}`;
    return made;
  });
  bar.append(buttons.back, counter, buttons.next, clock, buttons.full, buttons.notes, buttons.leave);
  parent.append(bar);
  const one = {
    ...{ bar, buttons, counter, clock, turn: 0, data: null, slide: 0, heard: -1, echoes: [], end: new AbortController() },
    channel: new BroadcastChannel("driftscope-presenter"),
  };
  presenters.set(parent, one);
  const keys = { back: "ArrowLeft", next: "ArrowRight", full: "f", notes: "n", leave: "Escape" };
  for (const [name, key] of Object.entries(keys)) buttons[name].addEventListener("click", () => KEYS[key](one));
  document.addEventListener("keydown", (event) => pressed(one, event), { signal: one.end.signal });
  one.channel.onmessage = ({ data: { lesson, slide } }) => lesson === one.data.lesson && go(one, slide, false);
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

/** Take the slide that the address says, unless it is what we sent, or has not changed. */
function hear(one, slide) {
  const echo = one.echoes.lastIndexOf(slide);
  if (echo < 0 && slide !== one.heard) Object.assign(one, { slide, echoes: [] });
  one.echoes.splice(0, echo + 1);
  one.heard = slide;
}

function pressed(one, event) {
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
  const act = KEYS[event.key];
  if (!act || (event.key === " " && event.target.closest?.("button, a"))) return;
  event.preventDefault();
  act(one);
}

/** Whether a key belongs to what has the focus. */
const isTyping = (target) => Boolean(target.closest?.("input, textarea, select, [role=slider], [role=listbox], [contenteditable]"));

/** Turn to a slide; `tell`: whether the other windows are told. */
function go(one, slide, tell = true) {
  const there = Math.max(0, Math.min(one.data.count - 1, slide));
  if (there === one.slide) return;
  one.slide = there;
  one.echoes.push(there);
  if (!localStorage.getItem(STARTED)) restart(one);
  if (tell) one.channel.postMessage({ lesson: one.data.lesson, slide: there });
  one.send("turned", { slide: there });
  show(one);
}

function restart(one) {
  localStorage.setItem(STARTED, String(Date.now()));
  tick(one);
}

function tick({ clock, data }) {
  const begun = Number(localStorage.getItem(STARTED) ?? Date.now());
  const seconds = Math.max(0, Math.floor((Date.now() - begun) / 1000));
  const two = (number) => String(number).padStart(2, "0");
  clock.textContent = data?.clock ? `${two(Math.floor(seconds / 60))}:${two(seconds % 60)}` : "";
}

function show(one) {
  const { bar, buttons, counter, data, slide } = one;
  bar.lang = data.lang;
  bar.setAttribute("aria-label", data.words.bar);
  for (const [name, button] of Object.entries(buttons)) {
    button.textContent = data.words[name];
    button.setAttribute("aria-label", data.words[`${name}_label`]);
    button.title = data.words[`${name}_label`];
  }
  buttons.notes.hidden = buttons.leave.hidden = data.clock;
  buttons.back.disabled = slide === 0;
  buttons.next.disabled = slide === data.count - 1;
  counter.textContent = `${slide + 1} / ${data.count}`;
  tick(one);
}
