"""Chat Completions through the official Python SDK, any major version, against the built-in demo agent."""

import json
import os

import openai
from pydantic import BaseModel

from checks import GATEWAY_URL, check, close

URL = os.environ.get("INTERLINGUA_URL") or f"{GATEWAY_URL}/v1"
client = openai.OpenAI(base_url=URL, api_key="none", max_retries=0)
LOCATION = {
    "type": "function",
    "function": {
        "name": "get_location",
        "description": "Where the user is",
        "parameters": {
            "type": "object",
            "properties": {"precision": {"type": "string"}},
            "required": ["precision"],
            "additionalProperties": False,
        },
        "strict": True,
    },
}
APPROVAL = {"type": "function", "function": {"name": "request_approval", "parameters": {"type": "object"}}}


def user(text):
    return {"role": "user", "content": text}


def ask(messages, **more):
    messages = [user(messages)] if isinstance(messages, str) else messages
    return client.chat.completions.create(model="demo", messages=messages, **more)


def chunks_of(messages, **more):
    return list(ask(messages, stream=True, **more))


def text_of(chunks):
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


def extra(value, name):
    return (value.model_extra or {}).get(name)


def raises(kind, status, function, code=None, param=None):
    try:
        function()
    except kind as error:
        assert type(error) is kind, type(error)
        assert error.status_code == status, error.status_code
        assert set(error.body) == {"message", "type", "param", "code"}, error.body
        assert code is None or error.body["code"] == code, error.body
        assert param is None or error.body["param"] == param, error.body
        assert error.request_id, "no request id"
        return error.body
    raise AssertionError("nothing was raised")


@check("a question is answered whole")
def _():
    answer = ask("hello there")
    assert answer.object == "chat.completion" and answer.id.startswith("chatcmpl-") and answer._request_id
    [choice] = answer.choices
    assert choice.finish_reason == "stop" and choice.index == 0 and choice.logprobs is None
    assert "hello there" in choice.message.content and choice.message.refusal is None
    assert choice.message.tool_calls is None and answer.usage is None, answer


@check("the same question streams the same text")
def _():
    chunks = chunks_of("hello there")
    assert chunks[0].choices[0].delta.role == "assistant" and chunks[0].choices[0].delta.content == ""
    assert all(chunk.choices[0].delta.role is None for chunk in chunks[1:])
    assert {chunk.id for chunk in chunks} == {chunks[0].id} and chunks[0].object == "chat.completion.chunk"
    assert [chunk.choices[0].finish_reason for chunk in chunks[-2:]] == [None, "stop"]
    assert text_of(chunks) == ask("hello there").choices[0].message.content


@check("usage comes last, and only if it is asked for")
def _():
    chunks = chunks_of("usage hello", stream_options={"include_usage": True})
    assert chunks[-1].choices == [] and chunks[-1].usage.total_tokens > 0
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert all(chunk.choices for chunk in chunks_of("usage hello"))
    assert ask("usage hello").usage.prompt_tokens > 0


@check("the stream helper builds the answer from the chunks")
def _():
    with client.chat.completions.stream(model="demo", messages=[user("reasoning tool hello")]) as stream:
        events = [event.type for event in stream]
        final = stream.get_final_completion()
    assert "content.delta" in events and "content.done" in events, set(events)
    assert "hello" in final.choices[0].message.content and final.choices[0].message.role == "assistant"


@check("reasoning stands in its own field")
def _():
    whole = extra(ask("reasoning hello").choices[0].message, "reasoning_content")
    deltas = [extra(chunk.choices[0].delta, "reasoning_content") for chunk in chunks_of("reasoning hello")]
    assert whole and "".join(delta or "" for delta in deltas) == whole


@check("a text that is JSON is parsed into a model")
def _():
    class Weather(BaseModel):
        city: str
        degrees: int

    answer = client.chat.completions.parse(
        model="demo", messages=[user('echo {"city": "Paris", "degrees": 18}')], response_format=Weather
    )
    assert answer.choices[0].message.parsed == Weather(city="Paris", degrees=18), answer


@check("a tool of the client's is called, answered and used")
def _():
    messages = [user("client tool")]
    first = ask(messages, tools=[LOCATION]).choices[0]
    assert first.finish_reason == "tool_calls" and first.message.content is None, first
    [call] = first.message.tool_calls
    assert call.function.name == "get_location" and "precision" in json.loads(call.function.arguments)
    messages += [first.message, {"role": "tool", "tool_call_id": call.id, "content": "Berlin"}]
    second = ask(messages, tools=[LOCATION]).choices[0]
    assert second.finish_reason == "stop" and "Berlin" in second.message.content, second
    again = ask(messages, tools=[LOCATION]).choices[0]
    assert again.finish_reason == "stop", "the same messages again are another conversation"


