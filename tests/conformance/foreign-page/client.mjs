// A page of another origin in a real browser: whatever it tries on any endpoint of the gateway, nothing runs, and it
// reads nothing. A page of an origin that a route lists may use that route.
//
// `endpoints.txt` has all endpoints; a test of the gateway compares it with those that are mounted. The browser finds
// every name below `.example` on this machine.

import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'

import { chromium } from 'playwright-core'

import { GATEWAY_URL, UPSTREAM_URL, check, close } from './checks.mjs'

const STARTED = /operators find metrics and state at ([^ ]+): /.exec(readFileSync('gateway.log', 'utf8'))
const ADMIN_URL = `http://${STARTED[1]}`
const FOREIGN_URL = `http://foreign.example:${new URL(UPSTREAM_URL).port}`
const SINK_URL = `http://sink.example:${new URL(UPSTREAM_URL).port}/sink`

const hello = { role: 'user', content: [{ type: 'text', text: 'hello' }] }
const message = { messageId: 'm', role: 'ROLE_USER', parts: [{ text: 'hello' }] }

/** A body that makes the agent run, by the end of the path. */
const BODIES = [
  [/\/process(\/task)?$/, { input: [hello] }],
  [/\/responses$/, { model: 'demo', input: 'hello' }],
  [/\/chat\/completions$/, { model: 'demo', messages: [{ role: 'user', content: 'hello' }] }],
  [/\/v1\/messages$/, { model: 'demo', max_tokens: 100, messages: [{ role: 'user', content: 'hello' }] }],
  [/\/ag-ui\/demo$/, { threadId: 't', runId: 'r', messages: [{ id: 'm', role: 'user', content: 'hello' }] }],
  [/\/a2a\/demo$/, { jsonrpc: '2.0', id: 1, method: 'SendMessage', params: { message } }],
  [/\/v1\/message:(send|stream)$/, { message: { messageId: 'm', role: 'ROLE_USER', content: [{ text: 'hello' }] } }],
  [/\/message:(send|stream)$/, { message }],
  [/\/send-message$/, { conversationId: 'c', messages: [{ role: 'user', content: 'hello' }], msg: 'hello' }],
  [/\/agent\/invoke$/, { user_id: 'ada', query: 'hello' }],
  [/\/mcp$/, { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'demo', arguments: { message: 'hello' } } }],
]
const bodyOf = path => JSON.stringify(BODIES.find(([ending]) => ending.test(path))?.[1] ?? {})

const listed = readFileSync(new URL('endpoints.txt', import.meta.url), 'utf8').trim().split('\n')
const ENDPOINTS = listed.map(line => {
  const [method, pattern] = line.split(' ')
  const path = pattern.replaceAll(/\{[^}]*\}/g, 'x')
  return { method, url: GATEWAY_URL + path, body: bodyOf(path) }
})
for (const path of ['/healthz', '/readyz', '/app/v1/models']) {
  ENDPOINTS.push({ method: 'GET', url: GATEWAY_URL + path, body: '{}' })
}
ENDPOINTS.push({ method: 'POST', url: `${GATEWAY_URL}/app/v1/responses`, body: bodyOf('/app/v1/responses') })

const OPERATIONS = ['metrics', 'healthz', 'readyz', 'api/gateway', 'api/config', 'api/routes', 'api/agents', 'api/runs']
for (const path of [...OPERATIONS, 'api/callers', 'api/log']) {
  ENDPOINTS.push({ method: 'GET', url: `${ADMIN_URL}/${path}`, body: '{}' })
}
ENDPOINTS.push({ method: 'POST', url: `${ADMIN_URL}/api/reload`, body: '{}' })
ENDPOINTS.push({ method: 'PUT', url: `${ADMIN_URL}/api/log`, body: '{"filter":"trace"}' })

const read = async url => (await fetch(url)).json()
const runs = () => read(`${UPSTREAM_URL}/runs`)

