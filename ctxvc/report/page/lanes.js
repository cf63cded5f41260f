// The lanes: a row a block over the calls, solid while it is in the prompt, hatched as a stub, an outline when it is gone.
import { announce, empty, framed, h, replace } from "./dom.js";
import { paintLanes } from "./lanes_canvas.js";
import { folded } from "./lanes_rows.js";
import { blockLink, callLink, kindChip } from "./pieces.js";
import { chosenCalls } from "./session.js";
import { firstLine, plain, plural, short, whole } from "./text.js";
import { table, tableBelow } from "./table.js";
import { onTheme } from "./theme.js";
import { go, view } from "./view.js";

const ROW = 18;
const FOLDS = [["", "block"], ["file", "file"], ["tool", "tool"], ["turn", "turn"]];
const WIDE = 260;
const NARROW = 104;

export function lanesScreen({ session }) {
  const canvas = h("canvas", { class: "lanes-canvas", id: "lanes-canvas", tabindex: "0", role: "img", "aria-describedby": "lanes-help" });
  const spacer = h("div", { class: "lanes-spacer" });
  const scroller = h("div", { class: "lanes-scroll", tabindex: "-1" }, h("div", { class: "lanes-stick" }, canvas), spacer);
  const readout = h("p", { class: "readout" });
  const folds = h("div", { class: "filters", role: "group", "aria-label": "Rows" });
  const none = empty("No block was in these calls", "Choose other calls above.");
  const below = h("div");
  const element = h(
    "div",
    { class: "screen", "data-arranged": "lanes" },
    h(
      "section",
      { class: "panel" },
      h("div", { class: "river-head" }, h("h2", null, "Every block, call by call"), folds),
      laneLegend(),
      scroller,
      none,
      readout,
      h("p", { class: "visually-hidden", id: "lanes-help" },
        "Arrow keys up and down choose a row, Enter opens its life or its fold. The same is in the table below."),
    ),
    below,
  );
  let rows = [];
  let chosen = 0;
  let shape = "";
  let shownBlock = null;
  const opened = new Set();

  const paint = () => {
    const width = scroller.clientWidth;
    const gutter = width < 600 ? NARROW : WIDE;
    const place = { width, height: scroller.clientHeight, top: scroller.scrollTop, gutter, row: ROW };
    paintLanes(canvas, session, rows, place, span(), chosen, view().call === null ? -1 : view().call - 1);
  };
  const later = framed(paint);
  element.paint = paint; // what a test times: the script of one frame
  element.arrangement = () => ({ opened: [...opened], row: rows[chosen] && rowKey(rows[chosen]) });
  element.arrange = (arrangement) => {
    for (const key of arrangement.opened) opened.add(key);
    shape = "";
    update();
    chosen = Math.max(rows.findIndex((row) => rowKey(row) === arrangement.row), 0);
    paint();
  };

  scroller.addEventListener("scroll", later, { passive: true });
  canvas.addEventListener("mousemove", (event) => hover(event));
  canvas.addEventListener("click", (event) => {
    const at = rowAt(event);
    if (at >= 0) choose(at, true);
  });
  canvas.addEventListener("keydown", (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1, PageDown: 20, PageUp: -20 }[event.key];
    if (by) choose(Math.min(Math.max(chosen + by, 0), rows.length - 1), false);
    else if (event.key === "Enter" || event.key === " ") choose(chosen, true);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  onTheme(() => element.isConnected && paint());

  function span() {
    const [from, to] = chosenCalls(session, view());
    return [from, to === session.n - 1 ? session.n + 1 : to + 1]; // the last column is what the next call would see
  }

  function rowAt(event) {
    const at = Math.floor((scroller.scrollTop + event.offsetY) / ROW);
    return at < rows.length ? at : -1;
  }

  function choose(at, open) {
    const row = rows[at];
    if (!row) return;
    chosen = at;
    reveal(at);
    describe(row);
    announce(row.title);
    if (open && row.block >= 0) go({ block: session.address(row.block) });
    else if (open) {
      if (!opened.delete(row.key)) opened.add(row.key);
      shape = "";
      update();
    }
    later();
  }

  function reveal(at) {
    const top = at * ROW;
    if (top < scroller.scrollTop) scroller.scrollTop = top;
    else if (top + ROW > scroller.scrollTop + scroller.clientHeight) scroller.scrollTop = top + ROW - scroller.clientHeight;
  }

  function hover(event) {
    const row = rows[rowAt(event)];
    if (row) describe(row);
  }

  function describe(row) {
    const reads = row.reads.length ? `, read back ${plural(row.reads.length, "time")}` : "";
    replace(readout, `${row.title}: ${whole(row.tokens)} tokens${reads}`);
  }

  function update() {
    const [from, to] = span();
    const fold = view().fold;
    const next = `${fold} ${from} ${to}`;
    if (next !== shape) {
      shape = next;
      rows = folded(session, fold, [from, to], opened);
      chosen = Math.min(chosen, Math.max(rows.length - 1, 0));
      spacer.style.height = `${rows.length * ROW}px`;
      scroller.style.height = `${Math.min(rows.length * ROW + 2, Math.max(320, innerHeight - 420))}px`;
      none.hidden = rows.length > 0;
      scroller.hidden = !rows.length;
      replace(folds, h("span", { class: "muted" }, "rows by"), FOLDS.map(([value, name]) =>
        h("button", { type: "button", "aria-pressed": String(fold === value), on: { click: () => go({ fold: value }, { quiet: true }) } }, name)));
      canvas.setAttribute("aria-label", `${plural(rows.length, "row")}, calls ${from + 1} to ${Math.min(to, session.n)}`);
      replace(below, tableBelow("The lanes as a table", () => laneTable(session, from, to)));
      replace(readout, `${plural(rows.length, "row")}; click one to see its life.`);
    }
    follow(view().block);
    paint();
  }

  // The row of the block whose life is open is the chosen one, and in sight.
  function follow(address) {
    if (address === shownBlock) return;
    shownBlock = address;
    const block = address === null ? -1 : session.find(address);
    const at = block < 0 ? -1 : rows.findIndex((row) => row.block === block);
    if (at < 0) return;
    chosen = at;
    reveal(at);
  }

  return { element, update };
}

// What a row is called over a page that is drawn anew: its fold, or its block.
function rowKey(row) {
  return row.key || row.head;
}

function laneLegend() {
  const item = (style, text) => h("span", { class: "legend-item" }, h("i", { class: `lane-key ${style}`, "aria-hidden": "true" }), text);
  return h("div", { class: "legend lanes-legend" }, item("solid", "in the prompt"), item("hatched", "as a stub"), item("gone", "gone"), item("read", "read back"));
}

function laneTable(session, from, to) {
  const { blocks } = session;
  const rows = [];
  for (let block = 0; block < blocks.n; block++) if (session.arrival(block) >= 0 && session.arrival(block) < to) rows.push(block);
  const spans = (block) => {
    const intervals = blocks.intervals[block];
    const parts = [];
    for (let at = 0; at < intervals.length; at += 3) {
      if (intervals[at + 1] > from && intervals[at] < to)
        parts.push(`${session.states[intervals[at + 2]]} ${intervals[at] + 1}–${intervals[at + 1]}`);
    }
    return parts.join(", ");
  };
  return table("Blocks and their states, by calls", [
    { name: "block", cell: (block) => blockLink(session, block), sort: (block) => block },
    { name: "kind", cell: (block) => kindChip(session.kind(block)), sort: (block) => session.kind(block) },
    { name: "what", cell: (block) => firstLine(plain(blocks.label[block]), 120), wide: true },
    { name: "tokens", cell: (block) => short(blocks.tokens[block]), sort: (block) => blocks.tokens[block], number: true },
    { name: "since", cell: (block) => callLink(session, session.arrival(block)), sort: (block) => session.arrival(block) },
    { name: "states, by calls", cell: spans },
  ], rows);
}
