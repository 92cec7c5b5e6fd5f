// The Responses protocol through the official Node SDK, any major version, against the built-in demo agent.

import assert from 'node:assert/strict'

import OpenAI from 'openai'
import { zodTextFormat } from 'openai/helpers/zod'
import { z } from 'zod'

import { GATEWAY_URL, check } from './checks.mjs'

export const URL = process.env.INTERLINGUA_URL ?? `${GATEWAY_URL}/v1`
const client = new OpenAI({ baseURL: URL, apiKey: 'none', maxRetries: 0 })
const tool = {
  type: 'function',
  name: 'get_location',
  description: 'Where the user is',
  parameters: {
    type: 'object',
    properties: { precision: { type: 'string' } },
    required: ['precision'],
    additionalProperties: false,
  },
  strict: true,
}

const ask = (input, more = {}) => client.responses.create({ model: 'demo', input, ...more })

async function raises(kind, status, run, code) {
  try {
    await run()
  } catch (error) {
    assert.ok(error instanceof kind, `${error?.constructor?.name}: ${error}`)
    assert.equal(error.status, status)
    assert.ok(error.requestID, 'no request id')
    if (code) assert.equal(error.code, code)
    return
  }
  assert.fail('nothing was raised')
}

export async function all() {
  await check('a question is answered without streaming', async () => {
    const response = await ask('hello there')
    assert.equal(response.status, 'completed')
    assert.match(response.output_text, /hello there/)
  })

  await check('the same question streams the same reply', async () => {
    const events = []
    for await (const event of await ask('hello there', { stream: true })) events.push(event)
    assert.deepEqual(events.map((event) => event.sequence_number), events.map((_, index) => index))
    const text = events.filter((event) => event.type === 'response.output_text.delta').map((event) => event.delta).join('')
    const last = events.at(-1)
    assert.equal(last.type, 'response.completed')
    assert.equal(last.response.output.at(-1).content[0].text, text)
    assert.deepEqual((await client.responses.retrieve(last.response.id)).output, last.response.output)
  })

  const words = [
    'hello', 'reasoning hello', 'overlap', 'tool parallel mcp component', 'client tool', 'approval', 'question', 'login',
    'image', 'audio', 'video', 'file', 'data', 'refusal', 'warning', 'unicode', 'usage hello', 'heartbeat hello', 'empty',
  ]
  for (const word of words) {
    await check(`the strictest stream helper reads: ${word}`, async () => {
      const stream = client.responses.stream({ model: 'demo', input: word, tools: [tool] })
      const final = await stream.finalResponse()
      assert.equal(final.status, 'completed')
      assert.deepEqual((await client.responses.retrieve(final.id)).output.map((item) => item.id), final.output.map((item) => item.id))
    })
  }

  await check('a text that is JSON is parsed into an object', async () => {
    const format = zodTextFormat(z.object({ city: z.string(), degrees: z.number() }), 'weather')
    const response = await client.responses.parse({
      model: 'demo', input: 'echo {"city": "Paris", "degrees": 18}', text: { format },
    })
    assert.deepEqual(response.output_parsed, { city: 'Paris', degrees: 18 })
  })

  await check('a tool of the client\'s is called, answered and used', async () => {
    const first = await ask('client tool', { tools: [tool] })
    const call = first.output.find((item) => item.type === 'function_call')
    assert.equal(call.name, 'get_location')
    const output = { type: 'function_call_output', call_id: call.call_id, output: 'Berlin' }
    const second = await ask([output], { tools: [tool], previous_response_id: first.id })
    assert.match(second.output_text, /Berlin/)
  })

  await check('failed and incomplete responses have their status', async () => {
    const failed = await ask('fail')
    assert.equal(failed.status, 'failed')
    assert.equal(failed.error.code, 'server_error')
    const cut = await ask('incomplete')
    assert.equal(cut.incomplete_details.reason, 'max_output_tokens')
    const events = []
    for await (const event of await ask('break', { stream: true })) events.push(event)
    assert.equal(events.at(-1).type, 'response.failed')
  })

  await check('a background response is polled to its end, and one is cancelled', async () => {
    let response = await ask('long 5 20', { background: true })
    for (let turn = 0; turn < 400 && ['queued', 'in_progress'].includes(response.status); turn += 1) {
      await new Promise((wake) => setTimeout(wake, 50))
      response = await client.responses.retrieve(response.id)
    }
    assert.equal(response.status, 'completed')
    const slow = await ask('long 1000 50', { background: true })
    assert.equal((await client.responses.cancel(slow.id)).status, 'cancelled')
  })

  await check('a cut stream is resumed', async () => {
    const seen = []
    for await (const event of await ask('long 40 10', { stream: true, background: true })) {
      seen.push(event)
      if (seen.length === 8) break
    }
    const id = seen[0].response.id
    const rest = []
    const after = { stream: true, starting_after: seen.at(-1).sequence_number }
    for await (const event of await client.responses.retrieve(id, after)) rest.push(event)
    const numbers = [...seen, ...rest].map((event) => event.sequence_number)
    assert.deepEqual(numbers, numbers.map((_, index) => index))
    assert.equal(rest.at(-1).type, 'response.completed')
  })

  await check('a conversation keeps its history', async () => {
    const conversation = await client.conversations.create({ metadata: { topic: 'x' } })
    await ask('hello', { conversation: conversation.id })
    const second = await ask('history', { conversation: conversation.id })
    assert.match(second.output_text, /message 2/)
    const items = []
    for await (const item of client.conversations.items.list(conversation.id, { order: 'asc', limit: 3 })) items.push(item)
    assert.equal(items.length, 4)
    assert.ok((await client.conversations.delete(conversation.id)).deleted)
  })

  await check('the input of a response is listed', async () => {
    const response = await ask('hello')
    const items = []
    for await (const item of client.responses.inputItems.list(response.id)) items.push(item)
    assert.equal(items[0].content[0].text, 'hello')
  })

  await check('every fault is the SDK\'s own error class', async () => {
    await raises(OpenAI.BadRequestError, 400, () => ask('x', { temperature: 9 }), 'invalid_value')
    await raises(OpenAI.NotFoundError, 404, () => client.responses.create({ model: 'who', input: 'x' }), 'model_not_found')
    await raises(OpenAI.NotFoundError, 404, () => client.responses.retrieve('resp_nothing'))
    await raises(OpenAI.InternalServerError, 502, () => client.responses.create({ model: 'gone', input: 'x' }), 'upstream_error')
  })
}
