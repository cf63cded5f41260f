// The command by which the conversation goes on in another agent, from the call that is looked at.
import { h, replace } from "./dom.js";
import { chosenCall } from "./session.js";
import { view } from "./view.js";

const AGENTS = ["claude-code", "codex", "opencode", "pi", "gemini", "copilot", "qwen", "openhands", "run"];

export function continueDialog(session) {
  const command = h("code", { class: "command" });
  const agent = h("select", { "aria-label": "Agent", on: { change: () => show() } }, AGENTS.map((name) => h("option", null, name)));
  const dialog = h("dialog", { "aria-labelledby": "continue-title" },
    h("h2", { id: "continue-title" }, "Continue in another agent"),
    h("p", null, "In ", agent),
    h("p", null, command),
    h("p", { class: "muted help-note" }, "In the project. It writes a session of that agent's own, and prints how that goes on."),
    h("form", { method: "dialog", class: "actions" }, h("button", null, "Close")));
  function show() {
    replace(command, commandFor(session, agent.value));
  }
  return { dialog, open: () => { show(); dialog.showModal(); } };
}

function commandFor(session, agent) {
  const commit = session.calls.commit?.[chosenCall(session, view())];
  return `ctxvc continue ${commit ? commit.slice(0, 12) : session.raw.session} --in ${agent}`;
}
