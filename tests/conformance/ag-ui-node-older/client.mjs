// The official client before 1.0, in three versions that are in use.

import { close } from './checks.mjs'
import { all } from './ag-ui-client.mjs'

const versions = [
  ['0.0.59', 'client-0059', { outcomes: true, reasoning: true }],
  // Its ES module calls a function that it does not have to apply a patch.
  ['0.0.47', 'client-0047', { reasoning: true, patches: false }],
  ['0.0.42', 'client-0042', {}],
]
for (const [version, name, has] of versions) {
  const { HttpAgent } = await import(name)
  await all(HttpAgent, version, has)
}
close()
