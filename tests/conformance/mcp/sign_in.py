"""Signing in with the official Python client, which knows nothing but the URL of the gateway: challenge, metadata of the
resource, authorization server, registration, code, token."""

import json
import urllib.parse
import urllib.request

import httpx2
from mcp import Client
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientMetadata

from calls import MODES, ask, in_each_mode, texts
from checks import GATEWAY_URL, UPSTREAM_URL, check, close

SECURE = f"{GATEWAY_URL}/secure"
BACK = "http://127.0.0.1:1/back"


class Storage:
    tokens = client = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client):
        self.client = client


class Browser:
    """Follows the redirect of the authorization server, as the browser of a person would."""

    def __init__(self):
        self.back = {}

    async def open(self, url):
        async with httpx2.AsyncClient() as http:
            answer = await http.get(url)
        assert answer.status_code == 302 and answer.headers["location"].startswith(BACK), answer
        self.back = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(answer.headers["location"]).query))

    async def returned(self):
        return AuthorizationCodeResult(code=self.back["code"], state=self.back["state"])


def get(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.loads(answer.read())


def signed_in():
    browser, storage = Browser(), Storage()
    metadata = OAuthClientMetadata(client_name="the suite", redirect_uris=[BACK])
    return storage, OAuthClientProvider(SECURE, metadata, storage, browser.open, browser.returned)


@in_each_mode("the client signs in by itself, and its token is made for this gateway")
async def _(mode):
    before = len(get(f"{UPSTREAM_URL}/requests"))
    storage, provider = signed_in()
    async with httpx2.AsyncClient(auth=provider, timeout=30) as http:
        async with Client(streamable_http_client(SECURE, http_client=http), mode=mode) as client:
            assert client.protocol_version == MODES[mode]
            assert texts(await ask(client, "echo hello")) == ["hello"]
    authorize, code = get(f"{UPSTREAM_URL}/requests")[before:]
    assert authorize["resource"] == code["resource"] == SECURE, (authorize, code)
    assert authorize["scope"] == "agents", authorize
    assert storage.tokens.access_token, storage


@check("the metadata of a resource is public, and only of routes that take tokens")
async def _():
    found = get(f"{GATEWAY_URL}/.well-known/oauth-protected-resource/secure")
    assert found["resource"] == SECURE and found["authorization_servers"] == [UPSTREAM_URL], found
    assert found["bearer_methods_supported"] == ["header"] and found["scopes_supported"] == ["agents"], found
    async with httpx2.AsyncClient() as http:
        assert (await http.get(f"{GATEWAY_URL}/.well-known/oauth-protected-resource/mcp")).status_code == 404
        assert (await http.get(f"{GATEWAY_URL}/.well-known/oauth-authorization-server")).status_code == 404


@check("without a token, or with a wrong one, the challenge names the metadata")
async def _():
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "suite", "version": "1"},
    }}
    accept = {"accept": "application/json, text/event-stream"}
    other = urllib.parse.quote("http://other.example/mcp")
    with urllib.request.urlopen(f"{UPSTREAM_URL}/made?aud={other}", timeout=10) as answer:
        stolen = answer.read().decode()
    async with httpx2.AsyncClient() as http:
        for token in (None, "nonsense", stolen):
            headers = {**accept, **({"authorization": f"Bearer {token}"} if token else {})}
            for send in (http.post(SECURE, json=body, headers=headers), http.get(SECURE, headers=headers),
                         http.delete(SECURE, headers=headers)):
                answer = await send
                assert answer.status_code == 401, answer
                challenge = answer.headers["www-authenticate"]
                expected = f'resource_metadata="{GATEWAY_URL}/.well-known/oauth-protected-resource/secure"'
                assert challenge.startswith("Bearer ") and expected in challenge, challenge
                assert 'scope="agents"' in challenge, challenge
                assert ('error="invalid_token"' in challenge) == (token is not None), challenge
            assert answer.json()["error"]["data"]["code"] == "AUTH_FAILED", answer.text


@check("a session is no credential, and a session of another caller does not exist")
async def _():
    with urllib.request.urlopen(f"{UPSTREAM_URL}/made?aud={urllib.parse.quote(SECURE)}", timeout=10) as answer:
        bearer = {"authorization": f"Bearer {answer.read().decode()}"}
    headers = {"accept": "application/json, text/event-stream"}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "suite", "version": "1"},
    }}
    ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
    async with httpx2.AsyncClient() as http:
        made = await http.post(SECURE, json=body, headers={**headers, **bearer})
        session = {"mcp-session-id": made.headers["mcp-session-id"]}
        assert (await http.post(SECURE, json=ping, headers={**headers, **bearer, **session})).status_code == 200
        assert (await http.post(SECURE, json=ping, headers={**headers, **session})).status_code == 401
        other = await http.post(f"{GATEWAY_URL}/mcp", json=body, headers=headers)
        stolen = {"mcp-session-id": other.headers["mcp-session-id"]}
        assert (await http.post(SECURE, json=ping, headers={**headers, **bearer, **stolen})).status_code == 404


close()
