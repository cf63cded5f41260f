// The command by which the conversation goes on in another agent, from the call that is looked at.
import { h, replace } from "./dom.js";
import { chosenCall } from "./session.js";
import { view } from "./view.js";

const AGENTS = ["claude-code", "codex", "opencode", "pi", "gemini", "copilot", "qwen", "openhands", "run"];

export function continueDialog(session) {
  const command = h("code", { class: "command command-line" });
  const note = h("p", { class: "muted help-note" });
  const agent = h("select", { on: { change: () => show() } }, AGENTS.map((name) => h("option", null, name)));
  const dialog = h("dialog", { "aria-labelledby": "continue-title" },
    h("h2", { id: "continue-title" }, "Continue in another agent"),
    h("label", { class: "field" }, "Agent", agent),
    command,
    note,
    h("form", { method: "dialog", class: "actions" }, h("button", null, "Close")));
  function show() {
    const call = chosenCall(session, view()), commit = session.calls.commit?.[call];
    const own = agent.value === "run" ? "opens a scope for `ctxvc run`" : `writes a session for ${agent.value}`;
    replace(command, `ctxvc continue ${commit ? commit.slice(0, 12) : session.raw.session} --in ${agent.value}`);
    replace(note, `Run it in the project: it ${own}, with the conversation ${commit ? `up to the reply of call ${call + 1}` : "as it is now"}, and prints the command that continues it.`);
  }
  return { dialog, open: () => { show(); dialog.showModal(); } };
}
