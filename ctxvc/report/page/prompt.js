// The prompt of one call as far as it is recorded, and what entered and left against the call before.
import { announce, empty, h, replace } from "./dom.js";
import { FORMS, blockLink, commitText, kindChip, missingBody, pathText, pieceKind, pieceName, pieceText, textBox } from "./pieces.js";
import { chosenCall, chosenCalls } from "./session.js";
import { firstLine, moment, plain, plural, short, whole } from "./text.js";
import { PARTS, kindColour } from "./theme.js";
import { go, view } from "./view.js";

const PAGE = 150;
const UNRECORDED = "repeating-linear-gradient(45deg, var(--k-unrecorded) 0 3px, var(--strong-line) 3px 5px)";

export function promptScreen({ session, bodies }) {
  const slider = h("input", { type: "range", min: 1, max: session.n, "aria-label": "call", id: "call-slider" });
  slider.addEventListener("input", () => go({ call: Number(slider.value) }, { quiet: true }));
  const back = stepButton("‹", "the call before", -1);
  const on = stepButton("›", "the next call", 1);
  const facts = h("p", { class: "call-facts" });
  const bar = h("div", { class: "kind-bar", "aria-hidden": "true" });
  const changes = h("div", { class: "changes" });
  const list = h("ol", { class: "pieces" });
  const heading = h("h2");
  const pager = h("div", { class: "pager" });
  let page = null; // chosen by hand; else the one with the first piece that entered
  let drawn = -1;
  const element = h(
    "div",
    { class: "screen" },
    h("section", { class: "panel" }, h("div", { class: "slider" }, back, slider, on), facts, bar, changes),
    h("section", { class: "panel" }, heading, pager, list),
  );

  function update() {
    const call = chosenCall(session, view());
    const [first, last] = chosenCalls(session, view());
    slider.min = Math.min(first, call) + 1;
    slider.max = Math.max(last, call) + 1;
    if (call === drawn) return;
    if (drawn >= 0) page = null;
    drawn = call;
    slider.value = call + 1;
    slider.setAttribute("aria-valuetext", `call ${call + 1} of ${session.n}`);
    back.disabled = call === 0;
    on.disabled = call === session.n - 1;
    const { entered, left } = session.change(call);
    replace(facts, callFacts(session, call));
    replace(heading, title(session, call));
    replace(bar, kindBar(session, call));
    replace(changes, changeList(session, "Entered", entered, "entered"), changeList(session, "Left", left, "left"));
    drawPieces(call, entered);
    announce(`Call ${call + 1}: ${session.size(call)}, ${entered.length} entered, ${left.length} left`);
  }

  function drawPieces(call, entered) {
    const pieces = session.prompt(call);
    const fresh = new Set(entered);
    const first = pieces.findIndex((piece) => fresh.has(piece));
    const pages = Math.max(1, Math.ceil(pieces.length / PAGE));
    const number = Math.min(page ?? Math.floor(Math.max(first, 0) / PAGE), pages - 1);
    replace(pager, pages > 1 ? pageButtons(number, pages, pieces.length, (next) => ((page = next), drawPieces(call, entered))) : null);
    list.setAttribute("start", number * PAGE + 1);
    if (!pieces.length) return replace(list, h("li", null, empty("An empty prompt", "Nothing was recorded before this call.")));
    const part = pieces.slice(number * PAGE, (number + 1) * PAGE);
    return replace(list,
      number ? null : before(session, call).map((piece) => pieceElement(session, bodies, piece, false)),
      part.map((piece) => pieceElement(session, bodies, piece, fresh.has(piece))));
  }

  return { element, update };
}

// Only what is known to have been sent is called so.
function title(session, call) {
  if (session.calls.exact[call]) return "The prompt, as sent";
  const unrecorded = session.unrecorded(call);
  const total = `${session.calls.reported[call] === null ? "about " : ""}${short(session.calls.total[call])}`;
  return `The prompt, reconstructed${unrecorded ? `: ${short(unrecorded)} of its ${total} tokens are not recorded` : ""}`;
}

