// A verb from the page: its plan is shown first, and made true when a person says so.
import { h, replace } from "./dom.js";

// Why the server did not do as asked: its own words, or the number of its answer.
export async function refusal(answer) {
  const text = await answer.text();
  let words = text.slice(0, 500);
  try {
    const { problem, hint } = JSON.parse(text);
    words = [problem, hint].filter(Boolean).join(": ");
  } catch {
    // then it is plain text
  }
  return new Error(words || `the server answered ${answer.status}`);
}

async function posted(path, body) {
  const answer = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
  if (!answer.ok) throw await refusal(answer);
  return answer.json();
}

// Asks for the plan of a verb on blocks of a session, and shows it in a dialogue.
export async function showPlan(session, verb, blocks) {
  const content = h("div", null, h("p", { class: "muted" }, "…"));
  const cancel = h("button", { type: "button", on: { click: () => dialog.close() } }, "Cancel");
  const apply = h("button", { type: "button", disabled: true }, "Do it");
  const dialog = h("dialog", { "aria-labelledby": "plan-title" },
    h("h2", { id: "plan-title" }, `${verb} ${blocks.join(", ")}`.trim()), content, h("div", { class: "actions" }, apply, cancel));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  try {
    const plan = await posted("/api/plan", { session, verb, blocks });
    replace(content, h("pre", { class: "body" }, (plan.plan || []).join("\n") || "Nothing would change."), plan.problem ? h("p", { class: "tag bad" }, plan.problem) : null);
    apply.disabled = Boolean(plan.problem) || !plan.token;
    apply.addEventListener("click", () => make(plan.token));
  } catch (problem) {
    replace(content, h("p", null, problem.message));
  }

  async function make(token) {
    apply.disabled = true;
    try {
      const done = await posted("/api/apply", { session, plan: token });
      replace(content, h("p", null, done.message || "Done."));
      cancel.textContent = "Close";
    } catch (problem) {
      replace(content, h("p", null, problem.message));
    }
  }
}
