// An agent that takes no new runs: by the buttons of the Overview.

import assert from 'node:assert/strict'

import { CONSOLE_URL, say, signedIn, violations } from './browser.mjs'
import { check } from './checks.mjs'

await check('an agent is drained after a question, says so to clients, and is resumed', async () => {
  const page = await signedIn()
  await page.goto(`${CONSOLE_URL}#/`)
  const row = page.getByRole('table', { name: 'Agents' }).getByRole('row').filter({ hasText: 'demo' }).first()
  await row.getByRole('button', { name: 'Drain' }).click()
  const dialog = page.getByRole('dialog', { name: 'Drain' })
  await dialog.waitFor()
  assert.equal((await say('hello')).status, 200, 'nothing is done before the answer')
  await page.screenshot({ path: 'drain-dialog.png' })
  await dialog.getByRole('button', { name: 'Drain' }).click()
  try {
    await row.getByText('draining').waitFor()
    const refused = await say('hello')
    assert.equal(refused.status, 503)
    assert.equal(refused.headers.get('retry-after'), '5')
    assert.deepEqual(await violations(page), [])
    await page.screenshot({ path: 'draining.png' })
  } finally {
    await row.getByRole('button', { name: 'Resume' }).click()
  }
  await row.getByText('ready').waitFor()
  assert.equal((await say('hello')).status, 200)
  await page.context().close()
})
