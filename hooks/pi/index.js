// ctxvc in pi: requests go to the base URLs that `ctxvc wrap pi` sets for this process, provider by provider.
// A provider that has one in models.json keeps it.

import { readFileSync } from "node:fs"
import { homedir } from "node:os"
import { join } from "node:path"

/** @param {import("@earendil-works/pi-coding-agent").ExtensionAPI} pi */
export default function (pi) {
  const own = ownProviders()
  for (const [name, baseUrl] of Object.entries(JSON.parse(process.env.CTXVC_PI_BASE_URLS ?? "{}"))) {
    if (!own[name]?.baseUrl) pi.registerProvider(name, { baseUrl })
  }
}

/** The person's own providers; none where their file is missing or cannot be read. */
function ownProviders() {
  const folder = process.env.PI_CODING_AGENT_DIR || join(homedir(), ".pi", "agent")
  try {
    return JSON.parse(readFileSync(join(folder, "models.json"), "utf8")).providers ?? {}
  } catch {
    return {}
  }
}
