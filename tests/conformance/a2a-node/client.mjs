// A2A 1.0 with the official JavaScript client, over both bindings, against the demo agent.

import assert from 'node:assert/strict'
import { createPublicKey, randomUUID } from 'node:crypto'
import { AGENT_CARD_PATH, AgentCard, Role, TaskState, verifyAgentCardSignature } from '@a2a-js/sdk'
import {
  ClientFactory,
  ClientFactoryOptions,
  JsonRpcTransportFactory,
  RestTransportFactory,
} from '@a2a-js/sdk/client'
import {
  RequestMalformedError,
  TaskNotCancelableError,
  TaskNotFoundError,
  UnsupportedOperationError,
} from '@a2a-js/sdk/errors'
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

const part = content => ({ content, metadata: undefined, filename: '', mediaType: '' })
const text = value => part({ $case: 'text', value })
const data = value => part({ $case: 'data', value })

function request(parts, { task = '', context = '', configuration } = {}) {
  const message = {
    messageId: randomUUID(),
    role: Role.ROLE_USER,
    parts: typeof parts === 'string' ? [text(parts)] : parts,
    contextId: context,
    taskId: task,
    metadata: undefined,
    extensions: [],
    referenceTaskIds: [],
  }
  return { tenant: '', message, configuration, metadata: undefined }
}

async function events(stream) {
  const got = []
  for await (const event of stream) got.push(event.payload)
  return got
}

const textOf = parts => parts.map(it => (it.content?.$case === 'text' ? it.content.value : '')).join('')
const streamedText = got =>
  got.filter(it => it.$case === 'artifactUpdate').map(it => textOf(it.value.artifact.parts)).join('')

