// The screen Config, and secrets, which no screen and no answer shows.

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'

import { api, connection, Gateway, heading, open, SCREENS } from './browser.mjs'
import { check } from './checks.mjs'

const CANARY = 'canary-6f1d2b9c-never-to-be-seen'
const SECRETS = {
  ADMIN_KEY: `${CANARY}-admin-key-of-at-least-32-characters`, UPSTREAM_KEY: `Bearer ${CANARY}-upstream`,
}
const CONFIG = `[server]
listen = "{{listen}}"
[store]
kind = "memory"
[auth]
keys = "keys.toml"
[callers.ada]
console = "act"
[admin]
listen = "{{admin}}"
key = { env = "ADMIN_KEY" }
[agents.demo]
upstream = { protocol = "demo" }
[agents.friday]
upstream = { protocol = "agent-api", url = "http://127.0.0.1:9/process", headers = { authorization = { env = "UPSTREAM_KEY" } } }
[agents.saturday]
upstream = { protocol = "agent-api", url = "http://127.0.0.1:9/process?key=${CANARY}-in-a-query" }
[[routes]]
protocol = "agent-api"
path = "/agents/{agent}"
auth = "none"
`

const gateway = await new Gateway(CONFIG, SECRETS).start().catch(error => error)

await check('errors of a configuration are listed with their positions, and nothing is applied', async () => {
  assert.ok(gateway instanceof Gateway, gateway.message)
  const page = await open()
  await page.goto(`${gateway.console}#key=${SECRETS.ADMIN_KEY}`)
  await connection(page, 'live')
  await page.goto(`${gateway.console}#/config`)
  await heading(page, 'Config').waitFor()
  const field = page.getByLabel('Configuration')
  const errors = page.getByRole('list', { name: 'Errors' })
  const button = page.getByRole('button', { name: 'Check' })

  const broken = ['[server]', 'listen = "127.0.0.1:8080"', 'nonsense = 1', '[agents.demo]', 'upstream = { protocol = "demmo" }', ''].join('\n')
  await field.fill(broken)
  await button.click()
  await errors.getByText('3:').waitFor()
  await errors.getByText('5:').waitFor()
  await page.screenshot({ path: 'config-errors.png' })

  const before = await field.inputValue()
  assert.ok(before.includes('nonsense'))
  const difference = page.getByRole('region', { name: 'Difference' })
  await difference.getByText('+ nonsense = 1').waitFor()
  await difference.getByText('- [agents.friday]').waitFor()

  await field.fill('[server\nlisten = 1')
  await button.click()
  await errors.getByText('1:').first().waitFor()

  await field.fill('[agents.demo]\nupstream = { protocol = "demo" }\n[[routes]]\nprotocol = "hitl"\npath = "/hitl/{agent}"\nauth = "none"\n')
  await button.click()
  await page.getByText('It would serve 1 route.').waitFor()
  assert.equal(await errors.count(), 0)
  const inForce = (await api(page, 'GET', '/routes')).json.data
  assert.ok(inForce.every(route => route.protocol === 'agent-api'), 'the routes in force are what they were')
  await page.context().close()
})

await check('secrets are on no screen and in no answer', async () => {
  assert.ok(gateway instanceof Gateway, gateway.message)
  const page = await open()
  const seen = []
  page.on('response', response => seen.push(response.text().then(text => [response.url(), text], () => null)))
  await page.goto(`${gateway.console}#key=${SECRETS.ADMIN_KEY}`)
  await connection(page, 'live')
  for (const agent of ['demo', 'friday', 'saturday']) {
    await (await fetch(`${gateway.url}/agents/${agent}/process`, {
      method: 'POST', headers: { 'content-type': 'application/json' }, body: '{"input":[{"role":"user","content":"hello"}]}',
    })).text()
  }
  for (const [name, path] of Object.entries(SCREENS)) {
    await page.goto(`${gateway.console}#/${path}`)
    await heading(page, name).waitFor()
    assert.ok(!(await page.locator('body').innerText()).includes(CANARY), name)
    assert.ok(!(await page.content()).includes(CANARY), name)
  }
  const answers = ['/gateway', '/agents', '/routes', '/runs', '/pending', '/config', '/callers', '/audit', '/session', '/log']
  const { json: { data: runs } } = await api(page, 'GET', '/runs')
  assert.equal(runs.length, 3)
  for (const path of [...answers, ...runs.flatMap(run => [`/runs/${run.id}`, `/runs/${run.id}/export`])]) {
    const { status, text } = await api(page, 'GET', path)
    assert.equal(status, 200, path)
    assert.ok(!text.includes(CANARY), path)
  }
  const { text } = await api(page, 'POST', '/config/check', { text: readFileSync(`${gateway.folder}/gateway.toml`, 'utf8').replaceAll(CANARY, 'x') })
  assert.ok(!text.includes(CANARY))
  assert.ok(!gateway.log.includes(CANARY))
  await page.goto('about:blank')
  for (const answer of (await Promise.all(seen)).filter(Boolean)) assert.ok(!answer[1].includes(CANARY), answer[0])
  await page.context().close()
})

if (gateway instanceof Gateway) await gateway.remove()
