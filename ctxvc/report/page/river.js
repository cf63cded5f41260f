// The river: what the prompts were made of, call by call, with what happened to them. It chooses the calls that all below shows.
import { framed, h, replace } from "./dom.js";
import { chosenCall, chosenCalls } from "./session.js";
import { short } from "./text.js";
import { PARTS, colour, kindFill, onTheme, swatch } from "./theme.js";
import { go, onView, view } from "./view.js";

// Each mark has a shape of its own.
export const MARKS = {
  __proto__: null,
  compaction: ["▼", "compaction"],
  recover: ["▲", "read back"],
  plan: ["◆", "plan"],
  break: ["✕", "prefix break"],
  scope: ["●", "scope switch"],
  undo: ["↶", "undo"],
  note: ["✎", "note"],
};

const HIGH = 236;
const LOW = 120;

export function river(session) {
  const parts = Object.keys(PARTS).filter((part) => session.calls.tokens[part]?.some(Boolean));
  const plot = h("div", { class: "river-plot" });
  const legend = h("div", { class: "legend" });
  const readout = h("p", { class: "readout" });
  const from = callInput("first call shown", (value) => go({ from: value }));
  const to = callInput("last call shown", (value) => go({ to: value }));
  const reset = h("button", { type: "button", class: "quiet", on: { click: () => go({ from: null, to: null }) } }, "all calls");
  const element = h(
    "section",
    { class: "river", "aria-labelledby": "river-title" },
    h(
      "div",
      { class: "river-head" },
      h("h2", { id: "river-title" }, "Tokens in the prompt, by model call"),
      h("div", { class: "range" }, h("span", null, "calls "), from, h("span", null, " – "), to, reset),
    ),
    plot,
    legend,
    readout,
  );
  let chart = null;
  let hovered = null;

  const draw = () => {
    chart?.destroy();
    chart = new uPlot(options(session, parts, plot.clientWidth || 800, pointAt), series(session, parts), plot);
    let pressed = 0;
    chart.over.addEventListener("mousedown", (event) => (pressed = event.clientX));
    chart.over.addEventListener("click", (event) => {
      if (Math.abs(event.clientX - pressed) < 4) go({ call: callAt(chart, session, event.offsetX) + 1 }, { quiet: true });
    });
    update();
  };
  const tell = () => {
    const call = hovered ?? chosenCall(session, view());
    replace(legend, legendItems(session, parts, call));
    replace(readout, sentence(session, call));
  };
  const update = () => {
    element.classList.toggle("low", height() === LOW);
    const [first, last] = chosenCalls(session, view());
    tell();
    from.value = first + 1;
    to.value = last + 1;
    reset.hidden = view().from === null && view().to === null;
    if (chart) select(chart, session, first, last);
  };
  const tellLater = framed(tell);
  const pointAt = (call) => {
    hovered = call;
    tellLater();
  };
  onTheme(() => element.isConnected && draw());
  onView((next, before) => {
    if (!element.isConnected) return;
    const resized = (next.screen === "overview") !== (before.screen === "overview");
    if (resized) chart?.setSize({ width: plot.clientWidth, height: height() });
    update();
    chart?.redraw(false);
  });
  element.start = draw;
  return element;

  function callInput(label, chosen) {
    const accept = (event) => {
      const value = Number(event.target.value);
      if (Number.isInteger(value) && value >= 1 && value <= session.n) chosen(value);
      else update();
    };
    return h("input", { type: "number", min: 1, max: session.n, "aria-label": label, on: { change: accept } });
  }
}

function height() {
  return view().screen === "overview" ? HIGH : LOW;
}

