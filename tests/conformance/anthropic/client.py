"""The official Python SDK of Anthropic against the built-in demo agent: create, stream helper, tool runner, models.

Also run with the previous generation of the SDK, which sends everything with each request.
"""

import anthropic
from anthropic import beta_tool

from checks import GATEWAY_URL, check, close

URL = f"{GATEWAY_URL}/anthropic"
client = anthropic.Anthropic(base_url=URL, api_key="none", max_retries=0)
generation = int(anthropic.__version__.split(".")[0])
THINKING = {"type": "enabled", "budget_tokens": 1024}


def user(text):
    return {"role": "user", "content": text}


def ask(text, **more):
    messages = text if isinstance(text, list) else [user(text)]
    return client.messages.create(model="demo", max_tokens=2000, messages=messages, **more)


def words(message):
    return "".join(block.text for block in message.content if block.type == "text")


def kinds(message):
    return [block.type for block in message.content]


@beta_tool
def get_location(precision: str) -> str:
    """Where the user is.

    Args:
        precision: How precise the answer has to be.
    """
    return f"Berlin, to the {precision}"


@check("a message has its text, its usage and its request id")
def _():
    message = ask("usage hello there")
    assert "hello there" in words(message) and message.stop_reason == "end_turn", message
    assert message.usage.input_tokens > 0 and message.usage.output_tokens > 0, message.usage
    assert message.id.startswith("msg_") and message._request_id.startswith("req_"), message


@check("a stream gives the same message as the whole answer")
def _():
    with client.messages.stream(model="demo", max_tokens=2000, messages=[user("reasoning tool hello there")]) as stream:
        events = [event.type for event in stream]
        message = stream.get_final_message()
    assert events[0] == "message_start" and events[-1] == "message_stop", events
    whole = ask("reasoning tool hello there")
    assert words(message) == words(whole) and kinds(message) == kinds(whole), (message, whole)


@check("plain events are numbered blocks, one after the other")
def _():
    stream = client.messages.create(model="demo", max_tokens=2000, messages=[user("reasoning hello")], stream=True)
    opened = None
    for event in stream:
        if event.type == "content_block_start":
            assert event.index == (0 if opened is None else opened + 1), event
            opened = event.index
        elif event.type.startswith("content_block"):
            assert event.index == opened, event
    assert opened is not None


@check("reasoning is shown to those who ask for it")
def _():
    assert kinds(ask("reasoning hello")) == ["text"]
    shown = ask("reasoning hello", thinking=THINKING)
    assert kinds(shown) == ["thinking", "text"] and "step by step" in shown.content[0].thinking, shown
    with client.messages.stream(
        model="demo", max_tokens=2000, messages=[user("reasoning hello")], thinking=THINKING
    ) as stream:
        thoughts = [event.thinking for event in stream if event.type == "thinking"]
    assert "".join(thoughts) == shown.content[0].thinking


@check("the conversation goes on with the messages that are sent back")
def _():
    first = ask("my name is Ada")
    second = ask([user("my name is Ada"), {"role": "assistant", "content": first.content}, user("history")])
    assert "my name is Ada" in words(second), words(second)
    assert "my name is Ada" not in words(ask("history")), "another conversation sees it"


@check("a named session goes on where it stopped, if the history fits")
def _():
    headers = {"x-session-id": f"session-{generation}"}
    first = ask("my name is Grace", extra_headers=headers)
    history = [user("my name is Grace"), {"role": "assistant", "content": first.content}, user("history")]
    assert "my name is Grace" in words(ask(history, extra_headers=headers))
    assert "Grace" not in words(ask("history", extra_headers=headers)), "a new conversation under the same name"


@check("a tool is called, and its result reaches the agent")
def _():
    tools = [get_location.to_dict()]
    for stream in (False, True):
        if stream:
            with client.messages.stream(
                model="demo", max_tokens=2000, messages=[user("client tool")], tools=tools
            ) as events:
                first = events.get_final_message()
        else:
            first = ask("client tool", tools=tools)
        assert first.stop_reason == "tool_use", first
        call = next(block for block in first.content if block.type == "tool_use")
        assert call.name == "get_location" and call.input == {"precision": "example"}, call
        result = {"type": "tool_result", "tool_use_id": call.id, "content": "Berlin"}
        history = [user("client tool"), {"role": "assistant", "content": first.content}, user([result])]
        answer = ask(history, tools=tools)
        assert "get_location says: Berlin" in words(answer) and answer.stop_reason == "end_turn", answer


@check("the tool runner runs tools to the end")
def _():
    for path in ("anthropic", "threadless"):
        runner = anthropic.Anthropic(base_url=f"{GATEWAY_URL}/{path}", api_key="none", max_retries=0)
        messages = list(
            runner.beta.messages.tool_runner(
                model="demo", max_tokens=2000, tools=[get_location], messages=[user("client tool")]
            )
        )
        assert [message.stop_reason for message in messages] == ["tool_use", "end_turn"], messages
        assert "get_location says: Berlin, to the example" in words(messages[-1]), messages[-1]


