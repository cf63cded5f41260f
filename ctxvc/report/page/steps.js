// The steps of a turn: what was said, and each call with what it did and what came back.
import { h } from "./dom.js";
import { callBody, later, readable } from "./calls.js";
import { markdown } from "./markdown.js";
import { blockLink, callLink, missingBody, pathText, textBox } from "./pieces.js";
import { kindName, money, moment, plain, plural, short } from "./text.js";

const AT_ONCE = 40;
const LONG = 6000;
// The label of thinking that the provider hid, without a summary of it.
const HIDDEN = "hidden thinking";

// The steps of a turn as a list, the first of them at once and the others on request.
export function stepList(context, turn) {
  const steps = stepsOf(context.session, turn);
  const list = h("ol", { class: "steps" });
  const more = h("button", { type: "button", class: "more" });
  let drawn = 0;
  const draw = () => {
    for (const step of steps.slice(drawn, drawn + AT_ONCE)) list.append(stepElement(context, step));
    drawn += AT_ONCE;
    more.hidden = drawn >= steps.length;
    more.textContent = `Show more of ${plural(steps.length, "step")}`;
  };
  more.addEventListener("click", draw);
  draw();
  return [list, more];
}

// The blocks of a turn by steps, each with the call of the model that it belongs to, -1 for none.
function stepsOf(session, turn) {
  const { step, scope } = session.calls;
  const calls = new Map(turn.calls.filter((call) => scope[call] === turn.scope).map((call) => [step[call], call]));
  const steps = new Map();
  for (let block = turn.blocks[0]; block < turn.blocks[1]; block++) {
    const number = session.blocks.step[block];
    if (!steps.has(number)) steps.set(number, { number, call: calls.get(number) ?? -1, blocks: [] });
    steps.get(number).blocks.push(block);
  }
  return [...steps.values()];
}

function stepElement(context, { number, call, blocks }) {
  const { session } = context;
  const { time, cost } = session.calls;
  const facts = call < 0 ? [] : [callLink(session, call), time[call] ? ` ${moment(time[call]).slice(11)} UTC` : "", cost[call] === null ? "" : ` · ${money(cost[call])}`];
  return h("li", { class: "step" },
    h("p", { class: "step-head muted" }, `step ${number}`, facts.length ? " · " : "", facts),
    blocks.map((block) => blockElement(context, block)));
}

function blockElement(context, block) {
  const { session, bodies } = context;
  const call = session.toolCall(block);
  if (call) return callElement(context, call);
  if (session.isResult(block)) return null; // it stands with its call
  const kind = session.kind(block);
  const pictures = session.pictures(block).map((picture) => thumbnail(bodies, picture));
  const place = session.blocks.body[block];
  const text = Array.isArray(place) ? bodies.text(place) : null;
  if (pictures.length) return h("div", { class: "said" }, pictures);
  if (kind === "user" || kind === "assistant") return h("div", { class: `said by-${kind}` }, speaker(session, block, kind), speech(text, missingBody(session, bodies, block)));
  const label = session.blocks.label[block];
  if (kind === "thinking" && label === HIDDEN) return null;
  const missing = missingBody(session, bodies, block);
  const inside = () => (text === null ? speech(null, missing) : later(text, (value) => (/^\s*[[{]/.test(value) ? textBox(readable(value), missing) : speech(value, missing))));
  return folded(`${kindName(kind)}: `, label, () => [speaker(session, block, kind), inside()]);
}

function speaker(session, block, kind) {
  return h("p", { class: "speaker muted" }, kind === "assistant" ? "the model" : kindName(kind), " ", blockLink(session, block));
}

function speech(text, missing) {
  return text === null ? missing || h("p", { class: "muted" }, "The page has no text for this.") : later(text, (value) => (value.length > LONG ? longSpeech(value) : markdown(value)));
}

// A long text: its beginning laid out, and all of it on request.
function longSpeech(value) {
  const end = value.lastIndexOf("\n", LONG);
  const box = h("div", null, markdown(value.slice(0, end > LONG / 2 ? end : LONG)));
  const button = h("button", { type: "button", class: "quiet" }, `All of it (${short(value.length)} characters)`);
  button.addEventListener("click", () => box.replaceChildren(markdown(value)));
  box.append(button);
  return box;
}

function callElement(context, call) {
  const { session, bodies } = context;
  const [block, result, ending] = call;
  const size = result < 0 ? "" : `${short(session.blocks.tokens[result])} tokens back`;
  return folded("", session.blocks.label[block], () => [
    h("p", { class: "speaker muted" }, "call ", blockLink(session, block), result < 0 ? null : [", result ", blockLink(session, result)]),
    callBody(session, bodies, call),
    (result < 0 ? [] : session.pictures(result)).map((picture) => thumbnail(bodies, picture)),
  ], ending ? h("span", { class: "tag bad" }, ending) : h("span", { class: "muted step-size" }, size));
}

// A line that opens; what it opens to is made then.
function folded(name, label, make, tag = null) {
  const details = h("details", { class: "call" }, h("summary", null, h("span", { class: "call-line" }, name ? h("span", { class: "muted" }, name) : null, pathText(plain(label)), tag)));
  opening(details, make);
  return details;
}

// Fills an element when it is opened for the first time.
export function opening(details, make) {
  let made = false;
  details.addEventListener("toggle", () => {
    if (!details.open || made) return;
    made = true;
    details.append(h("div", { class: "opened" }, make()));
  });
}

function thumbnail(bodies, [, media, place]) {
  const image = h("img", { class: "thumbnail", alt: "an image of the session" });
  const show = (bytes) => {
    let binary = "";
    for (let at = 0; at < bytes.length; at += 8192) binary += String.fromCharCode(...bytes.subarray(at, at + 8192));
    image.src = `data:${media};base64,${btoa(binary)}`;
  };
  const bytes = bodies.bytes(place);
  if (bytes instanceof Promise) bytes.then(show);
  else show(bytes);
  return image;
}
