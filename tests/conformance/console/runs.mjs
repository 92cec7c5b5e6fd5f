// Runs as they happen: the list of runs, and the timeline of one that is open.

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'

import { another, api, clients, connection, CONSOLE_URL, Gateway, heading, open, say, signedIn, violations } from './browser.mjs'
import { check } from './checks.mjs'

/** A run that takes three seconds: the stream of its client, and its page. */
async function slow(words, pause, text) {
  const answer = say(`${text} ${words} ${pause}`).then(response => response.text())
  const page = await signedIn()
  const [run] = (await api(page, 'GET', '/runs?limit=1')).json.data
  await page.goto(`${CONSOLE_URL}#/runs/${run.id}`)
  return { answer, page, run }
}

/** The text of the final response of a stream. */
function finalText(stream) {
  const last = JSON.parse(stream.trim().split('\n\n').at(-1).replace(/^data: /, ''))
  return last.output.flatMap(message => message.content).map(content => content.text ?? '').join('')
}

/** What the agent says on a timeline. */
const said = page => page.locator('[role=log] .card.message pre').allInnerTexts().then(texts => texts.join(''))

await check('a run started over each protocol appears at once, grows and completes on its timeline', async () => {
  const page = await signedIn()
  const late = []
  for (const [protocol, send] of Object.entries(clients)) {
    await page.goto(`${CONSOLE_URL}#/runs`)
    await heading(page, 'Runs').waitFor()
    await page.getByRole('table', { name: 'Runs' }).or(page.getByText('No runs yet.')).waitFor()
    const text = `long 60 10 over ${protocol}`
    const begun = Date.now()
    const answer = send(text).then(response => response.text())
    const row = page.getByRole('row').filter({ hasText: text }).first()
    await row.waitFor()
    const took = Date.now() - begun
    console.log(`          ${protocol}: ${took} ms`)
    // Within a second; this machine may be busy with other tests, so one of the protocols may be late.
    late.push(...(took > 1000 ? [`${protocol}: ${took} ms`] : []))
    assert.ok(took < 3000, `${protocol}: ${took} ms`)
    await row.getByText(protocol, { exact: true }).waitFor()
    await row.getByRole('link').click()
    await heading(page, 'Run').waitFor()
    const log = page.getByRole('log', { name: 'Timeline' })
    await log.getByText(text, { exact: true }).waitFor()
    await answer
    await page.getByRole('status', { name: 'State' }).filter({ hasText: 'completed' }).waitFor()
    assert.ok((await said(page)).split(/\s+/).length >= 60, await said(page))
  }
  assert.ok(late.length <= 1, late.join())
  await page.context().close()
})

await check('a reload in mid-stream loses no word and doubles none', async () => {
  const { answer, page } = await slow(120, 25, 'long')
  await page.locator('.card.message pre').waitFor()
  await page.reload()
  await heading(page, 'Run').waitFor()
  const expected = finalText(await answer)
  await page.getByRole('status', { name: 'State' }).filter({ hasText: 'completed' }).waitFor()
  assert.equal(await said(page), expected)
  await page.context().close()
})

await check('five seconds offline in mid-stream lose no word and double none', async () => {
  const { answer, page } = await slow(160, 40, 'long')
  await page.locator('.card.message pre').waitFor()
  await page.context().setOffline(true)
  await page.getByRole('status', { name: 'Connection' }).filter({ hasText: /offline|reconnecting/ }).waitFor()
  await sleep(5000)
  await page.context().setOffline(false)
  await connection(page, 'live')
  const expected = finalText(await answer)
  await page.getByRole('status', { name: 'State' }).filter({ hasText: 'completed' }).waitFor()
  assert.equal(await said(page), expected)
  await page.context().close()
})

await check('what happened while the page was away is in its list', async () => {
  const page = await signedIn()
  await page.goto(`${CONSOLE_URL}#/runs`)
  await heading(page, 'Runs').waitFor()
  await page.context().setOffline(true)
  await page.getByRole('status', { name: 'Connection' }).filter({ hasText: 'offline' }).waitFor()
  await (await say('while you were away')).text()
  await sleep(4000)
  await page.context().setOffline(false)
  await page.getByRole('row').filter({ hasText: 'while you were away' }).first().waitFor()
  await page.context().close()
})

await check('four tabs follow a live run, and a fifth works', async () => {
  const { answer, page, run } = await slow(140, 45, 'long')
  const tabs = [page]
  for (let index = 0; index < 3; index += 1) tabs.push(await another(page, `${CONSOLE_URL}#/runs/${run.id}`))
  const fifth = await another(page, `${CONSOLE_URL}#/runs`)
  await fifth.getByRole('row').filter({ hasText: 'long 140 45' }).first().waitFor()
  await connection(fifth, 'live')
  const expected = finalText(await answer)
  for (const tab of tabs) {
    await tab.getByRole('status', { name: 'State' }).filter({ hasText: 'completed' }).waitFor()
    assert.equal(await said(tab), expected)
  }
  await page.context().close()
})

