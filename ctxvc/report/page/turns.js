// The story of a session: what was asked, what was done, how it ended; in short, and turn by turn on the river’s axis.
import { h } from "./dom.js";
import { chosenCalls } from "./session.js";
import { opening, stepList } from "./steps.js";
import { firstLine, money, moment, plain, plural, short, whole } from "./text.js";
import { go, onView, view } from "./view.js";

const NAMES = 4;
// Characters that last words have at least to say something.
const TELLING = 20;

// Three sentences for somebody who was not there.
export function inShort(session) {
  const { turns, files } = session.raw;
  if (!turns.length) return h("div");
  const asked = turns.filter((turn) => turn.request);
  const last = turns.toReversed().find((turn) => turn.calls.length) || turns[0];
  const row = (name, ...content) => [h("dt", null, name), h("dd", null, content)];
  return h("section", { class: "panel in-short", "aria-label": "In short" }, h("dl", null,
    row("asked", asked.length ? words(asked[0].request) : "nothing that was recorded", asked.length > 1 ? h("span", { class: "muted" }, ` and ${plural(asked.length - 1, "more request")}`) : null),
    row("done", total(turns, files)),
    row("at the end", ending(session, last))));
}

function words(text) {
  return h("span", null, `“${plain(text)}”`);
}

// What all turns did, in figures.
function total(turns, files) {
  const sum = (figure) => turns.reduce((all, turn) => all + figure(turn), 0);
  const ran = sum((turn) => (turn.commands || []).reduce((all, [, runs]) => all + runs, 0));
  const failed = sum((turn) => (turn.commands || []).reduce((all, [, , failures]) => all + failures, 0));
  const plus = files.reduce((all, file) => all + file.plus, 0);
  const minus = files.reduce((all, file) => all + file.minus, 0);
  const figures = [
    files.length ? `${plural(files.length, "file")} changed${plus + minus ? ` (${lines(plus, minus)})` : ""}` : ran ? "no edit of a file recorded" : null,
    count(sum((turn) => (turn.commits || []).length), "commit"),
    ran ? `${plural(ran, "command")}${failed ? `, ${whole(failed)} of them failed` : ""}` : null,
    count(sum((turn) => (turn.agents || []).length), "sub-agent"),
    looks(sum((turn) => turn.reads || 0), sum((turn) => turn.searches || 0)),
    others(turns.flatMap((turn) => turn.others || [])),
  ];
  return `${figures.filter(Boolean).join("; ") || plural(sum((turn) => turn.calls.length), "reply").replace("replys", "replies")}.`;
}

function count(number, noun) {
  return number ? plural(number, noun) : null;
}

function lines(plus, minus) {
  return `+${whole(plus)} −${whole(minus)}`;
}

function looks(reads, searches) {
  const parts = [reads ? `${whole(reads)} ${reads === 1 ? "read" : "reads"}` : null, searches ? `${whole(searches)} ${searches === 1 ? "search" : "searches"}` : null];
  return parts.filter(Boolean).join(", ") || null;
}

// Calls of tools that have no word of ours, the most frequent first.
function others(pairs) {
  const sums = new Map();
  for (const [name, number] of pairs) sums.set(name, (sums.get(name) || 0) + number);
  const named = [...sums].sort((a, b) => b[1] - a[1]).map(([name, number]) => (number > 1 ? `${plain(name)} ×${number}` : plain(name)));
  return named.slice(0, NAMES).join(", ") + (named.length > NAMES ? `, ${plural(named.length - NAMES, "more tool")}` : "") || null;
}

// The last words of the model; where they say next to nothing, with those of the turn before.
function lastWords(session, turn) {
  const before = session.raw.turns.slice(0, session.raw.turns.indexOf(turn)).findLast((earlier) => (earlier.closing || "").length >= TELLING);
  if (turn.closing.length >= TELLING || !before) return words(turn.closing);
  return h("span", null, words(before.closing), h("span", { class: "muted" }, ", and then "), words(turn.closing));
}

