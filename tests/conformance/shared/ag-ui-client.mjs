// The checks that every version of the official AG-UI client must pass. Its verifier refuses a stream that breaks the
// protocol, and its reducer makes messages and state of it.

import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'

import { check, GATEWAY_URL } from './checks.mjs'

let threads = 0

/** An agent behind a route of the gateway. */
export const agentAt = (HttpAgent, path = 'ag-ui/demo') => {
  threads += 1
  return new HttpAgent({ url: `${GATEWAY_URL}/${path}`, threadId: `thread-${process.pid}-${threads}-${randomUUID()}` })
}

export const user = (content) => ({ id: randomUUID(), role: 'user', content })

/** Runs the agent with these words. Returns all events, and what the client made of them. */
export async function say(agent, words, parameters = {}) {
  const events = []
  if (words !== undefined) agent.messages = [...agent.messages, user(words)]
  const result = await agent.runAgent(parameters, { onEvent: ({ event }) => { events.push(event) } })
  return { ...result, events, kinds: events.map((event) => event.type) }
}

export const textOf = (messages) =>
  messages.filter((message) => message.role === 'assistant').map((message) => message.content ?? '').join('')

const location = { name: 'get_location', description: 'Where the user is', parameters: { type: 'object', properties: {} } }

/** `has`: what this version of the client knows. */
export async function all(HttpAgent, version, has) {
  const named = (sentence) => `${version}: ${sentence}`

  await check(named('a question is answered, and the thread goes on'), async () => {
    const agent = agentAt(HttpAgent)
    const first = await say(agent, 'hello there')
    assert.match(textOf(first.newMessages), /You said: hello there/)
    const second = await say(agent, 'history')
    assert.match(textOf(second.newMessages), /message 2 of yours/)
    const third = await say(agent, 'history')
    assert.match(textOf(third.newMessages), /message 3 of yours/)
    assert.equal(new Set(agent.messages.map((message) => message.id)).size, agent.messages.length, 'ids are unique')
  })

  await check(named('an edited conversation begins again'), async () => {
    const agent = agentAt(HttpAgent)
    await say(agent, 'hello')
    await say(agent, 'and more')
    agent.messages = [user('history')]
    assert.match(textOf((await say(agent)).newMessages), /message 3 of yours/, 'a list of new messages goes on')
    agent.messages = [...agent.messages.slice(0, -1), { id: randomUUID(), role: 'assistant', content: 'other' }, user('history')]
    assert.match(textOf((await say(agent)).newMessages), /message 2 of yours/, 'another history is taken as it is')
  })

  await check(named('tools of the agent are called and answered'), async () => {
    for (const word of ['tool', 'parallel', 'mcp', 'component']) {
      const { newMessages } = await say(agentAt(HttpAgent), word)
      const calls = newMessages.flatMap((message) => message.toolCalls ?? [])
      const results = newMessages.filter((message) => message.role === 'tool')
      assert.ok(calls.length > 0 && calls.length === results.length, JSON.stringify(newMessages))
      for (const call of calls) {
        JSON.parse(call.function.arguments)
        assert.ok(results.some((result) => result.toolCallId === call.id), call.id)
      }
    }
  })

  await check(named('a tool of the client is called, and its output goes on'), async () => {
    const agent = agentAt(HttpAgent)
    const { newMessages, events } = await say(agent, 'client tool', { tools: [location] })
    const [call] = newMessages.flatMap((message) => message.toolCalls ?? [])
    assert.equal(call.function.name, 'get_location')
    if (has.outcomes) assert.deepEqual(events.at(-1).outcome?.pendingToolCallIds, has.v1 ? [call.id] : undefined)
    agent.messages = [...agent.messages, { id: randomUUID(), role: 'tool', toolCallId: call.id, content: 'Paris' }]
    const next = await say(agent, undefined, { tools: [location] })
    assert.match(textOf(next.newMessages), /Paris/)
  })

  if (has.reasoning) {
    await check(named('reasoning is apart from the answer'), async () => {
      for (const word of ['reasoning hello', 'overlap']) {
        const { kinds } = await say(agentAt(HttpAgent), word)
        assert.ok(kinds.includes('REASONING_MESSAGE_CONTENT') && kinds.includes('TEXT_MESSAGE_CONTENT'), kinds.join())
      }
    })
  }

  await check(named('every other word of the demo agent is a stream that the verifier takes'), async () => {
    const words = ['image', 'audio', 'video', 'file', 'data', 'refusal', 'warning', 'unicode', 'usage', 'heartbeat', 'empty',
      'incomplete', 'cancel', 'long 200 1']
    for (const word of words) {
      const { kinds } = await say(agentAt(HttpAgent), word)
      assert.deepEqual([kinds[0], kinds.at(-1)], ['RUN_STARTED', 'RUN_FINISHED'], word)
    }
  })

  await check(named('state comes as snapshot and changes'), async () => {
    const agent = agentAt(HttpAgent)
    const { kinds } = await say(agent, 'state')
    assert.ok(kinds.includes('STATE_SNAPSHOT') && kinds.includes('STATE_DELTA'), kinds.join())
    if (has.patches === false) return
    assert.equal(agent.state.count, 1, JSON.stringify(agent.state))
    await say(agent, 'state')
    assert.equal(agent.state.count, 2, 'the agent goes on from the state that the client sends')
  })

  await check(named('steps and activities are passed on'), async () => {
    const { kinds } = await say(agentAt(HttpAgent), 'progress')
    for (const kind of ['STEP_STARTED', 'STEP_FINISHED', 'ACTIVITY_SNAPSHOT', 'CUSTOM']) assert.ok(kinds.includes(kind), kind)
  })

  await check(named('a failure is a failure'), async () => {
    for (const word of ['error', 'fail', 'reject', 'break']) {
      const agent = agentAt(HttpAgent)
      const failed = []
      agent.messages = [user(word)]
      await agent.runAgent({}, { onRunErrorEvent: ({ event }) => { failed.push(event) } }).catch((error) => failed.push(error))
      assert.ok(failed.length > 0, `${word} is no success`)
    }
  })

  await check(named('an agent that is not there is an error of the run, or of HTTP'), async () => {
    for (const path of ['ag-ui/gone', 'kept/gone']) {
      const agent = agentAt(HttpAgent, path)
      const failed = []
      agent.messages = [user('hello')]
      await agent.runAgent({}, { onRunErrorEvent: ({ event }) => { failed.push(event) } }).catch((error) => failed.push(error))
      assert.ok(failed.length > 0, path)
    }
  })
}
