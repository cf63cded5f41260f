// What left the prompt, and why, as a table.
import { empty, h, replace } from "./dom.js";
import { blockLink, callLink, commitText, kindChip } from "./pieces.js";
import { chosenCalls } from "./session.js";
import { firstLine, plain, plural, short, whole } from "./text.js";
import { table } from "./table.js";
import { go, view } from "./view.js";

const FILTERS = {
  __proto__: null,
  "": ["all", () => true],
  never: ["never read back", (row) => !row.reads.length],
  read: ["read back", (row) => row.reads.length > 0],
  person: ["by a person", (row) => row.life?.actor === "user"],
};

export function leftScreen({ session }) {
  const filters = h("div", { class: "filters", role: "group", "aria-label": "Which of them" });
  const list = table("What left the prompt", columns(session), [], { sorted: [0, 1] });
  const none = h("div");
  const element = h("div", { class: "screen" }, h("section", { class: "panel" }, h("h2", null, "What left, and why"), filters, list, none));

  function update() {
    const [from, to] = chosenCalls(session, view());
    const rows = session.departures().filter(({ call }) => from <= call && (call <= to || to === session.n - 1));
    const chosen = rows.filter((FILTERS[view().filter] || FILTERS[""])[1]);
    replace(filters, Object.entries(FILTERS).map(([value, [name, fits]]) =>
      h("button", { type: "button", "aria-pressed": String(view().filter === value), on: { click: () => go({ filter: value }, { quiet: true }) } },
        `${name} ${whole(rows.filter(fits).length)}`)), h("span", { class: "muted" }, sum(session, chosen)));
    list.fill(chosen);
    list.hidden = !chosen.length;
    replace(none, chosen.length ? null : reason(session, rows));
  }

  return { element, update };
}

function sum(session, rows) {
  const blocks = new Set(rows.map((row) => row.block));
  const tokens = [...blocks].reduce((total, block) => total + session.blocks.tokens[block], 0);
  return rows.length ? `${plural(blocks.size, "block")}, ~${short(tokens)} tokens` : "";
}

function reason(session, rows) {
  if (rows.length) return empty("None of these", `${plural(rows.length, "departure")} in these calls, but none of this sort.`);
  if (session.departures().length) return empty("Nothing left in these calls", "Things left in others: choose all calls above.");
  return empty("Nothing has left this session", "Every block that came is in the prompt still: no policy, no person and no host took one out.");
}

function columns(session) {
  const { blocks } = session;
  return [
    { name: "at", cell: ({ call }) => callLink(session, call), sort: ({ call }) => call },
    { name: "block", cell: ({ block }) => blockLink(session, block), sort: ({ block }) => block },
    { name: "kind", cell: ({ block }) => kindChip(session.kind(block)), sort: ({ block }) => session.kind(block) },
    { name: "what", cell: ({ block }) => firstLine(plain(blocks.label[block]), 110), wide: true },
    { name: "tokens", cell: ({ block }) => short(blocks.tokens[block]), sort: ({ block }) => blocks.tokens[block], number: true },
    { name: "became", cell: ({ state }) => state, sort: ({ state }) => state },
    { name: "by", cell: ({ life }) => life?.actor || "–", sort: ({ life }) => life?.actor },
    { name: "why", cell: (row) => firstLine(plain(session.why(row)), 160), wide: true },
    { name: "read back", cell: ({ reads }) => (reads.length ? reads.slice(0, 3).map((call) => [callLink(session, call), " "]) : "never"), sort: ({ reads }) => reads.length },
    { name: "commit", cell: ({ life }) => commitText(life?.commit) },
  ];
}
