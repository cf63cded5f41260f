// What is looked at, and its link: `#/prompt/12?from=3&to=40&block=B17&q=token`. The address is the only state of the page.

const listeners = [];
let current = parse(location.hash);

function parse(hash) {
  const [path, query] = hash.replace(/^#\/?/, "").split("?");
  const [screen, call] = path.split("/");
  const values = new URLSearchParams(query || "");
  const number = (text) => (/^\d{1,9}$/.test(text || "") ? Number(text) : null);
  return {
    screen: screen || "overview",
    call: number(call),
    from: number(values.get("from")),
    to: number(values.get("to")),
    block: values.get("block"),
    q: values.get("q") || "",
    fold: values.get("fold") || "",
    filter: values.get("filter") || "",
    turn: number(values.get("turn")),
    file: number(values.get("file")),
    session: values.get("session") || "",
  };
}

function address(view) {
  const values = new URLSearchParams();
  for (const name of ["session", "from", "to", "turn", "file", "block", "q", "fold", "filter"]) {
    const value = view[name];
    if (value !== null && value !== "") values.set(name, value);
  }
  const query = values.toString();
  return `#/${view.screen}${view.call === null ? "" : `/${view.call}`}${query ? `?${query}` : ""}`;
}

export function view() {
  return current;
}

// The link to the present view with `changes`.
export function link(changes) {
  return address({ ...current, ...changes });
}

// Goes to the present view with `changes`; a step on the way to another leaves no entry in the browser's history.
export function go(changes, { quiet = false } = {}) {
  const next = address({ ...current, ...changes });
  if (next === address(current)) return;
  history[quiet ? "replaceState" : "pushState"](null, "", next);
  follow();
}

function follow() {
  const before = current;
  current = parse(location.hash);
  for (const listener of listeners) listener(current, before);
}

export function onView(listener) {
  listeners.push(listener);
}

export function startView() {
  window.addEventListener("hashchange", follow);
}

export function clearView() {
  listeners.length = 0;
}
