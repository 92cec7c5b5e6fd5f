// The screen Metrics: its numbers are those of the gateway, and only it loads the library of the charts.

import assert from 'node:assert/strict'

import { api, CONSOLE_URL, heading, say, signedIn, violations } from './browser.mjs'
import { check } from './checks.mjs'

const sum = values => values.reduce((one, other) => one + other, 0)

await check('the charts are loaded by the screen Metrics alone', async () => {
  const page = await signedIn()
  const loaded = () => page.evaluate(() => performance.getEntriesByType('resource').map(one => one.name).filter(name => name.includes('uplot')))
  for (const [path, name] of [['', 'Overview'], ['runs', 'Runs'], ['pending', 'Pending'], ['config', 'Config'], ['audit', 'Audit']]) {
    await page.goto(`${CONSOLE_URL}#/${path}`)
    await heading(page, name).waitFor()
    assert.deepEqual(await loaded(), [], name)
  }
  await page.goto(`${CONSOLE_URL}#/metrics`)
  await page.locator('.chart canvas').first().waitFor()
  assert.equal((await loaded()).length, 2)
  await page.context().close()
})

await check('the screen Metrics shows what the gateway counts, and keeps up', async () => {
  const page = await signedIn()
  const read = async window => (await api(page, 'GET', `/metrics?window=${window}`)).json
  const before = sum((await read('15m')).series.completed)
  await (await say('hello')).text()
  await page.goto(`${CONSOLE_URL}#/metrics`)
  assert.equal(await page.locator('.chart canvas').nth(6).waitFor().then(() => page.locator('.chart canvas').count()), 7)
  for (const [window, title] of [['15m', '15 min'], ['24h', '24 h']]) {
    await page.getByRole('button', { name: title }).click()
    await page.waitForFunction(([title, count]) => {
      // The numbers of the window before are there until the page is drawn again.
      const pressed = [...document.querySelectorAll('button[aria-pressed=true]')].some(one => one.textContent.trim() === title)
      if (!pressed) return false
      const row = [...document.querySelectorAll('table[aria-label="Latest values"] tr')].find(one => one.textContent.includes('completed'))
      return Number(row?.lastElementChild.textContent.replaceAll(',', '')) >= count
    }, [title, before + 1], { timeout: 20_000 })
    const row = async (table, name) => page.getByRole('table', { name: table, exact: true }).getByRole('row')
      .filter({ has: page.getByRole('rowheader', { name, exact: true }) }).locator('td').allTextContents()
    const shown = await read(window)
    const completed = sum(shown.series.completed).toLocaleString('en-US')
    assert.deepEqual(await row('Latest values', 'Runs completed, in all'), [completed], window)
    for (const [table, rows] of [['By agent', shown.by_agent], ['By protocol', shown.by_protocol]]) {
      for (const one of rows) {
        assert.deepEqual((await row(table, one.name)).slice(1), [one.ended, one.failed].map(count => count.toLocaleString('en-US')), one.name)
      }
    }
    assert.deepEqual(await violations(page), [], title)
    await page.screenshot({ path: `metrics-${window}.png`, fullPage: true })
  }
  await page.context().close()
})

await check('the charts and counts of one agent or protocol are chosen by name and by the address', async () => {
  const page = await signedIn()
  await (await say('hello')).text()
  await page.goto(`${CONSOLE_URL}#/metrics`)
  await page.getByLabel('Runs').selectOption('protocol:agent-api')
  await page.waitForFunction(() => location.hash.includes('protocol=agent-api'))
  const completed = async name => {
    const cell = page.getByRole('table', { name: 'Latest values', exact: true }).getByRole('row', { name }).locator('td')
    return Number((await cell.textContent()).replaceAll(',', ''))
  }
  await page.waitForFunction(() => [...document.querySelectorAll('.panel h2')].some(one => one.textContent.includes('of all runs')))
  assert.ok(await completed('Runs completed, in all') >= 1)
  await page.goto(`${CONSOLE_URL}#/metrics?agent=unknown`)
  await page.waitForFunction(() => document.querySelector('table[aria-label="Latest values"]')?.textContent.includes('Runs completed, in all0'))
  await page.context().close()
})

await check('the Overview shows traffic, first events and failures of the last minutes', async () => {
  const page = await signedIn()
  await (await say('fail')).text()
  await page.goto(`${CONSOLE_URL}#/`)
  const row = page.getByRole('table', { name: 'Agents' }).getByRole('row').filter({ hasText: 'demo' })
  await row.locator('.fault code').waitFor()
  await page.waitForFunction(() => document.querySelectorAll('.wires path.busy').length >= 2)
  assert.match(await row.textContent(), /\d+ (ms|s)/)
  assert.deepEqual(await violations(page), [])
  await page.screenshot({ path: 'overview-traffic.png' })
  await page.context().close()
})
