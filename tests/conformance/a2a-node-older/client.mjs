// A2A 0.3 with the official JavaScript client of that version, over both bindings, against the demo agent.

import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import {
  ClientFactory,
  ClientFactoryOptions,
  JsonRpcTransportFactory,
  RestTransportFactory,
  TaskNotCancelableError,
  TaskNotFoundError,
  UnsupportedOperationError,
} from '@a2a-js/sdk/client'
import { GATEWAY_URL, check, close } from './checks.mjs'

// This client resolves the card path relative to the base URL: the slash keeps the last segment.
const AGENT = `${GATEWAY_URL}/agents/demo/`

async function client(binding) {
  const options = ClientFactoryOptions.createFrom(ClientFactoryOptions.default, {
    preferredTransports: [binding],
    transports: [new JsonRpcTransportFactory(), new RestTransportFactory()],
  })
  return new ClientFactory(options).createFromUrl(AGENT)
}

function request(said, { task, configuration } = {}) {
  const part = typeof said === 'string' ? { kind: 'text', text: said } : { kind: 'data', data: said }
  const message = { kind: 'message', messageId: randomUUID(), role: 'user', parts: [part] }
  if (task) message.taskId = task
  return { message, configuration }
}

async function events(stream) {
  const got = []
  for await (const event of stream) got.push(event)
  return got
}

const textOf = parts => parts.map(part => part.text ?? '').join('')
const streamedText = got =>
  got.filter(event => event.kind === 'artifact-update').map(event => textOf(event.artifact.parts)).join('')

for (const binding of ['JSONRPC', 'HTTP+JSON']) {
  const on = (sentence, run) => check(`${binding}: ${sentence}`, async () => run(await client(binding)))

  await on('a reply is streamed and its last event is final', async client => {
    const got = await events(client.sendMessageStream(request('hello there')))
    assert.equal(got[0].kind, 'task')
    assert.deepEqual([got.at(-1).kind, got.at(-1).status.state, got.at(-1).final], ['status-update', 'completed', true])
    const task = await client.getTask({ id: got[0].id })
    assert.equal(textOf(task.artifacts[0].parts), streamedText(got))
  })

  await on('a blocking call returns the task', async client => {
    const task = await client.sendMessage(request('hello', { configuration: { blocking: true } }))
    assert.deepEqual([task.kind, task.status.state], ['task', 'completed'])
    assert.match(textOf(task.artifacts[0].parts), /hello/)
  })

  await on('a non-blocking call is polled, then canceled once', async client => {
    const task = await client.sendMessage(request('long 200 50', { configuration: { blocking: false } }))
    assert.ok(['submitted', 'working'].includes(task.status.state), task.status.state)
    assert.equal((await client.cancelTask({ id: task.id })).status.state, 'canceled')
    await assert.rejects(client.cancelTask({ id: task.id }), TaskNotCancelableError)
  })

  await on('an approval is requested, given, and the task continues', async client => {
    const got = await events(client.sendMessageStream(request('approval')))
    const last = got.at(-1)
    assert.deepEqual([last.status.state, last.final], ['input-required', true])
    const item = last.status.message.parts[1].data.interrupt
    const answer = request({ interrupt_id: item.id, decision: 'accept' }, { task: last.taskId })
    const done = await events(client.sendMessageStream(answer))
    assert.deepEqual([done[0].id, done.at(-1).status.state], [last.taskId, 'completed'])
  })

  await on('a late subscriber misses nothing', async client => {
    let task
    for await (const event of client.sendMessageStream(request('long 30 50'))) {
      if (event.kind === 'task') task = event.id
      if (event.kind === 'artifact-update') break
    }
    const got = await events(client.resubscribeTask({ id: task }))
    const before = (got[0].artifacts ?? []).map(it => textOf(it.parts)).join('')
    const final = await client.getTask({ id: task })
    assert.equal(before + streamedText(got), textOf(final.artifacts[0].parts))
  })

  await on("errors are the client's own classes", async client => {
    const nobody = { id: randomUUID() }
    await assert.rejects(client.getTask(nobody), TaskNotFoundError)
    await assert.rejects(client.cancelTask(nobody), TaskNotFoundError)
    await assert.rejects(client.sendMessage(request('x', { task: nobody.id })), TaskNotFoundError)
    // In a stream this client reports only the text of the error.
    await assert.rejects(events(client.resubscribeTask(nobody)), /Task not found/)
    const task = await client.sendMessage(request('hello', { configuration: { blocking: true } }))
    await assert.rejects(client.sendMessage(request('more', { task: task.id })), UnsupportedOperationError)
    await assert.rejects(events(client.sendMessageStream(request('x', { task: nobody.id }))), /Task not found/)
  })
}

await check('JSONRPC: push configs are stored, listed and removed', async () => {
  const it = await client('JSONRPC')
  const task = await it.sendMessage(request('hello', { configuration: { blocking: true } }))
  const config = { url: 'http://127.0.0.1:9/hook', token: 'tok', authentication: { schemes: ['Bearer'], credentials: 's' } }
  const made = await it.setTaskPushNotificationConfig({ taskId: task.id, pushNotificationConfig: config })
  assert.deepEqual(made.pushNotificationConfig, { id: 'default', ...config })
  const kept = await it.getTaskPushNotificationConfig({ id: task.id })
  assert.deepEqual(kept, made)
  assert.equal((await it.listTaskPushNotificationConfig({ id: task.id })).length, 1)
  await it.deleteTaskPushNotificationConfig({ id: task.id, pushNotificationConfigId: 'default' })
  assert.equal((await it.listTaskPushNotificationConfig({ id: task.id })).length, 0)
})

close()
