// Every screen: accessibility, small windows, and how it looks.

import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'

import { api, CONSOLE_URL, enter, Gateway, open, SCREENS, signedIn, violations } from './browser.mjs'
import { check } from './checks.mjs'

for (const colorScheme of ['light', 'dark']) {
  await check(`every screen is accessible, and has its heading (${colorScheme})`, async () => {
    const page = await signedIn({ colorScheme })
    for (const [name, path] of Object.entries(SCREENS)) {
      await page.goto(`${CONSOLE_URL}#/${path}`)
      await page.getByRole('heading', { name, level: 1 }).waitFor()
      await sleep(200)
      assert.deepEqual(await violations(page), [], name)
      await page.screenshot({ path: `${name.toLowerCase()}-${colorScheme}.png` })
    }
    const [run] = (await (await page.evaluateHandle(async () => {
      const { bearer } = JSON.parse(sessionStorage.getItem('interlingua.session'))
      const found = await fetch('api/runs?limit=1', { headers: { authorization: `Bearer ${bearer}` } })
      return (await found.json()).data
    })).jsonValue())
    for (const tab of ['timeline', 'prism', 'details']) {
      await page.goto(`${CONSOLE_URL}#/runs/${run.id}?tab=${tab}`)
      await page.getByRole('tabpanel').waitFor()
      await sleep(300)
      assert.deepEqual(await violations(page), [], tab)
      await page.screenshot({ path: `run-${tab}-${colorScheme}.png` })
    }
    await page.context().close()
  })
}

await check('a phone shows every screen without scrolling sideways', async () => {
  const page = await signedIn({ viewport: { width: 360, height: 720 } })
  const [run] = (await api(page, 'GET', '/runs?limit=1')).json.data
  const screens = { ...SCREENS, Timeline: `runs/${run.id}`, Prism: `runs/${run.id}?tab=prism`, Details: `runs/${run.id}?tab=details` }
  for (const [name, path] of Object.entries(screens)) {
    await page.goto(`${CONSOLE_URL}#/${path}`)
    await page.getByRole('heading', { name: name in SCREENS ? name : 'Run', level: 1 }).waitFor()
    await sleep(300)
    const wide = await page.evaluate(() => document.documentElement.scrollWidth)
    assert.ok(wide <= 360, `${name} is ${wide} pixels wide`)
    await page.screenshot({ path: `${name.toLowerCase()}-phone.png` })
  }
  await page.context().close()
})

await check('at a zoom of 200 % every screen is whole, on a desk of 1360 pixels', async () => {
  const page = await signedIn({ viewport: { width: 680, height: 430 }, deviceScaleFactor: 2 })
  const [run] = (await api(page, 'GET', '/runs?limit=1')).json.data
  const screens = { ...SCREENS, prism: `runs/${run.id}?tab=prism`, timeline: `runs/${run.id}`, details: `runs/${run.id}?tab=details` }
  for (const [name, path] of Object.entries(screens)) {
    await page.goto(`${CONSOLE_URL}#/${path}`)
    await page.getByRole('heading', { level: 1 }).waitFor()
    await sleep(250)
    const wide = await page.evaluate(() => document.documentElement.scrollWidth)
    assert.ok(wide <= 680, `${name} is ${wide} pixels wide`)
    await page.screenshot({ path: `zoom-${name.toLowerCase()}.png` })
  }
  await page.context().close()
})

const LONG = 'agent-of-the-department-for-purchases-and-returns-in-the-north'

/** A gateway whose agents fail: one refuses connections, one has a name that fills a phone. */
const TROUBLED = `
[server]
listen = "{{listen}}"

[store]
kind = "memory"

[admin]
listen = "{{admin}}"

[agents.demo]
upstream = { protocol = "demo" }

[agents.broken]
upstream = { protocol = "agent-api", url = "http://127.0.0.1:9/process", retries = 0 }

[agents.${LONG}]
upstream = { protocol = "agent-api", url = "http://127.0.0.1:9/${'a-very-long-path-without-any-break'.repeat(4)}", retries = 0 }

[[routes]]
protocol = "agent-api"
path = "/agents/{agent}"
auth = "none"
`

await check('the Overview of a troubled gateway has the worst first, with causes, and all columns at 1280 pixels', async () => {
  const gateway = await new Gateway(TROUBLED).start()
  try {
    const ask = agent => fetch(`${gateway.url}/agents/${agent}/process`, {
      method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ input: [{ role: 'user', content: 'approve' }] }),
    }).then(response => response.text())
    for (const agent of ['broken', LONG, 'demo']) await ask(agent)
    const page = await open({ viewport: { width: 1280, height: 900 } })
    await page.goto(gateway.console)
    await enter(page, gateway.key)
    const attention = page.getByRole('region', { name: 'Needs attention' })
    await attention.getByText('broken').first().waitFor()
    const groups = await attention.locator('h3').allInnerTexts()
    const order = ['Broken', 'Degraded', 'Waits for a person', 'Configuration']
    assert.deepEqual(groups, order.filter(name => groups.includes(name)), 'worst first')
    assert.ok(groups.includes('Configuration') && groups[0] !== 'Configuration', groups.join())
    await attention.getByText('UPSTREAM_UNREACHABLE').first().waitFor()
    await page.screenshot({ path: 'overview-1280.png', fullPage: true })
    for (const width of [1280, 1440, 1600]) {
      await page.setViewportSize({ width, height: 900 })
      await sleep(200)
      const [inner, outer] = await page.locator('.agents .scroll').evaluate(box => [box.scrollWidth, box.clientWidth])
      assert.ok(inner <= outer, `the table of agents is ${inner} pixels wide in ${outer} at ${width}`)
    }

    await page.setViewportSize({ width: 360, height: 720 })
    const [run] = await page.evaluate(async () => {
      const { bearer } = JSON.parse(sessionStorage.getItem('interlingua.session'))
      const found = await fetch('api/runs?state=failed', { headers: { authorization: `Bearer ${bearer}` } })
      return (await found.json()).data
    })
    const screens = { ...SCREENS, Timeline: `runs/${run.id}`, Details: `runs/${run.id}?tab=details`, Prism: `runs/${run.id}?tab=prism` }
    for (const [name, path] of Object.entries(screens)) {
      await page.goto(`${gateway.console}#/${path}`)
      await page.getByRole('heading', { name: name in SCREENS ? name : 'Run', level: 1 }).waitFor()
      await sleep(300)
      const wide = await page.evaluate(() => document.documentElement.scrollWidth)
      assert.ok(wide <= 360, `${name} is ${wide} pixels wide`)
      await page.screenshot({ path: `troubled-${name.toLowerCase()}-phone.png`, fullPage: true })
    }
    await page.goto(`${gateway.console}#/runs/${run.id}`)
    await page.getByRole('button', { name: 'Copy cause' }).waitFor()
    assert.deepEqual(await violations(page), [])
    await page.context().close()
  } finally {
    await gateway.remove()
  }
})
