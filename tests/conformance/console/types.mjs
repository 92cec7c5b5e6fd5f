// The sources of the page, checked without running them: types (JSDoc, by the TypeScript compiler), what the gateway answers
// against the types that the page reads, and lint rules.
// Not here: vendored files, which are compared with what was published (pure.mjs).

import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { readdirSync, writeFileSync } from 'node:fs'
import path from 'node:path'

import js from '@eslint/js'
import { ESLint } from 'eslint'
import globals from 'globals'

import { CONSOLE_URL, HERE, START_KEY, clients } from './browser.mjs'
import { check } from './checks.mjs'

const CONSOLE = path.resolve(process.env.CONSOLE)
const sources = readdirSync(CONSOLE, { recursive: true }).filter(name => name.endsWith('.js') && !name.startsWith('vendor'))

/** What the compiler says of a project. */
const compile = project => new Promise(resolve => {
  const tsc = path.join(HERE, 'node_modules', '.bin', 'tsc')
  execFile(tsc, ['-p', project, '--pretty', 'false'], (_error, out, err) => resolve(out + err))
})

await check('the compiler finds no wrong type in the sources of the page', async () => {
  assert.ok(sources.length > 15, sources.join(' '))
  const options = {
    allowJs: true, checkJs: true, noEmit: true, target: 'ES2023', module: 'ESNext', moduleResolution: 'bundler',
    lib: ['ES2023', 'DOM', 'DOM.Iterable'], strict: false, strictNullChecks: true, skipLibCheck: true, types: [],
  }
  writeFileSync('tsconfig.json', JSON.stringify({ compilerOptions: options, files: sources.map(name => path.join(CONSOLE, name)) }))
  const output = await compile('tsconfig.json')
  // Published files are read for their types, and are not ours to mend. Lines that are indented go on with an error.
  const errors = output.split('\n').filter(line => /^\S.*\(\d+,\d+\): error/.test(line) && !line.includes(`${path.sep}vendor${path.sep}`))
  assert.deepEqual(errors, [])
  assert.doesNotMatch(output, /^error /m, 'the options are understood')
})

await check('what the gateway answers has the types that the page reads', async () => {
  const json = { 'content-type': 'application/json' }
  const signIn = await fetch(`${CONSOLE_URL}api/session`, { method: 'POST', headers: json, body: JSON.stringify({ key: START_KEY }) })
  const signedIn = await signIn.json()
  const headers = { authorization: `Bearer ${signedIn.bearer}` }
  const ask = async (where, more = {}) => {
    const answer = await fetch(`${CONSOLE_URL}api/${where}`, { headers: { ...headers, ...json }, ...more })
    const read = await answer.json()
    assert.ok(answer.ok, `${where}: ${JSON.stringify(read)}`)
    return read
  }
  for (const [protocol, text] of [['agent-api', 'approval'], ['a2a', 'question'], ['responses', 'fail'], ['hitl', 'hello']]) {
    await (await clients[protocol](text)).text()
  }
  const { data: runs } = await ask('runs')
  const sample = { route: '/v1', protocol: 'responses', agent: 'demo', text: 'hello' }
  const answers = [
    ['Session', signedIn], ['Session', await ask('session')], ['Gateway', await ask('gateway')],
    ['Page<Agent & Record<string, unknown>>', await ask('agents')], ['Page<Route>', await ask('routes')],
    ['Page<Summary>', await ask('runs?limit=2')], ['Page<PendingItem>', await ask('pending')], ['Page<AuditEntry>', await ask('audit')],
    ['Metrics', await ask('metrics')], ['Sample', await ask('sample', { method: 'POST', body: JSON.stringify(sample) })],
    ['DrainState', await ask('agents/demo/resume', { method: 'POST' })],
    ...await Promise.all(runs.map(async run => ['Detail', await ask(`runs/${run.id}`)])),
  ]
  assert.ok(answers.length > 12 && runs.some(run => run.pending > 0) && runs.some(run => run.code), JSON.stringify(runs))
  // A literal may have no other fields than its type has, and lacks none.
  const lines = answers.map(([type, value], index) => `export const answer${index}: ${type} = ${JSON.stringify(value)}`)
  const names = 'Agent, AuditEntry, Detail, DrainState, Gateway, Metrics, Page, PendingItem, Route, Sample, Session, Summary'
  const from = JSON.stringify(path.join(CONSOLE, 'types.d.ts'))
  writeFileSync('answers.ts', `import type { ${names} } from ${from}\n${lines.join('\n')}\n`)
  const compilerOptions = { noEmit: true, strict: true, target: 'ES2023', module: 'ESNext', moduleResolution: 'bundler', types: [] }
  writeFileSync('answers.json', JSON.stringify({ compilerOptions, files: ['answers.ts'] }))
  assert.equal(await compile('answers.json'), '')
})

await check('the sources of the page follow the lint rules', async () => {
  const eslint = new ESLint({
    cwd: CONSOLE,
    overrideConfigFile: true,
    overrideConfig: [
      { ignores: ['vendor/**'] },
      js.configs.recommended,
      {
        languageOptions: { globals: globals.browser, ecmaVersion: 2024, sourceType: 'module' },
        rules: {
          'no-unused-vars': ['error', { argsIgnorePattern: '^_' }],
          'no-eval': 'error', 'no-implied-eval': 'error', 'no-new-func': 'error', 'no-script-url': 'error',
          'no-restricted-globals': ['error', 'event', 'name'],
          'no-restricted-properties': ['error', { property: 'innerHTML' }, { property: 'outerHTML' }, { property: 'insertAdjacentHTML' }],
          eqeqeq: 'error', 'no-var': 'error', 'prefer-const': 'error',
        },
      },
    ],
  })
  const results = await eslint.lintFiles(['**/*.js'])
  assert.equal(results.length, sources.length)
  const found = results.flatMap(file => file.messages.map(one => `${path.relative(CONSOLE, file.filePath)}:${one.line} ${one.ruleId} ${one.message}`))
  assert.deepEqual(found, [])
})
