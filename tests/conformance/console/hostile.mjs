// Texts from strangers stay texts, in every field.

import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'

import { api, clients, CONSOLE_URL, heading, post, SCREENS, signedIn } from './browser.mjs'
import { check } from './checks.mjs'

const HOSTILE = '<img src=x onerror=alert(1)><script>alert(2)</script><svg/onload=alert(3)> javascript:alert(4) \u202egnp.exe ${7*7} {{7*7}}'
const ENDLESS = 'w'.repeat(1 << 20)

/** A page on which nothing may run, and nothing may become an element or a link. */
async function guarded(options) {
  const page = await signedIn(options)
  page.on('dialog', dialog => {
    ran.push(dialog.message())
    dialog.dismiss()
  })
  return page
}

const ran = []

async function harmless(page, where) {
  assert.deepEqual(ran, [], where)
  assert.equal(await page.locator('img:not(.picture-of[src^="blob:"]), iframe, object, embed, #app script, [onload], [onerror], a[href^="javascript" i]').count(), 0, where)
}

/** Opens every view of a run. */
async function look(page, id, width, tabs = ['timeline', 'prism', 'details']) {
  for (const tab of tabs) {
    await page.goto(`${CONSOLE_URL}#/runs/${id}?tab=${tab}`)
    await page.getByRole('tabpanel').waitFor()
    await page.locator(tab === 'prism' ? '.frames pre' : '[role=tabpanel] *').first().waitFor()
    await sleep(60)
    await harmless(page, `${id}, ${tab}`)
    const wide = await page.evaluate(() => document.documentElement.scrollWidth)
    assert.ok(wide <= width, `${tab} is ${wide} pixels wide`)
  }
}

const data = content => ({ role: 'user', content: [{ type: 'data', data: content }] })

await check('hostile texts, tools, arguments, files, owners and sessions are texts on every screen', async () => {
  const page = await guarded()
  const runs = new Set()
  const send = async answer => {
    await (await answer).text()
    for (const run of (await api(page, 'GET', '/runs?limit=3')).json.data) runs.add(run.id)
  }
  for (const client of Object.values(clients)) await send(client(HOSTILE))
  // As ids of sessions and users, as far as protocols let them be so.
  await send(clients['agent-api'](HOSTILE, HOSTILE))
  await send(clients['ag-ui'](HOSTILE, HOSTILE))
  await send(clients['ag-kit'](HOSTILE, HOSTILE))
  await send(clients.hitl(HOSTILE, HOSTILE))
  await send(post('/agents/demo/process', { user_id: HOSTILE, session_id: 'hostile', input: [{ role: 'user', content: HOSTILE }] }))
  // As the name, the arguments and the output of a tool, as a file, as data, as a failure.
  await send(post('/v1/chat/completions', {
    model: 'demo', messages: [{ role: 'user', content: 'client tool' }],
    tools: [{ type: 'function', function: { name: HOSTILE, parameters: { type: 'object', properties: { [HOSTILE]: { enum: [HOSTILE] } } } } }],
  }))
  await send(post('/agents/demo/process', { input: [data({ [HOSTILE]: HOSTILE })] }))
  await send(post('/agents/demo/process', {
    input: [
      { role: 'user', content: [{ type: 'image', image_url: 'javascript:alert(5)' }, { type: 'file', file_url: 'JaVaScRiPt:alert(6)', filename: HOSTILE }] },
      { type: 'function_call', role: 'assistant', content: [{ type: 'data', data: { call_id: HOSTILE, name: HOSTILE, arguments: HOSTILE } }] },
      { type: 'function_call_output', role: 'tool', content: [{ type: 'data', data: { call_id: HOSTILE, name: HOSTILE, output: HOSTILE } }] },
      { role: 'user', content: HOSTILE },
    ],
  }))
  await send(clients['agent-api'](`fail ${HOSTILE}`))
  await send(clients['agent-api'](`image file ${HOSTILE}`))
  await send(clients['agent-api'](`client tool ${HOSTILE}`))

  assert.ok(runs.size > 12, `${runs.size} runs`)
  let count = 0
  for (const run of runs) await look(page, run, 1360, [['timeline', 'prism'], ['timeline'], ['timeline', 'details']][(count += 1) % 3])
  for (const [name, path] of Object.entries(SCREENS)) {
    await page.goto(`${CONSOLE_URL}#/${path}`)
    await heading(page, name).waitFor()
    await sleep(100)
    await harmless(page, name)
  }
  await page.goto(`${CONSOLE_URL}#/runs`)
  const row = page.getByRole('row').filter({ hasText: '<img src=x' }).first()
  await row.waitFor()
  await page.screenshot({ path: 'hostile.png' })
  await row.getByRole('link').click()
  await page.getByRole('log', { name: 'Timeline' }).getByText('<script>alert(2)</script>').first().waitFor()
  await page.context().close()
})

await check('addresses of the page that no one but a stranger writes do nothing', async () => {
  const page = await guarded()
  for (const hash of [`runs/${encodeURIComponent(HOSTILE)}`, `runs?text=${encodeURIComponent(HOSTILE)}`, 'runs?state=<b>&agent=%',
    'runs/%E0%A4%A', '<img src=x onerror=alert(1)>', '__proto__', 'constructor', 'runs/x?tab=__proto__', 'runs/x?tab=constructor']) {
    await page.goto(`${CONSOLE_URL}#/${hash}`)
    await page.getByRole('navigation', { name: 'Console' }).waitFor()
    await sleep(150)
    assert.ok((await page.locator('main').innerText()).length > 0, hash)
    await harmless(page, hash)
  }
  await page.context().close()
})

await check('a text of 1 MiB without a space is shown in part, and no screen becomes wide or slow', async () => {
  const page = await guarded({ viewport: { width: 360, height: 720 } })
  await (await clients['agent-api'](ENDLESS)).text()
  const [run] = (await api(page, 'GET', '/runs?limit=1')).json.data
  const begun = Date.now()
  await look(page, run.id, 360)
  assert.ok(Date.now() - begun < 15_000, `${Date.now() - begun} ms`)
  await page.goto(`${CONSOLE_URL}#/runs`)
  await page.getByRole('row').filter({ hasText: 'wwww' }).first().waitFor()
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth) <= 360)
  await page.context().close()
})
