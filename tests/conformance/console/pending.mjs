// Open items: what is asked over each protocol, what is decided here, and that its client sees the result.

import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'

import { another, api, clients, CONSOLE_URL, GATEWAY_URL, heading, post, signedIn } from './browser.mjs'
import { check } from './checks.mjs'

const pending = async page => (await api(page, 'GET', '/pending')).json.data.map(({ item, ...rest }) => ({ ...rest, ...item }))

/** Asks over a protocol, and returns the item as the console knows it. */
async function asked(page, protocol, words = 'approval') {
  const before = new Set((await pending(page)).map(item => item.run))
  const user = `${protocol}-${Date.now()}`
  const answer = await (await clients[protocol](words, user)).text()
  const found = (await pending(page)).filter(item => !before.has(item.run))
  assert.equal(found.length, 1, `${protocol}: ${answer}`)
  return { ...found[0], answer, user }
}

/** Leaves nothing open of what other tests asked. */
async function rejectAll(page) {
  const open = await pending(page)
  for (const run of new Set(open.map(item => item.run))) {
    const items = open.filter(item => item.run === run).map(({ id }) => ({ id, decision: 'reject' }))
    await api(page, 'POST', `/runs/${run}/decide`, { items })
  }
  await until(async () => `${(await pending(page)).length} open`, '0 open')
}

/** The card of an item, on Pending. */
const card = (page, item) =>
  page.getByRole('article').filter({ has: page.locator(`a[href$="${item.run}"]`) })

async function decide(page, item, decision, text) {
  const article = card(page, item)
  await article.getByRole('button', { name: decision }).click()
  if (text !== undefined) {
    await article.getByLabel(decision === 'Edit' ? 'Arguments' : 'Text').fill(text)
    await article.getByRole('button', { name: 'Send decision' }).click()
  }
  await article.getByText(`${decision.toLowerCase()} sent`).waitFor()
}

const SENT = 'The mail was sent to ada@example.com.'

/** Asks again and again until an answer has the text. */
async function until(read, text) {
  let last
  for (let attempt = 0; attempt < 60; attempt += 1) {
    last = await read()
    if (last.includes(text)) return
    await sleep(100)
  }
  assert.fail(`${last} has no ${text}`)
}

const read = (path, headers = {}) => fetch(GATEWAY_URL + path, { headers }).then(response => response.text())
const text = response => response.then(found => found.text())

/** What the client of each protocol gets afterwards: it polls, or it sends its next message. */
const afterwards = {
  'agent-api': async item => {
    const { data } = JSON.parse(await read(`/agents/demo/runs?session_id=${item.session}`))
    return (await Promise.all(data.map(run => read(`/agents/demo/runs/${run.id.replace('response_', '')}`)))).join()
  },
  a2a: item => read(`/a2a/demo/tasks/${/"task":\{"id":"([^"]+)"/.exec(item.answer)[1]}`, { 'A2A-Version': '1.0' }),
  hitl: item => read(`/hitl/demo/agent/status/${item.user}/${item.session}`),
  responses: item => text(post('/v1/responses', {
    model: 'demo', input: 'history', previous_response_id: /"id":"(resp_[^"]+)"/.exec(item.answer)[1],
  })),
  'chat-completions': item => text(post('/v1/chat/completions', {
    model: 'demo', messages: [{ role: 'user', content: 'history' }],
  }, { 'x-session-id': item.session })),
  'anthropic-messages': item => text(post('/anthropic/v1/messages', { model: 'demo', max_tokens: 1024, messages: resent(item.answer) }))
    .then(answer => (answer.includes('This is message 2') ? answer : `no ${answer.replaceAll('message', '')}`)),
  'ag-kit': item => text(clients['ag-kit']('history', item.session)),
  'ag-ui': item => text(clients['ag-ui']('history', item.session)),
}
/** What a client of Messages sends again: the whole conversation. */
function resent(answer) {
  const texts = []
  for (const line of answer.split('\n').filter(one => one.startsWith('data: '))) {
    const { index, delta } = JSON.parse(line.slice(6))
    if (delta?.text) texts[index] = (texts[index] ?? '') + delta.text
  }
  return [
    { role: 'user', content: 'approval' },
    { role: 'assistant', content: texts.map(one => ({ type: 'text', text: one })) },
    { role: 'user', content: 'history' },
  ]
}
const POLLS = ['agent-api', 'a2a', 'hitl']

