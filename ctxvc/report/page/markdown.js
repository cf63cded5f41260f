// Markdown as elements: what a model or a person wrote, laid out. It makes no markup of it: all text goes through `h`,
// what is no Markdown of ours stays as it is written, HTML too, and a link leads to nothing but http and https.
import { h } from "./dom.js";

const LONGEST = 100000;
const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^`\n]{0,60})$/;
const ITEM = /^(\s{0,12})(?:[-*+•]|(\d{1,4})[.)])\s+(.*)$/;
const INLINE = /(`+)([^`].{0,2000}?|[^`])\1(?!`)|\*\*(?=\S)(.{1,2000}?\S?)\*\*|(?<![*\w])\*(?=\S)([^*\n]{1,1000}?)(?<=\S)\*(?![*\w])|\[([^\][\n]{1,500})\]\(([^\s()]{1,1000})\)|https?:\/\/[^\s<>()"'`\]]{1,1000}/;

// The elements of a text.
export function markdown(text) {
  if (text.length > LONGEST) return h("pre", { class: "body" }, text);
  return h("div", { class: "md" }, blocks(text.replace(/\r\n/g, "\n").split("\n")));
}

function blocks(lines, depth = 0) {
  const made = [];
  for (let at = 0; at < lines.length; ) {
    const [element, next] = block(lines, at, depth);
    if (element) made.push(element);
    at = next;
  }
  return made;
}

// The block that begins at a line, and the line behind it.
function block(lines, at, depth) {
  const line = lines[at];
  if (!line.trim()) return [null, at + 1];
  const fence = line.match(FENCE);
  if (fence) return fenced(lines, at, fence[1]);
  const heading = line.match(/^ {0,3}(#{1,6})\s+(.*?)\s*#*$/);
  if (heading) return [h("p", { class: `md-heading md-heading-${heading[1].length}` }, inline(heading[2])), at + 1];
  if (/^ {0,3}([-*_])(\s*\1){2,}\s*$/.test(line)) return [h("hr"), at + 1];
  if (/^ {0,3}>/.test(line)) return quoted(lines, at, depth);
  if (ITEM.test(line)) return list(lines, at, depth);
  if (line.includes("|") && /^\s*\|?\s*:?-{2,}:?\s*(\|\s*:?-{2,}:?\s*)*\|?\s*$/.test(lines[at + 1] || "")) return grid(lines, at);
  return paragraph(lines, at);
}

function fenced(lines, at, fence) {
  let end = at + 1;
  while (end < lines.length && !(lines[end].trim().startsWith(fence) && /^[`~]+$/.test(lines[end].trim()))) end++;
  return [h("pre", { class: "code", tabindex: "0" }, lines.slice(at + 1, end).join("\n")), end + 1];
}

function quoted(lines, at, depth) {
  let end = at;
  while (end < lines.length && /^ {0,3}>/.test(lines[end])) end++;
  const inner = lines.slice(at, end).map((line) => line.replace(/^ {0,3}> ?/, ""));
  return [h("blockquote", null, depth < 4 ? blocks(inner, depth + 1) : inner.join("\n")), end];
}

// Items with what is indented below them.
function list(lines, at, depth) {
  const [, indent, number] = lines[at].match(ITEM);
  const items = [];
  while (at < lines.length) {
    const item = lines[at].match(ITEM);
    if (!item || item[1].length !== indent.length || Boolean(item[2]) !== Boolean(number)) break;
    const inner = [item[3]];
    at++;
    while (at < lines.length && (lines[at].trim() === "" ? deeper(lines[at + 1], indent) : deeper(lines[at], indent))) {
      inner.push(lines[at].slice(Math.min(indent.length + 2, lines[at].length - lines[at].trimStart().length)));
      at++;
    }
    items.push(h("li", null, depth < 4 ? blocks(inner, depth + 1) : inner.join("\n")));
  }
  return [number ? h("ol", { start: number }, items) : h("ul", null, items), at];
}

function deeper(line, indent) {
  return line !== undefined && line.trim() !== "" && line.length - line.trimStart().length > indent.length;
}

function grid(lines, at) {
  const cells = (line) => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());
  const head = cells(lines[at]);
  let end = at + 2;
  while (end < lines.length && lines[end].includes("|")) end++;
  const rows = lines.slice(at + 2, end).map((line) => h("tr", null, cells(line).map((cell) => h("td", null, inline(cell)))));
  return [h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "a table" }, h("table", null, h("thead", null, h("tr", null, head.map((cell) => h("th", { scope: "col" }, inline(cell))))), h("tbody", null, rows))), end];
}

function paragraph(lines, at) {
  let end = at + 1;
  while (end < lines.length && lines[end].trim() && !FENCE.test(lines[end]) && !ITEM.test(lines[end]) && !/^ {0,3}(#{1,6}\s|>)/.test(lines[end])) end++;
  return [h("p", null, lines.slice(at, end).map((line, number) => [number ? h("br") : null, inline(line)])), end];
}

// A line with its code, its emphasis and its links.
function inline(line) {
  if (line.length > 20000) return line;
  const parts = [];
  let rest = line;
  for (let hit = rest.match(INLINE); hit; hit = rest.match(INLINE)) {
    parts.push(rest.slice(0, hit.index), span(hit));
    rest = rest.slice(hit.index + hit[0].length);
  }
  return [...parts, rest];
}

function span([whole, ticks, code, strong, emphasis, label, target]) {
  if (ticks) return h("code", null, code);
  if (strong) return h("strong", null, inline(strong));
  if (emphasis) return h("em", null, emphasis);
  if (label === undefined) return outward(whole.replace(/[.,;:!?]+$/, ""), whole);
  return /^https?:\/\//i.test(target) ? outward(target, label) : h("span", { title: target }, label);
}

function outward(address, label) {
  return h("a", { href: address, title: address, rel: "noopener noreferrer nofollow", target: "_blank" }, label);
}
