// Chat Completions through the official Node SDK, any major version, against the built-in demo agent.

import assert from 'node:assert/strict'

import OpenAI from 'openai'
import { zodResponseFormat } from 'openai/helpers/zod'
import { z } from 'zod'

import { check, GATEWAY_URL } from './checks.mjs'

const client = new OpenAI({ baseURL: process.env.INTERLINGUA_URL ?? `${GATEWAY_URL}/v1`, apiKey: 'none', maxRetries: 0 })
const user = (content) => ({ role: 'user', content })
const ask = (messages, more = {}) =>
  client.chat.completions.create({
    model: 'demo',
    messages: typeof messages === 'string' ? [user(messages)] : messages,
    ...more,
  })
const location = {
  type: 'function',
  function: {
    name: 'get_location',
    description: 'Where the user is',
    parameters: { type: 'object', properties: { precision: { type: 'string' } }, required: ['precision'] },
  },
}

async function raises(kind, status, promise, expected = {}) {
  const error = await promise.then(() => assert.fail('nothing was thrown'), (thrown) => thrown)
  assert.ok(error instanceof kind, String(error))
  assert.equal(error.status, status)
  for (const [name, value] of Object.entries(expected)) assert.equal(error[name], value, name)
  return error
}

export async function all() {
  await check('a question is answered whole and streamed', async () => {
    const answer = await ask('hello there')
    assert.equal(answer.choices[0].finish_reason, 'stop')
    const chunks = []
    for await (const chunk of await ask('hello there', { stream: true })) chunks.push(chunk)
    assert.equal(chunks.map((chunk) => chunk.choices[0].delta.content ?? '').join(''), answer.choices[0].message.content)
    assert.equal(chunks[0].choices[0].delta.role, 'assistant')
  })

  await check('the stream helper builds the answer', async () => {
    const stream = client.chat.completions.stream({ model: 'demo', messages: [user('reasoning tool hello')] })
    let text = ''
    stream.on('content', (delta) => { text += delta })
    const final = await stream.finalChatCompletion()
    assert.equal(final.choices[0].message.content, text)
    assert.match(text, /hello/)
  })

  await check('usage comes if it is asked for', async () => {
    const stream = client.chat.completions.stream({
      model: 'demo', messages: [user('usage hello')], stream_options: { include_usage: true },
    })
    assert.ok((await stream.totalUsage()).total_tokens > 0)
  })

  await check('the tool runner calls a tool and goes on', async () => {
    const runner = client.chat.completions.runTools({
      model: 'demo',
      messages: [user('client tool')],
      stream: true,
      tools: [{
        ...location,
        function: {
          ...location.function,
          parse: JSON.parse,
          function: ({ precision }) => `Berlin, to the ${precision}`,
        },
      }],
    })
    assert.match(await runner.finalContent(), /Berlin/)
  })

  await check('a text that is JSON is parsed', async () => {
    const Weather = z.object({ city: z.string(), degrees: z.number() })
    const answer = await client.chat.completions.parse({
      model: 'demo',
      messages: [user('echo {"city": "Paris", "degrees": 18}')],
      response_format: zodResponseFormat(Weather, 'weather'),
    })
    assert.deepEqual(answer.choices[0].message.parsed, { city: 'Paris', degrees: 18 })
  })

  await check('an approval is decided in words', async () => {
    const asked = (await ask('approval')).choices[0].message
    assert.match(asked.content, /\n\[approval [^\]]+\]$/)
    const sent = await ask([user('approval'), asked, user('approve')])
    assert.match(sent.choices[0].message.content, /was sent to/)
  })

  await check('a refusal is one, whole and streamed', async () => {
    assert.ok((await ask('refusal')).choices[0].message.refusal)
    const stream = client.chat.completions.stream({ model: 'demo', messages: [user('refusal')] })
    assert.ok((await stream.finalMessage()).refusal)
  })

  await check('a failure within a stream is thrown, never a clean end', async () => {
    for (const word of ['fail', 'break', 'reject', 'cancel']) {
      const read = (async () => { for await (const _ of await ask(`${word} please`, { stream: true })); })()
      const error = await read.then(() => assert.fail(word), (thrown) => thrown)
      assert.ok(error instanceof OpenAI.APIError, String(error))
      const helper = client.chat.completions.stream({ model: 'demo', messages: [user(`${word} please`)] })
      await assert.rejects(helper.finalContent(), OpenAI.OpenAIError)
    }
  })

  await check('mistakes and failures have a status', async () => {
    await raises(OpenAI.InternalServerError, 502, ask('fail please'), { code: 'upstream_error', type: 'server_error' })
    await raises(OpenAI.NotFoundError, 404, ask('x', { model: 'who' }), { code: 'model_not_found', param: 'model' })
    await raises(OpenAI.BadRequestError, 400, ask('x', { n: 2 }), { code: 'unsupported_value', param: 'n' })
    const error = await raises(OpenAI.BadRequestError, 400, ask([]), { param: 'messages' })
    assert.ok(error.requestID ?? error.request_id)
  })

  await check('stored completions are listed, read, updated and deleted, with their messages', async () => {
    const run = `r${process.pid}`
    const { completions } = client.chat
    const ids = []
    for (const number of [0, 1, 2]) {
      ids.push((await ask(`hello ${number}`, { store: true, metadata: { run, number: `${number}` } })).id)
    }
    const listed = []
    for await (const answer of completions.list({ limit: 2, metadata: { run } })) listed.push(answer.id)
    assert.deepEqual(listed, ids)

    const read = await completions.retrieve(ids[1])
    assert.match(read.choices[0].message.content, /hello 1/)
    const messages = []
    for await (const message of completions.messages.list(ids[1])) messages.push([message.id, message.content])
    assert.deepEqual(messages, [[`${ids[1]}-0`, 'hello 1']])
    const updated = await completions.update(ids[1], { metadata: { run, seen: 'yes' } })
    assert.deepEqual(updated.metadata, { run, seen: 'yes' })
    assert.deepEqual((await completions.list({ metadata: { run, seen: 'yes' } })).data.map(({ id }) => id), [ids[1]])

    const deleted = await (completions.delete ?? completions.del).call(completions, ids[1])
    assert.ok(deleted.deleted && deleted.id === ids[1])
    await raises(OpenAI.NotFoundError, 404, completions.retrieve(ids[1]), {})
  })

  await check('models are listed', async () => {
    const ids = []
    for await (const model of client.models.list()) ids.push(model.id)
    assert.ok(ids.includes('demo') && ids.includes('gone'), ids.join())
    assert.equal((await client.models.retrieve('demo')).object, 'model')
  })
}