const EDITED = '{"to":"eve@example.com","subject":"edited"}'
const DECISIONS = {
  accept: [{}, 'sent to ada@example.com'],
  edit: [{ arguments: EDITED }, 'sent to eve@example.com'],
  respond: [{ text: 'by hand' }, 'by hand'],
  reject: [{ text: 'too late' }, 'you rejected it'],
}

/** What the agent said in all runs of a session, as the console knows it. */
async function said(page, session) {
  const { data } = (await api(page, 'GET', `/runs?session=${encodeURIComponent(session)}`)).json
  const runs = await Promise.all(data.map(run => api(page, 'GET', `/runs/${run.id}/export`)))
  return runs.map(run => run.text).join()
}

await check('an item of each protocol is decided: the agent goes on, and its client sees the result', async () => {
  const page = await signedIn()
  await rejectAll(page)
  const others = Object.keys(DECISIONS).slice(1)
  for (const [index, protocol] of Object.keys(afterwards).entries()) {
    for (const decision of ['accept', others[index % others.length]]) {
      const [answer, result] = DECISIONS[decision]
      const item = await asked(page, protocol)
      assert.equal(item.protocol, protocol)
      const body = { items: [{ id: item.id, decision, ...answer }] }
      const decided = await api(page, 'POST', `/runs/${item.run}/decide`, body)
      assert.equal(decided.status, 202, `${protocol}, ${decision}: ${decided.text}`)
      await until(() => said(page, item.session), result)
      // Nothing is open any more, so a next message is answered in the ordinary way.
      await until(() => afterwards[protocol](item), POLLS.includes(protocol) ? result : 'message')
    }
  }
  assert.deepEqual(await pending(page), [])
  await page.context().close()
})

await check('an item is accepted, edited, answered and rejected on its card', async () => {
  const page = await signedIn()
  await rejectAll(page)
  await page.goto(`${CONSOLE_URL}#/pending`)
  await page.getByText('Nothing waits for a decision.').waitFor()
  await page.screenshot({ path: 'pending-empty.png' })
  for (const [protocol, name] of [['agent-api', 'Accept'], ['ag-kit', 'Edit'], ['a2a', 'Respond'], ['hitl', 'Reject']]) {
    const item = await asked(page, protocol)
    const [{ arguments: edited, text: words }, result] = DECISIONS[name.toLowerCase()]
    await card(page, item).waitFor()
    // The number is loaded apart from the cards.
    await page.waitForFunction(() => /^\(\d+\) Pending/.test(document.title))
    if (name === 'Accept') await page.screenshot({ path: 'pending.png' })
    if (name === 'Edit') {
      await card(page, item).getByRole('button', { name }).click()
      await page.screenshot({ path: 'pending-edit.png' })
      await card(page, item).getByRole('button', { name: 'Cancel' }).click()
    }
    await decide(page, item, name, edited ?? words)
    await until(() => said(page, item.session), result)
  }
  await page.getByText('Nothing waits for a decision.').waitFor()
  await page.context().close()
})

await check('a question with a schema is answered', async () => {
  const page = await signedIn()
  await page.goto(`${CONSOLE_URL}#/pending`)
  const item = await asked(page, 'agent-api', 'question')
  await card(page, item).waitFor()
  await page.screenshot({ path: 'pending-question.png' })
  const article = card(page, item)
  await article.getByRole('button', { name: 'Respond' }).click()
  const send = article.getByRole('button', { name: 'Send decision' })
  assert.ok(await send.isDisabled(), 'nothing is chosen yet')
  await article.getByLabel('colour').selectOption('green')
  await send.click()
  await until(() => said(page, item.session), 'green')
  await page.context().close()
})

