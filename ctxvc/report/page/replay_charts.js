// The pictures of a replay's results, as SVG: a few points, drawn once.
import { svg } from "./dom.js";
import { percent, short } from "./text.js";

const HIGH = 340;
const MARGIN = { left: 52, right: 20, top: 14, bottom: 38 };
const DASHES = ["", "7 3", "2 3", "9 3 2 3", "4 4", "12 4"];

// Each policy's colour, dash and shape, by name: no two that stand beside each other differ by colour alone.
export function policyStyles(points) {
  const names = [...new Set(points.filter((point) => !point.oracle).map((point) => point.policy))].sort();
  const oracles = [...new Set(points.filter((point) => point.oracle).map((point) => point.policy))];
  const styles = new Map(names.map((name, at) => [name, { index: at % 8, dash: DASHES[at % DASHES.length], shape: SHAPES[at % SHAPES.length] }]));
  for (const name of oracles) styles.set(name, { index: "oracle", dash: "1 4", shape: () => null });
  return styles;
}

const path = (d) => svg("path", { class: "point", d });
const SHAPES = [
  (x, y) => svg("circle", { class: "point", cx: x, cy: y, r: 4.5 }),
  (x, y) => svg("rect", { class: "point", x: x - 4, y: y - 4, width: 8, height: 8 }),
  (x, y) => path(`M${x} ${y - 5}L${x + 5} ${y + 4}H${x - 5}Z`),
  (x, y) => path(`M${x} ${y - 6}L${x + 5} ${y}L${x} ${y + 6}L${x - 5} ${y}Z`),
  (x, y) => path(`M${x} ${y + 5}L${x + 5} ${y - 4}H${x - 5}Z`),
];

// A linear scale from `[from, to]` to pixels, with about five round ticks.
function scale([from, to], [start, end]) {
  const raw = (to - from) / 5;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= raw);
  const ticks = [];
  for (let at = Math.ceil(from / step - 1e-9); at * step <= to + step * 1e-6; at++) ticks.push(Number((at * step).toPrecision(12)));
  return { at: (value) => start + ((value - from) / (to - from)) * (end - start), ticks };
}

function range(values, least, most) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const room = Math.max((high - low) * 0.08, 0.004 * Math.max(Math.abs(high), 1));
  return [Math.max(low - room, least), Math.min(high + room, most)];
}

function frame(width, height, x, y, xText, yText, xTitle, title) {
  const [left, right] = [MARGIN.left, width - MARGIN.right];
  return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title },
    y.ticks.map((tick) => [
      svg("line", { class: "grid", x1: left, x2: right, y1: y.at(tick), y2: y.at(tick) }),
      svg("text", { class: "tick", x: left - 8, y: y.at(tick) + 4, "text-anchor": "end" }, yText(tick)),
    ]),
    x.ticks.map((tick) => svg("text", { class: "tick", x: x.at(tick), y: height - MARGIN.bottom + 18, "text-anchor": "middle" }, xText(tick))),
    svg("text", { class: "tick", x: right, y: height - 4, "text-anchor": "end" }, xTitle));
}

// Retention against cost.
export function frontierChart(raw, styles, width) {
  const points = raw.points.filter((point) => point.cost);
  const oracles = raw.points.filter((point) => point.oracle);
  const x = scale(range(points.flatMap((point) => point.cost), 0, Infinity), [MARGIN.left, width - MARGIN.right]);
  const y = scale(range(raw.points.flatMap((point) => point.retention), 0, 1.004), [HIGH - MARGIN.bottom, MARGIN.top]);
  const picture = frame(width, HIGH, x, y, (value) => String(value), percent, `cost, where ${raw.baseline} is 1`, `Retention against cost of ${points.length} points; the table below has the numbers`);
  let above = Infinity;
  for (const oracle of oracles.toSorted((a, b) => a.retention[0] - b.retention[0] || a.budget - b.budget)) {
    const at = y.at(oracle.retention[0]);
    picture.append(svg("line", { class: "oracle", x1: MARGIN.left, x2: width - MARGIN.right, y1: at, y2: at }));
    if (above - at < 11) continue; // a label would stand on the one below
    picture.append(svg("text", { class: "tick small", x: MARGIN.left + 4, y: at - 3 }, `oracle at ${short(oracle.budget)}`));
    above = at;
  }
  for (const [policy, style] of styles) picture.append(policyCloud(points.filter((point) => point.policy === policy), style, x, y));
  return [picture];
}

function policyCloud(points, style, x, y) {
  const sorted = points.toSorted((a, b) => a.budget - b.budget);
  const group = svg("g", { class: `policy-${style.index}` });
  group.append(svg("path", { class: "curve faint", "stroke-dasharray": style.dash, d: line(sorted.map((point) => [x.at(point.cost[0]), y.at(point.retention[0])])) }));
  for (const point of sorted) {
    const [cx, cy] = [x.at(point.cost[0]), y.at(point.retention[0])];
    group.append(
      svg("line", { class: "bar-of", x1: x.at(point.cost[1]), x2: x.at(point.cost[2]), y1: cy, y2: cy }),
      svg("line", { class: "bar-of", x1: cx, x2: cx, y1: y.at(point.retention[1]), y2: y.at(point.retention[2]) }),
      svg("g", { class: point.valid ? null : "invalid" }, style.shape(cx, cy),
        svg("title", null, `${point.policy} at ${short(point.budget)}: ${percent(point.retention[0])} for ${point.cost[0].toFixed(2)}`)),
      svg("text", { class: "tick small", x: cx + 8, y: cy - 6 }, short(point.budget)));
  }
  return group;
}

function line(places) {
  return places.length ? `M${places.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L")}` : "M0 0";
}

// Retention or cost over the budget, a curve a policy; budgets stand at equal distances, since each is about twice the last.
export function lineChart(raw, styles, field, width) {
  const height = 240;
  const points = raw.points.filter((point) => point[field]);
  const budgets = [...new Set(points.map((point) => point.budget))].sort((a, b) => a - b);
  const last = Math.max(budgets.length - 1, 1);
  const place = (budget) => MARGIN.left + 24 + (budgets.indexOf(budget) / last) * (width - MARGIN.left - MARGIN.right - 48);
  const y = scale(range(points.flatMap((point) => point[field]), 0, field === "retention" ? 1.004 : Infinity), [height - MARGIN.bottom, MARGIN.top]);
  const value = field === "retention" ? percent : String;
  const picture = frame(width, height, { at: place, ticks: budgets }, y, short, value, "budget", `${field} by budget; the table below has the numbers`);
  for (const [policy, style] of styles) {
    const own = points.filter((point) => point.policy === policy).sort((a, b) => a.budget - b.budget);
    const group = svg("g", { class: `policy-${style.index}` }, svg("path", { class: "curve", "stroke-dasharray": style.dash, d: line(own.map((point) => [place(point.budget), y.at(point[field][0])])) }));
    for (const point of own) {
      const x = place(point.budget);
      group.append(svg("line", { class: "bar-of", x1: x, x2: x, y1: y.at(point[field][1]), y2: y.at(point[field][2]) }));
      const shape = style.shape(x, y.at(point[field][0]));
      if (shape) group.append(shape);
    }
    picture.append(group);
  }
  return picture;
}
