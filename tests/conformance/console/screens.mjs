// Every screen: accessibility, small windows, and how it looks.

import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'

import { api, CONSOLE_URL, SCREENS, signedIn, violations } from './browser.mjs'
import { check } from './checks.mjs'

for (const colorScheme of ['light', 'dark']) {
  await check(`every screen is accessible, and has its heading (${colorScheme})`, async () => {
    const page = await signedIn({ colorScheme })
    for (const [name, path] of Object.entries(SCREENS)) {
      await page.goto(`${CONSOLE_URL}#/${path}`)
      await page.getByRole('heading', { name, level: 1 }).waitFor()
      await sleep(200)
      assert.deepEqual(await violations(page), [], name)
      await page.screenshot({ path: `${name.toLowerCase()}-${colorScheme}.png` })
    }
    const [run] = (await (await page.evaluateHandle(async () => {
      const { bearer } = JSON.parse(sessionStorage.getItem('interlingua.session'))
      const found = await fetch('api/runs?limit=1', { headers: { authorization: `Bearer ${bearer}` } })
      return (await found.json()).data
    })).jsonValue())
    for (const tab of ['timeline', 'prism', 'details']) {
      await page.goto(`${CONSOLE_URL}#/runs/${run.id}?tab=${tab}`)
      await page.getByRole('tabpanel').waitFor()
      await sleep(300)
      assert.deepEqual(await violations(page), [], tab)
      await page.screenshot({ path: `run-${tab}-${colorScheme}.png` })
    }
    await page.context().close()
  })
}

await check('a phone shows every screen without scrolling sideways', async () => {
  const page = await signedIn({ viewport: { width: 360, height: 720 } })
  const [run] = (await api(page, 'GET', '/runs?limit=1')).json.data
  const screens = { ...SCREENS, Timeline: `runs/${run.id}`, Prism: `runs/${run.id}?tab=prism`, Details: `runs/${run.id}?tab=details` }
  for (const [name, path] of Object.entries(screens)) {
    await page.goto(`${CONSOLE_URL}#/${path}`)
    await page.getByRole('heading', { name: name in SCREENS ? name : 'Run', level: 1 }).waitFor()
    await sleep(300)
    const wide = await page.evaluate(() => document.documentElement.scrollWidth)
    assert.ok(wide <= 360, `${name} is ${wide} pixels wide`)
    await page.screenshot({ path: `${name.toLowerCase()}-phone.png` })
  }
  await page.context().close()
})

await check('at a zoom of 200 % every screen is whole, on a desk of 1360 pixels', async () => {
  const page = await signedIn({ viewport: { width: 680, height: 430 }, deviceScaleFactor: 2 })
  const [run] = (await api(page, 'GET', '/runs?limit=1')).json.data
  const screens = { ...SCREENS, prism: `runs/${run.id}?tab=prism`, timeline: `runs/${run.id}`, details: `runs/${run.id}?tab=details` }
  for (const [name, path] of Object.entries(screens)) {
    await page.goto(`${CONSOLE_URL}#/${path}`)
    await page.getByRole('heading', { level: 1 }).waitFor()
    await sleep(250)
    const wide = await page.evaluate(() => document.documentElement.scrollWidth)
    assert.ok(wide <= 680, `${name} is ${wide} pixels wide`)
    await page.screenshot({ path: `zoom-${name.toLowerCase()}.png` })
  }
  await page.context().close()
})
