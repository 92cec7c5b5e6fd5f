// What the tests of the console share: the browser, pages that are signed in, calls of clients, accessibility.
// Not here: any test.

import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import path from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'

import { chromium } from 'playwright-core'

import { GATEWAY_URL } from './checks.mjs'

export const LOG = readFileSync('gateway.log', 'utf8')
export const LINK = /Console: (http:\/\/\S+)/.exec(LOG)?.[1] ?? ''
export const [CONSOLE_URL, START_KEY] = LINK.split('#key=')
export const HERE = path.dirname(fileURLToPath(import.meta.url))
export const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
const RULES = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa']
export const SCREENS = { Overview: '', Runs: 'runs', Pending: 'pending', Config: 'config', Audit: 'audit' }

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
  const page = await context.newPage()
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
