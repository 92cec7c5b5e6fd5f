// The Vercel AI SDK with its OpenAI provider, which speaks Responses.

import assert from 'node:assert/strict'

import { createOpenAI } from '@ai-sdk/openai'
import { generateText, isStepCount, stepCountIs, streamText, tool } from 'ai'
import { z } from 'zod'

import { check, close, GATEWAY_URL } from './checks.mjs'

const openai = createOpenAI({ baseURL: process.env.INTERLINGUA_URL ?? `${GATEWAY_URL}/v1`, apiKey: 'none' })
const model = openai.responses('demo')
const upTo = isStepCount ?? stepCountIs
const tools = {
  get_location: tool({
    description: 'Where the user is',
    inputSchema: z.object({ precision: z.string() }),
    execute: async ({ precision }) => `Berlin, to the ${precision}`,
  }),
}

await check('a question is answered with and without streaming', async () => {
  const { text } = await generateText({ model, prompt: 'hello there', maxRetries: 0 })
  assert.match(text, /hello there/)
  const streamed = streamText({ model, prompt: 'usage hello there', maxRetries: 0 })
  let joined = ''
  for await (const piece of streamed.textStream) joined += piece
  assert.match(joined, /hello there/)
  assert.ok((await streamed.usage).totalTokens > 0)
})

await check('the tool loop refers to items of the previous turn and continues', async () => {
  const { text, steps } = await generateText({ model, prompt: 'client tool', tools, stopWhen: upTo(3), maxRetries: 0 })
  assert.equal(steps.length, 2)
  assert.match(text, /Berlin/)
})

await check('a second turn refers to the first', async () => {
  const messages = [{ role: 'user', content: 'reasoning hello' }]
  const first = await generateText({ model, messages, maxRetries: 0 })
  messages.push(...first.response.messages, { role: 'user', content: 'and again' })
  const second = await generateText({ model, messages, maxRetries: 0 })
  assert.match(second.text, /and again/)
})

await check('thoughts and the agent\'s own tools are shown', async () => {
  const thought = await generateText({ model, prompt: 'reasoning hello', maxRetries: 0 })
  assert.ok(thought.reasoningText.length > 0)
  const shown = await generateText({ model, prompt: 'tool mcp hello', maxRetries: 0 })
  assert.match(shown.text, /hello/)
  const streamed = streamText({ model, prompt: 'tool image refusal hello', maxRetries: 0 })
  for await (const part of streamed.fullStream) assert.notEqual(part.type, 'error', JSON.stringify(part))
})

await check('an approval is requested and decided, by reference and without a chain', async () => {
  const mailer = openai.tools.mcp({ serverLabel: 'mailer', serverUrl: 'https://mailer.invalid', requireApproval: 'always' })
  const messages = [{ role: 'user', content: 'approval' }]
  const first = await generateText({ model, messages, tools: { mcp: mailer }, maxRetries: 0 })
  const asked = first.content.find((part) => part.type === 'tool-approval-request')
  assert.ok(asked, JSON.stringify(first.content))
  const answer = { type: 'tool-approval-response', approvalId: asked.approvalId, approved: true, providerExecuted: true }
  messages.push(...first.response.messages, { role: 'tool', content: [answer] })
  const second = await generateText({ model, messages, tools: { mcp: mailer }, maxRetries: 0 })
  assert.ok(second.text.length > 0, JSON.stringify(second.content))
})

await check('a failed response does not break the reader', async () => {
  await generateText({ model, prompt: 'fail', maxRetries: 0 }).then(
    (result) => assert.ok(result),
    (error) => assert.doesNotMatch(String(error), /Invalid JSON response/),
  )
})

close()
