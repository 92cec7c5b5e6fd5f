// Keys and tokens with the official JavaScript clients of OpenAI and A2A: what they send, and what they throw.
//
// Keys are made with the program itself while the gateway runs; tokens come from `issuer.mjs`.

import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'

import { Role, TaskState } from '@a2a-js/sdk'
import {
  ClientFactory,
  ClientFactoryOptions,
  createAuthenticatingFetchWithRetry,
  JsonRpcTransportFactory,
  RestTransportFactory,
} from '@a2a-js/sdk/client'
import { TaskNotFoundError } from '@a2a-js/sdk/errors'
import OpenAI from 'openai'

import { GATEWAY_URL, UPSTREAM_URL, check, close } from './checks.mjs'

const interlingua = (...more) =>
  execFileSync(process.env.INTERLINGUA, ['key', ...more, '--config', 'gateway.toml'], { encoding: 'utf8' }).trim()
const token = async claims => (await fetch(`${UPSTREAM_URL}/token?${new URLSearchParams(claims)}`)).text()
const client = apiKey => new OpenAI({ baseURL: `${GATEWAY_URL}/v1`, apiKey, maxRetries: 0 })
const ask = (apiKey, model = 'demo') => client(apiKey).responses.create({ model, input: 'hello there' })

/** Runs until the answer is another than `kind`: the gateway looks at its keys every second. */
async function until(kind, run) {
  for (const deadline = Date.now() + 5000; Date.now() < deadline; await sleep(100)) {
    try {
      return await run()
    } catch (error) {
      if (!(error instanceof kind)) throw error
    }
  }
  assert.fail(`it is still ${kind.name}`)
}

async function newKey(caller) {
  const key = interlingua('new', caller)
  await until(OpenAI.AuthenticationError, () => client(key).models.list())
  return key
}

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

const [ann, bob, guest] = [await newKey('ann'), await newKey('bob'), await newKey('guest')]

await check('openai: a key and a token are accepted', async () => {
  assert.equal((await ask(ann)).status, 'completed')
  assert.equal((await ask(await token({ sub: 'ann' }))).status, 'completed')
})

await check('openai: without valid credentials it is an AuthenticationError', async () => {
  const wrong = ['none', `${ann.slice(0, -8)}00000000`, await token({ seconds: -100 }), await token({ aud: 'others' })]
  for (const apiKey of wrong) {
    const error = await raises(OpenAI.AuthenticationError, 401, () => ask(apiKey))
    assert.equal(error.code, 'invalid_api_key')
    assert.match(error.headers.get('www-authenticate'), /^Bearer/)
  }
})

await check('openai: an agent of others is a PermissionDeniedError, and is not listed', async () => {
  await raises(OpenAI.PermissionDeniedError, 403, () => ask(guest))
  assert.deepEqual((await client(guest).models.list()).data.map(model => model.id), ['other'])
})

await check('openai: what belongs to another is a NotFoundError', async () => {
  const { id } = await ask(ann)
  assert.equal((await client(ann).responses.retrieve(id)).id, id)
  for (const other of [bob, await token({ sub: 'ann' })]) {
    await raises(OpenAI.NotFoundError, 404, () => client(other).responses.retrieve(id))
  }
})

await check('openai: too many requests are a RateLimitError that says when to come again', async () => {
  const key = interlingua('new', 'slow')
  await until(OpenAI.AuthenticationError, () => client(key).models.list())
  const { headers } = await raises(OpenAI.RateLimitError, 429, () => client(key).models.list())
  assert.ok(Number(headers.get('retry-after')) > 0)
  assert.equal(headers.get('x-ratelimit-remaining-requests'), '0')
})

const AGENT = `${GATEWAY_URL}/agents/demo/`

/** An A2A client that sends these headers. */
function agent(binding, headers) {
  const handler = { headers: async () => headers, shouldRetryWithHeaders: async () => undefined }
  const fetchImpl = createAuthenticatingFetchWithRetry(fetch, handler)
  const options = ClientFactoryOptions.createFrom(ClientFactoryOptions.default, {
    preferredTransports: [binding],
    transports: [new JsonRpcTransportFactory({ fetchImpl }), new RestTransportFactory({ fetchImpl })],
  })
  return new ClientFactory(options).createFromUrl(AGENT)
}

function hello() {
  const part = { content: { $case: 'text', value: 'hello' }, metadata: undefined, filename: '', mediaType: '' }
  const message = {
    messageId: randomUUID(),
    role: Role.ROLE_USER,
    parts: [part],
    contextId: '',
    taskId: '',
    metadata: undefined,
    extensions: [],
    referenceTaskIds: [],
  }
  return { tenant: '', message, configuration: undefined, metadata: undefined }
}

for (const binding of ['JSONRPC', 'HTTP+JSON']) {
  const on = (sentence, run) => check(`a2a, ${binding}: ${sentence}`, run)
  const bearer = text => ({ authorization: `Bearer ${text}` })

  await on('keys and tokens are accepted', async () => {
    for (const headers of [{ 'x-api-key': ann }, bearer(ann), bearer(await token({ sub: 'ann' }))]) {
      const task = await (await agent(binding, headers)).sendMessage(hello())
      assert.equal(task.status.state, TaskState.TASK_STATE_COMPLETED)
    }
  })

  await on('no, wrong and expired credentials, and a foreign agent, are errors', async () => {
    for (const headers of [{}, { 'x-api-key': 'none' }, bearer(await token({ seconds: -100 }))]) {
      await assert.rejects((await agent(binding, headers)).sendMessage(hello()), /Unauthenticated/)
    }
    await assert.rejects((await agent(binding, { 'x-api-key': guest })).sendMessage(hello()), /Permission denied/)
  })

  await on('too many requests are an error', async () => {
    // One request a minute. The gateway looks at its keys every second.
    const slow = await agent(binding, { 'x-api-key': interlingua('new', 'slow') })
    let refused
    for (const deadline = Date.now() + 10_000; !refused && Date.now() < deadline; await sleep(100)) {
      await slow.sendMessage(hello()).catch(error => {
        if (!/Unauthenticated/.test(error)) refused = error
      })
    }
    assert.match(String(refused), /too many requests/i)
  })

  await on('a task of another does not exist', async () => {
    const { id } = await (await agent(binding, { 'x-api-key': ann })).sendMessage(hello())
    const other = await agent(binding, { 'x-api-key': bob })
    await assert.rejects(other.getTask({ id, tenant: '' }), TaskNotFoundError)
  })
}

close()