function ending(session, turn) {
  const text = turn.closing ? lastWords(session, turn) : null;
  const rest = session.raw.turns.filter((later) => !later.calls.length && later.request);
  const unanswered = rest.length ? h("span", { class: "muted" }, ` Not answered: “${plain(rest[0].request)}”`) : null;
  if (turn.answered) return [text, unanswered];
  const failed = (turn.commands || []).filter(([, , , end]) => end).at(-1);
  return [h("span", { class: "muted" }, "The recording ends in the middle of the work. "), text ? ["The last words were ", text, /[.!?…:]$/.test(turn.closing) ? null : "."] : null,
    failed ? h("span", { class: "muted" }, ` Its last command that failed: ${plain(failed[0])} (${failed[3]}).`) : null, unanswered];
}

// The turns: a strip under the river with all of them, and a row for each.
export function turnList(context) {
  const { session } = context;
  const { turns } = session.raw;
  const departures = byCall(session);
  const rows = turns.map((turn, at) => turnRow(context, turn, at, departures));
  const axis = h("nav", { class: "turn-axis", "aria-label": "Turns on the river’s axis" }, turns.map((turn, at) => mark(session, turn, at)));
  const list = h("ol", { class: "turns" }, rows);
  const none = h("p", { class: "muted" }, "No turn in these calls: choose all calls above.");
  const panel = h("section", { class: "panel" }, h("h2", null, "Turn by turn"), list, none);
  let opened = null;

  function update() {
    const [from, to] = chosenCalls(session, view());
    const all = from === 0 && to === session.n - 1;
    rows.forEach((row, at) => (row.hidden = !all && !turns[at].calls.some((call) => from <= call && call <= to)));
    none.hidden = rows.some((row) => !row.hidden);
    const { turn } = view();
    if (turn !== null && turn !== opened && rows[turn - 1]) show(rows[turn - 1]);
    opened = turn;
  }

  onView((next, before) => next.turn !== before.turn && panel.isConnected && update());
  return { element: axis, list: panel, update };
}

function show(row) {
  const details = row.querySelector("details");
  details.open = true;
  requestAnimationFrame(() => {
    row.scrollIntoView({ block: "start" });
    details.querySelector("summary").focus({ preventScroll: true });
  });
}

// Where a turn lies on the axis of calls, as a share of it: from, and how wide.
function span(session, turn) {
  const first = turn.calls[0];
  const end = turn.calls[turn.calls.length - 1] + 1;
  return [first / session.n, (end - first) / session.n];
}

function mark(session, turn, at) {
  if (!turn.calls.length || session.scopes[turn.scope]?.agent) return null;
  const [from, width] = span(session, turn);
  const label = `turn ${turn.number}: ${firstLine(plain(turn.request || "no words"), 80)}`;
  const button = h("button", { type: "button", class: "turn-mark", title: label, "aria-label": label, on: { click: () => go({ turn: at + 1 }) } }, h("span", null, turn.number));
  button.style.left = `${100 * from}%`;
  button.style.width = `${100 * width}%`;
  return button;
}

function byCall(session) {
  const calls = new Map();
  for (const departure of session.departures()) calls.set(departure.call, [...(calls.get(departure.call) || []), departure.block]);
  return calls;
}

function turnRow(context, turn, at, departures) {
  const { session } = context;
  const details = h("details", { class: "turn" },
    h("summary", { id: `turn-${at + 1}` },
      h("div", { class: "turn-head" },
        h("span", { class: "turn-name" }, `turn ${turn.number}`, session.scopes.length > 1 && turn.scope ? h("span", { class: "tag" }, session.scopes[turn.scope].name) : null),
        h("span", { class: "turn-request" }, turn.request ? plain(turn.request) : h("span", { class: "muted" }, "without a person’s words")),
        h("span", { class: "turn-facts muted" }, turnFacts(session, turn))),
      h("dl", { class: "deeds" }, deeds(session, turn, departures)),
      track(session, turn)));
  opening(details, () => stepList(context, turn));
  details.addEventListener("toggle", () => {
    if (details.open) go({ turn: at + 1 }, { quiet: true });
    else if (view().turn === at + 1) go({ turn: null }, { quiet: true });
  });
  return h("li", { class: session.scopes[turn.scope]?.agent ? "of-agent" : null }, details);
}

function track(session, turn) {
  const bar = h("i");
  if (turn.calls.length) {
    const [from, width] = span(session, turn);
    bar.style.left = `${100 * from}%`;
    bar.style.width = `${100 * width}%`;
  }
  return h("div", { class: "turn-track", "aria-hidden": "true" }, bar);
}