/** What a page can do with one URL, each by its name. They return what the page could read or see, or nothing. */
function ways() {
  const settled = (element, url) =>
    new Promise(resolve => {
      element.onload = () => resolve('loaded')
      element.onerror = () => resolve(undefined)
      element.src = url
      document.body.append(element)
      setTimeout(resolve, 10_000, undefined)
    }).finally(() => element.remove())
  const fetched = async (url, options) => {
    try {
      const response = await fetch(url, options)
      return response.type === 'opaque' ? undefined : `${response.status} ${await response.text()}`
    } catch {
      return undefined
    }
  }
  const hasBody = method => method !== 'GET' && method !== 'HEAD'

  return {
    json: (url, method, body) =>
      fetched(url, {
        method,
        body: hasBody(method) ? body : undefined,
        headers: { 'content-type': 'application/json' },
      }),
    header: (url, method, body) =>
      fetched(url, { method, body: hasBody(method) ? body : undefined, headers: { 'a2a-version': '1.0' } }),
    simple: (url, method, body) =>
      fetched(url, hasBody(method) ? { method: 'POST', body, headers: { 'content-type': 'text/plain' } } : {}),
    untyped: (url, method, body) =>
      fetched(url, { method: 'POST', mode: 'no-cors', body: new Blob([body]), credentials: 'include' }),
    form: (url, method, body) =>
      new Promise(resolve => {
        const frame = document.createElement('iframe')
        frame.name = `frame${Math.random()}`
        const form = document.createElement('form')
        Object.assign(form, { action: url, method: 'POST', enctype: 'text/plain', target: frame.name })
        const field = document.createElement('input')
        // With the sign that the browser puts between name and value, this is the body.
        const name = body === '{}' ? '{"a":"' : `${body.slice(0, -1)},"a":"`
        Object.assign(field, { name, value: '"}' })
        form.append(field)
        document.body.append(frame, form)
        let sent = false
        frame.onload = () => {
          if (!sent) return
          let text
          try {
            text = frame.contentDocument?.body.innerText
          } catch {
            text = undefined
          }
          frame.remove()
          form.remove()
          resolve(text)
        }
        setTimeout(() => {
          sent = true
          form.submit()
        }, 0)
        setTimeout(resolve, 3000, undefined)
      }),
    beacon: (url, method, body) => {
      navigator.sendBeacon(url, body)
    },
    events: url =>
      new Promise(resolve => {
        const source = new EventSource(url)
        const end = seen => {
          source.close()
          resolve(seen)
        }
        source.onopen = () => end('open')
        source.onmessage = event => end(event.data)
        source.onerror = () => end(undefined)
      }),
    socket: url =>
      new Promise(resolve => {
        const socket = new WebSocket(url.replace('http', 'ws'))
        socket.onopen = () => {
          socket.close()
          resolve('open')
        }
        socket.onerror = socket.onclose = () => resolve(undefined)
      }),
    image: url => settled(document.createElement('img'), url),
    script: url => settled(document.createElement('script'), url),
    video: url => {
      const video = document.createElement('video')
      video.src = url
      document.body.append(video)
    },
  }
}

/** Tries all ways on these endpoints in a page, some at a time, and returns what it could see. */
async function attack(page, endpoints, sink) {
  return page.evaluate(
    async ({ source, endpoints, sink }) => {
      const ways = new Function(`return (${source})()`)()
      const seen = []
      const tries = endpoints.flatMap(one => Object.entries(ways).map(([name, way]) => ({ ...one, name, way })))
      const attempt = async ({ name, way, url, method, body }) => {
        const found = await way(sink ? `${sink}/${name}` : url, method, body)
        if (found !== undefined) seen.push(`${name} ${method} ${url}: ${found}`)
      }

      const [sockets, others] = [true, false].map(kind => tries.filter(({ name }) => (name === 'socket') === kind))
      const work = async () => {
        for (let one = others.pop(); one; one = others.pop()) await attempt(one)
      }
      // The browser makes each socket wait for seconds once some have failed: so they wait together.
      await Promise.all([...sockets.map(attempt), ...Array.from({ length: 6 }, work)])
      return seen
    },
    { source: ways.toString(), endpoints, sink },
  )
}

