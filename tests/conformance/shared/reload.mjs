// Changes the configuration of the gateway under test and makes it read it again.
//
//     await withConfig('an agent', 'another agent', async () => { … }) // the running gateway has the change
//
// The suite's `gateway.toml` needs `[admin]` with `console = false` and `listen = "127.0.0.1:0"`. Not here: any protocol.

import { readFileSync, writeFileSync } from 'node:fs'
import { request } from 'node:http'

/** Makes the gateway read its configuration. `change` gets the text of the file and returns another. */
export async function reload(change = text => text) {
  writeFileSync('gateway.toml', change(readFileSync('gateway.toml', 'utf8')))
  const log = readFileSync('gateway.log', 'utf8')
  const [host, port] = /operators find metrics and state at ([^ ]+): /.exec(log)[1].split(':')
  const key = readFileSync(/the admin key of this start is in (\S+)/.exec(log)[1], 'utf8').trim()
  const headers = { 'content-type': 'application/json', authorization: `Bearer ${key}` }
  const status = await new Promise((resolve, reject) => {
    const sent = request({ host, port, path: '/api/reload', method: 'POST', headers }, response => {
      response.resume()
      response.on('end', () => resolve(response.statusCode))
    })
    sent.on('error', reject).end('{}')
  })
  if (status !== 200) throw new Error(`the reload was answered with ${status}`)
}

/** Runs with another text in the configuration. */
export async function withConfig(old, changed, run) {
  const before = readFileSync('gateway.toml', 'utf8')
  if (!before.includes(old)) throw new Error(`${old} is not in the configuration`)
  try {
    await reload(text => text.replace(old, changed))
    return await run()
  } finally {
    await reload(() => before)
  }
}
