// What the sessions of a project spent, by day or by something else: asked of the server when it is looked at.
import { h, replace } from "./dom.js";
import { money, percent, short, whole } from "./text.js";
import { table } from "./table.js";

const NAMES = ["day", "week", "model", "tool", "file", "agent", "branch", "person"];

let chosen = NAMES[0]; // also when the page is drawn anew

// `asked` gets the server's answer to a path.
export function spentPanel(asked) {
  const choice = h("select", { "aria-label": "By", id: "spent-by" }, NAMES.map((name) => h("option", { value: name, selected: name === chosen }, `by ${name}`)));
  const place = h("div", { "aria-live": "polite" });
  const details = h("details", { class: "panel", id: "spent" }, h("summary", null, "What was spent"), h("div", { class: "filters" }, choice), place);
  const draw = async () => {
    const by = (chosen = choice.value);
    replace(place, h("p", { class: "muted" }, "Adding up …"));
    try {
      const answer = await asked(`/api/stats?by=${by}`);
      if (chosen === by) replace(place, sums(answer));
    } catch (problem) {
      replace(place, h("p", { class: "muted" }, problem.message));
    }
  };
  choice.addEventListener("change", draw);
  details.addEventListener("toggle", () => details.open && draw());
  return details;
}

function sums({ by, items, total }) {
  const value = (item) => (total.cost === null ? prompt(item) : item.cost || 0);
  const most = Math.max(...items.map(value), 0);
  const number = (name, of, text = whole) => ({ name, cell: (item) => text(of(item)), sort: (item) => of(item) ?? -1, number: true });
  const list = table(`What was spent, by ${by}`, [
    { name: by, cell: (item) => item.name, sort: (item) => item.name, wide: true },
    number("sessions", (item) => item.sessions),
    number("calls", (item) => item.calls),
    number("prompts", prompt, short),
    number("cached", (item) => item.cached, percent),
    number("replies", (item) => item.output, short),
    number("failed tools", (item) => item.failed),
    number("cost", (item) => item.cost, dollars),
    { name: "share", cell: (item) => h("meter", { min: 0, max: most || 1, value: value(item), "aria-label": `${item.name}: share of the most` }) },
  ], items, { part: 50 });
  const sum = `Together ${whole(total.calls)} calls, ${short(prompt(total))} tokens of prompts, ${short(total.output)} of replies, ${dollars(total.cost)}.`;
  return [h("p", null, sum), list];
}

const prompt = (item) => item.fresh + item.cache_read + item.cache_written;
const dollars = (amount) => (amount === null ? "–" : money(amount));