// Columns for the chart: the calls, the layers from the whole down to the lowest, and the line of a session that nothing had left.
// Each call lasts until the next, so the last column stands twice.
function series(session, parts) {
  const { n, tokens, unmanaged } = session.calls;
  const columns = [];
  let below = new Float64Array(n + 1);
  for (const part of parts) {
    const layer = new Float64Array(n + 1);
    for (let call = 0; call < n; call++) layer[call] = below[call] + (tokens[part][call] || 0);
    layer[n] = layer[n - 1];
    columns.unshift(layer);
    below = layer;
  }
  const line = Array.from({ length: n + 1 }, (_, call) => unmanaged?.[Math.min(call, n - 1)] ?? null);
  return [Array.from({ length: n + 1 }, (_, call) => call + 1), ...columns, line];
}

function options(session, parts, width, pointAt) {
  const stepped = uPlot.paths.stepped({ align: 1 });
  const axis = { stroke: () => colour("muted"), font: "11px Inter, system-ui, sans-serif", ticks: { show: false }, gap: 4 };
  const grid = { stroke: () => colour("line"), width: 1 };
  return {
    width,
    height: height(),
    padding: [20, 12, 0, 0],
    legend: { show: false },
    scales: { x: { time: false, range: () => [1, session.n + 1] }, y: { range: () => [0, ceiling(session)] } },
    axes: [
      { ...axis, size: 24, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000], values: (_, values) => values.map((call) => (call > session.n ? "" : call)), grid: { show: false } },
      { ...axis, size: 52, values: (_, values) => values.map(short), grid },
    ],
    series: [
      {},
      ...parts.toReversed().map((part) => ({ paths: stepped, fill: () => kindFill(PARTS[part]), width: 0, points: { show: false } })),
      { paths: stepped, stroke: () => colour("text"), width: 1.5, dash: [2, 3], points: { show: false } },
    ],
    cursor: { drag: { x: true, y: false, setScale: false, dist: 4 }, points: { show: false }, y: false },
    hooks: {
      draw: [(chart) => decorate(chart, session)],
      setSelect: [(chart) => brushed(chart, session)],
      setCursor: [(chart) => pointAt(chart.cursor.left >= 0 ? callAt(chart, session, chart.cursor.left) : null)],
    },
  };
}

// How high the picture reaches: a distant window and the line of what never left may be beyond it, the river may not.
function ceiling(session) {
  const peak = Math.max(1, ...blockwise(session.calls.total));
  const top = Math.max(peak, Math.min(session.raw.window, 2 * peak));
  const unmanaged = Math.max(0, ...blockwise(session.calls.unmanaged || []));
  return 1.06 * Math.max(top, Math.min(unmanaged, 2.5 * peak));
}

// The largest of every 4,096 numbers: `Math.max` takes no more arguments than the stack has room for.
function blockwise(numbers) {
  const largest = [];
  for (let at = 0; at < numbers.length; at += 4096) largest.push(Math.max(...numbers.slice(at, at + 4096)));
  return largest;
}

function callAt(chart, session, left) {
  return Math.min(Math.max(Math.floor(chart.posToVal(left, "x")) - 1, 0), session.n - 1);
}

function brushed(chart, session) {
  if (chart.select.width < 4 || chart.settingSelect) return;
  const from = callAt(chart, session, chart.select.left);
  const to = callAt(chart, session, chart.select.left + chart.select.width);
  go({ from: from + 1, to: to + 1 });
}

function select(chart, session, first, last) {
  const all = first === 0 && last === session.n - 1;
  const left = chart.valToPos(first + 1, "x");
  const right = chart.valToPos(last + 2, "x");
  chart.settingSelect = true;
  chart.setSelect({ left, top: 0, width: all ? 0 : right - left, height: all ? 0 : chart.over.clientHeight }, false);
  chart.settingSelect = false;
}

