// What the components of one page share: a stream of live figures, and where the player stands.
// It knows server-sent events and patches (pages/ui/patches.py says what they are). It does not know Plotly or Streamlit.
//
// Traps this file is built around:
// - A browser gives a site six connections, all tabs together: there is one stream a page, and none for a tab nobody looks at.
// - A Streamlit rerun may take components down and put them up again at once: the stream stays open for a moment.
// - An EventSource that was refused (503) never tries again by itself, one that was cut does so at once, all viewers together:
//   we close it and try again ourselves, later each time, and not all at the same time.
// - A patch is for the figures just before it: every new connection begins with the whole.

const GRACE_MS = 1500;
const HIDDEN_MS = 10_000;
const RETRY_MS = [500, 30_000];

const feeds = new Map(); // address -> Feed

/** Call `listener(figure, trouble)` with what the feed calls `name`, now if it is known, and whenever it changes; returns how to stop.
 *  The figure is undefined where the feed has none of that name; `trouble`: a sentence where the server refused. */
export function subscribe(address, name, listener) {
  const url = new URL(address, document.baseURI).href;
  const feed = feeds.get(url) ?? new Feed(url);
  feeds.set(url, feed);
  const subscription = { name, listener };
  feed.add(subscription);
  return () => feed.remove(subscription);
}

/** Where the player of a place stands: a step, or null for the newest. */
class Position {
  #steps = new Map();
  #listeners = new Set();

  get(place) {
    return this.#steps.get(place) ?? null;
  }

  set(place, step) {
    if (this.get(place) === step) return;
    if (step === null) this.#steps.delete(place);
    else this.#steps.set(place, step);
    for (const one of [...this.#listeners]) if (one.place === place) one.listener(step);
  }

  /** Call `listener(step)` whenever the player of the place moves; returns how to stop. */
  listen(place, listener) {
    const one = { place, listener };
    this.#listeners.add(one);
    return () => this.#listeners.delete(one);
  }
}

export const position = new Position();

/** Change `figure`, where it is, by the ops of a patch. */
export function apply(figure, ops) {
  for (const { path, ...op } of ops) {
    const key = path.at(-1);
    const place = path.slice(0, -1).reduce((value, name) => value[name], figure);
    if (op.drop) delete place[key];
    else if ("set" in op) place[key] = op.set;
    else if (op.axis) place[key] = place[key].map((row, index) => row.slice(0, op.cut).concat(op.add[index]));
    else place[key] = [...place[key].slice(0, op.cut), ...op.add];
  }
}

/** One address: its connection, its figures as of now, and who follows them. */
class Feed {
  figures = {};
  trouble = "";
  over = false;
  #subscriptions = new Set();
  #source = null;
  #retry = 0;
  #delay = RETRY_MS[0];
  #farewell = 0;

  constructor(url) {
    this.url = url;
  }

  add(subscription) {
    clearTimeout(this.#farewell);
    this.#subscriptions.add(subscription);
    this.open();
    if (subscription.name in this.figures) this.#tell(subscription);
  }

  remove(subscription) {
    this.#subscriptions.delete(subscription);
    if (this.#subscriptions.size) return;
    const replaced = [...feeds.values()].some((other) => other !== this);
    clearTimeout(this.#farewell);
    this.#farewell = setTimeout(() => this.#end(), replaced ? 0 : GRACE_MS);
  }

  open() {
    if (this.#source || this.over || document.hidden) return;
    clearTimeout(this.#retry);
    const source = (this.#source = new EventSource(this.url));
    const on = (name, act) => source.addEventListener(name, ({ data }) => source === this.#source && act(data && JSON.parse(data)));
    on("state", ({ figures }) => this.#replace(figures));
    on("patch", ({ figures }) => this.#patch(figures));
    on("over", () => {
      this.over = true;
      this.close();
    });
    on("failure", ({ reason }) => this.#refused(reason));
    on("error", () => this.#again());
  }

  close() {
    clearTimeout(this.#retry);
    this.#source?.close();
    this.#source = null;
  }

  #replace(figures) {
    const names = new Set([...Object.keys(this.figures), ...Object.keys(figures)]);
    this.figures = figures;
    this.trouble = "";
    this.#delay = RETRY_MS[0];
    this.#tellAll(names);
  }

  #patch(changes) {
    for (const [name, ops] of Object.entries(changes)) apply(this.figures[name], ops);
    this.#tellAll(new Set(Object.keys(changes)));
  }

  #refused(reason) {
    this.trouble = reason;
    this.#delay = RETRY_MS[1];
    this.#again();
    this.#tellAll();
  }

  #again() {
    this.close();
    this.#retry = setTimeout(() => this.open(), this.#delay * (0.5 + Math.random()));
    this.#delay = Math.min(2 * this.#delay, RETRY_MS[1]);
  }

  #tellAll(names) {
    for (const one of [...this.#subscriptions]) if (!names || names.has(one.name)) this.#tell(one);
  }

  #tell({ name, listener }) {
    try {
      listener(this.figures[name], this.trouble);
    } catch (error) {
      console.error(error); // the others are told all the same
    }
  }

  #end() {
    this.close();
    if (feeds.get(this.url) === this) feeds.delete(this.url);
  }
}

let leaving = 0;
document.addEventListener("visibilitychange", () => {
  clearTimeout(leaving);
  if (document.hidden) leaving = setTimeout(() => feeds.forEach((feed) => feed.close()), HIDDEN_MS);
  else feeds.forEach((feed) => feed.open());
});
