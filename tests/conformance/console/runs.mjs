// Runs as they happen: the list of runs, and the timeline of one that is open.

import assert from 'node:assert/strict'

import { CONSOLE_URL, say, signedIn } from './browser.mjs'
import { check } from './checks.mjs'

await check('a run started over a protocol appears within a second, and its text on its timeline', async () => {
  const page = await signedIn()
  await page.goto(`${CONSOLE_URL}#/runs`)
  await page.getByRole('heading', { name: 'Runs', level: 1 }).waitFor()
  const begun = Date.now()
  const answer = say('what is on the wire?')
  const row = page.getByRole('row').filter({ hasText: 'what is on the wire?' }).first()
  await row.waitFor()
  const took = Date.now() - begun
  assert.ok(took < 3000, `${took} ms`)
  await (await answer).text()
  await row.getByRole('link').click()
  await page.getByRole('heading', { name: 'Run', level: 1 }).waitFor()
  await page.getByRole('log', { name: 'Timeline' }).getByText('what is on the wire?', { exact: true }).waitFor()
  await page.getByRole('status', { name: 'State' }).filter({ hasText: 'completed' }).waitFor()
  await page.context().close()
})
