// Named checks and their counts, for all conformance scripts in Node.
//
//     import { check, close } from './checks.mjs'
//     await check('a greeting completes', async () => { … })
//     close() // prints `N passed, N failed` and sets the exit code
//
// Not here: any protocol.

export const GATEWAY_URL = process.env.GATEWAY_URL ?? 'http://127.0.0.1:8080'
export const UPSTREAM_URL = process.env.UPSTREAM_URL ?? ''

let passed = 0
let failed = 0

/** Runs the function and writes down under this sentence how it ended. */
export async function check(sentence, run) {
  const begun = performance.now()
  try {
    await run()
    passed += 1
    console.log(`  passed  ${sentence} (${((performance.now() - begun) / 1000).toFixed(2)} s)`)
  } catch (error) {
    failed += 1
    console.log(`  FAILED  ${sentence}\n${error?.stack ?? error}`)
  }
}

export function close() {
  console.log(`${passed} passed, ${failed} failed`)
  // Open keep-alive connections of a client must not keep the process alive.
  process.exit(failed > 0 || passed === 0 ? 1 : 0)
}
