// The line at the top of every page.
import { h } from "./dom.js";
import { clearTheme, switchTheme } from "./theme.js";
import { clearView } from "./view.js";

// Forgets who listened on the page before.
export function newPage() {
  clearView();
  clearTheme();
}

// `actions` stand before the switch of light and dark.
export function header(title, facts, ...actions) {
  return h(
    "header",
    { class: "top" },
    h("a", { class: "skip", href: "#main", on: { click: toMain } }, "To the content"),
    h("div", { class: "bar" },
      h("span", { class: "brand" }, "ctxvc"),
      h("h1", null, title),
      h("span", { class: "facts" }, facts),
      actions,
      h("button", { type: "button", "aria-label": "Light or dark", title: "Light or dark (t)", on: { click: switchTheme } }, "◐"),
    ),
  );
}

// The address belongs to the view, so the link moves the focus alone.
function toMain(event) {
  event.preventDefault();
  document.getElementById("main")?.focus();
}

// What a page says about itself at its end.
export function footer(raw, { live = false } = {}) {
  const command = raw.command ? [" by ", h("code", null, raw.command)] : null;
  return h("footer", { class: "foot" }, 
    `ctxvc ${raw.version}, made ${raw.made.slice(0, 16).replace("T", " ")}`, command,
    live ? ". It follows the session, and speaks with this machine alone." : ". The page holds all it shows and asks nobody for anything.");
}
