// A scripted agent that counts its runs, a web server for pages of any origin, and a server that takes whatever a page
// sends, so that the script can tell that the page does send it.
//
// `GET /runs` returns the number of runs, and `GET /arrived` what pages have sent to `/sink/{way}`, by way.

import { createServer } from 'node:http'

const port = Number(process.argv[process.argv.indexOf('--port') + 1])
let runs = 0
const arrived = {}

function run(response) {
  runs += 1
  const text = { object: 'content', type: 'text', delta: true, text: 'the agent ran' }
  response.setHeader('content-type', 'text/event-stream')
  for (const frame of [text, { object: 'response', status: 'completed' }]) {
    response.write(`data: ${JSON.stringify(frame)}\n\n`)
  }
  response.end()
}

function sink(request, response) {
  const way = request.url.split('?')[0].slice('/sink/'.length)
  if (request.method !== 'OPTIONS') arrived[way] = (arrived[way] ?? 0) + 1
  for (const name of ['origin', 'methods', 'headers']) response.setHeader(`access-control-allow-${name}`, '*')
  response.setHeader('content-type', way === 'script' ? 'text/javascript' : 'text/plain')
  response.end('')
}

function json(response, value) {
  response.setHeader('content-type', 'application/json')
  response.end(JSON.stringify(value))
}

const server = createServer((request, response) => {
  request.resume()
  request.on('end', () => {
    if (request.url.startsWith('/sink/')) return sink(request, response)
    if (request.method === 'POST' && request.url === '/process') return run(response)
    if (request.url === '/runs') return json(response, runs)
    if (request.url === '/arrived') return json(response, arrived)
    if (request.url === '/health') return json(response, 'ready')
    response.setHeader('content-type', 'text/html')
    response.end('<!doctype html><title>a page</title>')
  })
})
server.on('upgrade', (request, socket) => {
  arrived.socket = (arrived.socket ?? 0) + 1
  socket.destroy()
})
server.listen(port, '127.0.0.1')
