// The console in a real browser, with the demo agent behind a real gateway: signing in, every screen, live runs, open
// items, the same run on the wire of every protocol. An error of the page or a violation of its policy fails.
//
// Screenshots are left beside this script.

import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { readFileSync, readdirSync } from 'node:fs'
import { createRequire } from 'node:module'
import path from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { setTimeout as sleep } from 'node:timers/promises'

import { chromium } from 'playwright-core'

import { GATEWAY_URL, check, close } from './checks.mjs'

const LOG = readFileSync('gateway.log', 'utf8')
const LINK = /Console: (http:\/\/\S+)/.exec(LOG)?.[1] ?? ''
const [CONSOLE_URL, START_KEY] = LINK.split('#key=')
const HERE = path.dirname(fileURLToPath(import.meta.url))
const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
const RULES = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa']
const SCREENS = { Overview: '', Runs: 'runs', Pending: 'pending', Config: 'config', Audit: 'audit' }

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM,
  headless: true,
  chromiumSandbox: false,
  args: ['--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update',
    '--disable-sync', '--disable-dev-shm-usage'],
  timeout: 90_000,
})

/** What pages complained of, other than refusals that a test asked for. */
const complaints = []

async function open(options = {}) {
  const context = await browser.newContext({ viewport: { width: 1360, height: 860 }, colorScheme: 'light', ...options })
  await context.grantPermissions(['clipboard-read', 'clipboard-write'], { origin: new URL(CONSOLE_URL).origin })
  const page = await context.newPage()
  page.setDefaultTimeout(15_000)
  page.on('pageerror', error => complaints.push(error.stack))
  page.on('console', message => {
    const isRefusal = message.text().includes('Failed to load resource') || message.text().includes('ERR_')
    if (message.type() === 'error' && !isRefusal) complaints.push(message.text())
  })
  return page
}

async function signedIn(options) {
  const page = await open(options)
  await page.goto(LINK)
  await page.getByRole('navigation', { name: 'Console' }).waitFor()
  await page.getByRole('status', { name: 'Connection' }).filter({ hasText: 'live' }).waitFor()
  return page
}

async function post(path, body, headers = {}) {
  const response = await fetch(GATEWAY_URL + path, {
    method: 'POST', headers: { 'content-type': 'application/json', ...headers }, body: JSON.stringify(body),
  })
  return response
}

const say = text => post('/agents/demo/process', { input: [{ role: 'user', content: text }] })

/** Violations of WCAG 2.2 AA. */
async function violations(page) {
  const client = await page.context().newCDPSession(page)
  const run = `axe.run(document, { runOnly: ${JSON.stringify(RULES)} })`
  const shown = `.then(found => JSON.stringify(found.violations.map(one => [one.id, one.nodes.map(node => node.html)])))`
  const { result, exceptionDetails } = await client.send('Runtime.evaluate', {
    expression: `${AXE};${run}${shown}`, awaitPromise: true, returnByValue: true,
  })
  assert.equal(exceptionDetails, undefined, JSON.stringify(exceptionDetails))
  return JSON.parse(result.value)
}

const key = caller => execFileSync(process.env.INTERLINGUA, ['key', 'new', caller]).toString().trim()

const own = name => import(pathToFileURL(path.join(process.env.CONSOLE, name)))

await check('vendored files are those that were published', async () => {
  const published = { 'lit-html': 'lit-html', 'signals-core': '@preact/signals-core' }
  for (const [folder, name] of Object.entries(published)) {
    const root = path.join(process.env.CONSOLE, 'vendor', folder)
    const files = readdirSync(root, { recursive: true, withFileTypes: true }).filter(entry => entry.isFile())
    assert.ok(files.length >= 2, folder)
    for (const file of files) {
      const at = path.relative(root, path.join(file.parentPath ?? file.path, file.name))
      const inPackage = ['', 'dist'].map(part => path.join(HERE, 'node_modules', name, part, at))
      const bytes = inPackage.map(one => { try { return readFileSync(one) } catch { return null } }).find(Boolean)
      assert.ok(bytes && bytes.equals(readFileSync(path.join(root, at))), `${folder}/${at}`)
    }
  }
})

await check('an event stream is read the same however it is cut', async () => {
  const { EventStreamParser } = await own('sse.js')
  const text = ': hi\n\nevent: a\nid: 7\ndata: one\ndata: two\r\n\nretry: 5\n\ndata:x\n\n'
  const whole = new EventStreamParser().push(text)
  assert.deepEqual(whole, [{ event: 'a', id: '7', data: 'one\ntwo' }, { event: 'message', id: '', data: 'x' }])
  for (let cut = 0; cut <= text.length; cut += 1) {
    const parser = new EventStreamParser()
    assert.deepEqual([...parser.push(text.slice(0, cut)), ...parser.push(text.slice(cut))], whole, `cut at ${cut}`)
  }
})

