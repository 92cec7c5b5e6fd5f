// Vercel's AI SDK against the built-in demo agent.

import assert from 'node:assert/strict'

import { createAnthropic } from '@ai-sdk/anthropic'
import { generateText, isStepCount, streamText, tool } from 'ai'
import { z } from 'zod'

import { check, close, GATEWAY_URL } from './checks.mjs'

globalThis.AI_SDK_LOG_WARNINGS = false

// This client wants the version in the URL.
const provider = createAnthropic({ baseURL: `${GATEWAY_URL}/anthropic/v1`, apiKey: 'none' })
const thinking = { anthropic: { thinking: { type: 'enabled', budgetTokens: 1024 } } }
const base = { model: provider('demo'), maxRetries: 0, maxOutputTokens: 4000 }
const tools = {
  get_location: tool({
    description: 'Where the user is.',
    inputSchema: z.object({ precision: z.string() }),
    execute: async ({ precision }) => `Berlin, to the ${precision}`,
  }),
}

async function parts(options) {
  const all = []
  for await (const part of streamText({ ...base, onError: () => {}, ...options }).fullStream) all.push(part)
  return all
}

const text = (all) => all.map((part) => (part.type === 'text-delta' ? part.text : '')).join('')

await check('a question is answered with and without streaming', async () => {
  const whole = await generateText({ ...base, prompt: 'usage hello there' })
  assert.match(whole.text, /hello there/)
  assert.ok(whole.usage.totalTokens > 0)
  const streamed = await parts({ prompt: 'usage hello there' })
  assert.equal(text(streamed), whole.text)
  assert.equal(streamed.at(-1).type, 'finish')
})

await check('reasoning is shown to those who ask for it', async () => {
  const all = await parts({ prompt: 'reasoning hello', providerOptions: thinking })
  assert.match(all.map((part) => (part.type === 'reasoning-delta' ? part.text : '')).join(''), /step by step/)
})

await check('a tool is called, and its result is used in the next step', async () => {
  const all = await parts({ prompt: 'client tool', tools, stopWhen: isStepCount(3) })
  const call = all.find((part) => part.type === 'tool-call')
  assert.deepEqual(call.input, { precision: 'example' })
  assert.match(text(all), /get_location says: Berlin, to the example/)
  const whole = await generateText({ ...base, prompt: 'client tool', tools, stopWhen: isStepCount(3) })
  assert.match(whole.text, /Berlin, to the example/)
})

await check("tools of the agent are calls that the provider ran", async () => {
  const all = await parts({ prompt: 'tool hello', tools, stopWhen: isStepCount(3) })
  const [call, result] = ['tool-call', 'tool-result'].map((type) => all.find((part) => part.type === type))
  assert.ok(call.providerExecuted && result, JSON.stringify(all))
  assert.equal(all.filter((part) => part.type === 'start-step').length, 1)
})

await check('a conversation goes on', async () => {
  const first = await generateText({ ...base, prompt: 'my name is Ada' })
  const messages = [
    { role: 'user', content: 'my name is Ada' },
    ...first.response.messages,
    { role: 'user', content: 'history' },
  ]
  assert.match((await generateText({ ...base, messages })).text, /my name is Ada/)
})

await check('a failure in the middle is an error, and what came before is kept', async () => {
  const all = await parts({ prompt: 'fail' })
  assert.ok(text(all).length > 0)
  assert.ok(all.some((part) => part.type === 'error'))
})

close()
