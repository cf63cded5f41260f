// A client of `ctxvc serve --stdio`: one JSON object a line, in both directions (docs/serve.md).
// `ctxvc install` writes `program.js` beside this file: how ctxvc is started, and of which version this is.

import { spawn } from "node:child_process"
import { PROGRAM, VERSION } from "./program.js"

const PROTOCOL = 1
const SECONDS = 20

/** Asks ctxvc for one host in one folder. `warn` is told each thing that goes wrong, once. */
export class Client {
  #child = null
  #waiting = new Map()
  #number = 0
  #warned = new Set()

  constructor(host, folder, warn) {
    this.host = host
    this.folder = folder
    this.warn = warn
  }

  /** The tools that ctxvc has for this project; none where it records nothing, or cannot be started. */
  async hello() {
    const answer = await this.ask("hello")
    return answer?.store ? answer.tools : []
  }

  /** The answer to a request, or null: then the host goes on as it would without ctxvc. */
  async ask(verb, fields = {}) {
    try {
      const first = !this.#child
      if (first) this.#start()
      const hello = { host: this.host, version: VERSION, protocol: PROTOCOL }
      if (first && verb !== "hello") await this.#send("hello", hello)
      const answer = await this.#send(verb, verb === "hello" ? hello : fields)
      if (!answer.error) return answer
      this.#tell(answer.hint ? `${answer.error}; ${answer.hint}` : answer.error)
    } catch (error) {
      this.#tell(error.message)
    }
    return null
  }

  close() {
    this.#child?.stdin.end()
    this.#child = null
  }

  #tell(text) {
    if (this.#warned.has(text)) return
    this.#warned.add(text)
    this.warn(`ctxvc: ${text}`)
  }

  #start() {
    const [program, ...first] = PROGRAM
    const child = spawn(program, [...first, "serve", "--stdio"], { cwd: this.folder, stdio: ["pipe", "pipe", "ignore"] })
    const ended = (why) => {
      if (this.#child === child) this.#child = null
      for (const [number, one] of this.#waiting) {
        if (one.child !== child) continue
        this.#waiting.delete(number)
        one.reject(new Error(why))
      }
    }
    child.on("error", (error) => ended(`cannot be started: ${error.message}`))
    child.on("exit", (code) => ended(`it ended with ${code}`))
    child.stdin.on("error", () => {}) // the child has ended, which is told already
    // Not by node:readline, which takes U+2028 inside a text for the end of a line.
    child.stdout.setEncoding("utf8")
    let rest = ""
    child.stdout.on("data", (chunk) => {
      const lines = (rest + chunk).split("\n")
      rest = lines.pop()
      for (const line of lines) {
        const answer = JSON.parse(line)
        this.#waiting.get(answer.id)?.resolve(answer)
        this.#waiting.delete(answer.id)
      }
    })
    this.#child = child
  }

  #send(verb, fields) {
    const id = ++this.#number
    return new Promise((resolve, reject) => {
      const late = setTimeout(() => {
        this.#waiting.delete(id)
        reject(new Error(`no answer to ${verb} in ${SECONDS} s`))
      }, SECONDS * 1000)
      const ending = (then) => (value) => {
        clearTimeout(late)
        then(value)
      }
      this.#waiting.set(id, { child: this.#child, resolve: ending(resolve), reject: ending(reject) })
      this.#child.stdin.write(`${JSON.stringify({ ...fields, id, verb })}\n`)
    })
  }
}
