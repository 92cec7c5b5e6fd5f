// The conformance kit of MCP against the agents of `agent.mjs`, with both of its sets of requirements.
//
// Each scenario is a check: it passes, or fails as the baseline `expected-REVISION.yml` says. The kit judges only scenarios
// that it scores; here the others count too. The kit needs a newer Node than the other suites, which its package brings.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { readFileSync, readdirSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

import { GATEWAY_URL, check, close } from './checks.mjs'

const FOLDER = dirname(fileURLToPath(import.meta.url))
const NODE = join(FOLDER, 'node_modules/node/bin/node')
const KIT = join(FOLDER, 'node_modules/@modelcontextprotocol/conformance/dist/index.js')

/** The entries of a baseline: scenarios as a whole, and single checks of scenarios. */
function baseline(file) {
  const lines = readFileSync(file, 'utf8').split('\n').map(line => line.trim())
  const entries = lines.filter(line => line.startsWith('- ')).map(line => line.slice(2))
  const checks = entries.filter(entry => entry.includes(':')).map(entry => entry.split(':'))
  return { scenarios: new Set(entries.filter(entry => !entry.includes(':'))), checks }
}

/** The checks of each scenario, which the kit writes into a folder for each. */
function results(folder) {
  const found = new Map()
  for (const name of readdirSync(folder)) {
    const scenario = /^server-(.*)-\d{4}-\d\d-\d\dT.*$/.exec(name)[1]
    found.set(scenario, JSON.parse(readFileSync(join(folder, name, 'checks.json'), 'utf8')))
  }
  return found
}

const hasFailed = ({ status }) => status === 'FAILURE' || status === 'WARNING'
const described = ({ id, status, errorMessage }) => `${status} ${id}: ${errorMessage ?? ''}`

for (const revision of ['2025-11-25', '2026-07-28']) {
  const expected = join(FOLDER, `expected-${revision}.yml`)
  const folder = `results-${revision}`
  const options = ['--url', `${GATEWAY_URL}/mcp`, '--requirements', revision, '--expected-failures', expected, '-o', folder]
  const run = spawnSync(NODE, [KIT, 'server', ...options], { encoding: 'utf8', timeout: 300_000, maxBuffer: 1 << 28 })

  await check(`${revision}: the kit itself agrees with the baseline`, () =>
    assert.equal(run.status, 0, `${run.stdout.slice(-4000)}\n${run.stderr.slice(-2000)}`))

  const found = results(folder)
  const { scenarios, checks } = baseline(expected)
  await check(`${revision}: every entry of the baseline is a scenario`, () => {
    for (const scenario of [...scenarios, ...checks.map(([name]) => name)]) assert.ok(found.has(scenario), scenario)
    assert.ok(found.size > 30, `${found.size} scenarios`)
  })

  for (const [scenario, outcomes] of found) {
    const failed = outcomes.filter(hasFailed)
    if (scenarios.has(scenario)) {
      await check(`${revision}: ${scenario} fails, as the baseline says`, () => assert.ok(failed.length > 0, 'it passes'))
      continue
    }
    await check(`${revision}: ${scenario}`, () => {
      const excused = new Set(checks.filter(([name]) => name === scenario).map(([, id]) => id))
      assert.deepEqual(failed.filter(({ id }) => !excused.has(id)).map(described), [])
      for (const id of excused) assert.ok(failed.some(it => it.id === id), `${id} of the baseline passes`)
    })
  }
}

close()
