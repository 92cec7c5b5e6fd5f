// Every screen by keyboard alone: no test here uses a mouse.

import assert from 'node:assert/strict'

import { api, clients, CONSOLE_URL, heading, open, say, START_KEY } from './browser.mjs'
import { check } from './checks.mjs'

const focused = page => page.evaluate(() => {
  const { activeElement: one } = document
  return one.getAttribute('aria-label') ?? one.textContent.trim().slice(0, 60)
})

/** Presses Tab until an element has the focus. */
async function tabTo(page, locator, most = 40) {
  for (let count = 0; count < most; count += 1) {
    if (await locator.evaluate(one => one === document.activeElement)) return
    await page.keyboard.press('Tab')
  }
  throw new Error(`Tab does not reach ${locator}, the focus is on ${await focused(page)}`)
}

async function enterByKeys() {
  const page = await open()
  await page.goto(CONSOLE_URL)
  await heading(page, 'Sign in').waitFor()
  await tabTo(page, page.getByLabel('Access key'))
  await page.keyboard.type(START_KEY)
  await page.keyboard.press('Enter')
  await heading(page, 'Overview').waitFor()
  return page
}

await check('keys go to every screen, through a list, a run and its tabs, and back', async () => {
  await (await say('by keyboard alone')).text()
  const page = await enterByKeys()
  for (const [key, name] of [['r', 'Runs'], ['p', 'Pending'], ['y', 'Playground'], ['m', 'Metrics'], ['c', 'Config'], ['a', 'Audit'], ['o', 'Overview'], ['r', 'Runs']]) {
    await page.keyboard.press('g')
    await page.keyboard.press(key)
    await heading(page, name).waitFor()
  }

  await page.getByRole('row').filter({ hasText: 'by keyboard alone' }).first().waitFor()
  await page.keyboard.press('/')
  await page.keyboard.type('by keyboard alone')
  await page.waitForFunction(() => new URLSearchParams(location.hash.split('?')[1]).get('text') === 'by keyboard alone')
  await page.keyboard.press('Escape')
  await page.waitForFunction(() => document.querySelectorAll('main a.row').length === 1)
  await page.keyboard.press('j')
  assert.match(await focused(page), /by keyboard alone/)
  await page.keyboard.press('k')
  await page.keyboard.press('Enter')
  await heading(page, 'Run').waitFor()

  await tabTo(page, page.getByRole('tab', { name: 'Timeline' }))
  for (const [key, name] of [['ArrowRight', 'Prism'], ['ArrowRight', 'Details'], ['ArrowRight', 'Timeline'], ['End', 'Details'],
    ['Home', 'Timeline'], ['ArrowLeft', 'Details'], ['ArrowLeft', 'Prism']]) {
    await page.keyboard.press(key)
    await page.waitForFunction(name => document.activeElement.textContent === name
      && document.activeElement.getAttribute('aria-selected') === 'true', name)
    await page.getByRole('tabpanel', { name }).waitFor()
  }
  await tabTo(page, page.getByRole('slider', { name: 'Event' }))
  await page.keyboard.press('Home')
  await page.getByText('event 0', { exact: true }).waitFor()
  await page.keyboard.press('ArrowRight')
  await page.getByText('event 1', { exact: true }).waitFor()

  await page.keyboard.press('Escape')
  await heading(page, 'Runs').waitFor()
  await page.context().close()
})

await check('a filter is chosen by keys and is part of the address', async () => {
  const page = await enterByKeys()
  await page.keyboard.press('g')
  await page.keyboard.press('r')
  await tabTo(page, page.getByLabel('Protocol'))
  await page.keyboard.type('agent-api')
  await page.waitForFunction(() => location.hash.includes('protocol=agent-api'))
  await page.reload()
  await heading(page, 'Runs').waitFor()
  assert.equal(await page.getByLabel('Protocol').inputValue(), 'agent-api')
  await page.context().close()
})

await check('a dialog keeps the focus, Escape closes it, and the focus returns', async () => {
  await (await say('to be deleted')).text()
  const page = await enterByKeys()
  const [run] = (await api(page, 'GET', '/runs?limit=1')).json.data
  await page.goto(`${CONSOLE_URL}#/runs/${run.id}`)
  const button = page.getByRole('button', { name: 'Delete run' })
  await button.waitFor()
  await tabTo(page, button)
  await page.keyboard.press('Enter')
  const dialog = page.getByRole('dialog', { name: 'Delete run' })
  await dialog.waitFor()
  assert.equal(await focused(page), 'Close')
  for (let count = 0; count < 5; count += 1) {
    await page.keyboard.press('Tab')
    // Between the last and the first element the focus is on the browser itself.
    assert.ok(await page.evaluate(() => document.activeElement === document.body || document.activeElement.closest('dialog')))
  }
  // Keys of the page behind it do nothing.
  await page.keyboard.press('g')
  await page.keyboard.press('o')
  await page.keyboard.press('Escape')
  await dialog.waitFor({ state: 'detached' })
  await page.waitForFunction(() => document.activeElement.textContent === 'Delete run')
  await page.keyboard.press('?')
  await page.getByRole('dialog', { name: 'Keys' }).waitFor()
  await page.keyboard.press('Escape')
  await page.getByRole('dialog', { name: 'Keys' }).waitFor({ state: 'detached' })
  await heading(page, 'Run').waitFor()
  await page.context().close()
})

await check('an item is edited and sent by keyboard alone', async () => {
  await (await clients['agent-api']('approval')).text()
  const page = await enterByKeys()
  await page.keyboard.press('g')
  await page.keyboard.press('p')
  const item = page.getByRole('article', { name: 'send_mail' }).last()
  await item.waitFor()
  await page.keyboard.press('j')
  assert.equal(await focused(page), 'send_mail')
  await tabTo(page, item.getByRole('button', { name: 'Edit' }), 200)
  await page.keyboard.press('Enter')
  const field = item.getByLabel('Arguments')
  await field.waitFor()
  await tabTo(page, field)
  await page.keyboard.press('Control+A')
  await page.keyboard.type('{"to":"keys@example.com","subject":"k"')
  await item.getByRole('status').waitFor()
  assert.ok(await item.getByRole('button', { name: 'Send decision' }).isDisabled())
  await page.keyboard.type('}')
  await tabTo(page, item.getByRole('button', { name: 'Send decision' }))
  await page.keyboard.press('Enter')
  await page.getByText('edit sent').waitFor()
  await page.context().close()
})

await check('the link that skips to the content is the first that Tab reaches', async () => {
  const page = await enterByKeys()
  await page.reload()
  await heading(page, 'Overview').waitFor()
  await page.keyboard.press('Tab')
  assert.equal(await focused(page), 'Skip to content')
  await page.keyboard.press('Enter')
  assert.equal(await page.evaluate(() => document.activeElement.id), 'main')
  await page.context().close()
})
