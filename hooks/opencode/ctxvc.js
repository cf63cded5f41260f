// ctxvc in opencode: before each call of the model the conversation is recorded, and its prompt kept inside a budget.
// All that is decided is decided by `ctxvc serve`; this file carries messages there and back.

import { Client } from "../ctxvc/client.js"

export const Ctxvc = async ({ client: opencode, directory }) => {
  const warn = (message) => {
    const told = opencode.app.log({ body: { service: "ctxvc", level: "warn", message } })
    const shown = opencode.tui?.showToast?.({ body: { message, variant: "warning" } })
    for (const sent of [told, shown]) sent?.catch?.(() => {})
  }
  const client = new Client("opencode", directory, warn)
  const tools = await client.hello()
  if (!tools.length) {
    client.close()
    return {}
  }
  const summarised = new Set() // sessions for which the next messages are those of a summary
  const sizes = sizesOf(opencode)

  return {
    dispose: async () => client.close(),

    config: async (config) => {
      // Old results leave by the policy; opencode's own pruning would break the cached prefix besides.
      config.compaction = { ...config.compaction, prune: false }
    },

    "experimental.chat.messages.transform": async (_input, output) => {
      const messages = output.messages
      const session = messages[0]?.info.sessionID
      if (!session) return
      // A summary is made from what the model was sent: it fits, where all that there ever was may not.
      const verb = summarised.delete(session) ? "summary" : "messages"
      const answer = await client.ask(verb, { session, messages, ...(await sizes(messages)) })
      if (!answer) return
      const prompt = answer.messages.map((item) => (typeof item === "number" ? messages[item] : item))
      messages.splice(0, messages.length, ...prompt)
    },

    "experimental.session.compacting": async ({ sessionID }, output) => {
      summarised.add(sessionID)
      output.context.push(
        "ctxvc keeps the whole conversation. Name in the summary the addresses in square brackets (such as B17@3fa9c1) " +
          "of what may be needed again: context_recover reads them.",
      )
    },

    tool: Object.fromEntries(
      tools.map((tool) => [
        tool.name,
        {
          description: tool.description,
          args: tool.input_schema.properties,
          execute: async (given, { sessionID, callID }) => {
            const required = new Set(tool.input_schema.required)
            const filled = Object.entries(given).filter(([name, value]) => required.has(name) || !isEmpty(value))
            const request = { session: sessionID, tool: tool.name, arguments: Object.fromEntries(filled), call: callID }
            const answer = await client.ask("tool", request)
            if (!answer) throw new Error("ctxvc does not answer")
            if (answer.is_error) throw new Error(answer.text)
            return answer.text
          },
        },
      ]),
    ),
  }
}

/** opencode calls every argument of a plugin's tool required: what a model has nothing to say for comes empty. */
const isEmpty = (value) => value === "" || value === null || (Array.isArray(value) && !value.length)

/** The model that messages ask for, and how much it takes: asked of opencode once. */
function sizesOf(opencode) {
  let models = null
  return async (messages) => {
    const { providerID, modelID } = messages.findLast(({ info }) => info.role === "user")?.info.model ?? {}
    models ??= opencode.config.providers().then(({ data }) => data?.providers ?? [])
    const providers = await models.catch(() => [])
    const limit = providers.find(({ id }) => id === providerID)?.models?.[modelID]?.limit
    return { model: modelID ?? "", window: limit?.context ?? 0, reserve: limit?.output ?? 0 }
  }
}
