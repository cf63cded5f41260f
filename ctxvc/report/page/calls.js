// A call of a tool as a person reads it: an edit as a diff, a command as a command, a list as a list; else its arguments.
import { h } from "./dom.js";
import { missingBody, textBox } from "./pieces.js";
import { plural } from "./text.js";

const LINES = 400;
const COLOURS = /\u001b\[[0-9;]{0,20}m/g;
const DEEPEST = 12;
// What a host writes before a command’s output, of which the call’s line has what matters.
const PREAMBLE = /^(?:(?:Chunk ID|Wall time|Exit code|Process exited with code|Original token count|Total output lines)\b[^\n]{0,80}\n){1,8}Output:\n/;

// The parts of a call, and what came of it.
export function callBody(session, bodies, call) {
  const [block, result, ending, parts] = call;
  const place = session.blocks.body[block];
  const own = parts.length ? parts.map((part) => partElement(bodies, part)) : textBox(arguments_(bodies, place), missingBody(session, bodies, block));
  return [own, result < 0 ? h("p", { class: "muted" }, "No result is recorded.") : output(session, bodies, result, ending)];
}

function partElement(bodies, [kind, title, place]) {
  const text = bodies.text(place);
  if (kind === "deleted") return h("p", null, "deleted ", h("code", null, title));
  const shape = { diff: (value) => diff(value), file: (value) => diff(value, "+"), command, tasks }[kind] || ((value) => textBox(value));
  const missing = h("p", { class: "muted" }, "This text was too large for the page.");
  return h("div", { class: "part" },
    title ? h("p", { class: "part-title" }, h("code", null, title), kind === "file" ? h("span", { class: "muted" }, " written whole") : null) : null,
    Array.isArray(place) ? later(text, shape) : missing);
}

// An element for a text that may not be unpacked yet.
export function later(text, shape) {
  if (!(text instanceof Promise)) return shape(text);
  const box = h("div", null, "…");
  text.then((value) => box.replaceChildren(shape(value)));
  return box;
}

// A diff whose lines have a sign each, or all the same `sign`; long ones by and by.
export function diff(text, sign = "") {
  const lines = text.split("\n");
  if (sign && lines[lines.length - 1] === "") lines.pop();
  const pre = h("pre", { class: "diff", tabindex: "0" });
  const more = h("button", { type: "button", class: "quiet" });
  let shownLines = 0;
  const draw = () => {
    for (const line of lines.slice(shownLines, shownLines + LINES)) pre.append(diffLine(sign ? sign + line : line), "\n");
    shownLines += LINES;
    more.hidden = shownLines >= lines.length;
    more.textContent = `Go on (${plural(lines.length - shownLines, "line")} more)`;
  };
  more.addEventListener("click", draw);
  draw();
  return h("div", null, pre, more);
}

const SIGNS = { __proto__: null, "+": "add", "-": "del", "@": "gap" };

function diffLine(line) {
  const style = SIGNS[line[0]] || "";
  return h("span", { class: style || null }, style === "gap" ? "⋯" : line);
}

function command(text) {
  return h("pre", { class: "code command-text", tabindex: "0" }, text);
}

const STATES = { __proto__: null, x: ["☑", "done"], ">": ["▶", "being done"], "-": ["☐", "open"] };

function tasks(text) {
  return h("ul", { class: "tasks" }, text.split("\n").filter(Boolean).map((line) => {
    const [sign, state] = STATES[line[0]] || STATES["-"];
    return h("li", null, h("span", { "aria-hidden": "true" }, `${sign} `), line.slice(2), h("span", { class: "visually-hidden" }, ` (${state})`));
  }));
}

function output(session, bodies, result, ending) {
  const place = session.blocks.body[result];
  const text = Array.isArray(place) ? bodies.text(place) : null;
  const clean = (value) => readable(value.replace(COLOURS, "").replace(PREAMBLE, ""));
  return h("div", { class: `output${ending ? " bad" : ""}` },
    h("p", { class: "part-title muted" }, ending ? `What came back: ${ending}` : "What came back"),
    textBox(text instanceof Promise ? text.then(clean) : text === null ? null : clean(text), missingBody(session, bodies, result), { tail: true }));
}

function arguments_(bodies, place) {
  if (!Array.isArray(place)) return null;
  const text = bodies.text(place);
  return text instanceof Promise ? text.then(readable) : readable(text);
}

// JSON with an indent and the line breaks of its texts; any other text as it is.
export function readable(text) {
  if (!/^\s*[[{]/.test(text) || text.length > 200000) return text;
  try {
    return laidOut(JSON.parse(text), "", 0).trimStart();
  } catch {
    return text;
  }
}

function laidOut(value, indent, depth) {
  if (typeof value === "string") return value.includes("\n") ? `\n${value.split("\n").map((line) => `${indent}${line}`).join("\n")}` : ` ${value}`;
  if (value === null || typeof value !== "object") return ` ${String(value)}`;
  const items = Array.isArray(value) ? value.map((item) => ["-", item]) : Object.entries(value).map(([name, item]) => [`${name}:`, item]);
  if (!items.length) return Array.isArray(value) ? " []" : " {}";
  if (depth >= DEEPEST) return ` ${JSON.stringify(value)}`;
  return `\n${items.map(([name, item]) => `${indent}${name}${laidOut(item, `${indent}  `, depth + 1)}`).join("\n")}`;
}
