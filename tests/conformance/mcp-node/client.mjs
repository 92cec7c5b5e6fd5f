// MCP with the official JavaScript clients: lists, calls, results, errors, questions, long work, streams.

import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'

import {
  ALL, CANCEL, DECLINE, accept, connected, cuttingFetch, isNote, meta, nativeAnswer, nativeRun, person, progress, statusOf,
  texts,
} from './calls.mjs'
import { check, close } from './checks.mjs'
import { withConfig } from './reload.mjs'

const SAID = 'You said: hello there\nSay help to see what else I can do.'
const ASKS = 'I would like to send a mail. May I?'
const SENT = 'The mail was sent to ada@example.com.'

for (const kind of ALL) {
  const on = (sentence, run) => check(`${kind.name}: ${sentence}`, run)

  await on('the client finds the revision, and lists tools, prompts and resources', () =>
    connected(kind, {}, async client => {
      assert.equal(kind.version(client), kind.revision)
      assert.equal(client.getServerVersion().name, 'interlingua')
      const { tools } = await client.listTools()
      assert.deepEqual(tools.map(tool => tool.name), ['demo', 'translate', 'answer', 'wait'])
      const { prompts } = await client.listPrompts()
      assert.deepEqual(prompts.map(prompt => prompt.name).sort(), ['demo', 'translate'])
      const { messages } = await client.getPrompt({ name: 'translate', arguments: { language: 'fr', text: 'good night' } })
      assert.match(messages[0].content.text, /translate[^]*good night/)
      const { resources } = await client.listResources()
      assert.ok(resources.some(resource => resource.uri === 'interlingua://agents/demo'))
      const { contents } = await client.readResource({ uri: 'interlingua://agents/demo' })
      assert.equal(JSON.parse(contents[0].text).name, 'demo')
      const { resourceTemplates } = await client.listResourceTemplates()
      assert.equal(resourceTemplates.length, 2)
      const ref = { type: 'ref/prompt', name: 'translate' }
      const { completion } = await client.complete({ ref, argument: { name: 'language', value: 'd' } })
      assert.deepEqual(completion.values.toSorted(), ['da', 'de'])
    }))

  await on('a call is answered with the text, and its session goes on', () =>
    connected(kind, {}, async (client, ask) => {
      const first = await ask('hello there')
      assert.deepEqual(texts(first), [SAID])
      assert.equal(meta(first, 'status'), 'completed')
      assert.ok(isNote(first.content.at(-1)))
      assert.equal(first.structuredContent, undefined)
      assert.equal((await nativeRun(meta(first, 'run'))).status, 'completed')
      const second = await ask('history', { session: meta(first, 'session') })
      assert.match(texts(second)[0], /message 2 of yours/)
    }))

  await on('progress rises, and its deltas are the text', () =>
    connected(kind, {}, async (client, ask) => {
      const noted = progress()
      const result = await ask('tool long 40 20', {}, noted.options)
      const values = noted.seen.map(it => it.progress)
      assert.ok(values.length > 3 && values.every((value, at) => at === 0 || value > values[at - 1]), values.join())
      assert.deepEqual(noted.noted('run'), [meta(result, 'run')])
      assert.equal(noted.text(), texts(result).join(''))
    }))

  await on('images, sounds and files are blocks, and attachments reach the agent', () =>
    connected(kind, {}, async (client, ask) => {
      for (const [word, type] of [['image', 'image'], ['audio', 'audio'], ['file', 'resource'], ['video', 'resource_link']]) {
        const result = await ask(word)
        assert.deepEqual(result.content.filter(it => !isNote(it)).map(it => it.type), ['text', type], word)
      }
      const attachments = [{ name: 'a.png', mime_type: 'image/png', data: 'iVBORw0KGgo=' }]
      assert.match(texts(await ask('hello there', { attachments }))[0], /I also got: image\./)
    }))

  await on('declared arguments fill the message, and wrong ones are errors for the model', () =>
    connected(kind, {}, async (client, ask) => {
      const translate = input => kind.call(client, { name: 'translate', arguments: input })
      assert.deepEqual(texts(await translate({ language: 'de', text: 'good morning' })), ['de: good morning'])
      const wrong = await translate({ language: 'xx', text: 'good morning' })
      assert.ok(wrong.isError && /language/.test(texts(wrong)[0]))
      const failed = await ask('fail')
      assert.ok(failed.isError)
      assert.equal(texts(failed)[0], 'MODEL_EXECUTION_FAILED: the model stopped working')
      await assert.rejects(ask('hello', { tool: 'nobody' }), error => error.code === -32602 && /nobody/.test(error.message))
    }))

  await on('structured output fits its schema in every result', () =>
    connected(kind, { path: '/structured' }, async (client, ask) => {
      // The client validates the results of tools that it has listed.
      const { tools } = await client.listTools()
      assert.ok(tools[0].outputSchema)
      assert.equal((await ask('echo hello')).structuredContent.text, 'hello')
      const waits = (await ask('approval')).structuredContent
      assert.equal(waits.status, 'input_required')
      assert.equal(waits.pending[0].name, 'send_mail')
    }))

  for (const [sentence, answer, expected] of [
    ['accepted', accept({ decision: 'accept' }), /^The mail was sent to ada@/],
    ['edited', accept({ decision: 'edit', arguments: '{"to":"bob@example.com"}' }), /^The mail was sent to bob@/],
    ['answered in words', accept({ decision: 'respond', text: 'later' }), /took this for the result: later/],
    ['rejected', accept({ decision: 'reject', text: 'too early' }), /you rejected it: too early/],
    ['declined', DECLINE, /because you rejected it/],
  ]) {
    await on(`an approval is ${sentence}`, async () => {
      const someone = person(answer)
      await connected(kind, { person: someone }, async (client, ask) => {
        const result = await ask('approval')
        assert.equal(someone.forms().length, 1)
        assert.match(someone.forms()[0].message, /^Send this mail\?[^]*send_mail/)
        assert.equal(texts(result)[0], ASKS)
        assert.match(texts(result)[1], expected)
      })
    })
  }

  await on('a question keeps its schema, and a login shows its page', async () => {
    const someone = person(accept({ colour: 'green' }))
    await connected(kind, { person: someone }, async (client, ask) => {
      assert.match(texts(await ask('question'))[0].replaceAll(' ', ''), /"colour":"green"/)
      assert.deepEqual(someone.forms()[0].requestedSchema.properties.colour.enum, ['red', 'green', 'blue'])
    })
    const visitor = person(params => (params.mode === 'url' ? { action: 'accept' } : accept({ done: 'yes' })))
    await connected(kind, { person: visitor }, async (client, ask) => {
      assert.deepEqual(texts(await ask('login')), ['Thank you, you are logged in.'])
      const pages = visitor.seen.filter(params => params.mode === 'url').map(params => params.url)
      assert.deepEqual(pages, ['https://example.com/login'])
    })
  })

  await on('a dismissed or empty form decides nothing, and the next call asks again', async () => {
    const someone = person(CANCEL, accept({ decision: 'accept' }))
    await connected(kind, { person: someone }, async (client, ask) => {
      const waits = await ask('approval')
      assert.equal(meta(waits, 'status'), 'input_required')
      assert.ok(!waits.isError)
      const again = await ask('and now?', { session: meta(waits, 'session') })
      assert.ok(texts(again).includes(SENT), JSON.stringify(again))
    })
    const silent = person(accept({}))
    await connected(kind, { person: silent }, async (client, ask) => {
      assert.equal(meta(await ask('approval'), 'status'), 'input_required')
      assert.equal(silent.forms().length, 3)
    })
  })

  await on('without a person, the model may reject and answer, but not approve', () =>
    connected(kind, {}, async (client, ask) => {
      const run = meta(await ask('approval'), 'run')
      const answer = input => kind.call(client, { name: 'answer', arguments: input })
      const refused = await answer({ run, decision: 'accept' })
      assert.ok(refused.isError && texts(refused)[0].startsWith('PERMISSION_DENIED: '))
      assert.match(texts(await answer({ run, decision: 'reject' })).join(' '), /because you rejected it/)
      const question = meta(await ask('question'), 'run')
      assert.match(texts(await answer({ run: question, value: { colour: 'red' } })).join(' '), /colour/)
    }))

  await on('an answer over the Agent API goes on with the call', async () => {
    const noted = progress()
    const someone = person(async () => {
      const answer = await nativeAnswer(noted.noted('run')[0], noted.noted('session')[0], true)
      assert.equal(answer.status, 'completed')
      if (!kind.isModern) await sleep(20_000)
      return accept({ decision: 'reject' })
    })
    await connected(kind, { person: someone }, async (client, ask) => {
      const result = await ask('approval', {}, { ...noted.options, timeout: 15_000 })
      assert.deepEqual(texts(result), [ASKS, SENT])
    })
  })

  await on('a call that takes too long ends as working, and `wait` brings the whole answer', () =>
    connected(kind, { path: '/impatient' }, async (client, ask) => {
      let result = await ask('long 60 20')
      const run = meta(result, 'run')
      assert.equal(meta(result, 'status'), 'working')
      for (let tries = 0; meta(result, 'status') === 'working' && tries < 20; tries++) {
        result = await kind.call(client, { name: 'wait', arguments: { run } })
      }
      assert.equal(meta(result, 'status'), 'completed')
      assert.equal(texts(result)[0], (await nativeRun(run)).output.at(-1).content[0].text)
      // With progress it goes on.
      const whole = await ask('long 60 20', {}, progress().options)
      assert.equal(meta(whole, 'status'), 'completed')
    }))

  await on('a client that does not know tasks gets an ordinary result', () =>
    connected(kind, { path: '/tasks' }, async (client, ask) => assert.deepEqual(texts(await ask('echo hello')), ['hello'])))

  await on('a call that the client aborts is cancelled', () =>
    connected(kind, {}, async (client, ask) => {
      const noted = progress()
      const signal = AbortSignal.timeout(1000)
      await assert.rejects(ask('long 500 50', {}, { ...noted.options, signal }))
      assert.equal(await statusOf(noted.noted('run')[0], 'canceled', 'completed', 'failed'), 'canceled')
      assert.deepEqual(texts(await ask('echo still here')), ['still here'])
    }))

  await on('after a reload the client learns that the tools changed', () =>
    connected(kind, {}, async client => {
      const changed = new Promise(resolve => kind.onToolsChanged(client, resolve))
      const listener = kind.isModern ? await client.listen({ toolsListChanged: true }) : undefined
      if (listener) assert.equal(listener.honoredFilter.toolsListChanged, true)
      await sleep(500)
      const other = `Translates a text, as ${kind.name} sees.`
      await withConfig('Translates a text.', other, async () => {
        await Promise.race([changed, sleep(10_000).then(() => assert.fail('no notification'))])
        const { tools } = await client.listTools(undefined, { cacheMode: 'refresh' })
        assert.ok(tools.find(tool => tool.name === 'translate').description.startsWith(other))
      })
      await listener?.close()
    }))

  if (kind.isModern) {
    await on('a stream that breaks off is a cancelled call', async () => {
      const { state, fetch } = cuttingFetch(3)
      const noted = progress()
      await connected(kind, { fetch }, async (client, ask) => {
        await assert.rejects(ask('long 200 50', {}, { ...noted.options, timeout: 3000 }))
      })
      assert.equal(state.made, 1)
      assert.equal(await statusOf(noted.noted('run')[0], 'canceled', 'completed', 'failed'), 'canceled')
    })
  } else {
    for (const cuts of [[2], [4], [6, 2]]) {
      await on(`a stream cut after ${cuts.join(' and ')} events is resumed, and every word arrives once`, async () => {
        const { state, fetch } = cuttingFetch(...cuts)
        const noted = progress()
        await connected(kind, { fetch }, async (client, ask) => {
          const result = await ask('long 60 30', {}, noted.options)
          assert.equal(state.made, cuts.length)
          assert.equal(noted.text(), texts(result)[0])
          assert.equal(noted.noted('run').length, 1)
        })
      })
    }

    await on('a stream that the gateway closes is resumed too', () =>
      connected(kind, { path: '/closing' }, async (client, ask) => {
        const noted = progress()
        const result = await ask('long 50 30', {}, noted.options)
        assert.equal(noted.text(), texts(result)[0])
      }))
  }
}

close()
