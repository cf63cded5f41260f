// A block's life, beside whatever screen is open: who changed it, when, why, under which policy, and what takes it back.
import { h, replace } from "./dom.js";
import { callLink, commitText, kindChip, missingBody, textBox } from "./pieces.js";
import { chosenCall } from "./session.js";
import { firstLine, kindName, plain, whole } from "./text.js";
import { go, onView, view } from "./view.js";

export function blockDrawer({ session, bodies, verbs }) {
  const element = h("aside", { class: "drawer", "aria-label": "A block’s life", tabindex: "-1", hidden: true });
  let opener = null;
  onView((next, before) => next.block !== before.block && update());
  element.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    go({ block: null });
  });
  element.update = update;
  return element;

  function update() {
    const address = view().block;
    const wasOpen = !element.hidden;
    element.hidden = address === null;
    if (address === null) {
      if (wasOpen) opener?.focus({ preventScroll: true });
      return;
    }
    if (!wasOpen) opener = document.activeElement;
    const block = session.find(address);
    replace(element, block < 0 ? unknown(address) : life(session, bodies, block, verbs));
    element.scrollTop = 0;
    element.focus({ preventScroll: true });
  }
}

function closer() {
  return h("button", { type: "button", on: { click: () => go({ block: null }) } }, "Close");
}

function unknown(address) {
  return [h("div", { class: "drawer-head" }, h("h2", null, `No block ${address}`), closer()), h("p", { class: "muted" }, "The link may be to another session.")];
}

function life(session, bodies, block, verbs) {
  const { label, kind, origin, tool, file, turn, step, tokens, reads, body } = session.blocks;
  const fact = (name, value) => (value === "" || value === undefined || value === null ? null : [h("dt", null, name), h("dd", null, value)]);
  const call = chosenCall(session, view());
  const now = session.state(block, session.n) || "not in the prompt";
  return [
    h("div", { class: "drawer-head" }, h("h2", null, h("span", { class: "mono" }, session.handle(block)), " ", firstLine(plain(label[block] || kindName(kind[block])), 200)), closer()),
    h("dl", { class: "facts-list" },
      fact("kind", [kindChip(session.kind(block)), origin[block] ? ` from ${origin[block]}` : ""]),
      fact("size", `~${whole(tokens[block])} tokens`),
      fact("came", [callLink(session, Math.max(session.arrival(block), 0)), `, step ${step[block] ?? "–"}, turn ${turn[block] ?? "–"}`]),
      fact("scope", session.scopes[session.blocks.scope[block]]?.name),
      fact("tool", tool[block]),
      fact("file", file[block]),
      fact(`at call ${call + 1}`, session.state(block, call) || "not there yet"),
      fact("now", now),
      fact("read back", reads[block]?.length ? reads[block].slice(0, 12).map((read) => [callLink(session, read), " "]) : "never"),
    ),
    verbs ? verbs(session, block, now) : null,
    h("h3", null, "What was done to it"),
    events(session, block),
    h("h3", null, "Its text, byte for byte"),
    textBox(Array.isArray(body[block]) ? bodies.text(body[block]) : null, missingBody(session, bodies, block)),
  ];
}

function events(session, block) {
  const lives = session.lives(block);
  if (!lives.length) return h("p", { class: "muted" }, "Nothing: it came, and was in every prompt since.");
  return h("ol", { class: "events" }, lives.map((event) =>
    h("li", null,
      h("p", null, callLink(session, event.call), " ", h("b", null, event.verb), " by ", event.actor || "somebody",
        event.policy ? h("span", { class: "muted" }, `, policy ${event.policy}`) : null, " ", commitText(event.commit)),
      event.reason ? h("p", { class: "muted" }, event.reason) : null,
      event.undo ? h("p", null, h("span", { class: "muted" }, "takes it back: "), h("code", { class: "command" }, event.undo)) : null,
    )));
}
