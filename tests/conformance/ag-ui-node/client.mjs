// The official client of AG-UI 1.0, with its verifier.

import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'

import { HttpAgent } from '@ag-ui/client'
import { AgentCapabilitiesSchema, EventSchemas } from '@ag-ui/core/schemas'

import { agentAt, all, say, textOf, user } from './ag-ui-client.mjs'
import { check, close, GATEWAY_URL } from './checks.mjs'

await all(HttpAgent, '1.0.0', { v1: true, outcomes: true, reasoning: true })

/** Answers all interrupts of a run. */
const resume = (agent, interrupts, payload) =>
  say(agent, undefined, { resume: interrupts.map(({ id }) => ({ interruptId: id, status: 'resolved', payload })) })

await check('every event fits the published schema', async () => {
  const words = ['hello', 'reasoning tool parallel mcp component image data usage', 'approval', 'question', 'login', 'state progress',
    'client tool', 'incomplete', 'warning']
  for (const word of words) {
    const { events } = await say(agentAt(HttpAgent), word)
    for (const event of events) EventSchemas.parse(event)
  }
})

await check('an approval is an interrupt, and a person accepts, edits, responds or rejects', async () => {
  const expected = [
    [{ approved: true }, /was sent to ada/],
    [{ approved: true, editedArgs: { to: 'grace@example.com', subject: 'Hello' } }, /was sent to grace/],
    [{ decision: 'respond', text: 'later' }, /took this for the result: later/],
    [{ approved: false }, /did not send it/],
  ]
  for (const [payload, words] of expected) {
    const agent = agentAt(HttpAgent)
    const { events } = await say(agent, 'approval')
    const { outcome } = events.at(-1)
    assert.equal(outcome.type, 'interrupt')
    const [interrupt] = outcome.interrupts
    assert.equal(interrupt.reason, 'tool_call')
    const call = agent.messages.flatMap((message) => message.toolCalls ?? []).find(({ id }) => id === interrupt.toolCallId)
    assert.equal(call?.function.name, 'send_mail')
    assert.deepEqual(agent.pendingInterrupts.map(({ id }) => id), [interrupt.id])
    const { newMessages } = await resume(agent, outcome.interrupts, payload)
    assert.match(textOf(newMessages), words)
  }
})

await check('a question with a schema and a login are answered', async () => {
  const question = agentAt(HttpAgent)
  const asked = await say(question, 'question')
  const [interrupt] = asked.events.at(-1).outcome.interrupts
  assert.deepEqual([interrupt.reason, interrupt.responseSchema.type], ['input_required', 'object'])
  assert.match(textOf((await resume(question, [interrupt], { colour: 'blue' })).newMessages), /blue/)

  const login = agentAt(HttpAgent)
  const [door] = (await say(login, 'login')).events.at(-1).outcome.interrupts
  assert.match(textOf((await resume(login, [door], { approved: true })).newMessages), /logged in/)
})

await check('answers that cannot be taken are errors of the run, and the interrupt stays open', async () => {
  const agent = agentAt(HttpAgent)
  const [interrupt] = (await say(agent, 'approval')).events.at(-1).outcome.interrupts
  // The client checks what it sends: what it would not send goes without it.
  const raw = async (input) => {
    const body = { threadId: agent.threadId, runId: randomUUID(), protocolVersion: '1.0', messages: agent.messages, ...input }
    const response = await fetch(agent.url, {
      method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body),
    })
    const events = (await response.text()).split('\n').filter((line) => line.startsWith('data: '))
    return JSON.parse(events.at(-1).slice(6))
  }
  const entry = (payload, interruptId = interrupt.id) => ({ resume: [{ interruptId, status: 'resolved', payload }] })
  const cases = [
    [entry({ approved: true }, 'no such'), 'INTERRUPT_NOT_FOUND'],
    [entry({}), 'INTERRUPT_PAYLOAD_INVALID'],
    [entry(undefined), 'INTERRUPT_PAYLOAD_INVALID'],
    [{ messages: [...agent.messages, user('never mind')] }, 'INTERRUPT_PENDING'],
  ]
  for (const [input, code] of cases) assert.equal((await raw(input)).code, code, JSON.stringify(input))
  assert.equal((await raw({})).outcome?.type, 'interrupt', 'a page that was loaded again is asked again')
  assert.match(textOf((await resume(agent, [interrupt], { approved: true })).newMessages), /was sent/)
  assert.equal((await raw(entry({ approved: true }))).code, 'INTERRUPT_NOT_FOUND', 'nothing is decided twice')
})

