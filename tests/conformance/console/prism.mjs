// The same run on the wire of every protocol.

import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'

import { CONSOLE_URL, say, signedIn } from './browser.mjs'
import { check } from './checks.mjs'

await check('the prism shows the frames that a client gets', async () => {
  const frames = (await (await say('reasoning')).text()).split('\n\n').filter(Boolean)
  const page = await signedIn()
  const id = /"id":"response_([^"]+)"/.exec(frames[0])[1]
  await page.goto(`${CONSOLE_URL}#/runs/${id}?tab=prism`)
  const pane = page.getByRole('region', { name: 'agent-api' })
  await pane.waitFor()
  await pane.getByText(new RegExp(`^${frames.length} of \\d+ events$`)).waitFor()
  await pane.getByRole('button', { name: 'Copy frames' }).click()
  await page.getByRole('status').filter({ hasText: 'copied' }).waitFor()
  const copied = await page.evaluate(() => navigator.clipboard.readText())
  assert.equal(copied, frames.map(frame => `${frame}\n\n`).join(''))
  await pane.getByRole('button', { name: 'Copy curl' }).click()
  await page.getByRole('status').filter({ hasText: 'curl copied' }).waitFor()
  const command = await page.evaluate(() => navigator.clipboard.readText())
  assert.match(execFileSync('sh', ['-c', command], { stdio: ['ignore', 'pipe', 'ignore'] }).toString(), /There you are/)
  for (const name of ['responses', 'chat-completions', 'anthropic-messages', 'a2a', 'ag-kit', 'ag-ui', 'hitl']) {
    await page.getByRole('region', { name, exact: true }).waitFor()
  }
  await page.getByRole('slider', { name: 'Event' }).focus()
  await page.keyboard.press('Home')
  await page.getByText('event 0').waitFor()
  await page.screenshot({ path: 'prism.png' })
  await page.context().close()
})
