// The files that the console has from others: what their packages have, byte for byte, and what their hashes are. Run by
// itself it compares them; with `--write` it takes them from the packages (`cargo xtask vendor`).

import { createHash } from 'node:crypto'
import { readFileSync, readdirSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'

const PACKAGES = { 'lit-html': 'lit-html', 'signals-core': '@preact/signals-core', uplot: 'uplot' }
const ROOT = path.join(process.env.CONSOLE ?? '', 'vendor')
const SUMS = path.join(ROOT, 'SHA256SUMS')
const MODULES = path.join(path.dirname(fileURLToPath(import.meta.url)), 'node_modules')

/** Every vendored file, by its path below `vendor`, with its package. */
function files() {
  return Object.entries(PACKAGES).flatMap(([folder, name]) => {
    const entries = readdirSync(path.join(ROOT, folder), { recursive: true, withFileTypes: true })
    const found = entries.filter(entry => entry.isFile()).map(entry => path.relative(ROOT, path.join(entry.parentPath, entry.name)))
    return found.map(file => ({ file, name, at: path.relative(folder, file) }))
  }).sort((one, other) => (one.file < other.file ? -1 : 1))
}

/** What a package has, at its root or in `dist`. */
function published({ name, at }) {
  for (const part of ['', 'dist']) {
    try {
      return readFileSync(path.join(MODULES, name, part, at))
    } catch {
      // It may be in the other place.
    }
  }
  return null
}

const sum = bytes => createHash('sha256').update(bytes).digest('hex')
const sums = () => files().map(({ file }) => `${sum(readFileSync(path.join(ROOT, file)))}  ${file}\n`).join('')

/** What is not as it was published; nothing if all is. */
export function differences() {
  const found = files()
  const differ = found.filter(one => !published(one)?.equals(readFileSync(path.join(ROOT, one.file)))).map(({ file }) => file)
  const names = new Set(found.map(({ name }) => name))
  const without = Object.values(PACKAGES).filter(name => !names.has(name))
  const isNoted = readFileSync(SUMS, 'utf8') === sums()
  return [...differ, ...without, ...(isNoted ? [] : ['SHA256SUMS'])]
}

if (pathToFileURL(process.argv[1]).href === import.meta.url) {
  if (process.argv.includes('--write')) {
    for (const one of files()) writeFileSync(path.join(ROOT, one.file), published(one))
    writeFileSync(SUMS, sums())
  }
  const found = differences()
  for (const file of found) console.error(`not as it was published: ${file}`)
  console.log(`${files().length - found.length} passed, ${found.length} failed`)
  process.exitCode = found.length > 0 ? 1 : 0
}