@check("a call is streamed with its index, and the helper joins its arguments")
def _():
    with client.chat.completions.stream(model="demo", messages=[user("client tool")], tools=[LOCATION]) as stream:
        done = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
        final = stream.get_final_completion()
    [call] = final.choices[0].message.tool_calls
    assert [event.index for event in done] == [0] and call.function.name == "get_location", done
    assert "precision" in json.loads(call.function.arguments) and call.type == "function"


@check("an approval is asked in words, and decided by one word alone")
def _():
    messages = [user("approval")]
    asked = ask(messages).choices[0].message.content
    assert asked.splitlines()[-1].startswith("[approval "), asked
    messages += [{"role": "assistant", "content": asked}]
    again = ask(messages + [user("hm, what would you do?")]).choices[0].message.content
    assert again.splitlines()[-1] == asked.splitlines()[-1], again
    chunks = chunks_of(messages + [user("whatever")])
    assert text_of(chunks).splitlines()[-1] == asked.splitlines()[-1]
    sent = ask(messages + [user("approve")]).choices[0].message.content
    assert "was sent to" in sent, sent


@check("an approval is asked as a call if the client declares the function")
def _():
    messages = [user("approval")]
    first = ask(messages, tools=[APPROVAL]).choices[0]
    assert first.finish_reason == "tool_calls", first
    [call] = first.message.tool_calls
    asked = json.loads(call.function.arguments)
    assert call.function.name == "request_approval" and asked["name"] == "send_mail", asked
    decision = {"decision": "edit", "args": {"to": "grace@example.com"}}
    messages += [first.message, {"role": "tool", "tool_call_id": call.id, "content": json.dumps(decision)}]
    second = ask(messages, tools=[APPROVAL]).choices[0]
    assert "grace@example.com" in second.message.content, second


@check("a question is answered by the next words")
def _():
    messages = [user("question")]
    asked = ask(messages).choices[0].message.content
    assert "[question " in asked, asked
    messages += [{"role": "assistant", "content": asked}, user("blue")]
    assert "blue" in ask(messages).choices[0].message.content


@check("an agent that remembers goes on in a named session, and an edited history begins another one")
def _():
    name = f"s-{os.getpid()}"
    headers = {"x-session-id": name}
    messages = [user("my name is Ada")]
    first = ask(messages, extra_headers=headers).choices[0].message
    messages += [{"role": "assistant", "content": first.content}, user("history")]
    second = ask(messages, extra_headers=headers).choices[0].message.content
    assert "Ada" in second, second
    messages[1]["content"] = "I never said that"
    assert ask(messages, extra_headers=headers).choices[0].finish_reason == "stop"


@check("refusals, images, data and all characters arrive")
def _():
    assert ask("refusal").choices[0].message.refusal
    with client.chat.completions.stream(model="demo", messages=[user("refusal")]) as stream:
        assert stream.get_final_completion().choices[0].message.refusal
    image = ask("image").choices[0].message
    assert extra(image, "images") or "![image](" in image.content, image
    assert "{" in ask("data").choices[0].message.content
    assert text_of(chunks_of("unicode")) == ask("unicode").choices[0].message.content
    assert ask("empty").choices[0].message.content is None


@check("an answer that is cut is not complete")
def _():
    assert ask("incomplete").choices[0].finish_reason == "length"
    assert chunks_of("incomplete")[-1].choices[0].finish_reason == "length"


@check("a failure within a stream is raised, never a clean end")
def _():
    for word in ("fail", "break", "reject", "cancel"):
        try:
            chunks = chunks_of(f"{word} please")
        except openai.APIError as error:
            assert error.message and error.body["type"], error
        else:
            raise AssertionError(f"{word}: {chunks[-1]}")


@check("a failure of a whole answer has a status")
def _():
    body = raises(openai.InternalServerError, 502, lambda: ask("fail please"), code="upstream_error")
    assert body["type"] == "server_error"
    raises(openai.BadRequestError, 400, lambda: ask("reject please"), code="invalid_prompt")
    raises(openai.InternalServerError, 502, lambda: client.chat.completions.create(model="gone", messages=[user("x")]))
    raises(
        openai.InternalServerError, 502,
        lambda: client.chat.completions.create(model="gone", messages=[user("x")], stream=True),
    )


