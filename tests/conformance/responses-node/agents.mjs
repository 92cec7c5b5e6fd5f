// The OpenAI Agents SDK for Node: its tool loop and its streams.

import assert from 'node:assert/strict'

import { Agent, OpenAIResponsesModel, run, setTracingDisabled, tool } from '@openai/agents'
import OpenAI from 'openai'
import { z } from 'zod'

import { check, close, GATEWAY_URL } from './checks.mjs'

setTracingDisabled(true)
const client = new OpenAI({ baseURL: process.env.INTERLINGUA_URL ?? `${GATEWAY_URL}/v1`, apiKey: 'none', maxRetries: 0 })
const model = () => new OpenAIResponsesModel(client, 'demo')
const getLocation = tool({
  name: 'get_location',
  description: 'Where the user is',
  parameters: z.object({ precision: z.string() }),
  execute: async ({ precision }) => `Berlin, to the ${precision}`,
})

await check('an agent answers', async () => {
  const result = await run(new Agent({ name: 'a', model: model() }), 'hello there')
  assert.match(result.finalOutput, /hello there/)
})

await check('the tool loop calls the client\'s tool and goes on with its output', async () => {
  const result = await run(new Agent({ name: 'a', model: model(), tools: [getLocation] }), 'client tool')
  assert.match(result.finalOutput, /Berlin/)
})

await check('the tool loop is streamed', async () => {
  const agent = new Agent({ name: 'a', model: model(), tools: [getLocation] })
  const result = await run(agent, 'reasoning tool client tool', { stream: true })
  for await (const event of result) assert.ok(event.type)
  await result.completed
  assert.match(result.finalOutput, /Berlin/)
})

close()