// The window, the call that is looked at, and the marks, over the river.
function decorate(chart, session) {
  const { ctx, bbox } = chart;
  const ratio = devicePixelRatio;
  ctx.save();
  const { window } = session.raw;
  const beyond = window > chart.scales.y.max;
  const y = beyond ? bbox.top : Math.round(chart.valToPos(window, "y", true));
  ctx.strokeStyle = ctx.fillStyle = colour("warn");
  ctx.lineWidth = 1.5 * ratio;
  ctx.setLineDash([7 * ratio, 4 * ratio]);
  ctx.beginPath();
  ctx.moveTo(bbox.left, y);
  ctx.lineTo(bbox.left + bbox.width, y);
  if (!beyond) ctx.stroke();
  ctx.setLineDash([]);
  ctx.font = `600 ${11 * ratio}px Inter, system-ui, sans-serif`;
  ctx.textAlign = "left";
  outlined(ctx, `window ${short(window)}${beyond ? ", above ↑" : ""}`, bbox.left + 6 * ratio, y + (beyond ? 14 : -7) * ratio);
  const last = session.calls.unmanaged?.[session.n - 1] ?? 0;
  if (last > chart.scales.y.max) {
    ctx.fillStyle = colour("text");
    ctx.font = `${11 * ratio}px Inter, system-ui, sans-serif`;
    ctx.textAlign = "right";
    outlined(ctx, `if nothing had left: ${short(last)} ↑`, bbox.left + bbox.width - 6 * ratio, bbox.top + 14 * ratio);
  }
  const call = chosenCall(session, view());
  const left = chart.valToPos(call + 1, "x", true);
  const right = Math.max(chart.valToPos(call + 2, "x", true), left + 2 * ratio);
  ctx.fillStyle = colour("cursor");
  ctx.fillRect(left, bbox.top, right - left, bbox.height);
  ctx.fillStyle = colour("accent");
  ctx.fillRect(left, bbox.top + bbox.height - 3 * ratio, right - left, 3 * ratio);
  marks(chart, session, ratio);
  ctx.restore();
}

function outlined(ctx, text, x, y) {
  ctx.lineJoin = "round";
  ctx.lineWidth = 3 * devicePixelRatio;
  ctx.strokeStyle = colour("surface");
  ctx.strokeText(text, x, y);
  ctx.fillText(text, x, y);
}

function marks(chart, session, ratio) {
  const { ctx, bbox } = chart;
  ctx.font = `${11 * ratio}px "DejaVu Sans", Inter, system-ui, sans-serif`;
  ctx.textAlign = "center";
  const reached = new Map();
  let right = 0;
  for (const mark of session.marks) {
    const place = Math.round(chart.valToPos(Math.min(mark.call, session.n - 1) + 1.5, "x", true));
    if (place - (reached.get(mark.kind) ?? -99) < 6 * ratio) continue; // no two of a kind on top of each other
    const x = place < right ? right : place; // those of other kinds stand beside each other
    reached.set(mark.kind, place);
    right = x + 11 * ratio;
    ctx.fillStyle = colour(`mark-${mark.kind}`);
    ctx.fillText((MARKS[mark.kind] || ["•"])[0], x, bbox.top - 6 * ratio);
  }
}

function legendItems(session, parts, call) {
  const item = (picture, name, value) =>
    h("span", { class: "legend-item" }, picture, h("span", null, name), h("b", null, value));
  const present = new Set(session.marks.map((mark) => mark.kind));
  const unmanaged = session.calls.unmanaged?.[call];
  return [
    ...parts.map((part) => item(swatch(PARTS[part]), part, short(session.calls.tokens[part][call]))),
    unmanaged === undefined || unmanaged === null
      ? null
      : item(h("i", { class: "dashes", "aria-hidden": "true" }), "if nothing had left", short(unmanaged)),
    ...Object.entries(MARKS)
      .filter(([kind]) => present.has(kind))
      .map(([kind, [shape, name]]) => item(h("i", { class: `mark mark-${kind}`, "aria-hidden": "true" }, shape), name, "")),
  ];
}

function sentence(session, call) {
  const events = session.marks.filter((mark) => mark.call === call).slice(0, 3).map((mark) => mark.label).join("; ");
  return `Call ${call + 1} of ${session.n}: ${session.size(call)}.${events ? ` ${events}.` : ""}`;
}
