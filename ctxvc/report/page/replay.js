// The page of a replay's results: what each policy keeps at each budget, what that costs, and where two of them differ.
import { empty, h, replace, svg } from "./dom.js";
import { frontierChart, lineChart, policyStyles } from "./replay_charts.js";
import { footer, header, newPage } from "./header.js";
import { verdict } from "./overview.js";
import { percent, short } from "./text.js";
import { table, tableBelow } from "./table.js";
import { onTheme } from "./theme.js";
import { go, onView, view } from "./view.js";

export function replayPage(page, raw) {
  newPage();
  const styles = policyStyles(raw.points);
  const pictures = [
    ["Retention against cost", "One point a policy and budget: up and left is better. Bars are 95 % intervals; the line is the oracle at each budget.", (box) => frontierChart(raw, styles, box.clientWidth)],
    ["Retention by budget", "", (box) => lineChart(raw, styles, "retention", box.clientWidth)],
    ["Cost by budget", `With cache writes and recoveries; 1 is ${raw.baseline}.`, (box) => lineChart(raw, styles, "cost", box.clientWidth)],
  ].map(([title, note, make]) => ({ title, note, make, box: h("div", { class: "chart" }) }));
  const [cloud, ...curves] = pictures.map(({ title, note, box }) =>
    h("section", { class: "panel" }, h("h2", null, title), note ? h("p", { class: "muted note" }, note) : null, box));
  const main = h("main", { class: "frame", id: "main", tabindex: "-1" },
    verdict(raw),
    raw.points.length ? [cloud, policyLegend(styles), h("div", { class: "pair" }, curves), tableBelow("The pictures as a table", () => pointTable(raw))]
      : empty("No points", "The results have no run that finished, so there is nothing to compare."),
    h("section", { class: "panel" }, h("h2", null, "Where two policies differ"), differences(raw)),
    footer(raw));
  replace(page, header(raw.title, `replay of ${raw.recordings} recordings`), main, h("div", { id: "announced", class: "visually-hidden", role: "status" }));
  const draw = () => raw.points.length && pictures.forEach(({ make, box }) => replace(box, make(box)));
  draw();
  onTheme(draw);
}

function policyLegend(styles) {
  return h("div", { class: "legend" }, [...styles].map(([policy, style]) =>
    h("span", { class: "legend-item" }, svg("svg", { width: 26, height: 14, "aria-hidden": "true", class: `policy-${style.index}` },
      svg("path", { class: "curve", d: "M0 7H26", "stroke-dasharray": style.dash }), style.shape(13, 7)), policy)));
}

function pointTable(raw) {
  const parts = [...new Set(raw.points.flatMap((point) => Object.keys(point.cost_parts || {})))];
  const interval = ([, low, high], text) => `${text(low)} – ${text(high)}`;
  const times = (value) => value.toFixed(2);
  return table("Policies by budget", [
    { name: "policy", cell: (point) => [point.policy, point.valid || point.oracle ? null : [" ", h("span", { class: "tag bad" }, "had failures")]], sort: (point) => point.policy },
    { name: "budget", cell: (point) => short(point.budget), sort: (point) => point.budget, number: true },
    { name: "retention", cell: (point) => percent(point.retention[0]), sort: (point) => point.retention[0], number: true },
    { name: "95 %", cell: (point) => interval(point.retention, percent), number: true },
    { name: "cost", cell: (point) => (point.cost ? times(point.cost[0]) : "–"), sort: (point) => point.cost?.[0] ?? -1, number: true },
    { name: "95 %", cell: (point) => (point.cost ? interval(point.cost, times) : "–"), number: true },
    ...parts.map((part) => ({ name: part, cell: (point) => (point.cost_parts?.[part] ?? 0).toFixed(3), sort: (point) => point.cost_parts?.[part] ?? 0, number: true })),
    { name: "runs", cell: (point) => point.runs, sort: (point) => point.runs, number: true },
  ], raw.points, { sorted: [2, -1] });
}

// Two policies, chosen by the link (`filter=a,b`), with what only one of them had in sight.
function differences(raw) {
  if (!raw.differences.length) {
    return empty("No difference to show", "Either one policy was replayed, or all kept the same of what was used again.");
  }
  const pairs = [...new Map(raw.differences.map((row) => [`${row.a},${row.b},${row.budget}`, row])).entries()];
  const choice = h("select", { id: "pair" }, pairs.map(([key, row]) => h("option", { value: key }, `${row.a} and ${row.b} at ${short(row.budget)}`)));
  choice.addEventListener("change", () => go({ filter: choice.value }, { quiet: true }));
  const list = h("div");
  const update = () => {
    const [key, pair] = pairs.find(([key]) => key === view().filter) || pairs[0];
    choice.value = key;
    const rows = raw.differences.filter((row) => `${row.a},${row.b},${row.budget}` === key);
    replace(list, table(`Differences of ${pair.a} and ${pair.b}`, [
      { name: "recording", cell: (row) => row.recording, sort: (row) => row.recording },
      { name: "call", cell: (row) => (row.step < 0 ? "–" : row.step), sort: (row) => row.step, number: true },
      { name: "what", cell: (row) => row.text, wide: true },
      { name: pair.a, cell: (row) => row.what_a },
      { name: pair.b, cell: (row) => row.what_b },
      { name: "for example", cell: (row) => (row.example ? h("code", null, row.example) : "–"), wide: true },
    ], rows));
  };
  onView(update);
  update();
  return [h("div", { class: "filters" }, h("label", { for: "pair" }, "policies "), choice), list];
}
