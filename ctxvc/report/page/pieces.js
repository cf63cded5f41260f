// A piece of a prompt, and the small parts in which every screen shows blocks.
import { h } from "./dom.js";
import { bytes, kindName } from "./text.js";
import { swatch } from "./theme.js";
import { link } from "./view.js";

const LINES = 6;
const CLIPPED = 1200;
const AT_ONCE = 200000;

// The address of a block as a link to its life.
export function blockLink(session, block) {
  const address = session.address(block);
  return h("a", { href: link({ block: address }), class: "mono", "data-block": address }, session.blocks.id[block]);
}

// A link to the prompt of a call; what came after the last one has no prompt yet.
export function callLink(session, call) {
  if (call >= session.n) return h("span", { class: "muted after" }, "after the last");
  return h("a", { href: link({ screen: "prompt", call: call + 1, block: null }), class: "mono" }, `call ${call + 1}`);
}

export function commitText(commit) {
  return commit ? h("code", { title: commit }, commit.slice(0, 10)) : h("span", { class: "muted" }, "–");
}

export function kindChip(kind) {
  return h("span", { class: "chip" }, swatch(kind), kindName(kind));
}

const WITH_PATH = /^((?:[^\s<]+ )?[^\s<]*?[^\s<])([/\\][^/\\\s<>]+(?: .{0,28})?)$/;

// A label on one line. Where there is no room for it, a path in it goes in its middle: the file’s name stays.
export function pathText(label) {
  const [, head, tail] = label.match(WITH_PATH) || [null, label, ""];
  return h("span", { class: "line-label path-text", title: label.length > 40 ? label : null }, h("span", { class: "path-head" }, head), tail ? h("span", { class: "path-tail" }, tail) : null);
}

export const FORMS = {
  __proto__: null,
  whole: "", cut: "cut", stub: "stub", group: "group’s stub", dashboard: "dashboard", note: "note",
  system: "system prompt", tools: "definitions of the tools",
};

// The kind of what a piece puts into the prompt.
export function pieceKind(session, piece) {
  if (piece.form === "stub" || piece.form === "group") return "stub";
  return piece.block >= 0 && piece.kind === "user" ? session.kind(piece.block) : piece.kind;
}

// What a piece is called where its text is not shown.
export function pieceName(session, piece) {
  if (piece.form === "group") return `${piece.group || "group"} for ${(piece.blocks || []).length} blocks`;
  if (piece.block >= 0) return session.blocks.label[piece.block] || kindName(session.blocks.kind[piece.block]);
  return FORMS[piece.form] || piece.form;
}

// The text of a piece exactly as it was sent; a promise where its body is not unpacked yet, null where the page has none.
export function pieceText(session, bodies, piece) {
  const own = piece.text !== undefined && piece.text !== null;
  if (!own && !(piece.block >= 0)) return `${piece.before || ""}${piece.after || ""}`;
  const place = own ? piece.text : session.blocks.body[piece.block];
  if (!own && !Array.isArray(place)) return null;
  const text = bodies.text(place);
  const around = (middle) => `${piece.before || ""}${middle}${piece.after || ""}`;
  return typeof text === "string" ? around(text) : text.then(around);
}

// A text that may be long: clipped, with a button for all of it, in parts that a browser can lay out. With `tail` its last
// lines stand below the first: a command’s output ends with what came of it.
export function textBox(text, missing, { tail = false } = {}) {
  const pre = h("pre", { class: "body", tabindex: "0" });
  const box = h("div", { class: "body-box" }, pre);
  const show = (value) => {
    if (value === null) {
      pre.remove();
      box.append(missing || h("p", { class: "muted" }, "The page has no text for this."));
      return;
    }
    if (!value) pre.append(h("span", { class: "muted" }, "empty"));
    const long = value.length > CLIPPED || value.split("\n", LINES + 2).length > LINES + 1;
    const end = long && tail ? lastLines(value) : "";
    pre.append(h("span", null, long ? clip(value) : value, end ? `\n${end}` : ""));
    if (long) box.append(opener(pre, value));
  };
  if (text instanceof Promise) {
    pre.append("…");
    text.then((value) => {
      pre.replaceChildren();
      show(value);
    });
  } else show(text);
  return box;
}

function clip(value) {
  const part = value.slice(0, CLIPPED).split("\n").slice(0, LINES).join("\n");
  return part.length < value.length ? `${part} …` : part;
}

// The last lines of a text that has more than are shown at its beginning.
function lastLines(value) {
  const lines = value.slice(-CLIPPED).trimEnd().split("\n").slice(1);
  return value.split("\n", 2 * LINES + 1).length > 2 * LINES ? lines.slice(-LINES).join("\n") : "";
}

function opener(pre, value) {
  let shownLength = 0;
  const lines = value.length < 2e6 ? `, ${value.split("\n").length} lines` : "";
  const button = h("button", { type: "button", class: "quiet", "data-open": "" }, `All of it (${bytes(value.length)}${lines})`);
  button.addEventListener("click", () => {
    if (!shownLength) pre.replaceChildren();
    pre.append(h("span", null, value.slice(shownLength, shownLength + AT_ONCE)));
    shownLength += AT_ONCE;
    pre.classList.add("open");
    if (shownLength >= value.length) button.remove();
    else button.textContent = `Go on (${bytes(value.length - shownLength)} left)`;
  });
  return button;
}

// Why the page has no body of a block, and how to see it.
export function missingBody(session, bodies, block) {
  const cut = block >= 0 ? bodies.cut(block) : null;
  if (cut) return h("p", { class: "muted" }, `${bytes(cut.bytes)}, too large for this page. To see it: `, h("code", null, cut.command));
  if (block >= 0) return h("p", { class: "muted" }, "Not text. To see it: ", h("code", null, `ctxvc show ${session.handle(block)}`));
  return null;
}
