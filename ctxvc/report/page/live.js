// The page beside a running store: its sessions, one of them as it grows, and verbs where the server allows them.
import { refusal, showPlan } from "./edit.js";
import { announce, empty, h, replace } from "./dom.js";
import { header, newPage } from "./header.js";
import { keep } from "./keep.js";
import { sessionPage } from "./session_page.js";
import { statsPage } from "./stats.js";
import { plural, short, whole } from "./text.js";
import { table } from "./table.js";
import { go, link, onView, view } from "./view.js";

const TOGETHER = 300; // milliseconds in which changes that follow each other are drawn once

// What the server answers to a GET.
async function asked(path) {
  const answer = await fetch(path, { headers: { Accept: "application/json" } });
  if (!answer.ok) throw await refusal(answer);
  return answer.json();
}

export function startLive(page) {
  let open = null;
  window.addEventListener("hashchange", () => subject() !== open && show());
  show();

  // What the page is of: a session, the statistics, or all sessions.
  function subject() {
    return view().session || (view().screen === "stats" ? "#stats" : "");
  }

  async function show() {
    open = subject();
    stopFollowing();
    newPage();
    try {
      if (open === "#stats") await showStats(page);
      else if (open) await showSession(page, open, await asked("/api/project"));
      else await showList(page);
    } catch (problem) {
      failed(page, problem);
    }
  }
}

function failed(page, problem) {
  replace(page, header("ctxvc", ""), h("main", { class: "frame", id: "main", tabindex: "-1" },
    empty("The server does not answer", `${problem.message}. Is “ctxvc ui” still running? Its link is good once: start it again for a new one.`)));
}

async function showSession(page, id, { edit }) {
  const draw = async () => {
    const raw = await asked(`/api/report?session=${encodeURIComponent(id)}`);
    if (view().session !== id) return;
    const restore = keep(page);
    const home = h("a", { class: "button", href: "#/" }, "All sessions");
    const state = h("span", { class: "live", id: "live" }, "live");
    const undo = edit ? h("button", { type: "button", on: { click: () => showPlan(id, "undo", []) } }, "Undo") : null;
    sessionPage(page, raw, { live: true, actions: [state, undo, home], verbs: edit ? (session, block, now) => verbButtons(id, session, block, now) : null });
    restore();
    announce(`${raw.calls.n} calls`);
  };
  await draw();
  follow(id, draw);
}

async function showStats(page) {
  const by = (name) => asked(`/api/stats?by=${encodeURIComponent(name)}`);
  const raw = await by(view().filter || "day");
  statsPage(page, raw, { asked: by, actions: [h("a", { class: "button", href: "#/" }, "All sessions")] });
}

async function showList(page) {
  const draw = async (path) => {
    const listed = await asked(path);
    if (view().session || view().screen === "stats") return;
    const restore = keep(page);
    sessionList(page, listed);
    restore();
    if (listed.missing) await draw("/api/sessions?rest=1"); // listing a session for the first time takes a while
  };
  follow("", () => draw("/api/sessions"));
  await draw("/api/sessions");
}

let stream = null;

function stopFollowing() {
  stream?.close();
  stream = null;
}

// Calls `draw` when the server tells of a change; what comes in between is drawn at once with it.
function follow(id, draw) {
  let waiting = 0;
  const later = () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => draw().catch(() => lost()), TOGETHER);
  };
  stream = new EventSource(`/api/events?session=${encodeURIComponent(id)}`);
  stream.addEventListener("changed", later);
  stream.addEventListener("sessions", () => id === "" && later());
  stream.addEventListener("error", () => stream?.readyState === EventSource.CLOSED && lost());
  stream.addEventListener("open", () => document.getElementById("live")?.classList.remove("gone"));
}

function lost() {
  const state = document.getElementById("live");
  if (!state) return;
  state.classList.add("gone");
  state.textContent = "not connected";
}

function verbButtons(id, session, block, now) {
  const verbs = { __proto__: null, visible: ["archive", "pin"], masked: ["restore", "archive"], pinned: ["unpin"], stub: ["restore"], gone: ["restore"] }[now] || [];
  if (!verbs.length) return null;
  return h("div", { class: "actions verbs" }, verbs.map((verb) =>
    h("button", { type: "button", on: { click: () => showPlan(id, verb, [session.blocks.id[block]]) } }, `${verb[0].toUpperCase()}${verb.slice(1)} …`)));
}

function sessionList(page, { project, sessions, missing, problems }) {
  newPage();
  const input = h("input", { type: "search", id: "search", "aria-label": "Sessions that have this in their name", placeholder: "name, title, model" });
  const open = (session) => link({ session: session.id, screen: "overview", call: null, from: null, to: null, block: null, q: "", filter: "" });
  const list = table("Sessions", [
    { name: "session", cell: (session) => h("a", { href: open(session) }, session.title || session.name || session.id), sort: (session) => session.title || session.name, wide: true },
    { name: "name", cell: (session) => h("span", { class: "mono" }, session.name || session.id), sort: (session) => session.name },
    { name: "model", cell: (session) => session.model || "–", sort: (session) => session.model },
    { name: "last", cell: (session) => [session.running ? h("span", { class: "live" }, "running") : (session.time || "–").slice(0, 16).replace("T", " ")], sort: (session) => session.time || "" },
    { name: "calls", cell: (session) => whole(session.calls), sort: (session) => session.calls ?? -1, number: true },
    { name: "full", cell: (session) => `${session.byProvider ? "" : "~"}${session.percent} %`, sort: (session) => session.percent, number: true },
    { name: "spent", cell: (session) => short(session.spent), sort: (session) => session.spent ?? -1, number: true },
    { name: "cost", cell: (session) => (session.cost === null ? "–" : `$${session.cost.toFixed(2)}`), sort: (session) => session.cost ?? -1, number: true },
    { name: "files", cell: (session) => whole(session.files), sort: (session) => session.files ?? -1, number: true },
  ], sessions, { part: 100 });
  const main = h("main", { class: "frame", id: "main", tabindex: "-1" }, h("section", { class: "panel" },
    h("div", { class: "filters" }, input, h("span", { class: "muted" }, `${plural(sessions.length, "session")}${missing ? `; ${whole(missing)} more are being read` : ""}`)),
    (problems || []).map((problem) => h("p", { class: "muted" }, problem)),
    sessions.length || missing ? list : empty("No sessions yet", "Nothing is stored for this project. `ctxvc import` takes in what was recorded, `ctxvc watch` what is going on.")));
  const filter = () => {
    const q = view().q.toLowerCase();
    list.fill(sessions.filter((session) => `${session.title} ${session.name} ${session.model}`.toLowerCase().includes(q)));
  };
  input.value = view().q;
  input.addEventListener("input", () => go({ q: input.value }, { quiet: true }));
  onView(filter);
  filter();
  const spent = sessions.length ? h("a", { class: "button", href: "#/stats" }, "What was spent") : null;
  replace(page, header(project || "Sessions", "all sessions", spent), main);
}
