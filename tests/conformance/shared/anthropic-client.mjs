// The official Node SDK of Anthropic against the built-in demo agent, for the suites of both of its generations.

import assert from 'node:assert/strict'

import Anthropic from '@anthropic-ai/sdk'

import { check, GATEWAY_URL } from './checks.mjs'

const client = new Anthropic({ baseURL: `${GATEWAY_URL}/anthropic`, apiKey: 'none', maxRetries: 0 })
const user = (content) => ({ role: 'user', content })
const body = (content, more = {}) => ({
  model: 'demo',
  max_tokens: 2000,
  messages: Array.isArray(content) ? content : [user(content)],
  ...more,
})
const ask = (content, more) => client.messages.create(body(content, more))
const words = (message) => message.content.map((block) => (block.type === 'text' ? block.text : '')).join('')
const kinds = (message) => message.content.map((block) => block.type)
const thinking = { type: 'enabled', budget_tokens: 1024 }

const location = {
  type: 'custom',
  name: 'get_location',
  description: 'Where the user is.',
  input_schema: { type: 'object', properties: { precision: { type: 'string' } } },
  run: ({ precision }) => `Berlin, to the ${precision}`,
  parse: (input) => input,
}
const { run, parse, ...declared } = location

export async function all() {
  await check('a message has its text, its usage and its request id', async () => {
    const message = await ask('usage hello there')
    assert.match(words(message), /hello there/)
    assert.equal(message.stop_reason, 'end_turn')
    assert.ok(message.usage.input_tokens > 0 && message.usage.output_tokens > 0)
    assert.match(message._request_id, /^req_/)
  })

  await check('the stream helper builds the message that the whole answer is', async () => {
    const stream = client.messages.stream(body('reasoning tool there', { thinking }))
    const events = []
    for await (const event of stream) events.push(event.type)
    assert.equal(events[0], 'message_start')
    assert.equal(events.at(-1), 'message_stop')
    const message = await stream.finalMessage()
    const whole = await ask('reasoning tool there', { thinking })
    assert.deepEqual([words(message), kinds(message)], [words(whole), kinds(whole)])
  })

  await check('reasoning is shown to those who ask for it', async () => {
    assert.deepEqual(kinds(await ask('reasoning hello')), ['text'])
    const thoughts = []
    const stream = client.messages.stream(body('reasoning hello', { thinking }))
    stream.on('thinking', (piece) => thoughts.push(piece))
    const message = await stream.finalMessage()
    assert.deepEqual(kinds(message), ['thinking', 'text'])
    assert.equal(thoughts.join(''), message.content[0].thinking)
  })

  await check('the conversation goes on with the messages that are sent back', async () => {
    const first = await ask('my name is Ada')
    const history = [user('my name is Ada'), { role: 'assistant', content: first.content }, user('history')]
    assert.match(words(await ask(history)), /my name is Ada/)
    assert.doesNotMatch(words(await ask('history')), /Ada/)
  })

  await check('a tool is called with its input in pieces, and its result reaches the agent', async () => {
    const pieces = []
    const stream = client.messages.stream(body('client tool', { tools: [declared] }))
    stream.on('inputJson', (piece) => pieces.push(piece))
    const first = await stream.finalMessage()
    const call = first.content.find((block) => block.type === 'tool_use')
    assert.equal(first.stop_reason, 'tool_use')
    assert.deepEqual(JSON.parse(pieces.join('')), call.input)
    const result = { type: 'tool_result', tool_use_id: call.id, content: 'no such place', is_error: true }
    const history = [user('client tool'), { role: 'assistant', content: first.content }, user([result])]
    assert.match(words(await ask(history, { tools: [declared] })), /get_location says: no such place/)
  })

  await check('the tool runner runs tools to the end, with threads and without', async () => {
    for (const path of ['anthropic', 'threadless'])
      for (const stream of [false, true]) {
        const one = new Anthropic({ baseURL: `${GATEWAY_URL}/${path}`, apiKey: 'none', maxRetries: 0 })
        const runner = one.beta.messages.toolRunner({ ...body('client tool'), tools: [location], stream })
        const answer = await runner.runUntilDone()
        assert.match(words(answer), /get_location says: Berlin, to the example/)
        assert.equal(answer.stop_reason, 'end_turn')
      }
  })

  await check('tools of the agent are shown with their results', async () => {
    const message = await client.beta.messages.create(body('tool'))
    assert.deepEqual(kinds(message), ['mcp_tool_use', 'mcp_tool_result', 'text'])
    assert.equal(message.content[0].id, message.content[1].tool_use_id)
    const streamed = await client.beta.messages.stream(body('tool')).finalMessage()
    assert.deepEqual(kinds(streamed), kinds(message))
    assert.deepEqual(streamed.content[0].input, message.content[0].input)
  })

  await check('an approval is asked in words and decided by a word', async () => {
    const asked = await ask('approval')
    assert.match(words(asked), /\[approval \S+\]$/)
    const history = [user('approval'), { role: 'assistant', content: asked.content }]
    assert.match(words(await ask([...history, user('hm?')])), /\[approval \S+\]$/)
    assert.doesNotMatch(words(await ask([...history, user('reject')])), /\[approval/)
  })

  await check('errors are thrown with their type, their status and their request id', async () => {
    for (const [request, status, type] of [
      [body('error'), 502, 'api_error'],
      [body('hello', { model: 'unknown' }), 404, 'not_found_error'],
      [body('hello', { temperature: 7 }), 400, 'invalid_request_error'],
    ])
      await assert.rejects(client.messages.create(request), (error) => {
        assert.equal(error.status, status)
        assert.equal(error.error.error.type, type)
        assert.match(error.requestID, /^req_/)
        return true
      })
  })

  await check('a failure in the middle of a stream is thrown, and what came before is kept', async () => {
    let text = ''
    const stream = client.messages.stream(body('fail')).on('text', (piece) => (text += piece))
    await assert.rejects(stream.finalMessage(), /./)
    assert.ok(text.length > 0)
  })

  await check('models are listed page by page and described', async () => {
    const ids = []
    for await (const model of client.models.list({ limit: 1 })) ids.push(model.id)
    assert.deepEqual(ids, ['demo', 'gone', 'claude-demo'])
    assert.equal((await client.models.retrieve('demo')).type, 'model')
  })

  await check('tokens are counted', async () => {
    const { input_tokens } = await client.messages.countTokens({ model: 'demo', messages: [user('hello '.repeat(100))] })
    assert.ok(input_tokens > 100 && input_tokens < 300, input_tokens)
  })
}
