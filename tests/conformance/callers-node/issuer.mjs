// A small OpenID Connect issuer: discovery, keys, and tokens for whoever asks. Never one for real use.
//
//     GET /token?sub=ann&seconds=600&aud=agents   a token, as text

import { generateKeyPairSync, sign } from 'node:crypto'
import { createServer } from 'node:http'

const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
const port = Number(process.argv[process.argv.indexOf('--port') + 1])
const issuer = `http://127.0.0.1:${port}`

const encode = value => Buffer.from(JSON.stringify(value)).toString('base64url')

function token({ sub = 'ann', seconds = 600, aud = 'agents' }) {
  const claims = { iss: issuer, aud, sub, exp: Math.floor(Date.now() / 1000) + Number(seconds) }
  const message = `${encode({ alg: 'ES256', kid: 'one', typ: 'JWT' })}.${encode(claims)}`
  const signature = sign('sha256', Buffer.from(message), { key: privateKey, dsaEncoding: 'ieee-p1363' })
  return `${message}.${signature.toString('base64url')}`
}

const answers = {
  '/health': () => ({}),
  '/.well-known/openid-configuration': () => ({ issuer, jwks_uri: `${issuer}/jwks` }),
  '/jwks': () => ({ keys: [{ ...publicKey.export({ format: 'jwk' }), kid: 'one', use: 'sig' }] }),
  '/token': query => token(Object.fromEntries(query)),
}

createServer((request, response) => {
  const url = new URL(request.url, issuer)
  const answer = answers[url.pathname]?.(url.searchParams)
  response.statusCode = answer === undefined ? 404 : 200
  response.end(typeof answer === 'string' ? answer : JSON.stringify(answer ?? ''))
}).listen(port, '127.0.0.1')