function turnFacts(session, turn) {
  const { cost, time } = session.calls;
  const costs = turn.calls.map((call) => cost[call]).filter((amount) => amount !== null);
  const times = turn.calls.map((call) => time[call]).filter((seconds) => seconds !== null);
  const facts = [
    costs.length ? money(costs.reduce((sum, amount) => sum + amount, 0)) : null,
    turn.calls.length ? plural(turn.calls.length, "call") : "no reply",
    times.length ? moment(times[0]) : null,
  ];
  return facts.filter(Boolean).join(" · ");
}

// What a turn did: pairs of a word and what it was done to.
function deeds(session, turn, departures) {
  const row = (name, content) => (content && content.length ? [h("dt", null, name), h("dd", null, content)] : null);
  const also = [looks(turn.reads || 0, turn.searches || 0), others(turn.others || []), turn.tasks ? `tasks ${plain(turn.tasks)}` : null];
  const end = turn.closing ? h("span", { class: "clamped" }, plain(turn.closing)) : turn.calls.length ? h("span", { class: "muted" }, "nothing in words") : [];
  const stopped = turn.interrupted ? [h("span", { class: "tag bad" }, "a person interrupted it"), " "] : [];
  return [
    row("edited", listed(turn.files || [], ([place, plus, minus]) => edited(session.raw.files[place], plus, minus))),
    row("ran", listed(telling(turn.commands || []), ran, (turn.commands || []).length)),
    row("committed", listed([...new Set(turn.commits || [])], (message) => h("span", { class: "deed" }, `“${plain(message)}”`))),
    row("agents", listed(turn.agents || [], (task) => h("span", { class: "deed" }, plain(task)))),
    row("also", also.filter(Boolean).join(" · ")),
    row("prompt", moved(session, turn, departures)),
    row(turn.answered && !turn.interrupted ? "answer" : "last words", [stopped, end].flat()),
  ];
}

function listed(items, shape, all = items.length) {
  const more = all - Math.min(items.length, NAMES);
  return [...items.slice(0, NAMES).map(shape), ...(more > 0 && items.length ? [h("span", { class: "muted deed" }, `and ${whole(more)} more`)] : [])];
}

function edited(file, plus, minus) {
  return h("span", { class: "deed mono", title: file.path }, firstLine(plain(file.path), 44), " ", h("span", { class: "plus" }, `+${plus}`), " ", h("span", { class: "minus" }, `−${minus}`), file.deleted ? " deleted" : "");
}

// Of many commands those that say most: what failed at last, then the newest; in the order in which they were made.
function telling(commands) {
  if (commands.length <= NAMES) return commands;
  const failed = commands.filter(([, , , end]) => end).slice(-2);
  const newest = commands.filter((command) => !failed.includes(command)).slice(failed.length - NAMES);
  return commands.filter((command) => failed.includes(command) || newest.includes(command));
}

function ran([text, runs, failures, end]) {
  const times = runs > 1 ? ` ×${runs}${failures && !end ? `, ${failures} failed before` : ""}` : "";
  return h("span", { class: "deed mono", title: plain(text) }, h("span", { class: end ? "minus" : "plus" }, end ? "✗ " : "✓ ", h("span", { class: "visually-hidden" }, end ? "failed: " : "")), firstLine(plain(text), 76), times, end ? h("span", { class: "minus" }, ` ${end}`) : "");
}

// What left the prompt in a turn, and what came back.
function moved(session, turn, departures) {
  const own = turn.calls.flatMap((call) => departures.get(call) || []);
  const tokens = own.reduce((sum, block) => sum + session.blocks.tokens[block], 0);
  const calls = new Set(turn.calls);
  const marks = session.marks.filter((mark) => calls.has(mark.call));
  const back = marks.filter((mark) => mark.kind === "recover").length;
  const compactions = marks.filter((mark) => mark.kind === "compaction").length;
  return [compactions ? plural(compactions, "compaction") : null, own.length ? `${plural(own.length, "block")} left (~${short(tokens)} tokens)` : null, back ? `${whole(back)} read back` : null].filter(Boolean).join(" · ");
}
