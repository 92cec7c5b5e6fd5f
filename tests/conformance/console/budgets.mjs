// What the console costs: the page in the browser, and the gateway behind it. Measured, not tested: `cargo xtask bench
// console` runs it against a release build and prints a table, whose results are in docs/benchmarks.md.
//
// RUNS and STORED say how many runs the list and the store have, ROUNDS how often load is measured with and without a page,
// PARTS which parts are measured: assets, page, prism, load and summaries.

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import http from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'

import { browser, connection, Gateway, heading } from './browser.mjs'
import { check, close } from './checks.mjs'

const RUNS = Number(process.env.RUNS ?? 10_000)
const STORED = Number(process.env.STORED ?? 100_000)
const ROUNDS = Number(process.env.ROUNDS ?? 5)
const TICKS = 100
/** Clients that make runs side by side: an answer of the demo agent takes its time. */
const CLIENTS = 64

const PARTS = process.env.PARTS?.split(',')
const measure = (part, title, run) => (PARTS && !PARTS.includes(part) ? null : check(title, run))

const rows = []
const note = (what, value, budget, met) => { rows.push([what, value, budget, met]); console.log(`  ${met ? 'met   ' : 'MISSED'}  ${what}: ${value} (${budget})`) }
const ms = value => `${value.toFixed(1)} ms`
const at = (values, part) => [...values].sort((one, other) => one - other)[Math.min(values.length - 1, Math.floor(values.length * part))]
const median = values => at(values, 0.5)

const route = (protocol, path) => `[[routes]]\nprotocol = "${protocol}"\npath = "${path}"\n`
const CONFIG = store => `[server]\nlisten = "{{listen}}"\n[store]\n${store}\nretention = { runs = 200000 }\n[admin]\nlisten = "{{admin}}"
[agents.demo]\nupstream = { protocol = "demo" }\n${route('agent-api', '/agents/{agent}')}${route('responses', '/v1')}${route('a2a', '/a2a/{agent}')}${
  route('ag-ui', '/ag-ui/{agent}')}${route('ag-kit', '/ag-kit/{agent}')}`

const agent = new http.Agent({ keepAlive: true, maxSockets: CLIENTS })

/** Sends a request and reads the whole answer: its status, size and text. */
function request(url, { method = 'GET', headers = {}, body } = {}) {
  return new Promise((resolve, reject) => {
    const sent = http.request(url, { method, headers: { ...(body ? { 'content-type': 'application/json' } : {}), ...headers }, agent }, response => {
      const chunks = []
      response.on('data', chunk => chunks.push(chunk))
      response.on('end', () => resolve({ status: response.statusCode, bytes: chunks.reduce((sum, one) => sum + one.length, 0), text: Buffer.concat(chunks).toString() }))
      response.on('error', reject)
    })
    sent.on('error', reject)
    sent.end(body)
  })
}

const say = (gateway, text, session) => request(`${gateway.url}/agents/demo/process`, {
  method: 'POST', body: JSON.stringify({ session_id: session, input: [{ role: 'user', content: [{ type: 'text', text }] }] }),
})

/** Makes runs, as many at a time as there are clients. */
async function seed(gateway, count, text = number => `run number ${number}`) {
  let next = 0
  await Promise.all(Array.from({ length: CLIENTS }, async () => {
    while (next < count) {
      const number = next
      next += 1
      assert.equal((await say(gateway, text(number), `seed-${number}`)).status, 200)
    }
  }))
}

/** CPU time of the gateway in seconds. */
function cpu(gateway) {
  const stat = readFileSync(`/proc/${gateway.process.pid}/stat`, 'utf8')
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return (Number(fields[11]) + Number(fields[12])) / TICKS
}

async function signIn(gateway) {
  const { text } = await request(`${gateway.console}api/session`, { method: 'POST', body: JSON.stringify({ key: gateway.key }) })
  return { authorization: `Bearer ${JSON.parse(text).bearer}` }
}

async function page(gateway, where = '') {
  const context = await browser.newContext({ viewport: { width: 1360, height: 860 } })
  const found = await context.newPage()
  found.setDefaultTimeout(60_000)
  await found.goto(`${gateway.console}#key=${gateway.key}`)
  await connection(found, 'live')
  if (where) await found.goto(`${gateway.console}#/${where}`)
  return found
}

