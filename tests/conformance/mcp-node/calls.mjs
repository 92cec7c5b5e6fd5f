// The official JavaScript clients with one face: the newest in both of its eras, and the one before it. Also persons who
// fill in forms, and readers of results. Not here: any check.

import { setTimeout as sleep } from 'node:timers/promises'

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import { Client as OlderClient } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport as OlderTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import {
  ElicitRequestSchema, ToolListChangedNotificationSchema,
} from '@modelcontextprotocol/sdk/types.js'

import { GATEWAY_URL } from './checks.mjs'

const INFO = { name: 'suite', version: '1.0.0' }
const RECONNECTION = {
  initialReconnectionDelay: 50, maxReconnectionDelay: 200, reconnectionDelayGrowFactor: 1.5, maxRetries: 5,
}

/** A client of the newest package. */
class Newest {
  constructor(name, mode) {
    Object.assign(this, { name, mode })
    this.isModern = mode === 'auto'
    this.revision = this.isModern ? '2026-07-28' : '2025-11-25'
  }

  transport(url, more = {}) {
    return new StreamableHTTPClientTransport(new URL(url), { reconnectionOptions: RECONNECTION, ...more })
  }

  create(capabilities) {
    const versionNegotiation = this.mode && { mode: this.mode }
    return new Client(INFO, { capabilities, ...(versionNegotiation && { versionNegotiation }) })
  }

  answers(client, person) {
    client.setRequestHandler('elicitation/create', ({ params }) => person(params))
  }

  onToolsChanged(client, handler) {
    client.setNotificationHandler('notifications/tools/list_changed', handler)
  }

  call(client, params, options) {
    return client.callTool(params, options)
  }

  version(client) {
    return client.getNegotiatedProtocolVersion()
  }
}

/** A client of the package before it. */
class Older extends Newest {
  transport(url, more = {}) {
    return new OlderTransport(new URL(url), { reconnectionOptions: RECONNECTION, ...more })
  }

  create(capabilities) {
    return new OlderClient(INFO, { capabilities })
  }

  answers(client, person) {
    client.setRequestHandler(ElicitRequestSchema, ({ params }) => person(params))
  }

  onToolsChanged(client, handler) {
    client.setNotificationHandler(ToolListChangedNotificationSchema, handler)
  }

  call(client, params, options) {
    return client.callTool(params, undefined, options)
  }

  version(client) {
    return client.transport.protocolVersion
  }
}

export const ALL = [new Newest('client'), new Newest('client, auto', 'auto'), new Older('sdk')]

/** Runs with a connected client, and closes it. */
export async function connected(kind, { path = '/mcp', person, ...more }, run) {
  const client = kind.create(person ? { elicitation: { form: {}, url: {} } } : {})
  if (person) kind.answers(client, person)
  await client.connect(kind.transport(GATEWAY_URL + path, more))
  try {
    return await run(client, (message, { tool = 'demo', ...extra } = {}, options = undefined) =>
      kind.call(client, { name: tool, arguments: { message, ...extra } }, options))
  } finally {
    await client.close()
  }
}

/** Fills in forms with answers given beforehand, the last one again and again. `seen` has all that was shown. */
export function person(...answers) {
  const seen = []
  const fill = async params => {
    seen.push(params)
    const answer = answers.length > 1 ? answers.shift() : answers[0]
    return typeof answer === 'function' ? answer(params) : answer
  }
  return Object.assign(fill, { seen, forms: () => seen.filter(params => params.mode !== 'url') })
}

export const accept = content => ({ action: 'accept', content })
export const DECLINE = { action: 'decline' }
export const CANCEL = { action: 'cancel' }

export const meta = (result, name) => result._meta?.[`interlingua/${name}`]
export const isNote = block => block.annotations?.audience?.join() === 'assistant'

/** The texts of a result that are for people. */
export const texts = result => result.content.filter(it => it.type === 'text' && !isNote(it)).map(it => it.text)

/** Collects progress: pass `options` with a call. */
export function progress() {
  const seen = []
  const noted = name => seen.map(it => it._meta?.[`interlingua/${name}`]).filter(it => it !== undefined)
  return { seen, noted, text: () => noted('delta').join(''), options: { onprogress: it => seen.push(it) } }
}

/** A `fetch` that breaks each of the next event streams off, after this number of events. `made` counts the cuts. */
export function cuttingFetch(...cuts) {
  const state = { made: 0, cuts }
  const fetching = async (url, options) => {
    const response = await fetch(url, options)
    // The session's own stream is left alone.
    const isOwn = (options?.method ?? 'GET') === 'GET' && !new Headers(options?.headers).has('last-event-id')
    const isStream = response.headers.get('content-type')?.includes('text/event-stream')
    if (!isStream || isOwn || state.cuts.length === 0) return response
    let left = state.cuts.shift()
    const reader = response.body.getReader()
    const body = new ReadableStream({
      async pull(controller) {
        const { value, done } = await reader.read()
        if (done) return controller.close()
        left -= Buffer.from(value).toString('latin1').split('data: {').length - 1
        if (left >= 0) return controller.enqueue(value)
        state.made += 1
        // In the middle of an event.
        controller.enqueue(value.subarray(0, Math.floor(value.length / 2)))
        await reader.cancel()
        controller.error(new TypeError('terminated'))
      },
      cancel: reason => reader.cancel(reason),
    })
    return new Response(body, { status: response.status, headers: response.headers })
  }
  return { state, fetch: fetching }
}

export async function json(method, url, body) {
  const response = await fetch(url, { method, body: JSON.stringify(body), headers: { 'content-type': 'application/json' } })
  return response.json()
}

export const nativeRun = run => json('GET', `${GATEWAY_URL}/agents/demo/runs/response_${run}`)

/** Waits for one of these states of a run. */
export async function statusOf(run, ...wanted) {
  for (let tries = 0; tries < 200; tries++) {
    const { status } = await nativeRun(run)
    if (wanted.includes(status)) return status
    await sleep(50)
  }
  throw new Error(`the run ${run} is not ${wanted.join(' or ')}`)
}

/** Decides the only open question of a run over the Agent API. */
export async function nativeAnswer(run, session, approve) {
  await statusOf(run, 'completed', 'incomplete', 'in_progress')
  let asked
  for (let tries = 0; !asked && tries < 100; tries++) {
    asked = ((await nativeRun(run)).output ?? []).find(message => message.type === 'mcp_approval_request')
    if (!asked) await sleep(50)
  }
  const data = { approval_request_id: asked.content[0].data.id, approve }
  const message = { type: 'mcp_approval_response', role: 'user', content: [{ type: 'data', data }] }
  return json('POST', `${GATEWAY_URL}/agents/demo/process`, { stream: false, session_id: session, input: [message] })
}
