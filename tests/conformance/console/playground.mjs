// A conversation with an agent over each of its protocols, the wire beside it, and the snippet that repeats a message.

import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { setTimeout as sleep } from 'node:timers/promises'

import { api, clients, CONSOLE_URL, enter, heading, key, open, signedIn, violations } from './browser.mjs'
import { check } from './checks.mjs'

const log = page => page.getByRole('log', { name: 'Conversation' })
const turn = page => log(page).locator('.turn').last()
const wire = page => page.getByRole('region', { name: 'Wire' })
const snippet = page => page.getByRole('region', { name: 'Snippet' })
const button = (page, name) => page.getByRole('button', { name, exact: true })

async function playground(options) {
  const page = await signedIn(options)
  await page.goto(`${CONSOLE_URL}#/playground`)
  await heading(page, 'Playground').waitFor()
  return page
}

async function send(page, text, protocol) {
  if (protocol) await page.getByLabel('Protocol').selectOption(protocol)
  await page.getByLabel('Message').fill(text)
  await button(page, 'Send').click()
  await turn(page).getByText(text, { exact: true }).first().waitFor()
}

const answered = (page, text) => turn(page).getByText(text).first().waitFor()
const ended = page => page.waitForFunction(() => document.querySelector('[role=log]').getAttribute('aria-busy') === 'false')

await check('a conversation goes on over every protocol, and the wire has what came', async () => {
  const page = await playground()
  await page.getByText('Say something.').waitFor()
  await page.screenshot({ path: 'playground-empty.png' })
  const protocols = Object.keys(clients)
  for (const [index, protocol] of protocols.entries()) {
    await send(page, 'history', protocol)
    // The first message of a session has nothing before it.
    if (index > 0) await answered(page, `message ${index + 1} of yours`)
    await ended(page)
    await wire(page).getByText(`${protocol} · HTTP 200`).waitFor()
    await turn(page).getByRole('link', { name: 'Open run' }).waitFor()
  }
  const runs = (await api(page, 'GET', `/runs?owner=${encodeURIComponent('console::operator')}&limit=${protocols.length}`)).json.data
  assert.deepEqual(runs.map(run => run.protocol), protocols.toReversed())
  assert.equal(new Set(runs.map(run => run.session)).size, 1, 'one session')

  // Exactly what came: a stream of the Agent API is what the run has in that protocol.
  await send(page, 'reasoning', 'agent-api')
  await answered(page, 'There you are.')
  await ended(page)
  await wire(page).getByRole('button', { name: 'Copy wire' }).click()
  await page.getByRole('status').filter({ hasText: 'Wire copied' }).waitFor()
  const copied = await page.evaluate(() => navigator.clipboard.readText())
  const [run] = (await api(page, 'GET', '/runs?limit=1')).json.data
  const { events } = (await api(page, 'GET', `/runs/${run.id}/export`)).json
  assert.equal(copied, events.map(event => event.frames['agent-api']).join(''))
  await page.screenshot({ path: 'playground.png' })

  // Another screen and back: the conversation is still there, and goes on.
  await page.goto(`${CONSOLE_URL}#/runs`)
  await heading(page, 'Runs').waitFor()
  await page.goBack()
  await answered(page, 'There you are.')
  await send(page, 'echo still here')
  await answered(page, 'still here')
  await ended(page)
  await button(page, 'New conversation').click()
  await page.getByText('Say something.').waitFor()
  await page.context().close()
})

await check('the command of each protocol gives the answer when a shell runs it', async () => {
  const page = await playground()
  for (const protocol of Object.keys(clients)) {
    const words = `it's "${protocol}" $HOME \`id\``
    await send(page, `echo ${words}`, protocol)
    await ended(page)
    const command = await snippet(page).locator('pre').innerText()
    const shown = execFileSync('sh', ['-c', command], { stdio: ['ignore', 'pipe', 'ignore'] }).toString()
    // The demo agent may send it in pieces.
    for (const part of [protocol, '$HOME', '`id`']) assert.ok(shown.includes(part), `${command}\n${shown}`)
  }
  for (const [name, word] of [['Python', 'import'], ['TypeScript', 'await'], ['curl', 'curl -N']]) {
    await snippet(page).getByRole('button', { name, exact: true }).click()
    await snippet(page).locator('pre').filter({ hasText: word }).waitFor()
  }
  await page.context().close()
})

