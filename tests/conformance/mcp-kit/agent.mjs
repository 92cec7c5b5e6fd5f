// The agents that the conformance kit of MCP calls, each by the name of its tool, over the Agent API.
//
//     node agent.mjs --port PORT     POST /NAME
//
// A question has the id that the kit expects for its form. Not here: any expectation (the kit).

import { createServer } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'

import { reload } from './reload.mjs'

const PICTURE =
  'data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=='
const SOUND = 'UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQIAAAB/fw=='
const FILE = `data:text/plain;base64,${Buffer.from('This is an embedded resource content.').toString('base64')}`

const object = (properties, required = []) => ({ type: 'object', properties, required })
const string = { type: 'string' }
const titled = words => words.map((title, at) => ({ const: `value${at + 1}`, title }))
const OPTIONS = ['option1', 'option2', 'option3']

const DEFAULTS = object({
  name: { type: 'string', default: 'John Doe' },
  age: { type: 'integer', default: 30 },
  score: { type: 'number', default: 95.5 },
  status: { type: 'string', enum: ['active', 'inactive', 'pending'], default: 'active' },
  verified: { type: 'boolean', default: true },
})
const ENUMERATIONS = object({
  untitledSingle: { type: 'string', enum: OPTIONS },
  titledSingle: { type: 'string', oneOf: titled(['First Option', 'Second Option', 'Third Option']) },
  legacyEnum: { type: 'string', enum: ['opt1', 'opt2', 'opt3'], enumNames: ['Option One', 'Option Two', 'Option Three'] },
  untitledMulti: { type: 'array', items: { type: 'string', enum: OPTIONS } },
  titledMulti: { type: 'array', items: { anyOf: titled(['First Choice', 'Second Choice', 'Third Choice']) } },
})

/** Asks, and once everything is answered says so. */
const asks = (...questions) => async function (turn) {
  if (turn.answers.size > 0) return turn.say(`state-ok ${JSON.stringify([...turn.answers.values()])}`)
  for (const [id, message, schema] of questions) turn.ask(id, message, schema)
}

const ADDRESS = object({ username: string, email: string }, ['username', 'email'])
const NAME = ['user_name', 'What is your name?', object({ name: string }, ['name'])]
const CONFIRM = ['confirm', 'Please confirm', object({ ok: { type: 'boolean' } }, ['ok'])]

const AGENTS = {
  test_simple_text: turn => turn.say('This is a simple text response for testing.'),
  test_simple_prompt: turn => turn.say('This is a simple prompt for testing.'),
  test_logging_tool: turn => turn.say('Nothing is logged.'),
  test_prompt_with_arguments: turn => turn.say(turn.words),
  json_schema_2020_12_tool: turn => turn.say(turn.words),
  greet: turn => turn.say(`Hello, ${turn.words}!`),
  test_image_content: turn => turn.show('image', { image_url: PICTURE }),
  test_audio_content: turn => turn.show('audio', { data: SOUND, format: 'wav' }),
  test_embedded_resource: turn => turn.show('file', { file_data: FILE, filename: 'resource.txt' }),

  test_multiple_content_types(turn) {
    turn.say('Multiple content types test:')
    turn.show('image', { image_url: PICTURE })
    turn.show('file', { file_data: FILE, filename: 'resource.txt' })
  },

  test_error_handling: turn => turn.fail('This tool intentionally returns an error for testing'),
  failing_job: turn => turn.fail('This job always fails'),

  async test_tool_with_progress(turn) {
    for (const name of ['first', 'second', 'third']) {
      turn.call(name)
      await sleep(60)
    }
    turn.say('Done.')
  },

  async test_reconnection(turn) {
    for (const word of ['This ', 'takes ', 'a ', 'while.']) {
      turn.say(word)
      await sleep(250)
    }
  },

  test_elicitation: asks(['user', 'Please provide your information', ADDRESS]),
  test_elicitation_sep1034_defaults: asks(['defaults', 'Please review', DEFAULTS]),
  test_elicitation_sep1330_enums: asks(['enums', 'Please choose', ENUMERATIONS]),
  test_input_required_result_elicitation: asks(NAME),
  test_streaming_elicitation: asks(NAME),
  test_input_required_result_request_state: asks(CONFIRM),
  test_input_required_result_tampered_state: asks(CONFIRM),
  confirm_delete: asks(['delete', 'Delete the file?', object({ confirm: { type: 'boolean' } }, ['confirm'])]),
  multi_input: asks(NAME, ['confirm', 'Are you sure?', object({ confirm: { type: 'boolean' } }, ['confirm'])]),

  test_input_required_result_multi_round(turn) {
    if (turn.answers.has('step2')) return turn.say('Both steps are done.')
    if (turn.answers.has('step1')) return turn.ask('step2', 'Step 2: what is your colour?', object({ color: string }))
    return turn.ask('step1', 'Step 1: what is your name?', object({ name: string }))
  },

  async test_tool_with_task(turn) {
    if (turn.answers.size === 0) return turn.ask(...NAME)
    // Longer than the gateway waits for a question before it makes a task.
    await sleep(3500)
    return turn.say(`Hello, ${turn.answers.get('user_name').name}!`)
  },

  async slow_compute(turn) {
    await sleep(1000 * Number(turn.words || 0))
    turn.say('The computation is complete.')
  },

  async protocol_error_job(turn) {
    turn.say('It begins well.')
    await sleep(200)
    turn.frame('['.repeat(500) + ']'.repeat(500))
  },

  test_trigger_tool_change: async turn => turn.say(await changeConfig()),
  test_trigger_prompt_change: async turn => turn.say(await changeConfig()),
}