const switches = [
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  '--disable-dev-shm-usage',
  '--host-resolver-rules=MAP *.example 127.0.0.1',
  // It is the gateway that has to refuse such requests, not this browser.
  '--disable-features=LocalNetworkAccessChecks,BlockInsecurePrivateNetworkRequests,PrivateNetworkAccessChecks',
]
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM,
  headless: true,
  chromiumSandbox: false,
  args: switches,
  timeout: 90_000,
})
const open = async url => {
  const page = await browser.newPage()
  await page.goto(url)
  return page
}

await check('the bodies make the agent run, if no page sends them', async () => {
  const before = await runs()
  const makesRun = ({ method, body, url }) => method === 'POST' && body !== '{}' && !url.includes('/app/')
  const posts = ENDPOINTS.filter(makesRun)
  for (const { url, body } of posts) {
    const version = url.includes('/v1/message') ? '0.3' : '1.0'
    const headers = { 'content-type': 'application/json', 'a2a-version': version }
    const response = await fetch(url, { method: 'POST', headers, body })
    const text = await response.text()
    assert.ok(response.ok && !text.includes('"error":{'), `${url}: ${response.status} ${text}`)
  }
  for (const deadline = Date.now() + 10_000; (await runs()) < before + posts.length && Date.now() < deadline; ) {
    await sleep(50)
  }
  assert.equal(await runs(), before + posts.length)
})

await check('what the page tries arrives at a server that takes everything', async () => {
  const page = await open(FOREIGN_URL)
  await attack(page, [{ method: 'POST', url: '', body: '{}' }], SINK_URL)
  const names = Object.keys(ways()).sort()
  let arrived = []
  for (const deadline = Date.now() + 10_000; arrived.length < names.length && Date.now() < deadline; await sleep(50)) {
    arrived = Object.keys(await read(`${UPSTREAM_URL}/arrived`)).sort()
  }
  assert.deepEqual(arrived, names)
  await page.close()
})

/** Asserts that a page of this URL sees nothing, and that nothing runs. */
async function assertNothing(url, endpoints) {
  const before = await runs()
  const page = await open(url)
  const seen = await attack(page, endpoints)
  await page.close()
  assert.deepEqual(seen, [])
  // What was sent last may still be on its way.
  await sleep(500)
  assert.equal(await runs(), before, 'the agent ran')
}

await check(`a foreign page neither runs nor reads anything, on ${ENDPOINTS.length} endpoints`, () =>
  assertNothing(FOREIGN_URL, ENDPOINTS))

/** Those that make something run, and those of operators. */
const WORTHWHILE = ENDPOINTS.filter(({ url, body }) => body !== '{}' || url.startsWith(ADMIN_URL))

await check('nor does a page of another port of this machine, by whatever name', async () => {
  const others = WORTHWHILE.filter(({ url }) => !url.includes('/app/'))
  for (const name of ['127.0.0.1', 'localhost']) await assertNothing(UPSTREAM_URL.replace('127.0.0.1', name), others)
})

await check('nor does a page without an origin', async () => {
  const before = await runs()
  const page = await open(FOREIGN_URL)
  const child = page.waitForEvent('frameattached')
  await page.evaluate(() => {
    const frame = document.createElement('iframe')
    frame.setAttribute('sandbox', 'allow-scripts allow-forms')
    frame.srcdoc = '<!doctype html><body></body>'
    document.body.append(frame)
  })
  const frame = await child
  await frame.waitForLoadState()
  assert.equal(await frame.evaluate(() => self.origin), 'null')
  assert.deepEqual(await attack(frame, WORTHWHILE), [])
  await sleep(500)
  assert.equal(await runs(), before, 'the agent ran')
  await page.close()
})

