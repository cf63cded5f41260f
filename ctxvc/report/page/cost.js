// What the calls cost, what the provider's cache did for it, and what broke the cached beginning of the prompt.
import { empty, h, replace } from "./dom.js";
import { callLink, commitText } from "./pieces.js";
import { chosenCall, chosenCalls, eachChosen } from "./session.js";
import { money, percent, short, whole } from "./text.js";
import { table, tableBelow } from "./table.js";
import { colour, onTheme, pattern } from "./theme.js";
import { go, onView, view } from "./view.js";

// From the lowest of the stack: [column, name, colour, pattern].
const LAYERS = [
  ["read", "read from the cache", "k-tool_use", null],
  ["write", "written to the cache", "k-tool_result", "rising"],
  ["fresh", "fresh", "k-user", "dots"],
  ["output", "output", "k-assistant", "bars"],
];

export function costScreen({ session }) {
  const { cache, cost, cost_without: without } = session.calls;
  const stack = h("div", { class: "river-plot" });
  const lines = h("div", { class: "river-plot" });
  const breaks = table("Prefix breaks", breakColumns(session), []);
  const unbroken = empty("No prefix break in these calls", "Each prompt began as the one before, so the provider’s cache could be read.");
  const sums = h("dl", { class: "six sums" });
  const numbers = tableBelow("Both pictures as a table", () => costTable(session));
  const known = cost.some((value) => value !== null);
  const element = h(
    "div",
    { class: "screen" },
    sums,
    h("section", { class: "panel" }, h("h2", null, "Tokens a call, by what the cache did"), stack, layerLegend()),
    h("section", { class: "panel" }, h("h2", null, "Cost so far, and without ctxvc"), known ? [lines, lineLegend()] : empty("No cost", session.raw.cost_reason || "No price is known for this model.")),
    h("section", { class: "panel" }, h("h2", null, "What broke the cached beginning"), breaks, unbroken),
    numbers,
  );
  let charts = [];
  let drawn = "";

  const draw = () => {
    for (const chart of charts) chart.destroy();
    const range = chosenCalls(session, view());
    charts = [new uPlot(stackOptions(session, range, stack.clientWidth), stackColumns(session, range), stack)];
    if (known) charts.push(new uPlot(lineOptions(session, range, lines.clientWidth), lineColumns(session, range), lines));
    for (const chart of charts) chart.over.addEventListener("click", (event) => {
      const call = Math.min(Math.max(Math.floor(chart.posToVal(event.offsetX, "x")), 1), session.n);
      go({ screen: "prompt", call });
    });
  };
  onTheme(() => element.isConnected && draw());
  onView((next, before) => element.isConnected && next.call !== before.call && charts.forEach((chart) => chart.redraw(false)));

  function update() {
    const [from, to] = chosenCalls(session, view());
    if (drawn === `${from} ${to}` && charts.length) return;
    drawn = `${from} ${to}`;
    const rows = session.marks.filter((mark) => mark.kind === "break" && from <= mark.call && mark.call <= to);
    breaks.fill(rows);
    breaks.hidden = !rows.length;
    unbroken.hidden = rows.length > 0;
    replace(sums, sumItems());
    numbers.fill(eachChosen(session, view()));
    draw();
  }

  function sumItems() {
    const [from, to] = chosenCalls(session, view());
    const sum = (column) => column.slice(from, to + 1).reduce((total, value) => total + (value || 0), 0);
    const [read, write, fresh, output] = LAYERS.map(([name]) => sum(cache[name]));
    const share = read + write + fresh ? read / (read + write + fresh) : null;
    const items = [["read", short(read)], ["written", short(write)], ["fresh", short(fresh)], ["output", short(output)], ["of input from cache", percent(share)]];
    const saved = known ? [`${money(sum(cost))}`, `${money(sum(without))} without`] : ["–", "cost"];
    return [...items, [saved[1], saved[0]]].map(([name, text]) => h("div", null, h("dt", null, name), h("dd", null, text)));
  }

  return { element, update };
}

function layerLegend() {
  return h("div", { class: "legend" }, LAYERS.map(([column, name]) => h("span", { class: "legend-item" }, h("i", { class: `cost-key cost-${column}`, "aria-hidden": "true" }), name)));
}

function lineLegend() {
  return h("div", { class: "legend" },
    h("span", { class: "legend-item" }, h("i", { class: "stroke", "aria-hidden": "true" }), "as it was"),
    h("span", { class: "legend-item" }, h("i", { class: "dashes", "aria-hidden": "true" }), "without ctxvc"));
}

