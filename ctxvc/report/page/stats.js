// What sessions spent and did, by day or by something else: a page of its own, and one of the server's.
import { empty, h, replace, svg } from "./dom.js";
import { footer, header, newPage } from "./header.js";
import { verdict } from "./overview.js";
import { percent, short, whole } from "./text.js";
import { table } from "./table.js";
import { go, onView, view } from "./view.js";

const NAMES = ["day", "week", "project", "model", "agent", "person", "tool", "file", "branch"];
const HIGH = 150;
// Pixels for the name of a day or week below the bars.
const NAME_WIDE = 76;
// From the lowest of a bar: [name, class, value].
const TOKENS = [
  ["read from the cache", "tokens-read", (item) => item.cache_read],
  ["written into it", "tokens-written", (item) => item.cache_written],
  ["fresh", "tokens-fresh", (item) => item.fresh],
  ["output", "tokens-output", (item) => item.output],
];
const COST = [["cost", "tokens-cost", (item) => item.cost || 0]];

// `asked` gets the page with a grouping that `raw` lacks.
export function statsPage(page, raw, { asked = null, actions = [] } = {}) {
  newPage();
  const known = { __proto__: null, ...raw.groups };
  const names = NAMES.filter((name) => asked || known[name]);
  const choice = h("select", { "aria-label": "By", id: "stats-by" }, names.map((name) => h("option", { value: name }, `by ${name}`)));
  const place = h("div", { id: "stats", class: "screen", "aria-live": "polite" });
  const main = h("main", { class: "frame", id: "main", tabindex: "-1" }, verdict(raw),
    raw.verdict.numbers.length ? [h("div", { class: "filters" }, choice), place] : empty("No calls", "Nothing that is stored here called a model. `ctxvc import` takes in what was recorded."),
    footer(raw, { live: asked !== null }));
  const chosen = () => (names.includes(view().filter) ? view().filter : names[0]);
  const draw = async () => {
    const by = (choice.value = chosen());
    if (!known[by]) {
      replace(place, h("p", { class: "muted" }, "Adding up …"));
      try {
        Object.assign(known, (await asked(by)).groups);
      } catch (problem) {
        replace(place, h("p", { class: "muted" }, problem.message));
        return;
      }
    }
    if (chosen() === by) replace(place, sums(known[by], raw.cut?.[by] || 0, place.clientWidth));
  };
  choice.addEventListener("change", () => go({ filter: choice.value }, { quiet: true }));
  onView((next, before) => next.filter !== before.filter && draw());
  replace(page, header(raw.title, raw.since ? `since ${raw.since}` : "all that is stored", ...actions), main);
  if (raw.verdict.numbers.length) draw();
}

function sums({ by, items, total }, cut, width) {
  const charts = isTime(by)
    ? h("div", { class: "pair" }, [["Cost", COST, dollars], ["Tokens, by what the provider’s cache did", TOKENS, short]]
      .map(([title, layers, text]) => chart(title, items, layers, text, Math.max(width / 2 - 40, 320))))
    : null;
  return [charts, h("section", { class: "panel" }, h("h2", null, `By ${by}`), list(by, items, total),
    cut ? h("p", { class: "muted" }, `${whole(cut)} more with less cost are not on this page: “ctxvc stats --by ${by}” has all.`) : null)];
}

function list(by, items, total) {
  const value = (item) => (total.cost === null ? prompt(item) : item.cost || 0);
  const most = items.reduce((high, item) => Math.max(high, value(item)), 0);
  const number = (name, of, text = whole) => ({ name, cell: (item) => text(of(item)), sort: (item) => of(item) ?? -1, number: true });
  return table(`What was spent, by ${by}`, [
    { name: by, cell: (item) => (isTime(by) ? h("time", null, item.name) : item.name), sort: (item) => item.name, wide: !isTime(by) },
    number("cost", (item) => item.cost, dollars),
    { name: "share", cell: (item) => h("meter", { min: 0, max: most || 1, value: value(item), "aria-label": `${item.name}: share of the most` }) },
    number("sessions", (item) => item.sessions),
    number("calls", (item) => item.calls),
    number("fresh", (item) => item.fresh, short),
    number("read", (item) => item.cache_read, short),
    number("written", (item) => item.cache_written, short),
    number("output", (item) => item.output, short),
    number("cached", (item) => (prompt(item) ? item.cached : null), percent),
    number("model time", (item) => item.waited_model, time),
    number("tool time", (item) => item.waited_tools, time),
    number("failed", (item) => item.failed),
    number("compactions", (item) => item.compactions),
    number("left", (item) => item.blocks_left),
    number("read back", (item) => item.reads),
  ], items, { part: 50 });
}

// Bars in the order of the items; the table below has the numbers.
function chart(title, items, layers, text, width) {
  const heights = items.map((item) => layers.map(([, , of]) => of(item)));
  const most = Math.max(...heights.map((parts) => parts.reduce((a, b) => a + b, 0)), 0);
  const [left, wide] = [52, (width - 60) / Math.max(items.length, 1)];
  const y = (value) => HIGH - (most ? (value / most) * (HIGH - 16) : 0);
  const picture = svg("svg", { width, height: HIGH + 22, viewBox: `0 0 ${width} ${HIGH + 22}`, role: "img", "aria-label": `${title}, ${items.length} bars; the table below has the numbers` },
    [0, most / 2, most].map((value) => [
      svg("line", { class: "grid", x1: left, x2: width - 8, y1: y(value), y2: y(value) }),
      svg("text", { class: "tick", x: left - 6, y: y(value) + 4, "text-anchor": "end" }, text(value)),
    ]));
  items.forEach((item, at) => {
    let below = 0;
    const bar = svg("g", null, svg("title", null, `${item.name}: ${text(heights[at].reduce((a, b) => a + b, 0))}`));
    layers.forEach(([, style], layer) => {
      const from = below;
      below += heights[at][layer];
      bar.append(svg("rect", { class: style, x: left + at * wide + wide * 0.1, width: Math.min(wide * 0.8, 40), y: y(below), height: Math.max(y(from) - y(below), 0) }));
    });
    picture.append(bar);
  });
  const every = Math.ceil(NAME_WIDE / wide);
  items.forEach((item, at) => {
    const x = left + at * wide;
    if (at % every === 0 && (at === 0 || x + NAME_WIDE < width)) picture.append(svg("text", { class: "tick", x, y: HIGH + 18 }, item.name));
  });
  const legend = layers.length > 1 ? h("div", { class: "legend" }, layers.map(([name, style]) =>
    h("span", { class: "legend-item" }, svg("svg", { width: 12, height: 12, "aria-hidden": "true" }, svg("rect", { class: style, width: 12, height: 12 })), h("span", null, name)))) : null;
  return h("section", { class: "panel" }, h("h2", null, title), h("div", { class: "chart" }, picture), legend);
}

// 1:02:03, as in the numbers above and in the terminal.
function time(seconds) {
  if (seconds === null) return "–";
  const two = (number) => String(number % 60).padStart(2, "0");
  return `${Math.floor(seconds / 3600)}:${two(Math.floor(seconds / 60))}:${two(seconds)}`;
}

const isTime = (by) => by === "day" || by === "week";
const prompt = (item) => item.fresh + item.cache_read + item.cache_written;
const dollars = (amount) => (amount === null ? "–" : `$${amount.toLocaleString("en-GB", { minimumFractionDigits: 2, maximumFractionDigits: 2 })}`);
