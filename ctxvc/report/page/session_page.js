// The page of a session: the river, and one of the screens below it.
import { blockDrawer } from "./block.js";
import { Bodies } from "./bodies.js";
import { continueDialog } from "./continue.js";
import { costScreen } from "./cost.js";
import { empty, h, replace } from "./dom.js";
import { footer, header, newPage } from "./header.js";
import { helpDialog, startKeys } from "./keys.js";
import { lanesScreen } from "./lanes.js";
import { leftScreen } from "./left.js";
import { overviewScreen, verdict } from "./overview.js";
import { promptScreen } from "./prompt.js";
import { river } from "./river.js";
import { scopesScreen } from "./scopes.js";
import { searchScreen } from "./search.js";
import { Session } from "./session.js";
import { short } from "./text.js";
import { go, link, onView, view } from "./view.js";

const SCREENS = {
  __proto__: null,
  overview: ["Overview", overviewScreen],
  lanes: ["Lanes", lanesScreen],
  prompt: ["Prompt", promptScreen],
  left: ["What left", leftScreen],
  cost: ["Cost and cache", costScreen],
  scopes: ["Scopes", scopesScreen],
  search: ["Search", searchScreen],
};

// Draws the page; `actions` stand in its header, `verbs` in a block's life.
export function sessionPage(page, raw, { actions = [], verbs = null, live = false } = {}) {
  newPage();
  const session = new Session(raw);
  const context = { session, bodies: new Bodies(raw.bodies), verbs };
  const help = helpDialog();
  const next = continueDialog(session);
  const top = header(raw.title || raw.session, factsOf(raw), ...actions,
    session.n ? h("button", { type: "button", "aria-label": "Continue", title: "Continue in another agent", on: { click: next.open } }, "Continue") : null,
    h("button", { type: "button", "aria-label": "Search", title: "Search (/)", on: { click: () => go({ screen: "search" }) } }, "Search"),
    h("button", { type: "button", "aria-label": "Keys", title: "Keys (?)", on: { click: () => help.showModal() } }, "?"));
  if (!session.n) {
    const none = empty("No model calls yet", "Nothing of this session was sent to a model, so there is no prompt to show.");
    return replace(page, top, h("main", { class: "frame", id: "main", tabindex: "-1" }, verdict(raw), none, footer(raw, { live })), help);
  }
  const made = new Map();
  const tabs = h("nav", { class: "tabs", "aria-label": "Screens" });
  const main = h("main", { id: "main", tabindex: "-1", class: "screen" });
  const stream = river(session);
  const summary = verdict(raw);
  const drawer = blockDrawer(context);
  const frame = h("div", { class: "frame" }, summary, stream, tabs, main, footer(raw, { live }));
  replace(page, top, frame, drawer, help, next.dialog, h("div", { id: "announced", class: "visually-hidden", role: "status" }));

  function update(next, before) {
    const name = SCREENS[view().screen] ? view().screen : "overview";
    summary.hidden = name !== "overview";
    replace(tabs, Object.entries(SCREENS).map(([screen, [title]]) =>
      h("a", { href: link({ screen, block: null }), "aria-current": screen === name ? "page" : null }, title)));
    tabs.querySelector("[aria-current]").scrollIntoView({ block: "nearest", inline: "nearest" });
    if (!made.has(name)) made.set(name, SCREENS[name][1](context));
    const screen = made.get(name);
    const turned = main.firstChild !== screen.element;
    if (turned) replace(main, screen.element);
    screen.update();
    if (turned && before) screen.focus?.();
  }
  onView(update);
  update(view(), null);
  drawer.update();
  stream.start();
  startKeys(session, Object.keys(SCREENS), help);
  return undefined;
}

function factsOf(raw) {
  return [raw.session, raw.model, raw.window ? `window ${short(raw.window)}` : null].filter(Boolean).join(" · ");
}
