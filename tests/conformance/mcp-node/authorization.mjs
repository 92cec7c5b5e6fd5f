// A small OAuth authorization server: metadata, dynamic registration, authorization codes with PKCE, and keys. It asks no
// one: whoever asks for a code gets it. Never one for real use.
//
//     GET /requests   the parameters of the requests so far, as JSON

import { createHash, generateKeyPairSync, randomUUID, sign } from 'node:crypto'
import { createServer } from 'node:http'

const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
const port = Number(process.argv[process.argv.indexOf('--port') + 1])
const issuer = `http://127.0.0.1:${port}`
const codes = new Map()
const requests = []

const encode = value => Buffer.from(JSON.stringify(value)).toString('base64url')

function token(audience) {
  const claims = { iss: issuer, aud: audience, sub: 'ann', exp: Math.floor(Date.now() / 1000) + 600 }
  const message = `${encode({ alg: 'ES256', kid: 'one', typ: 'JWT' })}.${encode(claims)}`
  const signature = sign('sha256', Buffer.from(message), { key: privateKey, dsaEncoding: 'ieee-p1363' })
  return `${message}.${signature.toString('base64url')}`
}

const metadata = {
  issuer,
  jwks_uri: `${issuer}/jwks`,
  authorization_endpoint: `${issuer}/authorize`,
  token_endpoint: `${issuer}/token`,
  registration_endpoint: `${issuer}/register`,
  response_types_supported: ['code'],
  grant_types_supported: ['authorization_code'],
  code_challenge_methods_supported: ['S256'],
  token_endpoint_auth_methods_supported: ['none'],
}

function authorize(query) {
  const code = randomUUID()
  codes.set(code, query)
  requests.push({ endpoint: 'authorize', ...query })
  return [302, '', { location: `${query.redirect_uri}?${new URLSearchParams({ code, state: query.state ?? '' })}` }]
}

function exchange(asked) {
  requests.push({ endpoint: 'token', ...asked })
  const code = codes.get(asked.code)
  codes.delete(asked.code)
  const challenge = createHash('sha256').update(asked.code_verifier ?? '').digest('base64url')
  if (code?.code_challenge !== challenge) return [400, { error: 'invalid_grant' }]
  return [200, { access_token: token(asked.resource), token_type: 'Bearer', expires_in: 600, scope: code.scope }]
}

const answers = {
  '/health': () => [200, {}],
  '/.well-known/oauth-authorization-server': () => [200, metadata],
  '/.well-known/openid-configuration': () => [200, metadata],
  '/jwks': () => [200, { keys: [{ ...publicKey.export({ format: 'jwk' }), kid: 'one', use: 'sig' }] }],
  '/requests': () => [200, requests],
  '/authorize': query => authorize(query),
  '/register': (_, body) => [201, { ...JSON.parse(body), client_id: 'the-client', token_endpoint_auth_method: 'none' }],
  '/token': (_, body) => exchange(Object.fromEntries(new URLSearchParams(body))),
}

createServer(async (request, response) => {
  const url = new URL(request.url, issuer)
  let body = ''
  for await (const chunk of request) body += chunk
  const [status, answer, headers] = answers[url.pathname]?.(Object.fromEntries(url.searchParams), body) ?? [404, '']
  response.writeHead(status, { 'content-type': 'application/json', ...headers })
  response.end(typeof answer === 'string' ? answer : JSON.stringify(answer))
}).listen(port, '127.0.0.1')