for (const binding of ['JSONRPC', 'HTTP+JSON']) {
  const on = (sentence, run) => check(`${binding}: ${sentence}`, async () => run(await client(binding)))

  await on('the client negotiates version 1.0', async client => assert.equal(client.protocolVersion, '1.0'))

  await on('a reply is streamed: the task first, its end last', async client => {
    const got = await events(client.sendMessageStream(request('hello there')))
    assert.equal(got[0].$case, 'task')
    assert.equal(got.at(-1).value.status.state, TaskState.TASK_STATE_COMPLETED)
    const task = await client.getTask({ id: got[0].value.id, tenant: '' })
    assert.equal(textOf(task.artifacts[0].parts), streamedText(got))
    assert.equal(task.artifacts[0].parts.length, 1)
  })

  await on('a blocking call returns the task', async client => {
    const task = await client.sendMessage(request('hello'))
    assert.equal(task.status.state, TaskState.TASK_STATE_COMPLETED)
    assert.match(textOf(task.artifacts[0].parts), /hello/)
  })

  await on('a non-blocking call is polled, then canceled once', async client => {
    const configuration = {
      acceptedOutputModes: [],
      taskPushNotificationConfig: undefined,
      historyLength: undefined,
      returnImmediately: true,
    }
    const task = await client.sendMessage(request('long 200 50', { configuration }))
    assert.ok([TaskState.TASK_STATE_SUBMITTED, TaskState.TASK_STATE_WORKING].includes(task.status.state))
    const ended = await client.cancelTask({ id: task.id, tenant: '', metadata: undefined })
    assert.equal(ended.status.state, TaskState.TASK_STATE_CANCELED)
    await assert.rejects(client.cancelTask({ id: task.id, tenant: '', metadata: undefined }), TaskNotCancelableError)
  })

  await on('an approval is requested, given, and the task continues', async client => {
    const got = await events(client.sendMessageStream(request('approval')))
    const last = got.at(-1).value
    assert.equal(last.status.state, TaskState.TASK_STATE_INPUT_REQUIRED)
    const item = last.status.message.parts[1].content.value.interrupt
    const answer = [data({ interrupt_id: item.id, decision: 'accept' })]
    const done = await events(client.sendMessageStream(request(answer, { task: last.taskId })))
    assert.equal(done[0].value.id, last.taskId)
    assert.equal(done.at(-1).value.status.state, TaskState.TASK_STATE_COMPLETED)
  })

  await on('a text without a decision gets the interrupt again', async client => {
    const asked = await client.sendMessage(request('approval'))
    const again = await client.sendMessage(request('why?', { task: asked.id }))
    assert.equal(again.status.state, TaskState.TASK_STATE_INPUT_REQUIRED)
    // It says why it asks again, so it is another message about the same item.
    assert.notEqual(again.status.message.messageId, asked.status.message.messageId)
    const item = task => task.status.message.parts.map(part => part.content.value.interrupt).find(Boolean)
    assert.equal(item(again).id, item(asked).id)
    assert.ok(again.status.message.parts[0].content.value)
  })

  await on('a late subscriber misses nothing', async client => {
    let task
    for await (const event of client.sendMessageStream(request('long 30 50'))) {
      if (event.payload.$case === 'task') task = event.payload.value.id
      if (event.payload.$case === 'artifactUpdate') break
    }
    const got = await events(client.resubscribeTask({ id: task, tenant: '' }))
    assert.equal(got[0].$case, 'task')
    const before = got[0].value.artifacts.map(it => textOf(it.parts)).join('')
    const final = await client.getTask({ id: task, tenant: '' })
    assert.equal(before + streamedText(got), textOf(final.artifacts[0].parts))
  })

  await on('lists are paged and counted', async client => {
    const context = randomUUID()
    for (const _ of [1, 2, 3]) await client.sendMessage(request('hello', { context }))
    const filter = { tenant: '', contextId: context, status: TaskState.TASK_STATE_UNSPECIFIED, pageSize: 2, pageToken: '' }
    const page = await client.listTasks(filter)
    assert.deepEqual([page.tasks.length, page.totalSize, page.pageSize], [2, 3, 2])
    const rest = await client.listTasks({ ...filter, pageToken: page.nextPageToken })
    assert.deepEqual([rest.tasks.length, rest.nextPageToken], [1, ''])
  })

  await on('push configs are stored, listed and removed', async client => {
    const task = await client.sendMessage(request('hello'))
    const config = {
      tenant: '',
      id: '',
      taskId: task.id,
      url: 'http://127.0.0.1:9/hook',
      token: 'tok',
      authentication: { scheme: 'Bearer', credentials: 's3cr3t' },
    }
    const made = await client.createTaskPushNotificationConfig(config)
    assert.ok(made.id)
    const one = { tenant: '', taskId: task.id, id: made.id }
    assert.equal((await client.getTaskPushNotificationConfig(one)).authentication.credentials, 's3cr3t')
    const list = { tenant: '', taskId: task.id, pageSize: 0, pageToken: '' }
    assert.equal((await client.listTaskPushNotificationConfig(list)).configs.length, 1)
    await client.deleteTaskPushNotificationConfig(one)
    assert.equal((await client.listTaskPushNotificationConfig(list)).configs.length, 0)
    const inside = { ...config, url: 'https://10.0.0.1/hook' }
    await assert.rejects(client.createTaskPushNotificationConfig(inside), RequestMalformedError)
  })

  await on("errors are the client's own classes", async client => {
    const nobody = { id: randomUUID(), tenant: '' }
    await assert.rejects(client.getTask(nobody), TaskNotFoundError)
    await assert.rejects(events(client.resubscribeTask(nobody)), TaskNotFoundError)
    await assert.rejects(client.sendMessage(request('x', { task: nobody.id })), TaskNotFoundError)
    const task = await client.sendMessage(request('hello'))
    await assert.rejects(client.sendMessage(request('more', { task: task.id })), UnsupportedOperationError)
    await assert.rejects(events(client.sendMessageStream(request('more', { task: task.id }))), UnsupportedOperationError)
    await assert.rejects(client.sendMessage(request([])), RequestMalformedError)
  })
}

const PUBLIC = `-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAELBevA3oF5I+MfuHYm2HaECdpN9/l
KRbV53nIEpsAZCNFt5im+Qz5KvcIU+1M8ph8YcY/NgRJxuJh1ttQ7uu6ng==
-----END PUBLIC KEY-----
`

await check('the card is signed and the client verifies the signature', async () => {
  const fetched = await fetch(new URL(AGENT_CARD_PATH, AGENT), { headers: { 'A2A-Version': '1.0' } })
  const card = AgentCard.fromJSON(await fetched.json())
  const verify = verifyAgentCardSignature(async () => createPublicKey(PUBLIC))
  await verify(card)
  await assert.rejects(verify({ ...card, description: 'another' }))
})

close()
