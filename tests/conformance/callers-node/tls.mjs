// Client certificates with the official JavaScript client of OpenAI, over HTTP/1.1 and HTTP/2.
//
// The script makes its own certificates with openssl, and starts a gateway of its own that asks for them.

import assert from 'node:assert/strict'
import { execFileSync, spawn } from 'node:child_process'
import { mkdtempSync, openSync, readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { join, resolve } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

import OpenAI from 'openai'
import { Agent, fetch } from 'undici'

import { check, close } from './checks.mjs'

const folder = resolve(mkdtempSync('tls-'))
const file = name => join(folder, name)
const read = name => readFileSync(file(name))

const freePort = () =>
  new Promise(done => {
    const server = createServer().listen(0, '127.0.0.1', () => {
      const { port } = server.address()
      server.close(() => done(port))
    })
  })

/** Makes `NAME.pem` and `NAME.key`, signed by an authority or by itself. */
function certificate(name, extensions, authority) {
  const config = `[req]\nprompt = no\ndistinguished_name = dn\n[dn]\nCN = ${name}\n[own]\n${extensions}\n`
  writeFileSync(file(`${name}.cnf`), config)
  const signed = authority ? ['-CA', file(`${authority}.pem`), '-CAkey', file(`${authority}.key`)] : []
  const key = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-keyout', file(`${name}.key`)]
  const made = ['-config', file(`${name}.cnf`), '-extensions', 'own', '-days', '2', '-out', file(`${name}.pem`)]
  execFileSync('openssl', ['req', '-x509', ...key, ...made, ...signed], { stdio: ['ignore', 'ignore', 'pipe'] })
}

const authority = 'basicConstraints = critical, CA:TRUE'
for (const name of ['servers', 'clients', 'others']) certificate(name, authority)
certificate('server', 'subjectAltName = DNS:localhost, IP:127.0.0.1\nextendedKeyUsage = serverAuth', 'servers')
for (const [name, by] of [['ann', 'clients'], ['bob', 'clients'], ['guest', 'clients'], ['foreign', 'others']]) {
  certificate(name, `subjectAltName = URI:spiffe://example.com/${name}\nextendedKeyUsage = clientAuth`, by)
}

const port = await freePort()
writeFileSync(
  file('gateway.toml'),
  `[server]
listen = "127.0.0.1:${port}"
tls = { cert = "server.pem", key = "server.key", client_ca = "clients.pem" }
[store]
kind = "memory"
[auth]
certificates = { caller = "san_uri" }
[callers."spiffe://example.com/guest"]
agents = []
[agents.demo]
upstream = { protocol = "demo" }
[[routes]]
protocol = "responses"
path = "/v1"
auth = ["certificates"]
`,
)
const log = openSync(file('log'), 'w')
const gateway = spawn(process.env.INTERLINGUA, ['serve', '--config', 'gateway.toml'], {
  cwd: folder,
  stdio: ['ignore', log, log],
})
process.on('exit', () => gateway.kill())

const agent = (name, allowH2) =>
  new Agent({
    allowH2,
    connect: { ca: read('servers.pem'), ...(name && { cert: read(`${name}.pem`), key: read(`${name}.key`) }) },
  })

for (const deadline = Date.now() + 20_000; ; await sleep(50)) {
  try {
    const ready = await fetch(`https://localhost:${port}/readyz`, { dispatcher: agent() })
    if (ready.status === 200) break
  } catch {
    assert.ok(Date.now() < deadline && gateway.exitCode === null, read('log').toString())
  }
}

function client(name, allowH2) {
  const dispatcher = agent(name, allowH2)
  return new OpenAI({
    baseURL: `https://localhost:${port}/v1`,
    apiKey: 'unused',
    // The certificate is the only credential: the key that the client insists on is not sent.
    defaultHeaders: { Authorization: null },
    maxRetries: 0,
    fetch: (url, init) => fetch(url, { ...init, dispatcher }),
  })
}
const ask = (name, allowH2) => client(name, allowH2).responses.create({ model: 'demo', input: 'hello there' })

async function raises(kind, status, run) {
  try {
    await run()
  } catch (error) {
    assert.ok(error instanceof kind, `${error?.constructor?.name}: ${error}`)
    assert.equal(error.status, status)
    assert.ok(error.requestID, 'no request id')
    return error
  }
  assert.fail('nothing was raised')
}

for (const allowH2 of [false, true]) {
  const over = (sentence, run) => check(`openai, ${allowH2 ? 'HTTP/2' : 'HTTP/1.1'}: ${sentence}`, run)

  await over('a certificate is accepted, also for a stream', async () => {
    const one = client('ann', allowH2)
    assert.equal((await one.responses.create({ model: 'demo', input: 'hello there' })).status, 'completed')
    let last
    for await (const event of await one.responses.create({ model: 'demo', input: 'hello', stream: true })) last = event
    assert.equal(last.type, 'response.completed')
  })

  await over('without a certificate it is an AuthenticationError', async () => {
    const error = await raises(OpenAI.AuthenticationError, 401, () => ask(undefined, allowH2))
    assert.equal(error.code, 'invalid_api_key')
    assert.ok(error.headers.get('www-authenticate'))
  })

  await over('a certificate without rights is a PermissionDeniedError', async () => {
    await raises(OpenAI.PermissionDeniedError, 403, () => ask('guest', allowH2))
  })

  await over('what belongs to another is a NotFoundError', async () => {
    const { id } = await ask('ann', allowH2)
    assert.equal((await client('ann', allowH2).responses.retrieve(id)).id, id)
    await raises(OpenAI.NotFoundError, 404, () => client('bob', allowH2).responses.retrieve(id))
  })

  await over('a certificate of another authority gets no connection', async () => {
    await assert.rejects(ask('foreign', allowH2), OpenAI.APIConnectionError)
  })
}

close()
