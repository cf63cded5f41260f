// Where the page begins: reads its data, or asks its server for it, and draws the screens.
import { Bodies } from "./bodies.js";
import { empty, h, replace } from "./dom.js";
import { overviewScreen, verdict } from "./overview.js";
import { promptScreen } from "./prompt.js";
import { river } from "./river.js";
import { Session } from "./session.js";
import { short } from "./text.js";
import { startTheme, switchTheme } from "./theme.js";
import { link, onView, startView, view } from "./view.js";

const SCREENS = [
  ["overview", "Overview", overviewScreen],
  ["prompt", "Prompt", promptScreen],
];

function sessionPage(raw) {
  const session = new Session(raw);
  const context = { session, bodies: new Bodies(raw.bodies) };
  const page = document.getElementById("page");
  const top = header(raw);
  if (!session.n) {
    return replace(page, top, h("div", { class: "frame" }, empty("No model calls yet", "The session has no prompt that was sent.")));
  }
  const made = new Map();
  const tabs = h("nav", { class: "tabs", "aria-label": "Screens" });
  const main = h("main", { id: "main", tabindex: "-1", class: "screen" });
  const stream = river(session);
  const summary = verdict(raw);
  replace(page, top, h("div", { class: "frame" }, summary, stream, tabs, main), h("div", { id: "announced", class: "visually-hidden", role: "status" }));

  function update() {
    const [name, , create] = SCREENS.find(([name]) => name === view().screen) || SCREENS[0];
    summary.hidden = name !== "overview";
    replace(tabs, SCREENS.map(([screen, title]) =>
      h("a", { href: link({ screen, block: null }), "aria-current": screen === name ? "page" : null }, title)));
    if (!made.has(name)) made.set(name, create(context));
    const screen = made.get(name);
    if (main.firstChild !== screen.element) replace(main, screen.element);
    screen.update();
  }
  onView(update);
  update();
  stream.start();
  return session;
}

function header(raw) {
  const facts = [raw.session, raw.model, raw.budget ? `budget ${short(raw.budget)}` : null].filter(Boolean).join(" · ");
  return h(
    "header",
    { class: "top" },
    h("a", { class: "skip", href: "#main" }, "To the content"),
    h("div", { class: "bar" },
      h("span", { class: "brand" }, "ctxvc"),
      h("h1", null, raw.title || raw.session),
      h("span", { class: "facts" }, facts),
      h("button", { type: "button", on: { click: switchTheme } }, "Theme"),
    ),
  );
}

startTheme();
startView();
const raw = JSON.parse(document.getElementById("data").textContent);
sessionPage(raw);
