// The Vercel AI SDK over Chat Completions: its OpenAI provider, and the one for compatible servers.

import assert from 'node:assert/strict'

import { createOpenAI } from '@ai-sdk/openai'
import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { generateObject, generateText, isStepCount, stepCountIs, streamText, tool } from 'ai'
import { z } from 'zod'

import { check, close, GATEWAY_URL } from './checks.mjs'

const baseURL = process.env.INTERLINGUA_URL ?? `${GATEWAY_URL}/v1`
const openai = createOpenAI({ baseURL, apiKey: 'none' })
const compatible = createOpenAICompatible({ name: 'gateway', baseURL, includeUsage: true, supportsStructuredOutputs: true })
const models = { 'openai.chat': openai.chat('demo'), 'openai-compatible': compatible('demo') }
const upTo = isStepCount ?? stepCountIs
const tools = {
  get_location: tool({
    description: 'Where the user is',
    inputSchema: z.object({ precision: z.string() }),
    execute: async ({ precision }) => `Berlin, to the ${precision}`,
  }),
}

for (const [name, model] of Object.entries(models)) {
  await check(`${name}: a question is answered with and without streaming`, async () => {
    const { text, finishReason } = await generateText({ model, prompt: 'hello there', maxRetries: 0 })
    assert.match(text, /hello there/)
    assert.equal(finishReason, 'stop')
    const streamed = streamText({ model, prompt: 'usage hello there', maxRetries: 0 })
    let joined = ''
    for await (const piece of streamed.textStream) joined += piece
    assert.match(joined, /hello there/)
    assert.ok((await streamed.usage).totalTokens > 0)
  })

  await check(`${name}: the tool loop goes on, with and without streaming`, async () => {
    const { text, steps } = await generateText({ model, prompt: 'client tool', tools, stopWhen: upTo(3), maxRetries: 0 })
    assert.equal(steps.length, 2)
    assert.match(text, /Berlin/)
    const streamed = streamText({ model, prompt: 'client tool', tools, stopWhen: upTo(3), maxRetries: 0 })
    assert.match(await streamed.text, /Berlin/)
  })

  await check(`${name}: a second turn repeats the first`, async () => {
    const messages = [{ role: 'user', content: 'reasoning hello' }]
    const first = await generateText({ model, messages, maxRetries: 0 })
    messages.push(...first.response.messages, { role: 'user', content: 'and again' })
    const second = await generateText({ model, messages, maxRetries: 0 })
    assert.match(second.text, /and again/)
  })

  await check(`${name}: an object is generated`, async () => {
    const schema = z.object({ city: z.string(), degrees: z.number() })
    const { object } = await generateObject({ model, schema, prompt: 'echo {"city": "Paris", "degrees": 18}', maxRetries: 0 })
    assert.deepEqual(object, { city: 'Paris', degrees: 18 })
  })

  await check(`${name}: a failure within a stream is an error part, never a clean end`, async () => {
    for (const word of ['fail please', 'break please']) {
      const streamed = streamText({ model, prompt: word, maxRetries: 0, onError: () => {} })
      const types = []
      for await (const part of streamed.fullStream) types.push(part.type)
      assert.ok(types.includes('error'), `${word}: ${types.join()}`)
    }
  })
}

await check('openai-compatible: thoughts are shown', async () => {
  const thought = await generateText({ model: compatible('demo'), prompt: 'reasoning hello', maxRetries: 0 })
  assert.ok(thought.reasoningText.length > 0)
  const streamed = streamText({ model: compatible('demo'), prompt: 'reasoning tool refusal hello', maxRetries: 0 })
  const types = new Set()
  for await (const part of streamed.fullStream) types.add(part.type)
  assert.ok(types.has('reasoning-delta') && types.has('text-delta') && !types.has('error'), [...types].join())
})

close()
