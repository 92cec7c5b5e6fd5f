// What the console computes, without a browser: vendored files, event streams, the fold of a run.

import assert from 'node:assert/strict'

import { own, say } from './browser.mjs'
import { check } from './checks.mjs'
import { differences } from './vendored.mjs'

await check('vendored files are those that were published, and their hashes are noted', async () => {
  assert.deepEqual(differences(), [])
})

await check('an event stream is read the same however it is cut', async () => {
  const { EventStreamParser } = await own('sse.js')
  const text = ': hi\n\nevent: a\nid: 7\ndata: one\ndata: two\r\n\nretry: 5\n\ndata:x\n\n'
  const whole = new EventStreamParser().push(text)
  assert.deepEqual(whole, [{ event: 'a', id: '7', data: 'one\ntwo' }, { event: 'message', id: '', data: 'x' }])
  for (let cut = 0; cut <= text.length; cut += 1) {
    const parser = new EventStreamParser()
    assert.deepEqual([...parser.push(text.slice(0, cut)), ...parser.push(text.slice(cut))], whole, `cut at ${cut}`)
  }
})

await check('what the page folds is what the final response says', async () => {
  const [{ empty, fold, textOf }, { jsonOf }] = await Promise.all([own('fold.js'), own('sse.js')])
  for (const script of ['hello', 'reasoning', 'tool', 'approval', 'overlap', 'image', 'fail', 'interleaved']) {
    const frames = jsonOf(await (await say(script)).text())
    const run = empty()
    frames.forEach((frame, index) => fold(run, frame, index))
    const last = frames.at(-1)
    assert.equal(run.status, last.status, script)
    const said = messages => messages.filter(one => one.type !== 'heartbeat').map(one => [one.id, one.type, one.status])
    assert.deepEqual(said(run.messages), said(last.output ?? []), script)
    for (const [index, message] of (last.output ?? []).entries()) {
      const text = (message.content ?? []).map(content => content.text ?? content.refusal ?? '').join('')
      assert.equal(textOf(run.messages[index]), text, `${script}: message ${index}`)
    }
  }
})

await check('a difference has every line of both texts, and no more changes than are needed', async () => {
  const { diff, nearChanges } = await own('diff.js')
  const texts = ['', 'a', 'a\nb\nc', 'a\nc', 'b\na\nc\nd', 'x\nb\ny\nc', 'c\nb\na', 'a\nb\nc\nd\ne\nf\ng\nh', 'a\nb\nc\nd\nE\nf\ng\nh']
  for (const before of texts) {
    for (const after of texts) {
      const lines = diff(before, after)
      const side = mark => lines.filter(line => line.mark !== mark).map(line => line.text).join('\n')
      assert.deepEqual([side('+'), side('-')], [before, after])
    }
  }
  const changes = (before, after) => diff(before, after).filter(({ mark }) => mark !== ' ').length
  assert.deepEqual([changes(texts[2], texts[3]), changes(texts[7], texts[8]), changes(texts[2], texts[6])], [1, 2, 4])
  assert.deepEqual(nearChanges(diff(texts[7], texts[8]), 1).map(line => line && line.mark + line.text), [null, ' d', '-e', '+E', ' f', null])
  const many = Array.from({ length: 5000 }, (_, index) => `line ${index}`).join('\n')
  assert.equal(diff(many, many.replaceAll('line', 'row')).length, 10_000)
})

await check('a long text is split into blocks that are the text', async () => {
  const { blocksOf } = await own('blocks.js')
  for (const text of ['', 'a', 'word '.repeat(9000), 'x'.repeat(50_000), '\u{1f600}'.repeat(20_000), `${'line\n'.repeat(3000)}end`]) {
    const blocks = blocksOf(text)
    assert.equal(blocks.join(''), text)
    assert.ok(blocks.every(block => block.length <= 8_001 && block.isWellFormed()))
  }
})

await check('an owner is shown by the name that people know', async () => {
  const { ownerName } = await own('format.js')
  const shown = {
    anonymous: '–', 'key::ada': 'ada (key)', 'console::ada': 'ada (console)', 'certificate::ada': 'ada (certificate)',
    'jwt:https\u001e3a\u001e2f\u001e2fid.example:ada:b': 'ada:b (https://id.example)',
    'key::ada/tenant 1': 'ada (key) · tenant 1', 'key::ada/route:\u001e2fv1': 'ada (key)',
    'key::ada/route:\u001e2fv1\u001dt': 'ada (key) · t',
    'anonymous/t': '– · t', 'a\u001e2fb': 'a/b',
  }
  for (const [owner, name] of Object.entries(shown)) assert.equal(ownerName(owner), name, owner)
})