await check('what the page folds is what the final response says', async () => {
  const [{ empty, fold, textOf }, { jsonOf }] = await Promise.all([own('fold.js'), own('sse.js')])
  for (const script of ['hello', 'reasoning', 'tool', 'approval', 'overlap', 'image', 'fail', 'interleaved']) {
    const frames = jsonOf(await (await say(script)).text())
    const run = empty()
    frames.forEach((frame, index) => fold(run, frame, index))
    const last = frames.at(-1)
    assert.equal(run.status, last.status, script)
    const said = messages => messages.filter(one => one.type !== 'heartbeat').map(one => [one.id, one.type, one.status])
    assert.deepEqual(said(run.messages), said(last.output ?? []), script)
    for (const [index, message] of (last.output ?? []).entries()) {
      const text = (message.content ?? []).map(content => content.text ?? content.refusal ?? '').join('')
      assert.equal(textOf(run.messages[index]), text, `${script}: message ${index}`)
    }
  }
})

await check('the gateway prints a link that signs in, and the key leaves the address', async () => {
  assert.ok(START_KEY, LOG)
  const page = await signedIn()
  assert.equal(new URL(page.url()).hash, '#/')
  await page.reload()
  await page.getByRole('heading', { name: 'Overview', level: 1 }).waitFor()
  await page.getByRole('button', { name: 'Sign out' }).click()
  await page.getByRole('heading', { name: 'Sign in' }).waitFor()
  await page.context().close()
})

await check('a wrong key is refused in words, the right one signs in', async () => {
  const page = await open()
  await page.goto(CONSOLE_URL)
  await page.getByLabel('Access key').fill('il_wrong')
  await page.getByRole('button', { name: 'Sign in' }).click()
  await page.getByRole('alert').filter({ hasText: 'cannot be used' }).waitFor()
  await page.getByLabel('Access key').fill(START_KEY)
  await page.getByRole('button', { name: 'Sign in' }).click()
  await page.getByRole('heading', { name: 'Overview', level: 1 }).waitFor()
  await page.context().close()
})

await check('a run started over a protocol appears within a second, and its text on its timeline', async () => {
  const page = await signedIn()
  await page.goto(`${CONSOLE_URL}#/runs`)
  await page.getByRole('heading', { name: 'Runs', level: 1 }).waitFor()
  const begun = Date.now()
  const answer = say('what is on the wire?')
  const row = page.getByRole('row').filter({ hasText: 'what is on the wire?' }).first()
  await row.waitFor()
  const took = Date.now() - begun
  assert.ok(took < 3000, `${took} ms`)
  await (await answer).text()
  await row.getByRole('link').click()
  await page.getByRole('heading', { name: 'Run', level: 1 }).waitFor()
  await page.getByRole('log', { name: 'Timeline' }).getByText('what is on the wire?', { exact: true }).waitFor()
  await page.getByRole('status', { name: 'State' }).filter({ hasText: 'completed' }).waitFor()
  await page.context().close()
})

await check('the prism shows the frames that a client gets', async () => {
  const frames = (await (await say('reasoning')).text()).split('\n\n').filter(Boolean)
  const page = await signedIn()
  const id = /"id":"response_([^"]+)"/.exec(frames[0])[1]
  await page.goto(`${CONSOLE_URL}#/runs/${id}?tab=prism`)
  const pane = page.getByRole('region', { name: 'agent-api' })
  await pane.waitFor()
  await pane.getByText(new RegExp(`^${frames.length} of \\d+ events$`)).waitFor()
  await pane.getByRole('button', { name: 'Copy frames' }).click()
  await page.getByRole('status').filter({ hasText: 'copied' }).waitFor()
  const copied = await page.evaluate(() => navigator.clipboard.readText())
  assert.equal(copied, frames.map(frame => `${frame}\n\n`).join(''))
  for (const name of ['responses', 'chat-completions', 'anthropic-messages', 'a2a', 'ag-kit', 'ag-ui', 'hitl']) {
    await page.getByRole('region', { name, exact: true }).waitFor()
  }
  await page.getByRole('slider', { name: 'Event' }).focus()
  await page.keyboard.press('Home')
  await page.getByText('event 0').waitFor()
  await page.screenshot({ path: 'prism.png' })
  await page.context().close()
})

