// The files that a session’s edits changed: of each the diff of all its edits together, and the turns that made them.
import { diff, later } from "./calls.js";
import { h } from "./dom.js";
import { pathText } from "./pieces.js";
import { chosenCalls } from "./session.js";
import { opening } from "./steps.js";
import { plain, plural } from "./text.js";
import { link, view } from "./view.js";

export function fileList({ session, bodies }) {
  const { files, turns } = session.raw;
  const rows = files.map((file) => fileRow(bodies, file, turns));
  const none = h("p", { class: "muted" });
  const element = h("section", { class: "panel", id: "files" }, h("h2", null, files.length ? `${plural(files.length, "file")} changed` : "Files changed"), h("ol", { class: "files" }, rows), none);

  function update() {
    const [from, to] = chosenCalls(session, view());
    const isChosen = (turn) => turns[turn].calls.some((call) => from <= call && call <= to);
    rows.forEach((row, at) => (row.hidden = !files[at].turns.some(isChosen)));
    none.hidden = rows.some((row) => !row.hidden);
    none.textContent = files.length ? "None in these calls: choose all calls above." : "None that an edit is recorded of.";
  }

  return { element, update };
}

function fileRow(bodies, file, turns) {
  const known = Array.isArray(file.diff);
  const details = h("details", { class: "call" }, h("summary", null, h("span", { class: "call-line" }, pathText(plain(file.path)),
    file.deleted ? h("span", { class: "tag bad" }, "deleted") : null,
    known || file.plus || file.minus ? h("span", { class: "mono" }, h("span", { class: "plus" }, `+${file.plus}`), " ", h("span", { class: "minus" }, `−${file.minus}`)) : h("span", { class: "muted" }, "by a command"))));
  opening(details, () => [
    h("p", { class: "muted" }, "Changed in ", file.turns.map((turn, at) => [at ? ", " : "", h("a", { href: link({ turn: turn + 1 }) }, `turn ${turns[turn].number}`)]), "."),
    known ? later(bodies.text(file.diff), (text) => diff(text)) : h("p", { class: "muted" }, unknown(file)),
  ]);
  return h("li", null, details);
}

function unknown(file) {
  if (file.plus || file.minus) return "Its diff was too large for the page: the turns have the edits.";
  return file.deleted ? "Its text is not recorded." : "A command changed it, or edits that cancel each other out: there is no diff of it.";
}
