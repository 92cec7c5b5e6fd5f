// Large things on every screen: many runs, a run of many events, a long text, many pictures. What it costs is measured by
// budgets.mjs; here it has to work, and stay small in the page.

import assert from 'node:assert/strict'

import { api, clients, CONSOLE_URL, heading, post, say, signedIn } from './browser.mjs'
import { check } from './checks.mjs'

const RUNS = 600
const elements = page => page.evaluate(() => document.querySelectorAll('*').length)
const latest = async page => (await api(page, 'GET', '/runs?limit=1')).json.data[0]

await check('a run of 10,000 events is shown whole, on its timeline and in the prism', async () => {
  const page = await signedIn()
  const stream = await (await say('long 9990 0')).text()
  const words = JSON.parse(stream.trim().split('\n\n').at(-1).replace(/^data: /, '')).output.at(-1).content[0].text
  const run = await latest(page)
  assert.ok(run.events > 9990, `${run.events} events`)

  await page.goto(`${CONSOLE_URL}#/runs/${run.id}`)
  await page.getByRole('status', { name: 'State' }).filter({ hasText: 'completed' }).waitFor()
  const log = page.getByRole('log', { name: 'Timeline' })
  const all = log.getByRole('button', { name: /Show all/ })
  await all.waitFor()
  await all.click()
  await page.waitForFunction(words => document.querySelector('.card.message pre')?.textContent === words, words)

  await page.goto(`${CONSOLE_URL}#/runs/${run.id}?tab=prism`)
  const slider = page.getByRole('slider', { name: 'Event' })
  await slider.waitFor()
  await page.waitForFunction(last => document.querySelector('input[type=range]')?.max === String(last), run.events - 1, { timeout: 60_000 })
  await slider.focus()
  await page.keyboard.press('End')
  await page.locator('[aria-current=true]').filter({ hasText: 'completed' }).first().waitFor()
  assert.ok(await elements(page) <= 1500, `${await elements(page)} elements`)
  await page.context().close()
})

await check('a text of 5 MiB is shown in part, and whole if asked for', async () => {
  const page = await signedIn()
  const text = 'lorem ipsum '.repeat(5 * 2 ** 20 / 12)
  await (await clients['agent-api'](text)).text()
  const run = await latest(page)
  await page.goto(`${CONSOLE_URL}#/runs/${run.id}`)
  const log = page.getByRole('log', { name: 'Timeline' })
  await log.getByText('lorem ipsum').first().waitFor()
  assert.ok(await page.evaluate(() => document.querySelector('[role=log]').textContent.length) < 200_000)
  await log.getByRole('button', { name: /Show all/ }).first().click()
  await page.waitForFunction(length => document.querySelector('.card.input pre').textContent.length === length, text.length)
  await page.goto(`${CONSOLE_URL}#/runs`)
  await heading(page, 'Runs').waitFor()
  await page.context().close()
})

await check('20 pictures of a message are shown', async () => {
  const page = await signedIn()
  const picture = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='
  const content = Array.from({ length: 20 }, () => ({ type: 'image', image_url: `data:image/png;base64,${picture}` }))
  await (await post('/agents/demo/process', { input: [{ role: 'user', content: [{ type: 'text', text: 'look at these' }, ...content] }] })).text()
  const run = await latest(page)
  await page.goto(`${CONSOLE_URL}#/runs/${run.id}`)
  await page.waitForFunction(() => {
    const pictures = [...document.querySelectorAll('[role=log] .card.input img')]
    return pictures.length === 20 && pictures.every(one => one.complete && one.naturalWidth === 1 && one.src.startsWith('blob:'))
  })
  await page.context().close()
})

await check('a list of many runs is drawn where it is seen, and read to its end', async () => {
  const page = await signedIn()
  let next = 0
  await Promise.all(Array.from({ length: 8 }, async () => {
    while (next < RUNS) {
      next += 1
      await (await say(`many ${next}`)).text()
    }
  }))
  await page.goto(`${CONSOLE_URL}#/runs?text=many`)
  await page.getByRole('row').nth(10).waitFor()
  const { total } = (await api(page, 'GET', '/runs?text=many&limit=1')).json
  assert.ok(total >= RUNS)
  const list = page.getByRole('table', { name: 'Runs' })
  await page.waitForFunction(total => document.querySelector('[role=table]').getAttribute('aria-rowcount') === String(total + 1), total)
  // Each page is loaded as one comes near its end.
  await page.waitForFunction(total => {
    const scroller = document.querySelector('.scroller')
    scroller.scrollTop = scroller.scrollHeight
    return [...document.querySelectorAll('[role=row]')].some(row => row.getAttribute('aria-rowindex') === String(total + 1))
  }, total, { polling: 200, timeout: 30_000 })
  await list.getByText('many 1', { exact: true }).waitFor()
  assert.ok(await elements(page) <= 1500, `${await elements(page)} elements`)
  await page.context().close()
})