@check("mistakes are named")
def _():
    def create(**fields):
        return lambda: client.chat.completions.create(**{"model": "demo", "messages": [user("x")], **fields})

    raises(openai.NotFoundError, 404, create(model="who"), code="model_not_found", param="model")
    raises(openai.BadRequestError, 400, create(n=2), code="unsupported_value", param="n")
    raises(openai.BadRequestError, 400, create(messages=[]), code="missing_required_parameter", param="messages")
    raises(openai.BadRequestError, 400, create(temperature=3), code="invalid_value", param="temperature")
    raises(openai.BadRequestError, 400, create(messages=[{"role": "pope", "content": "x"}]), param="messages[0].role")
    part = {"type": "hologram"}
    raises(openai.BadRequestError, 400, create(messages=[user([part])]), param="messages[0].content[0].type")
    orphan = {"role": "tool", "tool_call_id": "call_none", "content": "x"}
    raises(openai.BadRequestError, 400, create(messages=[user("x"), orphan]), param="messages[1]")
    raises(openai.BadRequestError, 400, create(tools=[{"type": "function"}]))


@check("a client may send parts, names, developers, nulls and its whole history")
def _():
    messages = [
        {"role": "system", "content": "be kind"},
        {"role": "developer", "content": [{"type": "text", "text": "be brief"}]},
        {"role": "user", "name": "ada", "content": [
            {"type": "text", "text": "look"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}},
            {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
            {"type": "file", "file": {"file_data": "data:application/pdf;base64,AAAA", "filename": "a.pdf"}},
        ]},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "call_x", "type": "function", "function": {"name": "f", "arguments": "{}"}},
        ]},
        {"role": "tool", "tool_call_id": "call_x", "content": [{"type": "text", "text": "18 C"}]},
        {"role": "assistant", "content": "so it is"},
        user("hello again"),
    ]
    answer = ask(messages, stop=None, tools=openai.NOT_GIVEN, metadata={"a": "b"}, seed=7, user="ada")
    assert "hello again" in answer.choices[0].message.content and getattr(answer, "metadata", None) == {"a": "b"}, answer


@check("stored completions are listed, read, updated and deleted, with their messages")
def _():
    run = f"r{os.getpid()}"
    completions = client.chat.completions
    made = [ask(f"hello {number}", store=True, metadata={"run": run, "number": str(number)}) for number in range(3)]
    stream = chunks_of("hello 3", store=True, metadata={"run": run, "number": "3"})
    ids = [answer.id for answer in made] + [stream[0].id]
    not_stored = ask("hello", metadata={"run": run})

    listed = list(completions.list(limit=2, metadata={"run": run}))
    assert [answer.id for answer in listed] == ids, "the pages follow each other"
    newest = completions.list(limit=1, order="desc", model="demo", metadata={"run": run})
    assert [answer.id for answer in newest.data] == [ids[-1]] and newest.has_more
    assert listed[0].choices[0].message.content == made[0].choices[0].message.content

    read = completions.retrieve(ids[0])
    assert read.model_dump() == made[0].model_dump() and read.object == "chat.completion", read
    messages = completions.messages.list(ids[0])
    assert [(message.id, message.role, message.content) for message in messages] == [(f"{ids[0]}-0", "user", "hello 0")]
    updated = completions.update(ids[0], metadata={"run": run, "seen": "yes"})
    assert getattr(updated, "metadata", None) == {"run": run, "seen": "yes"}, updated
    assert [answer.id for answer in completions.list(metadata={"seen": "yes", "run": run})] == [ids[0]]

    deleted = completions.delete(ids[0])
    assert deleted.deleted and deleted.id == ids[0] and deleted.object == "chat.completion.deleted", deleted
    raises(openai.NotFoundError, 404, lambda: completions.retrieve(ids[0]))
    raises(openai.NotFoundError, 404, lambda: completions.retrieve(not_stored.id))
    raises(openai.NotFoundError, 404, lambda: completions.messages.list(ids[0]))
    raises(openai.BadRequestError, 400, lambda: completions.list(after="nothing"), param="after")


@check("models are listed and read, for both protocols at this path")
def _():
    models = list(client.models.list())
    assert {"demo", "gone"} <= {model.id for model in models}, models
    assert client.models.retrieve("demo").object == "model"
    raises(openai.NotFoundError, 404, lambda: client.models.retrieve("who"), code="model_not_found")
    assert client.responses.create(model="demo", input="hello there").status == "completed"
    named = client.chat.completions.create(model="gpt-demo", messages=[user("hello")])
    assert named.model == "gpt-demo"


@check("many requests at once do not mix")
async def _():
    import asyncio

    asynchronous = openai.AsyncOpenAI(base_url=URL, api_key="none", max_retries=0)

    async def one(number):
        stream = await asynchronous.chat.completions.create(
            model="demo", messages=[user(f"echo number {number}")], stream=True
        )
        parts = [chunk.choices[0].delta.content or "" async for chunk in stream]
        assert "".join(parts).strip() == f"number {number}", parts

    await asyncio.gather(*(one(number) for number in range(40)))


close()
