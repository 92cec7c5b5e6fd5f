"""Keys and tokens with the official Python clients of OpenAI and A2A: what they send, and what they raise.

Keys are made and revoked with the program itself while the gateway runs; tokens come from `issuer.py`.
"""

import asyncio
import os
import subprocess
import time
import uuid

import httpx
import openai
from a2a.client import A2ACardResolver, ClientCallContext, ClientConfig, ClientFactory
from a2a.client.auth import AuthInterceptor, InMemoryContextCredentialStore
from a2a.client.errors import A2AClientError
from a2a.types import a2a_pb2 as t
from a2a.utils.errors import TaskNotFoundError

from checks import GATEWAY_URL, UPSTREAM_URL, check, close

AGENT = f"{GATEWAY_URL}/agents/demo"


def interlingua(*arguments):
    command = [os.environ["INTERLINGUA"], "key", *arguments, "--config", "gateway.toml"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def new_key(caller):
    """A key that the running gateway knows: it looks at the file every second."""
    key = interlingua("new", caller)
    deadline = time.monotonic() + 5
    while httpx.get(f"{GATEWAY_URL}/v1/models", headers={"x-api-key": key}).status_code == 401:
        assert time.monotonic() < deadline, "the key never became valid"
        time.sleep(0.1)
    return key


def token(**claims):
    return httpx.get(f"{UPSTREAM_URL}/token", params=claims).text


def client(credentials):
    return openai.OpenAI(base_url=f"{GATEWAY_URL}/v1", api_key=credentials, max_retries=0)


def ask(credentials, model="demo"):
    return client(credentials).responses.create(model=model, input="hello there")


def raises(kind, status, function):
    try:
        function()
    except kind as error:
        assert type(error) is kind, type(error)
        assert error.status_code == status, error.status_code
        assert error.request_id, "no request id"
        return error
    raise AssertionError(f"no {kind.__name__}")


ann, bob, guest = new_key("ann"), new_key("bob"), new_key("guest")


@check("openai: a key and a token are accepted")
def _():
    assert ask(ann).status == "completed"
    assert ask(token(sub="ann")).status == "completed"


@check("openai: without valid credentials it is an AuthenticationError, in the same words")
def _():
    name, secret = ann.rsplit("_", 1)
    wrong = [
        "none", f"{name}_{'0' * len(secret)}", token(seconds="-100"), token(aud="others"), token()[:-4] + "AAAA",
    ]
    texts = set()
    for credentials in wrong:
        error = raises(openai.AuthenticationError, 401, lambda: ask(credentials))
        assert error.code == "invalid_api_key", error.body
        assert error.response.headers["www-authenticate"].startswith("Bearer"), error.response.headers
        texts.add(error.message)
    assert len(texts) == 1, texts


@check("openai: an agent of others is a PermissionDeniedError, and is not listed")
def _():
    raises(openai.PermissionDeniedError, 403, lambda: ask(guest))
    assert ask(guest, "other").status == "completed"
    assert [model.id for model in client(guest).models.list()] == ["other"]
    assert {model.id for model in client(ann).models.list()} == {"demo", "other"}


@check("openai: what belongs to another is a NotFoundError, also for a token of the same name")
def _():
    made = ask(ann)
    assert client(ann).responses.retrieve(made.id).id == made.id
    for other in [bob, token(sub="ann"), token(sub="bob")]:
        never = made.id[:-4] + "ffff"
        one = raises(openai.NotFoundError, 404, lambda: client(other).responses.retrieve(made.id))
        none = raises(openai.NotFoundError, 404, lambda: client(other).responses.retrieve(never))
        assert one.message.replace(made.id, "") == none.message.replace(never, ""), (one.message, none.message)


@check("openai: too many requests are a RateLimitError that says when to come again")
def _():
    key = interlingua("new", "slow")
    deadline = time.monotonic() + 5
    while True:
        try:
            client(key).models.list()
            break
        except openai.AuthenticationError:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    error = raises(openai.RateLimitError, 429, lambda: client(key).models.list())
    headers = error.response.headers
    assert error.code == "rate_limit_exceeded", error.body
    assert 0 < int(headers["retry-after"]) <= 60, headers
    assert headers["x-ratelimit-remaining-requests"] == "0", headers
    assert headers["ratelimit"].startswith('"requests";r=0'), headers


@check("openai: a revoked key ends within seconds")
def _():
    key = new_key("ann")
    interlingua("revoke", key.split("_")[1])
    deadline = time.monotonic() + 5
    while True:
        try:
            client(key).models.list()
        except openai.AuthenticationError:
            break
        assert time.monotonic() < deadline, "it is still accepted"
        time.sleep(0.1)
    assert ask(ann).status == "completed"


class Session:
    """An A2A client with credentials for the schemes of the card."""

    def __init__(self, binding, **credentials):
        self.http = httpx.AsyncClient(timeout=30)
        self.binding, self.credentials = binding, credentials

    async def __aenter__(self):
        store = InMemoryContextCredentialStore()
        for scheme, value in self.credentials.items():
            await store.set_credentials("one", scheme, value)
        config = ClientConfig(
            streaming=False,
            httpx_client=self.http,
            supported_protocol_bindings=[self.binding],
            use_client_preference=True,
        )
        self.context = ClientCallContext(state={"sessionId": "one"})
        card = await A2ACardResolver(self.http, AGENT).get_agent_card()
        self.client = ClientFactory(config).create(card, interceptors=[AuthInterceptor(store)])
        return self

    async def __aexit__(self, *_):
        await self.http.aclose()

    async def send(self):
        message = t.Message(message_id=str(uuid.uuid4()), role=t.Role.ROLE_USER, parts=[t.Part(text="hello")])
        request = t.SendMessageRequest(message=message)
        return [event async for event in self.client.send_message(request, context=self.context)][-1].task

    async def task(self, task):
        return await self.client.get_task(t.GetTaskRequest(id=task), context=self.context)


async def fails(kind, awaitable):
    try:
        await awaitable
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


@check("a2a: the card says how to prove who one is")
async def _():
    async with httpx.AsyncClient() as http:
        card = await A2ACardResolver(http, AGENT).get_agent_card()
    assert set(card.security_schemes) == {"apiKey", "bearer", "oidc"}, card.security_schemes
    url = card.security_schemes["oidc"].open_id_connect_security_scheme.open_id_connect_url
    assert url == f"{UPSTREAM_URL}/.well-known/openid-configuration", url
    assert {name for entry in card.security_requirements for name in entry.schemes} == {"apiKey", "bearer", "oidc"}


for binding in ("JSONRPC", "HTTP+JSON"):

    def on(sentence, binding=binding):
        return check(f"a2a, {binding}: {sentence}")

    @on("credentials are sent as the card asks for them")
    async def _(binding=binding):
        for credentials in [{"apiKey": ann}, {"bearer": ann}, {"bearer": token()}, {"oidc": token()}]:
            async with Session(binding, **credentials) as session:
                assert (await session.send()).status.state == t.TaskState.TASK_STATE_COMPLETED, credentials

    @on("no, wrong and expired credentials, and a foreign agent, are errors of the client")
    async def _(binding=binding):
        for credentials, status in [
            ({}, "401"), ({"apiKey": "none"}, "401"), ({"oidc": token(seconds="-100")}, "401"), ({"apiKey": guest}, "403")
        ]:
            async with Session(binding, **credentials) as session:
                error = await fails(A2AClientError, session.send())
                assert status in str(error), error

    @on("too many requests are an error of the client")
    async def _(binding=binding):
        # One request a minute. The gateway looks at its keys every second.
        async with Session(binding, apiKey=interlingua("new", "slow")) as session:
            error, deadline = None, time.monotonic() + 10
            while error is None or "401" in str(error):
                assert time.monotonic() < deadline, error
                await asyncio.sleep(0.1)
                try:
                    await session.send()
                except A2AClientError as refused:
                    error = refused
            assert "429" in str(error), error

    @on("a task of another does not exist")
    async def _(binding=binding):
        async with Session(binding, apiKey=ann) as session:
            task = await session.send()
            assert (await session.task(task.id)).id == task.id
        for credentials in [{"apiKey": bob}, {"oidc": token(sub="ann")}]:
            async with Session(binding, **credentials) as session:
                await fails(TaskNotFoundError, session.task(task.id))

    @on("the extended card is for those who are known")
    async def _(binding=binding):
        async with Session(binding, apiKey=ann) as session:
            card = await session.client.get_extended_agent_card(
                t.GetExtendedAgentCardRequest(), context=session.context
            )
            assert card.description == "For those who are known", card


close()