/** Frames and long tasks of a page from now on. */
const watch = page => page.evaluate(() => {
  window.frames_ = []
  window.tasks_ = []
  window.watching_ = true
  new PerformanceObserver(list => { for (const one of list.getEntries()) window.tasks_.push(one.duration) }).observe({ type: 'longtask' })
  let before = performance.now()
  const frame = now => {
    window.frames_.push(now - before)
    before = now
    if (window.watching_) requestAnimationFrame(frame)
  }
  requestAnimationFrame(frame)
})

async function seen(page, what) {
  const { frames, tasks, elements } = await page.evaluate(() => {
    window.watching_ = false
    return { frames: window.frames_.slice(2), tasks: window.tasks_, elements: document.querySelectorAll('*').length }
  })
  const client = await page.context().newCDPSession(page)
  await client.send('HeapProfiler.enable')
  await client.send('HeapProfiler.collectGarbage')
  const { usedSize } = await client.send('Runtime.getHeapUsage')
  const longest = Math.max(0, ...tasks)
  note(`${what}: frame, p95`, ms(at(frames, 0.95)), '≤ 34 ms', at(frames, 0.95) <= 34)
  note(`${what}: longest task`, ms(longest), '≤ 100 ms', longest <= 100)
  note(`${what}: elements`, String(elements), '≤ 1,500', elements <= 1500)
  note(`${what}: memory of scripts`, `${(usedSize / 2 ** 20).toFixed(1)} MiB`, '≤ 80 MiB', usedSize <= 80 * 2 ** 20)
}

await measure('assets', 'assets', async () => {
  const gateway = await new Gateway(CONFIG('kind = "memory"')).start()
  const loaded = await page(gateway)
  const size = async () => {
    const names = await loaded.evaluate(() => [location.href.split('#')[0], ...performance.getEntriesByType('resource').map(one => one.name)]
      .filter(name => !name.includes('/api/')))
    const sizes = await Promise.all([...new Set(names)].map(name => request(name, { headers: { 'accept-encoding': 'gzip' } })))
    return sizes.reduce((sum, one) => sum + one.bytes, 0)
  }
  await sleep(500)
  const first = await size()
  note('all assets of the page, gzip', `${(first / 1000).toFixed(1)} kB`, '≤ 80 kB', first <= 80_000)
  await loaded.goto(`${gateway.console}#/metrics`)
  await loaded.locator('.chart canvas').first().waitFor()
  const charts = await size()
  note('… with Metrics', `${(charts / 1000).toFixed(1)} kB`, '≤ 130 kB', charts <= 130_000)
  await loaded.context().close()
  await gateway.remove()
})

await measure('page', 'a page with many runs, and a run of 100 frames a second', async () => {
  const gateway = await new Gateway(CONFIG('kind = "sqlite"\npath = "gateway.db"')).start()
  await seed(gateway, RUNS)
  const times = []
  for (let round = 0; round < 5; round += 1) {
    const found = await page(gateway)
    await found.goto('about:blank')
    const begun = performance.now()
    await found.goto(`${gateway.console}#/runs`)
    await found.getByRole('row').nth(10).waitFor()
    times.push(performance.now() - begun)
    if (round < 4) await found.context().close()
    else {
      await watch(found)
      await found.locator('.scroller').hover()
      for (let step = 0; step < 150; step += 1) await found.mouse.wheel(0, 700)
      await sleep(1000)
      await seen(found, `scrolling ${RUNS} runs`)
      await found.context().close()
    }
  }
  note(`page to first rows, ${RUNS} runs`, ms(median(times)), '≤ 1 s', median(times) <= 1000)

  const idle = await page(gateway)
  await sleep(3000)
  const before = [cpu(gateway), performance.now()]
  await sleep(20_000)
  const part = (cpu(gateway) - before[0]) / ((performance.now() - before[1]) / 1000)
  note('gateway, idle, a page open', `${(100 * part).toFixed(2)} % of a core`, '≤ 1 %', part <= 0.01)
  await idle.context().close()

  const answer = say(gateway, 'long 2000 10', 'live')
  await sleep(300)
  const headers = await signIn(gateway)
  const [run] = JSON.parse((await request(`${gateway.console}api/runs?limit=1`, { headers })).text).data
  const live = await page(gateway, `runs/${run.id}`)
  await heading(live, 'Run').waitFor()
  await live.locator('.card.message pre').waitFor()
  await watch(live)
  const late = await live.evaluate(async () => {
    const { run, grown } = await import(new URL('state.js', location.href.split('#')[0]).href)
    const late = []
    let known = grown.peek()
    const until = performance.now() + 8000
    while (performance.now() < until) {
      await new Promise(resolve => requestAnimationFrame(() => setTimeout(resolve)))
      // The page is drawn in a frame; what was folded before it is on the screen after it.
      if (grown.peek() !== known) {
        known = grown.peek()
        const event = run.peek().frames.at(-1)
        late.push(Date.now() - event.at)
      }
    }
    return late
  })
  await seen(live, 'a run of 100 frames a second')
  note('event at the gateway to the screen, p95', ms(at(late, 0.95)), '≤ 150 ms', at(late, 0.95) <= 150)
  await answer
  await live.context().close()
  await gateway.remove()
})

