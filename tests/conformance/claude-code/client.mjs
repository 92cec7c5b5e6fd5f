// Claude Code in print mode, with the gateway as its API: answers, a tool that it runs, a conversation that goes on.

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'

import { check, close, GATEWAY_URL } from './checks.mjs'

// With its tools for the shell, and within a repository of git, it puts words of its own in front of those of the user, which the demo agent does not know.
const FEW = ['--tools', 'Read']
const claude = join(dirname(fileURLToPath(import.meta.url)), 'node_modules/.bin/claude')
const home = resolve('home')
const work = mkdtempSync(join(tmpdir(), 'claude-code-'))
process.on('exit', () => rmSync(work, { recursive: true, force: true }))
mkdirSync(home, { recursive: true })
writeFileSync(join(work, 'example'), 'result-42\n')

/** Runs Claude Code once; answers the events it printed. */
async function run(...options) {
  const env = {
    PATH: process.env.PATH,
    HOME: home,
    CLAUDE_CONFIG_DIR: join(home, '.claude'),
    ANTHROPIC_BASE_URL: `${GATEWAY_URL}/anthropic`,
    ANTHROPIC_API_KEY: 'none',
    CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
    DISABLE_AUTOUPDATER: '1',
    DISABLE_TELEMETRY: '1',
  }
  const child = spawn(claude, ['--print', '--output-format', 'stream-json', '--verbose', ...options], {
    cwd: work,
    env,
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let output = ''
  let log = ''
  child.stdout.on('data', (chunk) => (output += chunk))
  child.stderr.on('data', (chunk) => (log += chunk))
  const code = await new Promise((ended) => child.on('close', ended))
  const events = output.split('\n').filter(Boolean).map((line) => JSON.parse(line))
  return { code, events, log, result: events.find((event) => event.type === 'result') }
}

await check('a question is answered, with every tool declared', async () => {
  const { result, log } = await run('hello there')
  assert.equal(result?.subtype, 'success', log)
  assert.match(result.result, /hello there/)
})

await check('a tool runs, and its result reaches the agent', async () => {
  const { events, result, log } = await run('client tool', ...FEW)
  assert.equal(result?.subtype, 'success', log)
  const blocks = events.filter((event) => event.type === 'assistant').flatMap((event) => event.message.content)
  const call = blocks.find((block) => block.type === 'tool_use')
  assert.equal(call?.name, 'Read')
  assert.equal(call.input.file_path, 'example')
  assert.match(result.result, /Your tool Read says/)
  assert.equal(result.num_turns, 2)
})

await check('a session goes on where it stopped', async () => {
  const first = await run('my name is Ada', ...FEW)
  const second = await run('history', '--resume', first.result.session_id, ...FEW)
  assert.match(second.result?.result ?? second.log, /message 2 of yours/)
})

await check("tools of the agent do not stop it", async () => {
  const { result, log } = await run('tool hello', ...FEW)
  assert.equal(result?.subtype, 'success', log)
  assert.match(result.result, /hello/)
})

await check('an agent that declines is an error', async () => {
  const { result } = await run('reject', ...FEW)
  assert.equal(result.is_error, true)
})

await check('the gateway had nothing to complain of', async () => {
  assert.doesNotMatch(readFileSync(process.env.GATEWAY_LOG, 'utf8'), /panicked| ERROR /)
})

close()
