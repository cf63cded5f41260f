// Compaction without loss: Claude Code's messages go to `ctxvc hook SessionCompact`, and those of a smaller prompt come
// back, with stubs where blocks left. Where nothing can leave, a person's `/compact` is skipped, and they are told why.
// Without an answer in time Claude Code compacts by itself, as without this module.
import { pane } from './pane.js'

const TIMEOUT_MS = 10000

export const register = (on) => {
  pane(on)
  on('session.compact', async ($, e, next) => {
    let answer
    try {
      $.ui.status('compacting without loss…')
      const [session, folder] = await Promise.all([$.session.id(), $.session.root()])
      const tokens = e.agentId ? 0 : await $.session.usage().then((usage) => usage.context.tokens || 0, () => 0)
      const asked = {
        session,
        folder,
        trigger: e.trigger,
        tokens,
        agent: e.agentId || '',
        instructions: e.instructions || '',
        messages: e.messages,
      }
      const run = await $.process.run(['sh', `${$.plugin.root}/scripts/compact.sh`], {
        cwd: folder,
        stdin: JSON.stringify(asked),
        timeoutMs: TIMEOUT_MS,
      })
      answer = run.isStdoutTruncated ? { decline: 'the answer is too long' } : JSON.parse(run.stdout || '{}')
    } catch (error) {
      const reason = String((error && error.message) || error)
      answer = { decline: reason.includes('still running') ? `no answer within ${TIMEOUT_MS / 1000} s` : reason.slice(0, 200) }
    }
    $.ui.status(undefined)
    if (answer.skip) return { skip: answer.skip }
    if (!Array.isArray(answer.messages) || answer.messages.length === 0) {
      if (answer.decline) $.ui.log(`this compaction is left to Claude Code: ${answer.decline}`)
      return next(e)
    }
    $.ui.log(answer.line)
    return { messages: answer.messages, tokensBefore: answer.tokensBefore, tokensAfter: answer.tokensAfter }
  })
}
