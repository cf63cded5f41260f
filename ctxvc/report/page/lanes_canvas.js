// The picture of the lanes: only rows and calls that are in sight are drawn, and no more runs of a row than it has pixels.
import { sized } from "./dom.js";
import { GONE, LIVE, PINNED, STUB } from "./lanes_rows.js";
import { firstLine, short } from "./text.js";
import { colour, kindColour, kindFill, pattern } from "./theme.js";

const FONT = "12px Inter, system-ui, sans-serif";
const MONO = "11px ui-monospace, Menlo, Consolas, monospace";

// Pixels a call, below which runs are drawn by pixels.
const DENSE = 0.75;
// Strips of rows are kept while they are looked at, this many at most.
const STRIPS = 1000;
const strips = new Map();

// Draws the rows at `place` ({width, height, top, gutter, row}) over the calls of `[from, to)`.
export function paintLanes(canvas, session, rows, place, [from, to], chosen, call) {
  const { width, height, top, gutter, row } = place;
  const context = sized(canvas, width, height);
  const palette = paletteOf();
  context.fillStyle = palette.ground;
  context.fillRect(0, 0, width, height);
  const scale = (width - gutter - 8) / (to - from);
  const x = (at) => gutter + (at - from) * scale;
  const first = Math.floor(top / row);
  const last = Math.min(rows.length, Math.ceil((top + height) / row));
  if (chosen >= first && chosen < last) {
    context.fillStyle = palette.chosen;
    context.fillRect(0, chosen * row - top, width, row);
  }
  const span = Math.max(1, Math.round((to - from) * scale));
  const key = `${from} ${to} ${span} ${palette.text}`;
  context.imageSmoothingEnabled = false;
  for (let at = first; at < last; at++) {
    const calls = { x, y: at * row - top, row, from, to, scale };
    if (scale < DENSE) drawDense(context, rows[at], calls, span, key, palette);
    else drawRuns(context, rows[at], calls, palette);
  }
  for (let at = first; at < last; at++) drawReads(context, rows[at].reads, { x, y: at * row - top, row, from, to, scale }, palette);
  if (call >= from && call < to) {
    context.fillStyle = palette.cursor;
    context.fillRect(x(call), 0, Math.max(scale, 2), height);
  }
  drawNames(context, rows, first, last, place, palette);
}

function paletteOf() {
  return {
    dot: dotOf(colour("surface"), colour("text")),
    ground: colour("surface"), chosen: colour("accent-soft"), cursor: colour("cursor"), text: colour("text"), muted: colour("muted"),
    gone: colour("strong-line"), line: colour("line"), stub: pattern("falling", colour("sunken"), colour("muted")),
  };
}

let dot = null;

// The mark of a block that was read back; drawn once for each theme.
function dotOf(ground, ink) {
  if (dot?.ink === ink) return dot;
  dot = document.createElement("canvas");
  dot.ink = ink;
  dot.width = dot.height = 10;
  const context = dot.getContext("2d");
  context.arc(5, 5, 3.5, 0, 7);
  context.fillStyle = ground;
  context.fill();
  context.strokeStyle = ink;
  context.lineWidth = 2;
  context.stroke();
  return dot;
}

function drawRuns(context, lane, { x, y, row, from, to, scale }, palette) {
  const { runs } = lane;
  const [low, high] = [y + 3, row - 6];
  const solid = row >= 10 ? kindFill(lane.kind) : kindColour(lane.kind);
  for (let at = firstRun(runs, from); at < runs.length && runs[at] < to; ) {
    const left = x(Math.max(runs[at], from));
    const right = Math.max(x(Math.min(runs[at + 1], to)), left + 1);
    const drawn = runs[at + 2];
    if (drawn >= LIVE) {
      context.fillStyle = solid;
      context.fillRect(left, low, right - left, high);
      if (drawn === PINNED) {
        context.fillStyle = palette.text;
        context.fillRect(left, low + high - 1.5, right - left, 1.5);
      }
    } else if (drawn === STUB) {
      context.fillStyle = palette.stub;
      context.fillRect(left, low + 1, right - left, high - 2);
    } else if (drawn === GONE && right - left > 2) {
      context.strokeStyle = palette.gone;
      context.lineWidth = 1;
      context.strokeRect(left + 0.5, low + 2.5, right - left - 1, high - 5);
    }
    at += 3;
  }
}

