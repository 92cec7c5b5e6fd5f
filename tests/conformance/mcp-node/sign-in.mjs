// Signing in with the official JavaScript clients, which know nothing but the URL of the gateway.

import assert from 'node:assert/strict'

import { ALL, texts } from './calls.mjs'
import { GATEWAY_URL, UPSTREAM_URL, check, close } from './checks.mjs'

const SECURE = `${GATEWAY_URL}/secure`
const BACK = 'http://127.0.0.1:1/back'
const requests = async () => (await fetch(`${UPSTREAM_URL}/requests`)).json()

/** Keeps what the client has to remember, and follows the redirect as the browser of a person would. */
class Provider {
  redirectUrl = BACK
  clientMetadata = { client_name: 'the suite', redirect_uris: [BACK], token_endpoint_auth_method: 'none' }
  clientInformation = () => this.client
  saveClientInformation = client => { this.client = client }
  tokens = () => this.kept
  saveTokens = tokens => { this.kept = tokens }
  codeVerifier = () => this.verifier
  saveCodeVerifier = verifier => { this.verifier = verifier }

  async redirectToAuthorization(url) {
    const response = await fetch(url, { redirect: 'manual' })
    this.code = new URL(response.headers.get('location')).searchParams.get('code')
  }
}

for (const kind of ALL) {
  await check(`${kind.name}: the client signs in by itself, and its token is made for this gateway`, async () => {
    const before = (await requests()).length
    const authProvider = new Provider()
    const first = kind.transport(SECURE, { authProvider })
    await assert.rejects(kind.create({}).connect(first), error => /Unauthorized/.test(`${error.constructor.name} ${error}`))
    await first.finishAuth(authProvider.code)

    const client = kind.create({})
    await client.connect(kind.transport(SECURE, { authProvider }))
    const result = await kind.call(client, { name: 'demo', arguments: { message: 'echo hello' } })
    assert.deepEqual(texts(result), ['hello'])
    await client.close()

    const [authorize, exchange] = (await requests()).slice(before)
    assert.equal(authorize.resource, SECURE)
    assert.equal(exchange.resource, SECURE)
    assert.equal(authorize.scope, 'agents')
  })
}

close()