await check('a page whose name was rebound to the gateway is told that nothing is served there', async () => {
  const before = await runs()
  for (const base of [GATEWAY_URL, ADMIN_URL]) {
    const rebound = base.replace('127.0.0.1', 'rebound.example')
    const page = await browser.newPage()
    // The page itself came from the attacker, before the name was rebound.
    await page.route(`${rebound}/attack`, route => route.fulfill({ contentType: 'text/html', body: '<!doctype html>' }))
    await page.goto(`${rebound}/attack`)
    const endpoints = ENDPOINTS.filter(({ url }) => url.startsWith(base)).map(one => ({
      ...one,
      url: one.url.replace(base, rebound),
    }))
    const answers = await page.evaluate(async endpoints => {
      const statuses = []
      for (const { method, url, body } of endpoints) {
        const headers = { 'content-type': 'application/json', 'a2a-version': '1.0' }
        const response = await fetch(url, method === 'GET' ? {} : { method, body, headers })
        statuses.push(`${response.status} ${method} ${url}`)
      }
      return statuses
    }, endpoints)
    assert.deepEqual(answers.filter(answer => !answer.startsWith('421 ')), [])
    const opened = await page.evaluate(
      url =>
        new Promise(resolve => {
          const socket = new WebSocket(url)
          socket.onopen = () => resolve(true)
          socket.onerror = () => resolve(false)
        }),
      `${rebound.replace('http', 'ws')}/v1/responses`,
    )
    assert.equal(opened, false)
    await page.close()
  }
  assert.equal(await runs(), before, 'the agent ran')
})

await check('a form that leads to the gateway shows a refusal, and runs nothing', async () => {
  const before = await runs()
  for (const path of ['/agents/demo/process', '/v1/responses', '/hitl/demo/agent/invoke']) {
    const page = await open(FOREIGN_URL)
    const navigated = page.waitForNavigation()
    await page.evaluate(
      ({ url, body }) => {
        const form = document.createElement('form')
        Object.assign(form, { action: url, method: 'POST', enctype: 'text/plain' })
        const field = document.createElement('input')
        Object.assign(field, { name: `${body.slice(0, -1)},"a":"`, value: '"}' })
        form.append(field)
        document.body.append(form)
        form.submit()
      },
      { url: GATEWAY_URL + path, body: bodyOf(path) },
    )
    assert.equal((await navigated).status(), 403, path)
    await page.close()
  }
  assert.equal(await runs(), before, 'the agent ran')
})

const key = execFileSync(process.env.INTERLINGUA, ['key', 'new', 'ann', '--config', 'gateway.toml'], {
  encoding: 'utf8',
}).trim()

/** Asks on the route for the app, in a page, and returns the streamed text, or why there is none. */
const stream = (page, key) =>
  page.evaluate(
    async ({ url, key }) => {
      const headers = { 'content-type': 'application/json', ...(key ? { authorization: `Bearer ${key}` } : {}) }
      const body = JSON.stringify({ model: 'demo', input: 'hello', stream: true })
      try {
        const response = await fetch(url, { method: 'POST', headers, body })
        let text = `${response.status} `
        for await (const chunk of response.body.pipeThrough(new TextDecoderStream())) text += chunk
        return text
      } catch (error) {
        return `nothing: ${error}`
      }
    },
    { url: `${GATEWAY_URL}/app/v1/responses`, key },
  )

await check('an app of an origin that the route lists streams, with a key', async () => {
  const before = await runs()
  const page = await open(UPSTREAM_URL)
  let text = ''
  // The gateway looks at its keys every second.
  for (const deadline = Date.now() + 10_000; Date.now() < deadline; await sleep(200)) {
    text = await stream(page, key)
    if (!text.startsWith('401')) break
  }
  assert.match(text, /^200 [^]*response\.output_text\.delta[^]*the agent ran[^]*response\.completed/)
  assert.equal(await runs(), before + 1)
  assert.match(await stream(page, undefined), /^401 [^]*invalid_api_key/)
  await page.close()

  const foreign = await open(FOREIGN_URL)
  assert.match(await stream(foreign, key), /^nothing: /)
  assert.equal(await runs(), before + 1)
})

await browser.close()
close()