// A row of which a pixel has several calls: each pixel is what its first call is, and a strip of one pixel's height is stretched.
function drawDense(context, lane, { x, y, row, from, scale }, width, key, palette) {
  let strip = strips.get(lane);
  if (strip?.key !== key) {
    if (strips.size >= STRIPS) strips.clear();
    strip = document.createElement("canvas");
    strip.key = key;
    strip.width = width;
    strip.height = 1;
    const pixels = new Uint32Array(width);
    fillRow(pixels, lane, from, scale, palette);
    strip.getContext("2d").putImageData(new ImageData(new Uint8ClampedArray(pixels.buffer), width, 1), 0, 0);
    strips.set(lane, strip);
  }
  context.drawImage(strip, x(from), y + 3, width, row - 6);
}

function fillRow(pixels, { runs, kind }, from, scale, palette) {
  const solid = packed(kindColour(kind));
  const inks = [0, packed(palette.line), packed(palette.gone), solid, solid];
  let at = firstRun(runs, from);
  for (let pixel = 0; pixel < pixels.length; pixel++) {
    const call = from + pixel / scale;
    while (at < runs.length && runs[at + 1] <= call) at += 3;
    if (at >= runs.length) return;
    if (runs[at] <= call + 1 / scale) pixels[pixel] = inks[runs[at + 2]];
  }
}

// A colour `#rrggbb` as the pixels of a picture have it.
function packed(hex) {
  const value = parseInt(hex.slice(1), 16);
  return ((255 << 24) | ((value & 255) << 16) | (value & 0xff00) | (value >> 16)) >>> 0;
}

// The first run that ends after `call`: they are in order, and do not meet.
function firstRun(runs, call) {
  let low = 0;
  let high = runs.length / 3;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (runs[3 * middle + 1] > call) high = middle;
    else low = middle + 1;
  }
  return 3 * low;
}

function drawReads(context, reads, { x, y, row, from, to, scale }, palette) {
  let drawnTo = -9;
  for (const read of reads) {
    if (read < from || read >= to) continue;
    const at = x(read) + scale / 2;
    if (at - drawnTo < 3) continue;
    drawnTo = at;
    context.drawImage(palette.dot, at - 5, y + row / 2 - 5);
  }
}

function drawNames(context, rows, first, last, { gutter, top, row, height }, palette) {
  if (row < 10) return;
  const narrow = gutter < 200;
  context.fillStyle = palette.ground;
  context.save();
  context.beginPath();
  context.rect(0, 0, gutter - 8, height);
  context.clip();
  context.textBaseline = "middle";
  for (let at = first; at < last; at++) {
    const { depth, head, name, kind, tokens, block } = rows[at];
    const y = at * row - top + row / 2;
    const left = 4 + 12 * depth;
    context.fillStyle = kindColour(kind);
    context.fillRect(left, y - 4, 8, 8);
    context.font = MONO;
    context.fillStyle = palette.text;
    context.fillText(head, left + 14, y);
    context.font = FONT;
    const nameAt = left + (block < 0 ? 30 : 54);
    if (!narrow || block < 0) fitted(context, rows[at], name, nameAt, y, gutter - 46 - nameAt, palette.muted);
    if (!narrow) {
      context.textAlign = "right";
      context.fillStyle = palette.muted;
      context.fillText(short(tokens), gutter - 12, y);
      context.textAlign = "left";
    }
  }
  context.restore();
}

// A name in the width that there is; measured once for a row.
function fitted(context, lane, name, left, y, width, ink) {
  if (lane.fittedTo !== width) {
    lane.fittedTo = width;
    lane.fitted = name;
    for (let length = name.length; length > 0 && context.measureText(lane.fitted).width > width; length = Math.floor(length * 0.9)) {
      lane.fitted = firstLine(name, length);
    }
  }
  context.fillStyle = ink;
  context.fillText(lane.fitted, left, y);
}
