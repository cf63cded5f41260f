// The keyboard, and its help.
import { h } from "./dom.js";
import { switchTheme } from "./theme.js";
import { go, view } from "./view.js";

const KEYS = [
  [["←", "→"], "the call before, the next; with Shift ten at once"],
  [["Home", "End"], "the first call, the last"],
  [["1", "…", "7"], "the screens, in the order of the tabs"],
  [["/"], "search in everything"],
  [["a"], "all calls again"],
  [["t"], "light or dark"],
  [["↑", "↓", "Enter"], "in the lanes: choose a row, open its life"],
  [["Esc"], "close what is open"],
  [["?"], "this list"],
];

export function helpDialog() {
  const dialog = h("dialog", { "aria-labelledby": "help-title" },
    h("h2", { id: "help-title" }, "Keys"),
    h("dl", { class: "keys" }, KEYS.map(([keys, text]) => [h("dt", null, keys.map((key) => [h("kbd", null, key), " "])), h("dd", null, text)])),
    h("p", { class: "muted help-note" }, "Drag over the river to choose calls: everything below follows. Each screen, call and block has a link of its own: copy the address."),
    h("form", { method: "dialog", class: "actions" }, h("button", null, "Close")));
  return dialog;
}

export function startKeys(session, screens, help) {
  const step = (call) => go({ call: Math.min(Math.max(call, 1), session.n) }, { quiet: true });
  document.onkeydown = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
    const inField = event.target.matches?.("input:not([type=range]), select, textarea");
    if (event.key === "Escape") return escape(event);
    if (inField) return;
    const call = view().call ?? session.n;
    const far = event.shiftKey ? 10 : 1;
    const actions = {
      ArrowLeft: () => step(call - far),
      ArrowRight: () => step(call + far),
      Home: () => step(1),
      End: () => step(session.n),
      "/": () => go({ screen: "search", block: null }),
      a: () => go({ from: null, to: null }),
      t: () => switchTheme(),
      "?": () => help.showModal(),
    };
    const screen = /^[1-9]$/.test(event.key) ? screens[Number(event.key) - 1] : null;
    if (screen) actions[event.key] = () => go({ screen, block: null });
    const action = actions[event.key];
    const scrolls = ["Home", "End", "ArrowLeft", "ArrowRight"].includes(event.key) && event.target.matches?.("pre.open, .scroll, .tree");
    if (!action || scrolls) return;
    event.preventDefault();
    action();
  };

  function escape(event) {
    if (view().block !== null) go({ block: null });
    else if (event.target.matches?.("input[type=search]")) event.target.blur();
  }
}
