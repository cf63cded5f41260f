// A search over everything that was recorded, and where each hit is now.
import { empty, h, replace } from "./dom.js";
import { blockLink, callLink, kindChip, pathText } from "./pieces.js";
import { chosenCalls } from "./session.js";
import { firstLine, plain, plural, short } from "./text.js";
import { go, view } from "./view.js";

const SHOWN = 200;
const AROUND = 70;

export function searchScreen({ session, bodies }) {
  const input = h("input", { type: "search", id: "search", placeholder: "text, label, file, tool, reason, B17", "aria-label": "Search in everything", autocomplete: "off", spellcheck: "false" });
  const count = h("span", { class: "muted", role: "status" });
  const list = h("ol", { class: "hits" });
  const element = h("div", { class: "screen" }, h("section", { class: "panel" }, h("div", { class: "filters" }, input, count), list));
  let waiting = 0;
  let drawn = null;
  input.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => go({ q: input.value }, { quiet: true }), 150);
  });

  async function update() {
    const { q } = view();
    const range = chosenCalls(session, view());
    const wanted = `${q} ${range}`;
    if (wanted === drawn) return;
    drawn = wanted;
    if (document.activeElement !== input) input.value = q;
    if (!q.trim()) {
      count.textContent = "";
      return replace(list, h("li", null, empty("Search in everything", "Bodies, labels, files, tools, reasons and notes, also of what left the prompt.")));
    }
    await bodies.all();
    if (wanted !== drawn) return;
    const hits = [...blockHits(session, bodies, q, range), ...lifeHits(session, q, range), ...noteHits(session, q, range)];
    count.textContent = `${plural(hits.length, "hit")}${hits.length > SHOWN ? `, the first ${SHOWN} shown` : ""}`;
    if (!hits.length) return replace(list, h("li", null, empty("Nothing has this", noHits(session, bodies, range))));
    return replace(list, hits.slice(0, SHOWN));
  }

  return { element, update, focus: () => input.focus() };
}

function noHits(session, bodies, [from, to]) {
  const range = from > 0 || to < session.n - 1 ? " Only the calls chosen above were searched." : "";
  const cut = session.raw.bodies.cut.length;
  return `Not in any text, label, file, tool, reason or note.${range}${cut ? ` ${plural(cut, "body")} too large for the page could not be searched: ctxvc grep does.`.replace("bodys", "bodies") : ""}`;
}

// Where all words of the query are, as a place of the first: -1 for nowhere.
function match(text, words) {
  const lower = text.toLowerCase();
  if (!words.every((word) => lower.includes(word))) return -1;
  return lower.indexOf(words[0]);
}

function wordsOf(query) {
  return query.toLowerCase().split(/\s+/).filter(Boolean);
}

function blockHits(session, bodies, query, [from, to]) {
  const { blocks } = session;
  const words = wordsOf(query);
  const hits = [];
  for (let block = 0; block < blocks.n; block++) {
    const arrival = session.arrival(block);
    const last = blocks.intervals[block].at(-2) ?? 0;
    if (arrival > to || last <= from) continue;
    const place = blocks.body[block];
    const text = Array.isArray(place) ? bodies.text(place) : "";
    const name = `${blocks.id[block]} ${blocks.label[block] || ""} ${blocks.tool[block] || ""} ${blocks.file[block] || ""}`;
    const inText = match(text, words);
    const source = inText >= 0 ? text : name;
    const at = inText >= 0 ? inText : match(name, words);
    if (at >= 0) hits.push(blockHit(session, block, excerpt(source, at, words)));
  }
  return hits;
}

function blockHit(session, block, text) {
  const state = session.state(block, session.n) || "not in the prompt";
  return h("li", { class: "hit" },
    h("div", { class: "piece-head" },
      kindChip(session.kind(block)),
      blockLink(session, block),
      pathText(firstLine(plain(session.blocks.label[block] || ""), 100)),
      h("span", { class: `tag${state === "stub" || state === "gone" || state === "deleted" ? " bad" : " good"}` }, `now: ${state}`),
      callLink(session, Math.max(session.arrival(block), 0)),
      h("span", { class: "number muted" }, short(session.blocks.tokens[block]))),
    text);
}

function lifeHits(session, query, [from, to]) {
  const words = wordsOf(query);
  return session.allLives().flatMap((life) => {
    const text = `${life.verb} ${life.actor} ${life.policy} ${life.reason}`;
    const at = match(text, words);
    if (at < 0 || life.call < from || (life.call > to && to < session.n - 1)) return [];
    return [h("li", { class: "hit" }, h("div", { class: "piece-head" }, h("span", { class: "tag" }, "reason"), blockLink(session, life.block), callLink(session, life.call)), excerpt(text, at, words))];
  });
}

function noteHits(session, query, [from, to]) {
  const words = wordsOf(query);
  return session.scopes.flatMap((scope) => scope.notes.flatMap((note) => {
    const at = match(note.text, words);
    if (at < 0 || note.call < from || (note.call > to && to < session.n - 1)) return [];
    return [h("li", { class: "hit" }, h("div", { class: "piece-head" }, h("span", { class: "tag" }, `note in ${scope.name}`), callLink(session, note.call)), excerpt(note.text, at, words))];
  }));
}

// The text around a hit, with the words of the query marked.
function excerpt(text, at, words) {
  const from = Math.max(0, at - AROUND);
  const part = text.slice(from, at + 2 * AROUND).replace(/\s+/g, " ");
  const line = h("p", { class: "excerpt" }, from ? "…" : "");
  const lower = part.toLowerCase();
  let done = 0;
  while (done < part.length) {
    const next = words.map((word) => [lower.indexOf(word, done), word.length]).filter(([place]) => place >= 0).sort((a, b) => a[0] - b[0])[0];
    if (!next) break;
    line.append(h("span", null, part.slice(done, next[0])), h("mark", null, part.slice(next[0], next[0] + next[1])));
    done = next[0] + next[1];
  }
  line.append(h("span", null, part.slice(done)));
  return line;
}