// What stands before the first block of every prompt of a scope, where it was recorded.
function before(session, call) {
  const scope = session.scopes[session.calls.scope[call]] || {};
  return ["system", "tools"]
    .filter((form) => Array.isArray(scope[form]))
    .map((form) => ({ form, role: "system", kind: "system", tokens: null, block: -1, text: scope[form] }));
}

function stepButton(sign, label, by) {
  const step = () => go({ call: Number(document.getElementById("call-slider").value) + by }, { quiet: true });
  return h("button", { type: "button", "aria-label": label, on: { click: step } }, sign);
}

function callFacts(session, call) {
  const { step, turn, time, commit } = session.calls;
  const when = time?.[call] ? `${moment(time[call])} UTC` : null;
  return [
    h("b", null, `Call ${call + 1}`),
    ` of ${session.n}`,
    h("span", { class: "dot" }, `step ${step?.[call] ?? "–"}`),
    h("span", { class: "dot" }, `turn ${turn?.[call] ?? "–"}`),
    h("span", { class: "dot" }, session.scopeName(call)),
    h("span", { class: "dot" }, session.size(call)),
    when ? h("span", { class: "dot" }, when) : null,
    h("span", { class: "dot" }, commitText(commit?.[call])),
  ];
}

function kindBar(session, call) {
  const whole = Math.max(session.raw.window, session.calls.total[call], 1);
  return Object.keys(PARTS).filter((name) => session.calls.tokens[name]?.[call]).map((name) => {
    const part = h("span");
    part.style.width = `${(100 * session.calls.tokens[name][call]) / whole}%`;
    part.style.background = PARTS[name] === "unrecorded" ? UNRECORDED : kindColour(PARTS[name]);
    return part;
  });
}

function changeList(session, title, pieces, style) {
  const tokens = pieces.reduce((sum, piece) => sum + piece.tokens, 0);
  const size = tokens ? `, ~${short(tokens)} tokens` : "";
  const shown = pieces.slice(0, 12);
  return h(
    "div",
    { class: `change ${style}` },
    h("h3", null, `${title} `, h("span", { class: "muted" }, pieces.length ? `${plural(pieces.length, "piece")}${size}` : "nothing")),
    h(
      "ul",
      null,
      shown.map((piece) =>
        h(
          "li",
          { class: "line" },
          kindChip(pieceKind(session, piece)),
          piece.block >= 0 ? blockLink(session, piece.block) : null,
          pathText(firstLine(plain(pieceName(session, piece)), 120)),
        ),
      ),
      pieces.length > shown.length ? h("li", { class: "muted" }, `and ${pieces.length - shown.length} more`) : null,
    ),
  );
}

function pageButtons(number, pages, total, turn) {
  const button = (label, next) =>
    h("button", { type: "button", disabled: next < 0 || next >= pages, on: { click: () => turn(next) } }, label);
  const last = Math.min((number + 1) * PAGE, total);
  return [button("earlier", number - 1), h("span", null, `pieces ${number * PAGE + 1}–${last} of ${whole(total)}`), button("later", number + 1)];
}

function pieceElement(session, bodies, piece, fresh) {
  const block = piece.block ?? -1;
  return h(
    "li",
    { class: `piece${fresh ? " fresh" : ""}` },
    h(
      "div",
      { class: "piece-head" },
      h("span", { class: "role" }, piece.role),
      kindChip(pieceKind(session, piece)),
      block >= 0 ? blockLink(session, block) : null,
      FORMS[piece.form] && pieceKind(session, piece) !== piece.form ? h("span", { class: "tag" }, FORMS[piece.form]) : null,
      fresh ? h("span", { class: "tag good" }, "entered") : null,
      h("span", { class: "line-label muted" }, firstLine(plain(pieceName(session, piece)), 140)),
      piece.tokens === null ? null : h("span", { class: "number muted" }, `~${short(piece.tokens)}`),
    ),
    textBox(pieceText(session, bodies, piece), missingBody(session, bodies, block)),
  );
}
