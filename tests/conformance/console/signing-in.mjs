// Signing in and out: the printed link, keys, roles, and a sign-in that is over.

import assert from 'node:assert/strict'

import { another, api, connection, CONSOLE_URL, enter, heading, key, LOG, open, say, signedIn, START_KEY } from './browser.mjs'
import { check } from './checks.mjs'

await check('a link with the key of the start signs in, and the key leaves the address', async () => {
  assert.ok(START_KEY && !LOG.includes(START_KEY), LOG)
  const page = await signedIn()
  assert.equal(new URL(page.url()).hash, '#/')
  await page.reload()
  await page.getByRole('heading', { name: 'Overview', level: 1 }).waitFor()
  await page.getByRole('button', { name: 'Sign out' }).click()
  await page.getByRole('heading', { name: 'Sign in' }).waitFor()
  await page.context().close()
})

await check('a link with a key does not replace a sign-in without a question', async () => {
  const page = await signedIn()
  const other = key('ada')
  const name = page.locator('header .who')
  assert.equal(await name.innerText(), 'operator')
  const follow = to => page.evaluate(key => { location.hash = `#key=${key}` }, to)
  const dialog = page.getByRole('dialog', { name: 'Sign in with the key of the link' })
  await follow(other)
  await dialog.getByText('signed in as operator').waitFor()
  assert.equal(new URL(page.url()).hash, '#/')
  await dialog.getByRole('button', { name: 'Close' }).click()
  assert.equal(await name.innerText(), 'operator')

  // Another tab of the same browser asks, too. The key is known within a second.
  const tab = await another(page, `${CONSOLE_URL}#key=${other}`)
  const question = tab.getByRole('dialog', { name: 'Sign in with the key of the link' })
  await question.waitFor()
  await tab.waitForTimeout(1500)
  await question.getByRole('button', { name: 'Sign in with the key of the link' }).click()
  await tab.locator('header .who').filter({ hasText: 'ada' }).waitFor()
  assert.equal(await name.innerText(), 'operator')
  await page.context().close()
})

await check('a wrong key is refused in words, the right one signs in', async () => {
  const page = await open()
  await page.goto(CONSOLE_URL)
  await page.getByLabel('Access key').fill('il_wrong')
  await page.getByRole('button', { name: 'Sign in' }).click()
  await page.getByRole('alert').filter({ hasText: 'cannot be used' }).waitFor()
  await page.getByLabel('Access key').fill(START_KEY)
  await page.getByRole('button', { name: 'Sign in' }).click()
  await page.getByRole('heading', { name: 'Overview', level: 1 }).waitFor()
  await page.context().close()
})

await check('a role that may view sees, and changes nothing', async () => {
  await (await say('approval')).text()
  const page = await open()
  await page.goto(CONSOLE_URL)
  await page.getByLabel('Access key').fill(key('vera'))
  for (let attempt = 0; attempt < 5; attempt += 1) {
    await page.getByRole('button', { name: 'Sign in' }).click()
    const seen = page.getByRole('heading', { name: 'Overview', level: 1 })
    if (await seen.waitFor({ timeout: 1500 }).then(() => true, () => false)) break
  }
  await page.goto(`${CONSOLE_URL}#/pending`)
  const item = page.getByRole('article', { name: 'send_mail' }).first()
  await item.waitFor()
  assert.equal(await item.getByRole('button').count(), 0)
  const run = /#\/runs\/(\S+)/.exec(await item.getByRole('link', { name: 'Open run' }).getAttribute('href'))[1]
  const status = await page.evaluate(async run => {
    const { bearer } = JSON.parse(sessionStorage.getItem('interlingua.session'))
    const body = JSON.stringify({ items: [{ id: 'x', decision: 'accept' }] })
    const headers = { authorization: `Bearer ${bearer}`, 'content-type': 'application/json' }
    return (await fetch(`api/runs/${run}/decide`, { method: 'POST', headers, body })).status
  }, run)
  assert.equal(status, 403)
  await page.context().close()
})

await check('a sign-in that is over asks again, and comes back to the same screen with nothing left from before', async () => {
  const page = await signedIn()
  await page.goto(`${CONSOLE_URL}#/pending`)
  await heading(page, 'Pending').waitFor()
  // The gateway no longer knows the bearer, as after half an hour, and the page does not know yet.
  await api(page, 'DELETE', '/session')
  await heading(page, 'Sign in').waitFor()
  await page.getByText('You were signed out').waitFor()
  assert.equal(await page.evaluate(() => sessionStorage.length), 0)
  await enter(page, START_KEY)
  await heading(page, 'Pending').waitFor()
  await connection(page, 'live')
  await page.context().close()
})

await check('signing out in one tab signs out the others, and signing in once is enough', async () => {
  const first = await signedIn()
  const second = await another(first, `${CONSOLE_URL}#/runs`)
  await heading(second, 'Runs').waitFor()
  await first.getByRole('button', { name: 'Sign out' }).click()
  await heading(second, 'Sign in').waitFor()
  await enter(first, START_KEY)
  await heading(second, 'Runs').waitFor()
  await connection(second, 'live')
  await first.context().close()
})
