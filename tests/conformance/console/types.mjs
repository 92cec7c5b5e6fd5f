// The sources of the page, checked without running them: types (JSDoc, by the TypeScript compiler) and lint rules.
// Not here: vendored files, which are compared with what was published (pure.mjs).

import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { readdirSync, writeFileSync } from 'node:fs'
import path from 'node:path'

import js from '@eslint/js'
import { ESLint } from 'eslint'
import globals from 'globals'

import { HERE } from './browser.mjs'
import { check } from './checks.mjs'

const CONSOLE = path.resolve(process.env.CONSOLE)
const sources = readdirSync(CONSOLE, { recursive: true }).filter(name => name.endsWith('.js') && !name.startsWith('vendor'))

await check('the compiler finds no wrong type in the sources of the page', async () => {
  assert.ok(sources.length > 15, sources.join(' '))
  const options = {
    allowJs: true, checkJs: true, noEmit: true, target: 'ES2023', module: 'ESNext', moduleResolution: 'bundler',
    lib: ['ES2023', 'DOM', 'DOM.Iterable'], strict: false, strictNullChecks: true, skipLibCheck: true, types: [],
  }
  writeFileSync('tsconfig.json', JSON.stringify({ compilerOptions: options, files: sources.map(name => path.join(CONSOLE, name)) }))
  const tsc = path.join(HERE, 'node_modules', '.bin', 'tsc')
  const output = await new Promise(resolve => { execFile(tsc, ['-p', 'tsconfig.json', '--pretty', 'false'], (_error, out, err) => resolve(out + err)) })
  // Published files are read for their types, and are not ours to mend. Lines that are indented go on with an error.
  const errors = output.split('\n').filter(line => /^\S.*\(\d+,\d+\): error/.test(line) && !line.includes(`${path.sep}vendor${path.sep}`))
  assert.deepEqual(errors, [])
  assert.doesNotMatch(output, /^error /m, 'the options are understood')
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
