// What the tests of the console share: the browser, pages that are signed in, calls of clients, accessibility.
// Not here: any test.

import assert from 'node:assert/strict'
import { execFileSync, spawn } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath, pathToFileURL } from 'node:url'

import { chromium } from 'playwright-core'

import { GATEWAY_URL } from './checks.mjs'

export { GATEWAY_URL }

export const LOG = readFileSync('gateway.log', 'utf8')
export const CONSOLE_URL = /Console: (http:\/\/\S+)/.exec(LOG)?.[1] ?? ''
/** The key of a start, from the file that the output of a gateway names. */
const startKeyOf = log => {
  const file = /the admin key of this start is in (\S+)/.exec(log)?.[1]
  return file ? readFileSync(file, 'utf8').trim() : undefined
}
export const START_KEY = startKeyOf(LOG)
/** The link that a gateway prints to a terminal. */
export const LINK = `${CONSOLE_URL}#key=${START_KEY}`
export const HERE = path.dirname(fileURLToPath(import.meta.url))
export const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
const RULES = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa']
export const SCREENS = { Overview: '', Runs: 'runs', Pending: 'pending', Playground: 'playground', Metrics: 'metrics', Config: 'config', Audit: 'audit' }

export const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM,
  headless: true,
  chromiumSandbox: false,
  args: ['--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update',
    '--disable-sync', '--disable-dev-shm-usage'],
  timeout: 90_000,
})

/** What pages complained of, other than refusals that a test asked for. */
export const complaints = []

export async function open(options = {}) {
  const context = await browser.newContext({ viewport: { width: 1360, height: 860 }, colorScheme: 'light', ...options })
  await context.grantPermissions(['clipboard-read', 'clipboard-write'], { origin: new URL(CONSOLE_URL).origin })
  return observed(await context.newPage())
}

/** Another tab beside a page. */
export async function another(page, url) {
  const tab = observed(await page.context().newPage())
  await tab.goto(url)
  return tab
}

function observed(page) {
  page.setDefaultTimeout(15_000)
  page.on('pageerror', error => complaints.push(error.stack))
  page.on('console', message => {
    const isRefusal = message.text().includes('Failed to load resource') || message.text().includes('ERR_')
    if (message.type() === 'error' && !isRefusal) complaints.push(message.text())
  })
  return page
}

export async function signedIn(options) {
  const page = await open(options)
  await page.goto(LINK)
  await page.getByRole('navigation', { name: 'Console' }).waitFor()
  await page.getByRole('status', { name: 'Connection' }).filter({ hasText: 'live' }).waitFor()
  return page
}

export async function post(path, body, headers = {}) {
  const response = await fetch(GATEWAY_URL + path, {
    method: 'POST', headers: { 'content-type': 'application/json', ...headers }, body: JSON.stringify(body),
  })
  return response
}

/** Starts a run over the Agent API; the answer is its stream. */
export const say = text => post('/agents/demo/process', { input: [{ role: 'user', content: text }] })

/** Violations of WCAG 2.2 AA. */
export async function violations(page) {
  const client = await page.context().newCDPSession(page)
  const run = `axe.run(document, { runOnly: ${JSON.stringify(RULES)} })`
  const shown = `.then(found => JSON.stringify(found.violations.map(one => [one.id, one.nodes.map(node => node.html)])))`
  const { result, exceptionDetails } = await client.send('Runtime.evaluate', {
    expression: `${AXE};${run}${shown}`, awaitPromise: true, returnByValue: true,
  })
  assert.equal(exceptionDetails, undefined, JSON.stringify(exceptionDetails))
  return JSON.parse(result.value)
}

export const key = caller => execFileSync(process.env.INTERLINGUA, ['key', 'new', caller]).toString().trim()

export const own = name => import(pathToFileURL(path.join(process.env.CONSOLE, name)))

/** What the admin listener answers to the one who is signed in on a page. */
export const api = (page, method, path, body) => page.evaluate(async ([method, path, body]) => {
  const { bearer } = JSON.parse(sessionStorage.getItem('interlingua.session'))
  const headers = { authorization: `Bearer ${bearer}`, ...(body === undefined ? {} : { 'content-type': 'application/json' }) }
  const response = await fetch(`api${path}`, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) })
  const text = await response.text()
  return { status: response.status, text, json: (() => { try { return JSON.parse(text) } catch { return null } })() }
}, [method, path, body])