await measure('prism', 'the prism of 10,000 events', async () => {
  const gateway = await new Gateway(CONFIG('kind = "memory"')).start()
  await say(gateway, 'long 9990 0', 'many')
  const headers = await signIn(gateway)
  const [run] = JSON.parse((await request(`${gateway.console}api/runs?limit=1`, { headers })).text).data
  assert.ok(run.events > 9990, `${run.events} events`)
  const protocols = 'agent-api,responses,a2a,ag-ui,ag-kit'
  const [firsts, alls] = [[], []]
  for (let round = 0; round < 5; round += 1) {
    const begun = performance.now()
    const response = await fetch(`${gateway.console}api/feed?run=${run.id}&protocols=${protocols}`, { headers })
    let text = ''
    let first = 0
    for await (const chunk of response.body.pipeThrough(new TextDecoderStream())) {
      if (!first && chunk.includes('"frames"')) first = performance.now() - begun
      text = text.slice(-4096) + chunk
      if (text.includes(`id: ${run.events - 1}\n`) || text.includes(`id:${run.events - 1}\n`)) break
    }
    firsts.push(first)
    alls.push(performance.now() - begun)
  }
  note(`prism of ${run.events} events in five protocols: first`, ms(median(firsts)), '≤ 100 ms', median(firsts) <= 100)
  note('… all', ms(median(alls)), '≤ 2 s', median(alls) <= 2000)
  await gateway.remove()
})

await measure('load', 'load with and without a page', async () => {
  const gateway = await new Gateway(CONFIG('kind = "memory"')).start()
  await seed(gateway, 2000)
  const cost = async () => {
    const before = cpu(gateway)
    await seed(gateway, 4000, number => `load ${number}`)
    return (cpu(gateway) - before) / 4000
  }
  const beside = async () => {
    const headers = await signIn(gateway)
    const abort = new AbortController()
    // What a page with the list of runs reads; the browser itself would take the processor from the gateway.
    const reading = fetch(`${gateway.console}api/feed?runs=1`, { headers, signal: abort.signal })
      .then(async response => { for await (const chunk of response.body) void chunk }).catch(() => {})
    await sleep(300)
    const found = await cost()
    abort.abort()
    await reading
    return found
  }
  const ratios = []
  for (let round = 0; round < ROUNDS; round += 1) {
    // The gateway has more runs each time: what that costs is the same on both sides.
    const [first, second, third, fourth] = [await cost(), await beside(), await beside(), await cost()]
    ratios.push((first + fourth) / (second + third))
  }
  const ratio = median(ratios)
  note('throughput of the gateway with a page open, by its CPU time for a run', `${(100 * ratio).toFixed(1)} %`, '≥ 98 %', ratio >= 0.98)
  await gateway.remove()
})

await measure('summaries', '200 of many summaries', async () => {
  const gateway = await new Gateway(CONFIG('kind = "sqlite"\npath = "gateway.db"')).start()
  await seed(gateway, STORED)
  const headers = await signIn(gateway)
  const times = []
  let answer
  for (let round = 0; round < 21; round += 1) {
    const begun = performance.now()
    answer = await request(`${gateway.console}api/runs?limit=200`, { headers: { ...headers, 'accept-encoding': 'gzip' } })
    times.push(performance.now() - begun)
  }
  assert.equal(JSON.parse(answer.text).data.length, 200)
  note(`200 summaries of ${STORED} runs`, ms(median(times)), '≤ 20 ms', median(times) <= 20)
  note('… their size', `${(answer.bytes / 1000).toFixed(1)} kB`, '≤ 60 kB', answer.bytes <= 60_000)
  await gateway.remove()
})

console.log(`\n| | | budget | |\n|---|---:|---:|---|\n${rows.map(([what, value, budget, met]) => `| ${what} | ${value} | ${budget} | ${met ? 'met' : 'missed'} |`).join('\n')}\n`)
await browser.close()
close()