@check("the tool runner streams")
def _():
    runner = client.beta.messages.tool_runner(
        model="demo", max_tokens=2000, tools=[get_location], messages=[user("client tool")], stream=True
    )
    last = [stream.get_final_message() for stream in runner][-1]
    assert "Berlin, to the example" in words(last), last


@check("tools of the agent are shown with their results, and the runner leaves them alone")
def _():
    message = client.beta.messages.create(model="demo", max_tokens=2000, messages=[user("tool")])
    assert kinds(message) == ["mcp_tool_use", "mcp_tool_result", "text"], message
    call, result, _text = message.content
    assert call.id == result.tool_use_id and call.input and not result.is_error, message
    runner = client.beta.messages.tool_runner(
        model="demo", max_tokens=2000, tools=[get_location], messages=[user("tool")]
    )
    assert len(list(runner)) == 1


@check("an approval is asked in words and decided by a word")
def _():
    asked = ask("approval")
    assert "[approval " in words(asked) and asked.stop_reason == "end_turn", asked
    history = [user("approval"), {"role": "assistant", "content": asked.content}]
    again = ask([*history, user("what would that do?")])
    assert words(again).splitlines()[-1] == words(asked).splitlines()[-1], "the question is asked again"
    done = ask([*history, user("approve")])
    assert "[approval " not in words(done) and "sent" in words(done).lower(), words(done)


@check("an approval is asked as a call where the request declares the function")
def _():
    tools = [{"name": "request_approval", "input_schema": {"type": "object"}}]
    asked = ask("approval", tools=tools)
    call = next(block for block in asked.content if block.type == "tool_use")
    assert asked.stop_reason == "tool_use" and call.name == "request_approval", asked
    assert call.input["name"] == "send_mail" and call.input["arguments"]["to"], call
    result = {"type": "tool_result", "tool_use_id": call.id, "content": '{"decision":"reject","reason":"not now"}'}
    answer = ask([user("approval"), {"role": "assistant", "content": asked.content}, user([result])], tools=tools)
    assert answer.stop_reason == "end_turn" and "not now" in words(answer), answer


@check("stop reasons say how an answer ended")
def _():
    assert ask("incomplete").stop_reason == "max_tokens"
    refused = ask("refusal")
    assert refused.stop_reason == "refusal" and words(refused), refused
    assert ask("empty").content == []


@check("pictures and documents reach the agent")
def _():
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    document = {"type": "document", "title": "a.pdf", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0x"}}
    answer = ask([user([picture, document, {"type": "text", "text": "look"}])])
    assert "I also got: image, file" in words(answer), words(answer)


@check("errors are raised with their type, their status and their request id")
def _():
    for text, status, kind in (("error", 502, "api_error"), ("reject", 400, "invalid_request_error")):
        try:
            ask(text)
            raise AssertionError(text)
        except anthropic.APIStatusError as error:
            assert error.status_code == status and error.body["error"]["type"] == kind, error.body
            assert error.request_id.startswith("req_") and error.body["request_id"] == error.request_id
    for request, raised in (
        ({"model": "unknown"}, anthropic.NotFoundError),
        ({"model": "gone"}, anthropic.InternalServerError),
        ({"messages": [{"role": "user", "content": [{"type": "hologram"}]}]}, anthropic.BadRequestError),
    ):
        try:
            client.messages.create(**{"model": "demo", "max_tokens": 10, "messages": [user("x")], **request})
            raise AssertionError(request)
        except raised as error:
            if raised is anthropic.BadRequestError:
                assert error.body["error"]["message"].startswith("messages.0.content.0.type: "), error.body


@check("a failure in the middle of a stream is raised, and what came before is kept")
def _():
    pieces = []
    try:
        with client.messages.stream(model="demo", max_tokens=2000, messages=[user("fail")]) as stream:
            pieces.extend(stream.text_stream)
        raise AssertionError("no error")
    except anthropic.APIStatusError as error:
        assert error.body["error"]["type"] == "api_error", error.body
    assert "".join(pieces), "some words came"


@check("models are listed and described")
def _():
    ids = [model.id for model in client.models.list()]
    assert {"demo", "gone", "claude-demo"} <= set(ids), ids
    first = client.models.list(limit=1)
    assert len(first.data) == 1 and first.has_more and [model.id for model in first] == ids, first
    assert client.models.retrieve("claude-demo").display_name == "claude-demo"


@check("tokens are counted")
def _():
    count = client.messages.count_tokens(model="demo", messages=[user("hello " * 100)], system="Be brief.")
    assert 100 < count.input_tokens < 300, count


@check("a client that leaves cancels its run")
def _():
    with client.messages.stream(model="demo", max_tokens=2000, messages=[user("long 1000 20")]) as stream:
        next(iter(stream.text_stream))
    assert words(ask("hello"))


close()