await check('protobuf has the same events', async () => {
  class Binary extends HttpAgent {
    requestInit(input) {
      const init = super.requestInit(input)
      return { ...init, headers: { ...init.headers, Accept: 'application/vnd.ag-ui.event+proto' } }
    }
  }
  const plain = (events) => events.map(({ type, delta, toolCallName, name }) => ({ type, delta: type === 'STATE_DELTA' ? 1 : delta, toolCallName, name }))
  for (const word of ['hello', 'reasoning tool parallel image data usage', 'state progress', 'unicode']) {
    const binary = await say(agentAt(Binary), word)
    const stream = await say(agentAt(HttpAgent), word)
    assert.deepEqual(plain(binary.events), plain(stream.events), word)
  }
  const asked = await say(agentAt(Binary), 'question')
  assert.equal(asked.events.at(-1).outcome.interrupts[0].responseSchema.type, 'object')
})

await check('a stream that broke off is taken up again where it did', async () => {
  const url = `${GATEWAY_URL}/durable/demo`
  const body = JSON.stringify({ threadId: randomUUID(), runId: 'r1', messages: [user('long 40 20')] })
  const headers = { 'content-type': 'application/json' }
  const controller = new AbortController()
  const first = await fetch(url, { method: 'POST', headers, body, signal: controller.signal })
  let seen = ''
  for await (const chunk of first.body) {
    seen += Buffer.from(chunk).toString()
    if (seen.includes('id: 9\n')) break
  }
  controller.abort()
  const whole = seen.slice(0, seen.lastIndexOf('\n\n') + 2)
  const last = whole.match(/id: (\d+)/g).at(-1).slice(4)
  const again = await fetch(url, { method: 'POST', headers: { ...headers, 'last-event-id': last }, body })
  const rest = await again.text()
  const { threadId } = JSON.parse(body)
  const replay = await (await fetch(`${url}?threadId=${threadId}&runId=r1`)).text()
  assert.equal(whole + rest.replaceAll(': keep-alive\n\n', ''), replay)
  assert.match(rest, /RUN_FINISHED/)
})

await check('the gateway sends the conversation that it keeps', async () => {
  const agent = agentAt(HttpAgent, 'kept/demo')
  await say(agent, 'hello')
  agent.messages = [user('tool')]
  const { kinds } = await say(agent)
  assert.ok(kinds.includes('MESSAGES_SNAPSHOT'))
  const said = agent.messages.filter(({ role }) => role === 'user').map(({ content }) => content)
  assert.deepEqual(said.toSorted(), ['hello', 'tool'])
})

await check('what an agent can do is said at the path of the option', async () => {
  const described = await (await fetch(`${GATEWAY_URL}/ag-ui/demo/capabilities`)).json()
  AgentCapabilitiesSchema.parse(described)
  assert.deepEqual([described.identity.name, described.transport.resumable], ['demo', true])
  const plain = await fetch(`${GATEWAY_URL}/ag-ui/demo`)
  assert.deepEqual([plain.status, plain.headers.get('allow')], [405, 'POST'])
})

await check('pages of allowed origins may use the route', async () => {
  const preflight = await fetch(`${GATEWAY_URL}/ag-ui/demo`, {
    method: 'OPTIONS',
    headers: {
      origin: 'https://front.example.com', 'access-control-request-method': 'POST',
      'access-control-request-headers': 'content-type,authorization,last-event-id',
    },
  })
  assert.equal(preflight.headers.get('access-control-allow-origin'), 'https://front.example.com')
})

await check('a rejected input is an error of HTTP that names the field', async () => {
  const response = await fetch(`${GATEWAY_URL}/ag-ui/demo`, {
    method: 'POST', headers: { 'content-type': 'application/json' }, body: '{"threadId":"t","runId":"r","messages":[{"role":"x"}]}',
  })
  assert.equal(response.status, 400)
  assert.equal((await response.json()).error.path, 'messages[0].role')
})

await check('a client that leaves stops its run', async () => {
  const agent = agentAt(HttpAgent)
  agent.messages = [user('long 1000 20')]
  const running = agent.runAgent({}, { onTextMessageContentEvent: () => { agent.abortRun() } }).catch(() => {})
  await running
  for (let wait = 0; ; wait += 1) {
    const runs = await (await fetch(`${GATEWAY_URL}/agents/demo/runs?session_id=${agent.threadId}`)).json()
    if (runs.data[0]?.status === 'canceled') break
    assert.ok(wait < 100, JSON.stringify(runs.data[0]?.status))
    await new Promise((done) => setTimeout(done, 50))
  }
})

close()
