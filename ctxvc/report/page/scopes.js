// The scopes and sub-agents as a tree, each with the course of its prompts, and the notes that went between them on the edges.
import { empty, h, replace, svg, withCode } from "./dom.js";
import { callLink } from "./pieces.js";
import { chosenCalls } from "./session.js";
import { firstLine, plain, plural, short } from "./text.js";
import { table, tableBelow } from "./table.js";
import { view } from "./view.js";

const CARD = [224, 64];
const STEP = [320, 92];

export function scopesScreen({ session }) {
  const { scopes } = session;
  const chart = h("div", { class: "tree", tabindex: "0", role: "region", "aria-label": "Tree of scopes" });
  const alone = scopes.length < 2
    ? h("p", { class: "muted" }, withCode("One scope: nobody branched off, and no sub-agent was recorded. `ctxvc scope NAME` would begin one."))
    : null;
  const notes = h("div");
  const below = tableBelow("The tree as a table", () => scopeTable(inCalls(session, chosenCalls(session, view()))));
  const element = h("div", { class: "screen" },
    h("section", { class: "panel" }, h("h2", null, "Scopes and sub-agents"), alone, chart),
    h("section", { class: "panel" }, h("h2", null, "Notes"), notes),
    below,
  );
  let drawn = "";

  function update() {
    const range = chosenCalls(session, view());
    if (drawn === `${range}`) return;
    drawn = `${range}`;
    const scopes = inCalls(session, range);
    drawTree(scopes, session, chart);
    replace(notes, noteTable(session, scopes));
    below.fill(scopes);
  }

  return { element, update };
}

// The scopes with what they have in a range of calls, each under the one that it left.
function inCalls(session, [from, to]) {
  const isHere = (call) => from <= call && (call <= to || to === session.n - 1);
  return session.scopes.map((scope, index) => {
    const here = scope.calls.map((call, at) => [call, scope.spark[at]]).filter(([call]) => isHere(call));
    return {
      ...scope, index, above: session.scopes[scope.parent]?.name, notes: scope.notes.filter((note) => isHere(note.call)),
      calls: here.map(([call]) => call), spark: here.map(([, tokens]) => tokens),
    };
  });
}

function drawTree(scopes, session, chart) {
  const root = d3.stratify()
    .id((scope) => String(scope.index))
    .parentId((scope) => (scope.index < 0 ? null : String(scope.parent)))([
      { index: -1, parent: null },
      ...scopes.map(({ index, parent }) => ({ index, parent: parent >= 0 ? parent : -1 })),
    ]);
  d3.tree().nodeSize([STEP[1], STEP[0]])(root);
  const nodes = root.descendants().filter((node) => node.data.index >= 0);
  const top = Math.min(...nodes.map((node) => node.x));
  const place = (node) => [node.y - STEP[0], node.x - top];
  const width = Math.max(...nodes.map((node) => place(node)[0])) + CARD[0] + 2;
  const height = Math.max(...nodes.map((node) => place(node)[1])) + CARD[1] + 2;
  const edges = svg("svg", { width, height, "aria-hidden": "true" });
  const canvas = h("div", { class: "tree-canvas" }, edges);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  for (const node of nodes) {
    const [x, y] = place(node);
    const card = scopeCard(session, scopes[node.data.index]);
    card.style.left = `${x}px`;
    card.style.top = `${y}px`;
    canvas.append(card);
    if (node.parent.data.index < 0) continue;
    const [fromX, fromY] = [place(node.parent)[0] + CARD[0], place(node.parent)[1] + CARD[1] / 2];
    const [toX, toY] = [x, y + CARD[1] / 2];
    const middle = (fromX + toX) / 2;
    edges.append(svg("path", { class: "edge", d: `M${fromX} ${fromY}C${middle} ${fromY} ${middle} ${toY} ${toX} ${toY}` }));
    const notes = edgeNotes(scopes, node.data.index);
    if (notes.length) {
      const label = h("span", { class: "edge-note", title: notes.map((note) => plain(note.text)).join("\n") }, `✎ ${firstLine(plain(notes[0].text), 60)}`);
      label.style.left = `${middle - 44}px`;
      label.style.top = `${(fromY + toY) / 2 - 11}px`;
      canvas.append(label);
    }
  }
  replace(chart, canvas);
}

// The notes that went along the edge above a scope, in either direction.
function edgeNotes(scopes, index) {
  const { parent, notes } = scopes[index];
  const above = scopes[parent]?.notes || [];
  return [...notes.filter((note) => note.to === parent), ...above.filter((note) => note.to === index)];
}

function scopeCard(session, { name, calls, spark, agent }) {
  return h("div", { class: `scope-card${calls.length ? "" : " absent"}` },
    h("div", { class: "scope-name" }, h("b", null, name), agent ? h("span", { class: "tag" }, "sub-agent") : null),
    sparkline(spark),
    h("div", { class: "scope-facts" }, plural(calls.length, "call"), calls.length ? [" from ", callLink(session, calls[0])] : "", calls.length ? `, up to ${short(largest(spark))}` : ""));
}

// The course of a scope's prompts, in as many points as fit.
function sparkline(spark) {
  const [width, height] = [204, 20];
  if (spark.length < 2) return svg("svg", { width, height, "aria-hidden": "true" });
  const step = Math.max(1, Math.floor(spark.length / width));
  const points = spark.filter((_, at) => at % step === 0 || at === spark.length - 1);
  const top = points.reduce((a, b) => Math.max(a, b), 1);
  const path = points.map((value, at) => `${((at * width) / (points.length - 1)).toFixed(1)} ${(height - 1 - (value / top) * (height - 3)).toFixed(1)}`);
  return svg("svg", { width, height, "aria-hidden": "true" },
    svg("path", { class: "spark-fill", d: `M0 ${height}L${path.join("L")}L${width} ${height}Z` }),
    svg("path", { class: "spark", d: `M${path.join("L")}` }));
}

function largest(spark) {
  return spark.reduce((a, b) => Math.max(a, b), 0);
}

function noteTable(session, scopes) {
  const rows = scopes.flatMap((scope) => scope.notes.map((note) => ({ ...note, scope: scope.name })));
  if (!rows.length && session.scopes.some((scope) => scope.notes.length)) return empty("No notes in these calls", "There are notes in others: choose all calls above.");
  if (!rows.length) return empty("No notes", "Nobody wrote down what was learned. `ctxvc note TEXT` would, and so would an agent with that tool.");
  rows.sort((a, b) => a.call - b.call);
  return table("Notes", [
    { name: "call", cell: (note) => callLink(session, note.call), sort: (note) => note.call },
    { name: "in", cell: (note) => note.scope, sort: (note) => note.scope },
    { name: "to", cell: (note) => session.scopes[note.to]?.name || "–" },
    { name: "note", cell: (note) => note.text, wide: true },
  ], rows);
}

function scopeTable(scopes) {
  return table("Scopes", [
    { name: "scope", cell: (scope) => scope.name, sort: (scope) => scope.name },
    { name: "from", cell: (scope) => scope.above || "–" },
    { name: "calls", cell: (scope) => scope.calls.length, sort: (scope) => scope.calls.length, number: true },
    { name: "largest prompt", cell: (scope) => short(largest(scope.spark)), number: true },
    { name: "notes", cell: (scope) => scope.notes.length, sort: (scope) => scope.notes.length, number: true },
  ], scopes);
}
