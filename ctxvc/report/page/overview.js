// What happened in a session: in short, turn by turn, to its files, and to its prompt.
import { h } from "./dom.js";
import { fileList } from "./files.js";
import { callLink, commitText } from "./pieces.js";
import { MARKS } from "./river.js";
import { chosenCalls, eachChosen } from "./session.js";
import { short, whole } from "./text.js";
import { table, tableBelow } from "./table.js";
import { PARTS } from "./theme.js";
import { inShort, turnList } from "./turns.js";
import { view } from "./view.js";

// The verdict: one sentence and six numbers.
export function verdict(raw) {
  const { sentence, numbers, notes } = raw.verdict;
  return h(
    "section",
    { class: "verdict", "aria-label": "Verdict" },
    h("p", { class: "sentence" }, sentence),
    h("dl", { class: "six" }, numbers.map(({ name, text }) => h("div", null, h("dt", null, name), h("dd", null, text)))),
    (notes || []).map((note) => h("p", { class: "remarks" }, note)),
  );
}

export function overviewScreen(context) {
  const { session } = context;
  const [told, story] = [inShort(session), turnList(context)];
  const files = fileList(context);
  const events = table("What happened to the prompt, in order", eventColumns(session), []);
  const none = h("p", { class: "muted" });
  const numbers = tableBelow("The river as a table", () => callTable(session));
  const element = h("div", { class: "screen" }, story.element, told, story.list, files.element,
    h("section", { class: "panel" }, h("h2", null, "What happened to the prompt"), events, none), numbers);

  function update() {
    const [from, to] = chosenCalls(session, view());
    const marks = session.marks.filter((mark) => from <= mark.call && (mark.call <= to || to === session.n - 1));
    events.fill(marks);
    events.hidden = !marks.length;
    none.hidden = marks.length > 0;
    none.textContent = session.marks.length ? "Nothing left or came back in these calls: choose all calls above." : "It only grew: nothing was taken out, and nothing came back.";
    story.update();
    files.update();
    numbers.fill(eachChosen(session, view()));
  }

  return { element, update };
}

function eventColumns(session) {
  const [shape, name] = [(mark) => (MARKS[mark.kind] || ["•"])[0], (mark) => (MARKS[mark.kind] || ["", mark.kind])[1]];
  return [
    { name: "call", cell: (mark) => callLink(session, mark.call), sort: (mark) => mark.call },
    {
      name: "what",
      cell: (mark) => [h("i", { class: `mark mark-${mark.kind}`, "aria-hidden": "true" }, shape(mark)), " ", name(mark)],
      sort: name,
    },
    { name: "in words", cell: (mark) => mark.label, wide: true },
    { name: "by", cell: (mark) => mark.actor || "–", sort: (mark) => mark.actor },
    { name: "commit", cell: (mark) => commitText(mark.commit) },
  ];
}

function callTable(session) {
  const { tokens, total, unmanaged, step } = session.calls;
  const parts = Object.keys(PARTS).filter((part) => tokens[part]);
  return table("Tokens in the prompt, by call and kind", [
    { name: "call", cell: (call) => callLink(session, call), sort: (call) => call },
    { name: "step", cell: (call) => step?.[call] ?? "–", number: true },
    { name: "all", cell: (call) => whole(total[call]), sort: (call) => total[call], number: true },
    ...parts.map((part) => ({ name: part, cell: (call) => short(tokens[part][call]), sort: (call) => tokens[part][call], number: true })),
    { name: "if nothing had left", cell: (call) => whole(unmanaged?.[call]), number: true },
  ], eachChosen(session, view()));
}
