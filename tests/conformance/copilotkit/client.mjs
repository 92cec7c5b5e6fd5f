// CopilotKit's runtime and its client: the runtime serves a front end, and asks the gateway with the AG-UI client.

import assert from 'node:assert/strict'
import { createServer } from 'node:http'
import { randomUUID } from 'node:crypto'

process.env.COPILOTKIT_TELEMETRY_DISABLED = 'true'
process.env.DO_NOT_TRACK = '1'
// The core asks its runtime only in a browser.
globalThis.window = globalThis

import { check, close, GATEWAY_URL } from './checks.mjs'

const { CopilotRuntime, createCopilotRuntimeHandler } = await import('@copilotkit/runtime/v2')
const { HttpAgent } = await import('@ag-ui/client')
const { CopilotKitCore } = await import('@copilotkit/core')
const { z } = await import('zod')

const runtime = new CopilotRuntime({ agents: { default: new HttpAgent({ url: `${GATEWAY_URL}/ag-ui/demo` }) } })
const handler = createCopilotRuntimeHandler({ runtime, basePath: '/api' })
const server = createServer(async (request, response) => {
  const chunks = []
  for await (const chunk of request) chunks.push(chunk)
  const body = chunks.length > 0 ? Buffer.concat(chunks) : undefined
  const answer = await handler(new Request(`http://localhost${request.url}`, { method: request.method, headers: request.headers, body }))
  response.writeHead(answer.status, Object.fromEntries(answer.headers))
  if (answer.body) for await (const chunk of answer.body) response.write(chunk)
  response.end()
}).listen(0, '127.0.0.1')
await new Promise((listening) => { server.once('listening', listening) })

/** A front end with an agent, connected to the runtime. */
async function front(tools = []) {
  const core = new CopilotKitCore({ runtimeUrl: `http://127.0.0.1:${server.address().port}/api` })
  for (let wait = 0; core.getAgent('default') === undefined; wait += 1) {
    assert.ok(wait < 200, 'the runtime describes its agents')
    await new Promise((done) => { setTimeout(done, 20) })
  }
  tools.forEach((tool) => core.addTool(tool))
  const agent = core.getAgent('default')
  agent.threadId = randomUUID()
  const say = async (words) => {
    agent.addMessage({ id: randomUUID(), role: 'user', content: words })
    await core.runAgent({ agent })
    return agent.messages.filter(({ role }) => role === 'assistant').map(({ content }) => content ?? '').join('\n')
  }
  return { agent, say }
}

await check('a conversation goes on', async () => {
  const { say } = await front()
  assert.match(await say('hello there'), /You said: hello there/)
  assert.match(await say('history'), /message 2 of yours/)
})

await check('a tool of the front end is run, and the agent goes on with its output', async () => {
  const parameters = z.object({ precision: z.string() })
  const tool = { name: 'get_location', description: 'Where the user is', parameters, handler: async () => 'Paris' }
  const { say } = await front([tool])
  assert.match(await say('client tool'), /Paris/)
})

await check('state and reasoning arrive', async () => {
  const { agent, say } = await front()
  await say('reasoning state')
  assert.equal(agent.state.count, 1, JSON.stringify(agent.state))
  assert.ok(agent.messages.some(({ role }) => role === 'reasoning'))
})

close()
