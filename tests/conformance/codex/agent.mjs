// A scripted agent for Codex: it speaks the Agent API, runs a command in the client's shell twice, and then repeats the
// output of the shell. `GET /asked` returns the requests that it received.

import { createServer } from 'node:http'

const port = Number(process.argv[process.argv.indexOf('--port') + 1])
const asked = []

/** The client's shell, whatever this version calls it, and what to hand to it. */
const SHELLS = {
  exec_command: (command) => ({ cmd: command }),
  shell_command: (command) => ({ command }),
  shell: (command) => ({ command: ['bash', '-lc', command] }),
}

function answer(body) {
  const returned = body.input.filter((message) => message.type === 'function_call_output')
  const tools = (body.tools ?? []).map((tool) => tool.function?.name)
  asked.push({ session: body.session_id, input: body.input.map((message) => message.type ?? 'message'), tools })
  const calls = asked.filter((one) => one.session === body.session_id).length
  const shell = Object.keys(SHELLS).find((name) => tools.includes(name))
  if (shell && calls <= 2) {
    const data = {
      call_id: `call_${calls}`,
      name: shell,
      arguments: JSON.stringify(SHELLS[shell](`echo result-$((${calls} * 21))`)),
    }
    return { type: 'function_call', content: [{ type: 'data', data }] }
  }
  const output = returned.at(-1)?.content[0].data.output
  return { type: 'message', content: [{ type: 'text', text: `The shell said: ${output}` }] }
}

createServer((request, response) => {
  let body = ''
  request.on('data', (chunk) => (body += chunk))
  request.on('end', () => {
    if (request.method === 'GET') {
      response.setHeader('content-type', 'application/json')
      return response.end(JSON.stringify(asked))
    }
    const message = { object: 'message', id: `m${asked.length}`, status: 'completed', role: 'assistant', ...answer(JSON.parse(body)) }
    const told = (status) => ({ object: 'response', id: `r${asked.length}`, status })
    response.setHeader('content-type', 'text/event-stream')
    for (const frame of [told('created'), told('in_progress'), message, told('completed')]) {
      response.write(`data: ${JSON.stringify(frame)}\n\n`)
    }
    response.end()
  })
}).listen(port, '127.0.0.1')