await check('a run is canceled from its page, deleted after a question, and other tabs are shown so', async () => {
  const { answer, page, run } = await slow(400, 50, 'long')
  const other = await another(page, `${CONSOLE_URL}#/runs/${run.id}`)
  await heading(other, 'Run').waitFor()
  const list = await another(page, `${CONSOLE_URL}#/runs`)
  await list.getByRole('row').filter({ hasText: 'long 400 50' }).first().waitFor()

  // Tabs in the background are drawn once a second at most.
  await page.bringToFront()
  await page.getByRole('button', { name: 'Cancel run' }).click()
  await page.getByRole('dialog').getByRole('button', { name: 'Cancel run' }).click()
  await page.getByRole('status', { name: 'State' }).filter({ hasText: 'canceled' }).waitFor()
  assert.equal(await page.getByRole('dialog').count(), 0)
  assert.match(await answer, /"status":"canceled"/)

  await page.getByRole('button', { name: 'Delete run' }).click()
  await page.getByRole('dialog').getByRole('button', { name: 'Close' }).click()
  await page.getByRole('dialog').waitFor({ state: 'detached' })
  await page.getByRole('button', { name: 'Delete run' }).click()
  await page.getByRole('dialog').getByRole('button', { name: 'Delete run' }).click()
  await heading(page, 'Runs').waitFor()
  await other.getByText('This run was deleted.').waitFor()
  await other.screenshot({ path: 'run-deleted.png' })
  await list.getByRole('row').filter({ hasText: 'long 400 50' }).waitFor({ state: 'detached' })
  assert.equal((await api(page, 'GET', `/runs/${run.id}`)).status, 404)
  await other.reload()
  await other.getByText('There is no such run.').waitFor()
  await page.context().close()
})

await check('an exported run is opened in another console, from the file alone', async () => {
  const page = await signedIn()
  await (await say('tool')).text()
  const [run] = (await api(page, 'GET', '/runs?limit=1')).json.data
  await page.goto(`${CONSOLE_URL}#/runs/${run.id}`)
  await heading(page, 'Run').waitFor()
  const log = page.getByRole('log', { name: 'Timeline' })
  await log.locator('.card.call').first().waitFor()
  await log.locator('.card.input').waitFor()
  const shown = await log.innerText()
  const download = page.waitForEvent('download')
  await page.getByRole('button', { name: 'Export' }).click()
  const file = 'exported-run.json'
  await (await download).saveAs(file)
  await page.context().close()

  const gateway = await new Gateway('[server]\nlisten = "{{listen}}"\n[store]\nkind = "memory"\n[admin]\nlisten = "{{admin}}"\n[agents.other]\nupstream = { protocol = "demo" }\n').start()
  const other = await open()
  await other.goto(`${gateway.console}#key=${gateway.key}`)
  await connection(other, 'live')
  await other.goto(`${gateway.console}#/runs`)
  await other.getByLabel('Open export').setInputFiles(file)
  await heading(other, 'Run').waitFor()
  assert.equal(await other.getByRole('log', { name: 'Timeline' }).innerText(), shown)
  await other.getByRole('tab', { name: 'Prism' }).click()
  await other.getByRole('region', { name: 'responses' }).getByText('response.completed').first().waitFor()
  assert.deepEqual(await violations(other), [])
  assert.equal(await other.getByRole('button', { name: 'Delete run' }).count(), 0)

  // Dropped on any screen, and what is no export is refused in words.
  await other.goto(`${gateway.console}#/`)
  const drop = text => other.evaluate(text => {
    const data = new DataTransfer()
    data.items.add(new File([text], 'run.json'))
    dispatchEvent(new DragEvent('drop', { dataTransfer: data, bubbles: true, cancelable: true }))
  }, text)
  await drop('{"interlingua": "x", "detail": {"run": {}}}')
  await other.getByRole('alert').getByText('The file is not an exported run').waitFor()
  const exported = JSON.parse(readFileSync(file, 'utf8'))
  const damaged = [
    { ...exported, events: [{ ...exported.events[0], frames: { 'agent-api': 7 } }] },
    { ...exported, events: [{ ...exported.events[0], frames: [] }] },
    ...['run', 'turns', 'protocols', 'session', 'answers', 'deliveries', 'ids'].flatMap(name =>
      [7, 'x', [null], { x: null }].map(wrong => ({ ...exported, detail: { ...exported.detail, [name]: wrong } }))),
    ...['owner', 'state', 'agent', 'created_at'].map(name =>
      ({ ...exported, detail: { ...exported.detail, run: { ...exported.detail.run, [name]: {} } } })),
  ]
  for (const one of damaged) {
    await other.goto(`${gateway.console}#/`)
    await drop(JSON.stringify(one))
    // Refused in words, or shown as far as it can be: the page goes on.
    await other.getByRole('alert').getByText('The file is not an exported run').or(heading(other, 'Run')).or(other.getByText('This cannot be shown.')).first().waitFor()
    await other.goto(`${gateway.console}#/audit`)
    await heading(other, 'Audit').waitFor()
  }
  await drop(readFileSync(file, 'utf8'))
  await other.getByRole('log', { name: 'Timeline' }).waitFor()
  await other.context().close()
  await gateway.remove()
})
