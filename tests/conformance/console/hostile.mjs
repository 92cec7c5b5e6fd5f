// Texts from strangers stay texts, in every field.

import assert from 'node:assert/strict'

import { CONSOLE_URL, say, signedIn } from './browser.mjs'
import { check } from './checks.mjs'

await check('hostile texts are texts', async () => {
  const hostile = '<img src=x onerror=alert(1)><script>alert(2)</script> javascript:alert(3) \u202egnp.exe'
  await (await say(hostile)).text()
  const page = await signedIn()
  let dialogs = 0
  page.on('dialog', dialog => {
    dialogs += 1
    dialog.dismiss()
  })
  await page.goto(`${CONSOLE_URL}#/runs`)
  const row = page.getByRole('row').filter({ hasText: '<img src=x' }).first()
  await row.waitFor()
  await row.getByRole('link').click()
  await page.getByRole('log', { name: 'Timeline' }).getByText('<script>alert(2)</script>').first().waitFor()
  assert.equal(dialogs, 0)
  assert.equal(await page.locator('img').count(), 0)
  await page.context().close()
})