await check('two tabs decide the same item: one effect, and the other is shown so', async () => {
  const first = await signedIn()
  await first.goto(`${CONSOLE_URL}#/pending`)
  const second = await another(first, `${CONSOLE_URL}#/pending`)
  await heading(second, 'Pending').waitFor()
  const item = await asked(first, 'agent-api')
  const buttons = [first, second].map(page => card(page, item).getByRole('button', { name: 'Accept' }))
  for (const button of buttons) await button.waitFor()
  // Clicks of a script, as those of the mouse bring one tab to the front after the other.
  await Promise.all(buttons.map(button => button.evaluate(one => one.click())))
  await Promise.all([first, second].map(page => card(page, item).getByRole('status').waitFor()))
  const words = await Promise.all([first, second].map(page => card(page, item).getByRole('status').innerText()))
  assert.equal(words.filter(one => one === 'accept sent').length, 1, words.join(' / '))
  await until(() => said(first, item.session), SENT)
  const { data } = (await api(first, 'GET', `/runs?session=${encodeURIComponent(item.session)}`)).json
  const details = await Promise.all(data.map(run => api(first, 'GET', `/runs/${run.id}`)))
  assert.equal(details.reduce((sum, detail) => sum + detail.json.turns.length, 0), 2, 'one turn asks, and one goes on')
  await first.context().close()
})

await check('items of one turn are decided one by one and sent together', async () => {
  const page = await signedIn()
  await rejectAll(page)
  await page.goto(`${CONSOLE_URL}#/pending`)
  await (await clients['agent-api']('approvals', `together-${Date.now()}`)).text()
  const group = page.getByRole('region', { name: '2 items of one turn' })
  await group.waitFor()
  const [ada, bob] = ['ada', 'bob'].map(name => group.getByRole('article').filter({ hasText: `${name}@example.com` }))
  const send = group.getByRole('button', { name: 'Send decision' })
  await ada.getByRole('button', { name: 'Accept' }).click()
  await group.getByText('1 of 2 decided').waitFor()
  assert.ok(await send.isDisabled(), 'the agent takes all answers at once')
  await bob.getByRole('button', { name: 'Reject' }).click()
  await bob.getByLabel('Text').fill('not him')
  await page.screenshot({ path: 'pending-together.png' })
  const [{ session }] = await pending(page)
  await send.click()
  await page.getByText('accept sent').waitFor()
  await page.getByText('reject sent').waitFor()
  await until(() => said(page, session), SENT)
  await until(() => said(page, session), 'not him')
  await page.getByText('Nothing waits for a decision.').waitFor()
  await page.context().close()
})

await check('a refusal that is no decision leaves the item open, and a field that is open is not lost', async () => {
  const page = await signedIn()
  await rejectAll(page)
  await page.goto(`${CONSOLE_URL}#/pending`)
  const [first, second] = [await asked(page, 'agent-api'), await asked(page, 'hitl')]
  await card(page, first).waitFor()
  await card(page, second).getByRole('button', { name: 'Edit' }).click()
  await card(page, second).getByLabel('Arguments').fill(EDITED)
  await page.route('**/decide', route => route.fulfill({
    status: 409, contentType: 'application/json', body: '{"detail":"the session has a run under way","code":"BUSY"}',
  }))
  await card(page, first).getByRole('button', { name: 'Accept' }).click()
  await card(page, first).getByRole('alert').filter({ hasText: 'a run under way' }).waitFor()
  await page.unroute('**/decide')
  await card(page, first).getByRole('button', { name: 'Accept' }).click()
  await card(page, first).getByText('accept sent').waitFor()
  await until(() => said(page, first.session), SENT)
  assert.equal(await card(page, second).getByLabel('Arguments').inputValue(), EDITED)
  await card(page, second).getByRole('button', { name: 'Send decision' }).click()
  await until(() => said(page, second.session), 'sent to eve@example.com')
  await page.context().close()
})
