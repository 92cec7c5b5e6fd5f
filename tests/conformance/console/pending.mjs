// Open items: what is asked, and what becomes of a decision.

import assert from 'node:assert/strict'

import { CONSOLE_URL, open, say, signedIn } from './browser.mjs'
import { check } from './checks.mjs'

await check('an item that is asked over the Agent API is accepted, and the agent goes on', async () => {
  await (await say('approval')).text()
  const page = await signedIn()
  await page.goto(`${CONSOLE_URL}#/pending`)
  const items = page.getByRole('article', { name: 'send_mail' })
  await items.first().waitFor()
  await page.screenshot({ path: 'pending.png' })
  assert.match(await page.title(), /^\(\d+\) Pending/)
  for (let open = await items.count(); open > 0; open -= 1) {
    const item = items.filter({ has: page.getByRole('button', { name: 'Accept' }) }).first()
    await item.getByRole('button', { name: 'Accept' }).click()
    await page.getByText('accept sent').first().waitFor()
  }
  await page.getByText('Nothing waits for a decision.').waitFor()
  await page.goto(`${CONSOLE_URL}#/runs`)
  await page.getByRole('row').filter({ hasText: 'completed' }).first().waitFor()
  await page.context().close()
})