await check('an open item is accepted in the conversation, and the agent goes on', async () => {
  const page = await playground()
  for (const protocol of ['agent-api', 'a2a', 'hitl']) {
    await send(page, 'approval', protocol)
    const item = turn(page).getByRole('article', { name: 'send_mail' })
    await item.waitFor()
    if (protocol === 'agent-api') await page.screenshot({ path: 'playground-item.png' })
    await item.getByRole('button', { name: 'Accept' }).click()
    await log(page).getByText('sent to ada@example.com').last().waitFor()
    await ended(page)
    await button(page, 'New conversation').click()
  }
  await page.context().close()
})

await check('an answer is stopped, over a protocol whose runs end with their client and over one whose do not', async () => {
  const page = await playground()
  for (const protocol of ['ag-ui', 'a2a', 'hitl']) {
    await send(page, `long 100000 20 over ${protocol}`, protocol)
    await turn(page).getByRole('link', { name: 'Open run' }).waitFor()
    if (protocol !== 'hitl') await wire(page).getByText('HTTP 200').waitFor()
    assert.ok(await button(page, 'Send').isDisabled())
    await button(page, 'Stop').click()
    await turn(page).getByText('Stopped.').waitFor()
    const id = (await turn(page).getByRole('link', { name: 'Open run' }).getAttribute('href')).split('/').pop()
    for (let attempt = 0; ; attempt += 1) {
      const { state } = (await api(page, 'GET', `/runs/${id}`)).json.run
      if (state === 'canceled') break
      assert.ok(attempt < 50, `${protocol}: ${state}`)
      await sleep(100)
    }
  }
  await page.context().close()
})

await check('a refusal is shown as the protocol words it, and the text is not lost if nothing was sent', async () => {
  const page = await playground()
  await api(page, 'POST', '/agents/demo/drain', {})
  await send(page, 'hello', 'anthropic-messages')
  await turn(page).getByText('HTTP 529').waitFor()
  await wire(page).getByText('"type":"error"').waitFor()
  await page.screenshot({ path: 'playground-refused.png' })
  await api(page, 'POST', '/agents/demo/resume', {})
  await page.route('**/api/sample', route => route.abort())
  await page.getByLabel('Message').fill('keep me')
  await page.keyboard.press('Enter')
  await page.getByRole('alert').filter({ hasText: 'does not answer' }).waitFor()
  assert.equal(await page.getByLabel('Message').inputValue(), 'keep me')
  await page.context().close()
})

await check('texts are never markup, in the conversation, on the wire and in the snippet', async () => {
  const page = await playground()
  const text = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>\u202eevil javascript:alert(1)'
  await send(page, `echo ${text}`)
  await ended(page)
  await answered(page, text)
  assert.equal(await page.evaluate(() => window.hacked), undefined)
  assert.equal(await page.locator('main img, main script').count(), 0)
  await page.context().close()
})

await check('the playground is accessible with a conversation in it, by keyboard, in dark and on a phone', async () => {
  const page = await playground({ colorScheme: 'dark' })
  await page.keyboard.press('g')
  await page.keyboard.press('o')
  await heading(page, 'Overview').waitFor()
  await page.keyboard.press('g')
  await page.keyboard.press('y')
  await heading(page, 'Playground').waitFor()
  await page.getByLabel('Message').focus()
  await page.keyboard.type('approval')
  await page.keyboard.press('Enter')
  await turn(page).getByRole('article', { name: 'send_mail' }).waitFor()
  assert.deepEqual(await violations(page), [])
  await page.screenshot({ path: 'playground-dark.png' })
  await page.setViewportSize({ width: 360, height: 720 })
  await sleep(200)
  const wide = await page.evaluate(() => document.documentElement.scrollWidth)
  assert.ok(wide <= 360, `${wide} pixels wide`)
  await page.screenshot({ path: 'playground-talk-phone.png', fullPage: true })
  assert.deepEqual(await violations(page), [])
  await turn(page).getByRole('button', { name: 'Reject' }).click()
  await turn(page).getByRole('button', { name: 'Send decision' }).click()
  await log(page).getByText('you rejected it').waitFor()
  await page.context().close()
})

await check('who may only view sends nothing', async () => {
  const page = await open()
  await page.goto(CONSOLE_URL)
  await enter(page, key('vera'))
  await page.goto(`${CONSOLE_URL}#/playground`)
  await page.getByText('Your role may view, but not send.').waitFor()
  assert.equal(await button(page, 'Send').count(), 0)
  assert.equal((await api(page, 'POST', '/playground/agents/demo/process', { input: [] })).status, 403)
  await page.context().close()
})
