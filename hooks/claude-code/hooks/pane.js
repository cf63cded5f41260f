// `/ctxvc`: a pane on what the session's prompt is made of, what left it and by whom, with keys that change it. All of it
// is what `ctxvc status` answers, and each key is a command of `ctxvc` on this session.
const PANE = 'ctxvc'
const COMMAND = 'ctxvc'
const TIMEOUT_MS = 20000
const LISTED = 4 // blocks in each of the two lists: the hotkeys are digits
const SHOWN_LINES = 8
const COLORS = ['cyan', 'green', 'yellow', 'magenta', 'blue', 'red', 'white']

// `status` is what `ctxvc status --json` answered; undefined before, and where the session is not recorded.
const now = { status: undefined, cost: '', chosen: '', message: '' }

const amount = (tokens) => (tokens < 1000 ? `${tokens}` : `${(tokens / 1000).toFixed(tokens < 10000 ? 1 : 0)}k`)
const clean = (text) => text.replace(/[^\P{C}\n]/gu, '').trimEnd()
const reason = (error) => clean(String((error && error.message) || error)).slice(0, 200)
const biggest = (items, size) => [...items].sort((one, other) => size(other) - size(one)).slice(0, LISTED)

async function ctxvc($, words) {
  const [session, folder] = await Promise.all([$.session.id(), $.session.root()])
  const env = { CLAUDE_CODE_SESSION_ID: session }
  return $.process.run(['ctxvc', ...words], { cwd: folder, env, timeoutMs: TIMEOUT_MS })
}

async function load($) {
  try {
    const [session, usage] = await Promise.all([$.session.id(), $.session.usage().catch(() => ({}))])
    now.cost = usage.cost ? `; ${usage.cost.usd.toFixed(2)} USD so far` : ''
    const run = await ctxvc($, ['status', '--json'])
    const answer = run.isStdoutTruncated ? { error: 'the session is too long for the pane' } : JSON.parse(run.stdout || '{}')
    // Without a record of this session, ctxvc answers with another's.
    const isOurs = typeof answer.session === 'string' && answer.session.startsWith(`claude-${session.slice(0, 8)}`)
    now.status = isOurs ? answer : undefined
    if (!isOurs) now.message = typeof answer.error === 'string' ? clean(answer.error) : 'this session is not recorded here'
  } catch (error) {
    now.status = undefined
    now.message = `ctxvc status: ${reason(error)}`
  }
  $.ui.invalidate('ui.render')
}

async function act($, words) {
  now.message = `ctxvc ${words.join(' ')} …`
  $.ui.invalidate('ui.render')
  try {
    const run = await ctxvc($, ['--session', now.status.session, ...words])
    const last = run.stdout.trimEnd().split('\n').pop()
    const text = words[0] === 'recover' && run.exitCode === 0 ? run.stdout : `${last}\n${run.stderr}`
    now.message = clean(text.trim() || words.join(' ')).split('\n').slice(0, SHOWN_LINES).join('\n')
  } catch (error) {
    now.message = `ctxvc ${words[0]}: ${reason(error)}`
  }
  await load($)
}

function choose($, id) {
  now.chosen = id
  now.message = ''
  $.ui.invalidate('ui.render')
}

function keys($, Button) {
  const press = (hotkey, label, onPress) => Button({ key: label, label, hotkey, plain: true, onPress })
  const { status, chosen } = now
  const refresh = press('x', 'refresh', () => load($))
  if (!status) return [refresh]
  const item = status.items.find(({ id }) => id === chosen)
  const own = []
  if (item && item.status === 'archived') {
    own.push(press('e', 'read', () => act($, ['recover', chosen])), press('r', 'restore', () => act($, ['restore', chosen])))
  } else if (item) {
    const pins = item.status === 'pinned' ? 'unpin' : 'pin'
    own.push(press('p', pins, () => act($, [pins, chosen])), press('a', 'archive', () => act($, ['archive', chosen])))
  }
  return [...own, press('u', 'undo', () => act($, ['undo'])), refresh]
}

function blocks($, Button, columns) {
  const { items } = now.status
  const present = items.filter((item) => item.shown > 0 && item.status !== 'archived')
  const absent = items.filter((item) => item.status === 'archived')
  const rows = [
    ...biggest(present, (item) => item.shown).map((item) => [item, item.status === 'visible' ? '' : `${item.status} `]),
    ...biggest(absent, (item) => item.tokens).map((item) => [item, `by ${item.removed_by || 'itself'} `]),
  ]
  const buttons = rows.map(([item, why], at) => {
    const mark = item.id === now.chosen ? '▸' : ' '
    const label = clean(`${mark} ${item.id} ${amount(item.tokens)} ${why}${item.label}`).slice(0, Math.max(10, columns - 4))
    return Button({ key: item.id, label, hotkey: `${at + 1}`, plain: true, onPress: () => choose($, item.id) })
  })
  const here = Math.min(present.length, LISTED)
  return { present: buttons.slice(0, here), absent: buttons.slice(here), left: absent.length }
}

export const pane = (on) => {
  on('session.start', async ($, e, next) => {
    try {
      await $.command.register({ name: COMMAND, description: 'Show what the context is made of, and change it' })
    } catch (error) {
      $.ui.log(`ctxvc has no pane: ${reason(error)}`)
    }
    return next(e)
  })

  on('command.run', { command: COMMAND }, async ($) => {
    now.message = ''
    await load($)
    const opened = await $.ui.open({ id: PANE, title: 'ctxvc', focus: true, closeOnEscape: true, rows: 22 })
    return opened.isPlaced ? {} : { text: `ctxvc: ${opened.reason}` }
  })

  on('ui.render', { component: 'Pane', requestId: PANE }, ($, e) => {
    const { Box, Button, Text } = $.ui.resolve(e)
    const columns = e.props.bodyColumns
    const text = (words, style = {}) => Text({ wrap: 'truncate', ...style, children: words })
    const said = now.message ? now.message.split('\n').map((words) => text(words || ' ', { wrap: 'wrap' })) : []
    const row = Box({ flexDirection: 'row', gap: 2, children: keys($, Button) })
    const { status } = now
    if (!status) return Box({ flexDirection: 'column', children: [...said, row] })

    const parts = [...Object.entries(status.recorded), ['not recorded', status.unrecorded]].filter((part) => part[1] > 0)
    const cells = (tokens) => Math.ceil((tokens / status.limit) * Math.max(10, columns - COLORS.length))
    const colored = (words, at) => Text({ color: COLORS[at % COLORS.length], children: words })
    const lists = blocks($, Button, columns)
    return Box({
      flexDirection: 'column',
      children: [
        text(`${amount(status.used)} of ${amount(status.limit)} tokens (${status.percent} %)${now.cost}`, { bold: true }),
        Box({ children: parts.map(([, tokens], at) => colored('█'.repeat(cells(tokens)), at)) }),
        Box({ flexWrap: 'wrap', columnGap: 2, children: parts.map(([name, tokens], at) => colored(`${name} ${amount(tokens)}`, at)) }),
        text('biggest in the prompt', { dimColor: true }),
        ...lists.present,
        text(lists.left ? `left the prompt: ${lists.left}` : 'nothing has left the prompt', { dimColor: true }),
        ...lists.absent,
        row,
        ...said,
      ],
    })
  })
}