/** Changes a description in the configuration of the gateway, and makes the gateway read it. */
async function changeConfig() {
  await reload(text => text.replace(/\((\d+)\)/, (_, number) => `(${Number(number) + 1})`))
  return 'The configuration has changed.'
}

/** One turn: what the gateway sent, and the answer as it grows. */
class Turn {
  answers = new Map()
  output = []
  words = ''

  constructor(request, response) {
    this.response = response
    for (const message of request.input) {
      const contents = Array.isArray(message.content) ? message.content : [{ type: 'text', text: message.content }]
      for (const { type, text, data } of contents) {
        if (type === 'text' && message.role === 'user') this.words = text
        if (type === 'data' && data?.approval_request_id) this.take(data)
      }
    }
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    this.status('created')
    this.status('in_progress')
  }

  take({ approval_request_id: id, interrupt, approve }) {
    const payload = interrupt?.payload ?? interrupt?.text ?? approve
    this.answers.set(id, typeof payload === 'string' && payload.startsWith('{') ? JSON.parse(payload) : payload)
  }

  frame(text) {
    this.response.write(`data: ${text}\n\n`)
  }

  status(status, error = null) {
    const isOpen = status === 'created' || status === 'in_progress'
    this.frame(JSON.stringify({
      object: 'response', id: 'response_1', status, error, created_at: 1_795_168_800, output: isOpen ? null : this.output,
    }))
  }

  message(type, role, content) {
    const id = `msg_${this.output.length}`
    const message = { object: 'message', id, type, role }
    this.frame(JSON.stringify({ ...message, status: 'in_progress', content: null }))
    const whole = { object: 'content', index: 0, delta: false, msg_id: id, status: 'completed', ...content }
    this.frame(JSON.stringify(whole))
    this.output.push({ ...message, status: 'completed', content: [whole] })
    this.frame(JSON.stringify(this.output.at(-1)))
  }

  say(text) {
    this.message('message', 'assistant', { type: 'text', text })
  }

  show(type, fields) {
    this.message('message', 'assistant', { type, ...fields })
  }

  call(name) {
    this.message('plugin_call', 'assistant', { type: 'data', data: { call_id: `call_${name}`, name, arguments: '{}' } })
  }

  ask(id, message, schema) {
    const interrupt = { kind: 'input', message, response_schema: schema }
    const data = { id, name: 'input_required', arguments: '{}', server_label: 'kit', interrupt }
    this.message('mcp_approval_request', 'assistant', { type: 'data', data })
  }

  fail(message) {
    this.error = { code: 'AGENT_ERROR', message }
  }

  end() {
    this.status(this.error ? 'failed' : 'completed', this.error)
    this.response.end()
  }
}

createServer(async (request, response) => {
  let body = ''
  for await (const chunk of request) body += chunk
  const agent = AGENTS[request.url.slice(1)]
  if (!agent || request.method !== 'POST') return response.writeHead(request.url === '/health' ? 200 : 404).end('{}')
  const turn = new Turn(JSON.parse(body), response)
  await agent(turn)
  return turn.end()
}).listen(Number(process.argv[process.argv.indexOf('--port') + 1]), '127.0.0.1')