await check('an item that is asked over the Agent API is accepted, and the agent goes on', async () => {
  await (await say('approval')).text()
  const page = await signedIn()
  await page.goto(`${CONSOLE_URL}#/pending`)
  const items = page.getByRole('article', { name: 'send_mail' })
  await items.first().waitFor()
  await page.screenshot({ path: 'pending.png' })
  assert.match(await page.title(), /^\(\d+\) Pending/)
  for (let open = await items.count(); open > 0; open -= 1) {
    const item = items.filter({ has: page.getByRole('button', { name: 'Accept' }) }).first()
    await item.getByRole('button', { name: 'Accept' }).click()
    await page.getByText('accept sent').first().waitFor()
  }
  await page.getByText('Nothing waits for a decision.').waitFor()
  await page.goto(`${CONSOLE_URL}#/runs`)
  await page.getByRole('row').filter({ hasText: 'completed' }).first().waitFor()
  await page.context().close()
})

await check('a role that may view sees, and changes nothing', async () => {
  await (await say('approval')).text()
  const page = await open()
  await page.goto(CONSOLE_URL)
  await page.getByLabel('Access key').fill(key('vera'))
  for (let attempt = 0; attempt < 5; attempt += 1) {
    await page.getByRole('button', { name: 'Sign in' }).click()
    const seen = page.getByRole('heading', { name: 'Overview', level: 1 })
    if (await seen.waitFor({ timeout: 1500 }).then(() => true, () => false)) break
  }
  await page.goto(`${CONSOLE_URL}#/pending`)
  const item = page.getByRole('article', { name: 'send_mail' }).first()
  await item.waitFor()
  assert.equal(await item.getByRole('button').count(), 0)
  const run = /#\/runs\/(\S+)/.exec(await item.getByRole('link', { name: 'Open run' }).getAttribute('href'))[1]
  const status = await page.evaluate(async run => {
    const { bearer } = JSON.parse(sessionStorage.getItem('interlingua.session'))
    const body = JSON.stringify({ items: [{ id: 'x', decision: 'accept' }] })
    const headers = { authorization: `Bearer ${bearer}`, 'content-type': 'application/json' }
    return (await fetch(`api/runs/${run}/decide`, { method: 'POST', headers, body })).status
  }, run)
  assert.equal(status, 403)
  await page.context().close()
})

for (const colorScheme of ['light', 'dark']) {
  await check(`every screen is accessible, and has its heading (${colorScheme})`, async () => {
    const page = await signedIn({ colorScheme })
    for (const [name, path] of Object.entries(SCREENS)) {
      await page.goto(`${CONSOLE_URL}#/${path}`)
      await page.getByRole('heading', { name, level: 1 }).waitFor()
      await sleep(400)
      assert.deepEqual(await violations(page), [], name)
      await page.screenshot({ path: `${name.toLowerCase()}-${colorScheme}.png` })
    }
    const [run] = (await (await page.evaluateHandle(async () => {
      const { bearer } = JSON.parse(sessionStorage.getItem('interlingua.session'))
      const found = await fetch('api/runs?limit=1', { headers: { authorization: `Bearer ${bearer}` } })
      return (await found.json()).data
    })).jsonValue())
    for (const tab of ['timeline', 'prism', 'details']) {
      await page.goto(`${CONSOLE_URL}#/runs/${run.id}?tab=${tab}`)
      await page.getByRole('tabpanel').waitFor()
      await sleep(600)
      assert.deepEqual(await violations(page), [], tab)
      await page.screenshot({ path: `run-${tab}-${colorScheme}.png` })
    }
    await page.context().close()
  })
}

await check('a phone shows every screen without scrolling sideways', async () => {
  const page = await signedIn({ viewport: { width: 360, height: 720 } })
  for (const [name, path] of Object.entries(SCREENS)) {
    await page.goto(`${CONSOLE_URL}#/${path}`)
    await page.getByRole('heading', { name, level: 1 }).waitFor()
    await sleep(300)
    const wide = await page.evaluate(() => document.documentElement.scrollWidth)
    assert.ok(wide <= 360, `${name} is ${wide} pixels wide`)
    await page.screenshot({ path: `${name.toLowerCase()}-phone.png` })
  }
  await page.context().close()
})

await check('hostile texts are texts', async () => {
  const hostile = '<img src=x onerror=alert(1)><script>alert(2)</script> javascript:alert(3) \u202egnp.exe'
  await (await say(hostile)).text()
  const page = await signedIn()
  let dialogs = 0
  page.on('dialog', dialog => {
    dialogs += 1
    dialog.dismiss()
  })
  await page.goto(`${CONSOLE_URL}#/runs`)
  const row = page.getByRole('row').filter({ hasText: '<img src=x' }).first()
  await row.waitFor()
  await row.getByRole('link').click()
  await page.getByRole('log', { name: 'Timeline' }).getByText('<script>alert(2)</script>').first().waitFor()
  assert.equal(dialogs, 0)
  assert.equal(await page.locator('img').count(), 0)
  await page.context().close()
})

await check('no page complained', async () => assert.deepEqual(complaints, []))

await browser.close()
close()