export const heading = (page, name) => page.getByRole('heading', { name, level: 1, exact: true })
export const connection = (page, text) => page.getByRole('status', { name: 'Connection' }).filter({ hasText: text }).waitFor()

const A2A = { 'A2A-Version': '1.0' }
const chat = text => ({ model: 'demo', messages: [{ role: 'user', content: text }] })
let count = 0

/** Sends a text over each protocol, as its clients do; `session` is new unless it is given. */
export const clients = {
  'agent-api': (text, session = `n${count += 1}`) =>
    post('/agents/demo/process', { session_id: session, input: [{ role: 'user', content: text }] }),
  responses: text => post('/v1/responses', { model: 'demo', input: text, stream: true }),
  'chat-completions': (text, session = `c${count += 1}`) =>
    post('/v1/chat/completions', { ...chat(text), stream: true }, { 'x-session-id': session }),
  'anthropic-messages': text => post('/anthropic/v1/messages', { ...chat(text), max_tokens: 1024, stream: true }),
  a2a: text => post('/a2a/demo/message:stream', {
    message: { messageId: `m${count += 1}`, role: 'ROLE_USER', parts: [{ text }] },
  }, A2A),
  'ag-kit': (text, session = `k${count += 1}`) =>
    post('/ag-kit/demo/send-message', { conversationId: session, messages: [{ role: 'user', content: text }] }),
  'ag-ui': (text, session = `t${count += 1}`) => post('/ag-ui/demo', {
    threadId: session, runId: `r${count += 1}`, protocolVersion: '1.0', messages: [{ id: `m${count}`, role: 'user', content: text }],
  }),
  hitl: (text, session = `h${count += 1}`) => post('/hitl/demo/agent/invoke', { user_id: session, query: text }),
}

/** A gateway of its own, in a folder of its own, that a test may end and begin again. */
export class Gateway {
  constructor(config, env = {}) {
    this.folder = mkdtempSync(path.join(tmpdir(), 'console-'))
    this.env = env
    this.config = config
    this.ports = [0, 0]
  }

  async start() {
    const config = this.config.replace('{{listen}}', `127.0.0.1:${this.ports[0]}`)
    writeFileSync(path.join(this.folder, 'gateway.toml'), config.replace('{{admin}}', `127.0.0.1:${this.ports[1]}`))
    this.log = ''
    this.process = spawn(process.env.INTERLINGUA, ['--config', 'gateway.toml'], {
      cwd: this.folder, env: { ...process.env, XDG_RUNTIME_DIR: this.folder, ...this.env }, stdio: ['ignore', 'pipe', 'pipe'],
    })
    for (const stream of [this.process.stdout, this.process.stderr]) stream.on('data', data => { this.log += data })
    for (let attempt = 0; attempt < 150; attempt += 1) {
      const url = /listening on (http:\/\/\S+)/.exec(this.log)?.[1]
      const admin = /operators find metrics and state at (\S+):(\d+)/.exec(this.log)
      // The key is printed between them.
      if (url && admin) {
        this.url = url
        this.console = `http://127.0.0.1:${admin[2]}/`
        this.key = startKeyOf(this.log)
        this.ports = [Number(new URL(url).port), Number(admin[2])]
        return this
      }
      await sleep(100)
    }
    throw new Error(this.log)
  }

  /** Ends it as a crash does. */
  async kill() {
    const ended = new Promise(resolve => { this.process.once('exit', resolve) })
    this.process.kill('SIGKILL')
    await ended
  }

  async remove() {
    if (this.process.exitCode === null && this.process.signalCode === null) await this.kill()
    rmSync(this.folder, { recursive: true, force: true })
  }

  keyOf(caller) {
    return execFileSync(process.env.INTERLINGUA, ['key', 'new', caller], { cwd: this.folder }).toString().trim()
  }
}

/** Signs in by the form of a page that shows it. A new key is known within a second. */
export async function enter(page, key) {
  const button = page.getByRole('button', { name: 'Sign in' })
  await page.getByLabel('Access key').fill(key)
  for (let attempt = 0; attempt < 5; attempt += 1) {
    await button.click()
    if (await page.getByRole('navigation', { name: 'Console' }).waitFor({ timeout: 1500 }).then(() => true, () => false)) return
  }
  throw new Error('the key does not sign in')
}
