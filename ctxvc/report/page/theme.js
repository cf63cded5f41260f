// Light and dark, and the colours and patterns of kinds: no kind is told by its colour alone.
import { framed } from "./dom.js";

const STORED = "ctxvc-theme";
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const listeners = [];
let styles = null;
let patterns = new Map();

// The parts of a prompt in the order in which they are stacked, what changes least at the bottom, with the kind that each shows.
export const PARTS = {
  "system prompt and tools": "system", you: "user", client: "client", answers: "assistant", thinking: "thinking", notes: "note",
  calls: "tool_use", results: "tool_result", images: "image", documents: "document", dashboards: "dashboard", stubs: "stub",
  other: "other", "not recorded": "unrecorded",
};
const KINDS = new Set(Object.values(PARTS));

const PATTERN_OF = {
  __proto__: null,
  system: "none", user: "none", client: "rising", assistant: "dots", thinking: "rising", note: "cross", tool_use: "bars", tool_result: "none",
  image: "dots", document: "lines", dashboard: "cross", stub: "falling", other: "lines",
  unrecorded: "hatched",
};

export function clearTheme() {
  listeners.length = 0;
}

export function onTheme(listener) {
  listeners.push(listener);
}

function chosen() {
  try {
    return localStorage.getItem(STORED);
  } catch {
    return null; // a browser may refuse storage to files
  }
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  styles = null;
  patterns = new Map();
  for (const listener of listeners) listener();
}

export function startTheme() {
  setTheme(chosen() || (dark.matches ? "dark" : "light"));
  dark.addEventListener("change", () => chosen() || setTheme(dark.matches ? "dark" : "light"));
  let before = null;
  window.addEventListener("beforeprint", () => {
    before = document.documentElement.dataset.theme;
    setTheme("light");
  });
  window.addEventListener("afterprint", () => before && setTheme(before));
  window.addEventListener("resize", framed(() => listeners.forEach((listener) => listener())));
}

export function switchTheme() {
  const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  try {
    localStorage.setItem(STORED, next);
  } catch {
    // then it lasts until the page is left
  }
  setTheme(next);
  return next;
}

// A colour of the style sheet, such as `colour("line")` for --line.
export function colour(name) {
  styles = styles || getComputedStyle(document.documentElement);
  return styles.getPropertyValue(`--${name}`).trim() || styles.getPropertyValue("--k-other").trim();
}

export function kindColour(kind) {
  return colour(`k-${KINDS.has(kind) ? kind : "other"}`);
}

const DRAWN = {
  rising: (c) => line(c, [[-2, 10, 10, -2], [-2, 2, 2, -2], [6, 10, 10, 6]]),
  falling: (c) => line(c, [[-2, -2, 10, 10], [6, -2, 10, 2], [-2, 6, 2, 10]]),
  hatched: (c) => line(c, [[-2, 10, 10, -2], [-2, 2, 2, -2], [6, 10, 10, 6], [-2, -2, 10, 10], [6, -2, 10, 2], [-2, 6, 2, 10]]),
  bars: (c) => line(c, [[2, 0, 2, 8], [6, 0, 6, 8]]),
  lines: (c) => line(c, [[0, 2, 8, 2], [0, 6, 8, 6]]),
  cross: (c) => line(c, [[0, 4, 8, 4], [4, 0, 4, 8]]),
  dots: (c) => {
    c.fillRect(1, 1, 1.6, 1.6);
    c.fillRect(5, 5, 1.6, 1.6);
  },
};

function line(context, segments) {
  context.beginPath();
  for (const [x0, y0, x1, y1] of segments) {
    context.moveTo(x0, y0);
    context.lineTo(x1, y1);
  }
  context.stroke();
}

// A pattern of 8 × 8 pixels: `ground` below, `ink` drawn.
export function pattern(drawing, ground, ink) {
  const key = `${drawing} ${ground} ${ink}`;
  if (!patterns.has(key)) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 8;
    const context = tile.getContext("2d");
    if (ground) {
      context.fillStyle = ground;
      context.fillRect(0, 0, 8, 8);
    }
    context.strokeStyle = context.fillStyle = ink;
    context.lineWidth = 1;
    DRAWN[drawing](context);
    patterns.set(key, context.createPattern(tile, "repeat"));
  }
  return patterns.get(key);
}

// How a kind is filled: its colour, with its pattern where it has one.
export function kindFill(kind) {
  const drawing = PATTERN_OF[kind] || "lines";
  return drawing === "none" ? kindColour(kind) : pattern(drawing, kindColour(kind), colour("ink-on-kind"));
}

// A small square that shows a kind as the pictures draw it.
export function swatch(kind) {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 12;
  canvas.className = "swatch";
  canvas.setAttribute("aria-hidden", "true");
  const context = canvas.getContext("2d");
  context.fillStyle = kindFill(kind);
  context.fillRect(0, 0, 12, 12);
  return canvas;
}
