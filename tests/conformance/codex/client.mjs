// Codex over a WebSocket: a session with two calls of its shell uses one connection from the first request to the last.
//
// A proxy between the two counts the connections that Codex opens.

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { mkdirSync, writeFileSync } from 'node:fs'
import { connect, createServer } from 'node:net'
import { dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'

import { check, close, GATEWAY_URL, UPSTREAM_URL } from './checks.mjs'

const codex = join(dirname(fileURLToPath(import.meta.url)), 'node_modules/@openai/codex/bin/codex.js')
const gateway = new URL(GATEWAY_URL)

/** Passes connections on; answers its port, and the first line of everything that was asked. */
async function proxy() {
  const requests = []
  const server = createServer((client) => {
    const upstream = connect(Number(gateway.port), gateway.hostname)
    client.once('data', (chunk) => requests.push(chunk.toString('latin1').split('\r\n')[0]))
    client.pipe(upstream).pipe(client)
    for (const socket of [client, upstream]) socket.on('error', () => [client, upstream].forEach((one) => one.destroy()))
  })
  await new Promise((listening) => server.listen(0, '127.0.0.1', listening))
  return { port: server.address().port, requests, server }
}

/** Runs Codex once, in folders of its own. */
async function run(model, port) {
  const home = resolve(`codex-${model}`)
  const work = join(home, 'work')
  mkdirSync(work, { recursive: true })
  writeFileSync(
    join(home, 'config.toml'),
    `model = "${model}"
model_provider = "gateway"
approval_policy = "never"
sandbox_mode = "danger-full-access"

[model_providers.gateway]
name = "gateway"
base_url = "http://127.0.0.1:${port}/v1"
wire_api = "responses"
supports_websockets = true
request_max_retries = 0
stream_max_retries = 0
`,
  )
  const child = spawn(process.execPath, [codex, 'exec', '--skip-git-repo-check', '-C', work, 'Run the command'], {
    env: { ...process.env, CODEX_HOME: home },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let output = ''
  let log = ''
  child.stdout.on('data', (chunk) => (output += chunk))
  child.stderr.on('data', (chunk) => (log += chunk))
  const code = await new Promise((ended) => child.on('close', ended))
  assert.equal(code, 0, log)
  return { output, log }
}

for (const [model, last] of [
  ['friday', ['function_call_output']],
  ['replay', undefined],
]) {
  await check(`a session with tools keeps its one WebSocket (${model})`, async () => {
    const before = (await (await fetch(`${UPSTREAM_URL}/asked`)).json()).length
    const { port, requests, server } = await proxy()
    const { output, log } = await run(model, port)
    server.close()
    assert.match(output, /result-42/)
    assert.doesNotMatch(log, /Falling back/i)
    const sockets = requests.filter((line) => line.startsWith('GET /v1/responses'))
    assert.equal(sockets.length, 1, requests.join('\n'))
    assert.ok(!requests.some((line) => line.startsWith('POST')), requests.join('\n'))

    const asked = (await (await fetch(`${UPSTREAM_URL}/asked`)).json()).slice(before)
    assert.equal(asked.length, 3)
    assert.equal(new Set(asked.map((one) => one.session)).size, 1, 'one session')
    const calls = asked[2].input.filter((kind) => kind.startsWith('function_call'))
    if (last) assert.deepEqual(asked[2].input, last)
    else assert.deepEqual(calls, Array(2).fill(['function_call', 'function_call_output']).flat())
  })
}

close()