// Columns over a range of calls, with the last one twice, since each call lasts until the next.
function columnsOver([from, to], ...columns) {
  const calls = Array.from({ length: to - from + 2 }, (_, at) => from + at + 1);
  return [calls, ...columns.map((column) => calls.map((_, at) => column[Math.min(from + at, to)]))];
}

function stackColumns(session, range) {
  const { cache, n } = session.calls;
  const sums = [];
  let below = new Float64Array(n);
  for (const [column] of LAYERS) {
    below = below.map((value, call) => value + (cache[column][call] || 0));
    sums.unshift(below);
  }
  return columnsOver(range, ...sums);
}

function lineColumns(session, range) {
  const running = (column) => {
    let sum = 0;
    return column.map((value, call) => (call < range[0] ? null : (sum += value || 0)));
  };
  return columnsOver(range, running(session.calls.cost), running(session.calls.cost_without));
}

function options(session, [from, to], width, value) {
  const axis = { stroke: () => colour("muted"), font: "11px Inter, system-ui, sans-serif", ticks: { show: false }, gap: 4 };
  return {
    width: width || 800,
    height: 170,
    padding: [10, 12, 0, 0],
    legend: { show: false },
    cursor: { drag: { x: false, y: false }, points: { show: false }, y: false },
    scales: { x: { time: false, range: () => [from + 1, to + 2] }, y: { range: (_, __, max) => [0, (max || 1) * 1.06] } },
    axes: [
      { ...axis, size: 24, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000], values: (_, values) => values.map((call) => (call > to + 1 ? "" : call)), grid: { show: false } },
      { ...axis, size: 56, values: (_, values) => values.map(value), grid: { stroke: () => colour("line"), width: 1 } },
    ],
    hooks: { draw: [(chart) => drawCall(chart, session)] },
  };
}

function drawCall(chart, session) {
  const call = chosenCall(session, view());
  const left = chart.valToPos(call + 1, "x", true);
  const right = Math.max(chart.valToPos(call + 2, "x", true), left + 2);
  if (left < chart.bbox.left || right > chart.bbox.left + chart.bbox.width + 2) return;
  chart.ctx.fillStyle = colour("cursor");
  chart.ctx.fillRect(left, chart.bbox.top, right - left, chart.bbox.height);
}

function stackOptions(session, range, width) {
  const stepped = uPlot.paths.stepped({ align: 1 });
  const fill = (name, drawing) => () => (drawing ? pattern(drawing, colour(name), colour("ink-on-kind")) : colour(name));
  return {
    ...options(session, range, width, short),
    series: [{}, ...LAYERS.toReversed().map(([, , name, drawing]) => ({ paths: stepped, fill: fill(name, drawing), width: 0, points: { show: false } }))],
  };
}

function lineOptions(session, range, width) {
  const line = { width: 2, points: { show: false } };
  return {
    ...options(session, range, width, (amount) => (amount === 0 ? "$0" : `$${Number(amount.toPrecision(3))}`)),
    series: [{}, { ...line, stroke: () => colour("accent"), fill: () => colour("cursor") }, { ...line, stroke: () => colour("text"), width: 1.5, dash: [2, 3] }],
  };
}

function breakColumns(session) {
  return [
    { name: "call", cell: (mark) => callLink(session, mark.call), sort: (mark) => mark.call },
    { name: "what it was", cell: (mark) => mark.label, wide: true },
    { name: "by", cell: (mark) => mark.actor || "–", sort: (mark) => mark.actor },
    { name: "read after it", cell: (mark) => whole(session.calls.cache.read[mark.call]), number: true },
    { name: "written after it", cell: (mark) => whole(session.calls.cache.write[mark.call]), number: true },
    { name: "commit", cell: (mark) => commitText(mark.commit) },
  ];
}

function costTable(session) {
  const { cache, cost, cost_without: without } = session.calls;
  const number = (name, column, text) => ({ name, cell: (call) => text(column[call]), sort: (call) => column[call] ?? -1, number: true });
  return table("Cache and cost, by call", [
    { name: "call", cell: (call) => callLink(session, call), sort: (call) => call },
    ...LAYERS.map(([column, name]) => number(name, cache[column], whole)),
    number("cost", cost, money),
    number("without ctxvc", without, money),
  ], eachChosen(session, view()));
}
