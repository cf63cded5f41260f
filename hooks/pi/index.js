// ctxvc in pi: before each call of the model the conversation is recorded, and its prompt kept inside a budget.
// All that is decided is decided by `ctxvc serve`; this file carries messages there and back.

import { Client } from "./client.js"

/** Roles of messages whose content pi lets an entry of its file replace. */
const EDITABLE = new Set(["user", "assistant", "toolResult", "custom"])

/** @param {import("@earendil-works/pi-coding-agent").ExtensionAPI} pi */
export default function (pi) {
  let client = null
  let tools = []
  let edited = false // whether pi's file differs from what was sent

  pi.on("session_start", async (_event, ctx) => {
    client?.close()
    client = new Client("pi", ctx.cwd, (text) => (ctx.hasUI ? ctx.ui.notify(text, "warning") : console.error(text)))
    tools = await client.hello()
    edited = tools.length > 0
    for (const tool of tools) pi.registerTool(registered(tool, () => client))
  })

  pi.on("session_shutdown", () => {
    client?.close()
    client = null
  })

  pi.on("context", async (event, ctx) => {
    if (!tools.length) return
    const messages = originals(event.messages, ctx.sessionManager.buildSessionProjection().entries)
    const answer = await client.ask("messages", { ...about(pi, ctx), messages })
    if (!answer) return
    edited ||= answer.edited
    return { messages: answer.messages.map((item) => (typeof item === "number" ? messages[item] : item)) }
  })

  // What was sent becomes what pi's own file says: it is resumed, forked and exported as the model saw it.
  pi.on("turn_end", async (event, ctx) => {
    if (!tools.length || !edited) return
    const targets = event.context.contextEntries.filter(({ sourceEntry }) => EDITABLE.has(original(sourceEntry)?.role))
    const messages = targets.map(({ sourceEntry }) => original(sourceEntry))
    const answer = await client.ask("edits", { session: ctx.sessionManager.getSessionId(), messages })
    if (!answer) return
    edited = false
    const entries = targets.flatMap(({ sourceEntry, messages: shown }, at) => {
      const wanted = answer.messages[at] === 0 ? messages[at] : answer.messages[at]
      const [sent] = /** @type {any[]} */ (shown)
      if (JSON.stringify(wanted?.content) === JSON.stringify(sent?.content)) return []
      const replacement = wanted && { content: wanted.content }
      return [{ type: /** @type {const} */ ("context_edit"), targetId: sourceEntry.id, replacement }]
    })
    return { entries: [...event.entries, ...entries] }
  })

  pi.on("session_before_compact", async (event, ctx) => {
    if (!tools.length) return
    // The policy keeps the prompt inside its budget by itself: pi's own threshold is no reason to summarise.
    if (event.reason === "threshold") return { cancel: true }
    const messages = originals([], ctx.sessionManager.buildSessionProjection().entries)
    const answer = await client.ask("compact", { ...about(pi, ctx), messages })
    if (!answer?.freed) return
    const told = `ctxvc: ${answer.freed} tokens freed, ${answer.used} of ${answer.budget} used; nothing is lost`
    if (ctx.hasUI) ctx.ui.notify(told, "info")
    if (event.reason === "manual") return { cancel: true }
    // After an overflow pi repeats the call only if there was a compaction: one that keeps every entry.
    const [first] = event.branchEntries
    return {
      compaction: { summary: told, firstKeptEntryId: first.id, tokensBefore: event.preparation.tokensBefore },
    }
  })
}

/** What ctxvc is told of a session beside its messages.
 *  @param {import("@earendil-works/pi-coding-agent").ExtensionAPI} pi
 *  @param {import("@earendil-works/pi-coding-agent").ExtensionContext} ctx */
function about(pi, ctx) {
  const active = new Set(pi.getActiveTools())
  return {
    session: ctx.sessionManager.getSessionId(),
    parent: /_([^_/\\]+)\.jsonl$/.exec(ctx.sessionManager.getHeader()?.parentSession ?? "")?.[1] ?? "",
    model: ctx.model?.id ?? "",
    window: ctx.model?.contextWindow ?? 0,
    reserve: ctx.model?.maxTokens ?? 0,
    system: ctx.getSystemPrompt(),
    tools: pi
      .getAllTools()
      .filter(({ name }) => active.has(name) && !name.startsWith("context_"))
      .map(({ name, description, parameters }) => ({ name, description, input_schema: parameters })),
  }
}

/** The message of an entry as it was before any edit; undefined for an entry that has none.
 *  @param {import("@earendil-works/pi-coding-agent").SessionEntry} entry
 *  @returns {any} */
function original(entry) {
  if (entry.type === "message") return entry.message
  if (entry.type !== "custom_message") return undefined
  return { role: "custom", content: entry.content, timestamp: Date.parse(entry.timestamp) }
}

const key = (message) => `${message.role}:${message.toolCallId ?? message.timestamp}`

/** The messages with those of the session's entries as they were before any edit, at their places. */
function originals(messages, entries) {
  const own = entries.flatMap(({ sourceEntry, messages: shown }) =>
    sourceEntry.type === "message" ? [sourceEntry.message] : shown,
  )
  const spoken = own.filter(({ role }) => role !== "system")
  const keys = new Set(spoken.map(key))
  const all = []
  let at = 0
  for (const message of spoken) {
    while (at < messages.length && !keys.has(key(messages[at]))) all.push(messages[at++])
    all.push(message)
    if (at < messages.length && key(messages[at]) === key(message)) at++
  }
  return [...all, ...messages.slice(at).filter((message) => !keys.has(key(message)))]
}

/** One of ctxvc's tools as pi takes it.
 *  @returns {import("@earendil-works/pi-coding-agent").ToolDefinition} */
function registered(tool, client) {
  return {
    name: tool.name,
    label: tool.name,
    description: tool.description,
    parameters: tool.input_schema,
    async execute(call, params, _signal, _update, ctx) {
      const session = ctx.sessionManager.getSessionId()
      const answer = await client()?.ask("tool", { session, tool: tool.name, arguments: params, call })
      if (!answer) throw new Error("ctxvc does not answer")
      if (answer.is_error) throw new Error(answer.text)
      return { content: [{ type: "text", text: answer.text }], details: undefined }
    },
  }
}
