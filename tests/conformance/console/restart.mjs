// A gateway that crashes and comes back: the page notices, and goes on where it was once someone has signed in again.

import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'

import { another, connection, enter, Gateway, heading, open } from './browser.mjs'
import { check } from './checks.mjs'

const config = (admin = '') => `[server]\nlisten = "{{listen}}"\n[store]\nkind = "sqlite"\npath = "gateway.db"\n
[auth]\nkeys = "keys.toml"\n[callers.ada]\nconsole = "act"\n[admin]\nlisten = "{{admin}}"\n${admin}
[agents.demo]\nupstream = { protocol = "demo" }\n[[routes]]\nprotocol = "agent-api"\npath = "/agents/{agent}"\nauth = "none"\n`

const say = (gateway, text) => fetch(`${gateway.url}/agents/demo/process`, {
  method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ input: [{ role: 'user', content: text }] }),
})

await check('after a crash the page says so, asks for the new key, and is where it was', async () => {
  const gateway = await new Gateway(config()).start()
  try {
    const page = await open()
    await page.goto(`${gateway.console}#key=${gateway.key}`)
    await connection(page, 'live')
    await (await say(gateway, 'before the crash')).text()
    await page.goto(`${gateway.console}#/runs`)
    await page.getByRole('row').filter({ hasText: 'before the crash' }).getByRole('link').click()
    await heading(page, 'Run').waitFor()
    // One that the crash cuts off.
    say(gateway, 'long 1000 50').then(response => response.text()).catch(() => {})
    await sleep(1500)
    const before = gateway.key

    await gateway.kill()
    await page.getByRole('status', { name: 'Connection' }).filter({ hasText: /reconnecting|offline/ }).waitFor()
    await page.getByText('before the crash').first().waitFor()
    await page.screenshot({ path: 'reconnecting.png' })

    await gateway.start()
    assert.notEqual(gateway.key, before)
    await heading(page, 'Sign in').waitFor()
    await page.getByText('the gateway was restarted').waitFor()
    await page.screenshot({ path: 'signed-out.png' })
    await enter(page, gateway.key)
    await heading(page, 'Run').waitFor()
    await page.getByRole('log', { name: 'Timeline' }).getByText('before the crash', { exact: true }).waitFor()
    await connection(page, 'live')
    await page.goto(`${gateway.console}#/runs`)
    await page.getByRole('row').filter({ hasText: 'long 1000 50' }).filter({ hasText: 'failed' }).waitFor()
    await page.context().close()
  } finally {
    await gateway.remove()
  }
})

await check('after a crash many open pages do not use up the attempts to sign in, and one sign-in serves them all', async () => {
  const gateway = await new Gateway(config('key = { env = "ADMIN_KEY" }'), { ADMIN_KEY: 'an-admin-key-of-at-least-32-characters' }).start()
  try {
    const page = await open()
    await page.goto(gateway.console)
    await enter(page, gateway.keyOf('ada'))
    const tabs = [page]
    for (const screen of ['runs', 'pending', 'config', 'audit', '']) tabs.push(await another(page, `${gateway.console}#/${screen}`))
    // One stream for each tab, and none while it is hidden: six connections are all that a browser opens to a host.
    await tabs[2].bringToFront()
    await gateway.kill()
    await gateway.start()
    for (const tab of tabs) {
      await tab.bringToFront()
      await heading(tab, 'Sign in').waitFor()
    }
    await enter(page, 'an-admin-key-of-at-least-32-characters')
    for (const tab of tabs) await tab.getByRole('navigation', { name: 'Console' }).waitFor()
    await page.context().close()
  } finally {
    await gateway.remove()
  }
})
