// The console in a real browser, with the demo agent behind a real gateway, one file for each area. An error of the page or
// a violation of its policy fails.
//
// Screenshots are left beside this script. `AREAS=runs,prism` runs some of the areas only.

import assert from 'node:assert/strict'

import { browser, complaints } from './browser.mjs'
import { check, close } from './checks.mjs'

const AREAS = [
  'types',
  'pure',
  'signing-in',
  'runs',
  'prism',
  'pending',
  'playground',
  'keyboard',
  'restart',
  'config',
  'draining',
  'metrics',
  'screens',
  'hostile',
  'large',
]

const chosen = process.env.AREAS?.split(',') ?? AREAS
for (const area of chosen) await import(`./${area}.mjs`)

await check('no page complained', async () => assert.deepEqual(complaints, []))

await browser.close()
close()
