"""The Responses protocol through the official Python SDK, any major version, against the built-in demo agent."""

import os
import time

import openai
from pydantic import BaseModel

from checks import GATEWAY_URL, check, close

URL = os.environ.get("INTERLINGUA_URL") or f"{GATEWAY_URL}/v1"
client = openai.OpenAI(base_url=URL, api_key="none", max_retries=0)
TOOL = {
    "type": "function",
    "name": "get_location",
    "description": "Where the user is",
    "parameters": {
        "type": "object",
        "properties": {"precision": {"type": "string"}},
        "required": ["precision"],
        "additionalProperties": False,
    },
    "strict": True,
}


def ask(text, **more):
    return client.responses.create(model="demo", input=text, **more)


def events_of(text, **more):
    return list(ask(text, stream=True, **more))


def types(response):
    return [item.type for item in response.output]


def raises(kind, status, function, code=None, param=None):
    try:
        function()
    except kind as error:
        assert type(error) is kind, type(error)
        assert error.status_code == status, error.status_code
        body = error.body
        assert set(body) == {"message", "type", "param", "code"}, body
        assert code is None or body["code"] == code, body
        assert param is None or body["param"] == param, body
        assert error.request_id, "no request id"
        return body
    raise AssertionError("nothing was raised")


def ended(response_id, limit=20):
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        response = client.responses.retrieve(response_id)
        if response.status not in ("queued", "in_progress"):
            return response
        time.sleep(0.05)
    raise AssertionError("it never ended")


@check("a question is answered without streaming")
def _():
    response = ask("hello there")
    assert response.status == "completed" and response.object == "response", response.status
    assert "hello there" in response.output_text, response.output_text
    assert response.id.startswith("resp_") and response._request_id
    assert isinstance(response.created_at, (int, float)) and response.created_at == int(response.created_at)


@check("the same question streams the same reply")
def _():
    events = events_of("hello there")
    assert [event.type for event in events[:2]] == ["response.created", "response.in_progress"]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    last = events[-1]
    assert last.type == "response.completed" and last.response.output_text == text, last
    assert client.responses.retrieve(last.response.id).output == last.response.output


@check("the stream helper builds the final response from the events")
def _():
    with client.responses.stream(model="demo", input="reasoning tool hello") as stream:
        seen = [event.type for event in stream]
        final = stream.get_final_response()
    assert "response.output_text.delta" in seen and "response.reasoning_summary_text.delta" in seen, set(seen)
    assert final.status == "completed" and "reasoning" in types(final) and "mcp_call" in types(final), types(final)


@check("a text that is JSON is parsed into a model")
def _():
    class Weather(BaseModel):
        city: str
        degrees: int

    response = client.responses.parse(
        model="demo", input='echo {"city": "Paris", "degrees": 18}', text_format=Weather
    )
    assert response.output_parsed == Weather(city="Paris", degrees=18), response.output_text
    assert response.text.format.type == "json_schema"


@check("a tool of the client's is called, answered and used")
def _():
    first = ask("client tool", tools=[TOOL])
    [call] = [item for item in first.output if item.type == "function_call"]
    assert call.name == "get_location" and '"precision"' in call.arguments, call
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "Berlin"}
    second = ask([output], tools=[TOOL], previous_response_id=first.id)
    assert "Berlin" in second.output_text, second.output_text
    whole = [{"role": "user", "content": "client tool"}, call.model_dump(exclude_none=True), output]
    third = ask(whole, tools=[TOOL])
    assert "Berlin" in third.output_text, third.output_text


@check("arguments of a call are streamed")
def _():
    events = events_of("client tool", tools=[TOOL])
    joined = "".join(e.delta for e in events if e.type == "response.function_call_arguments.delta")
    [call] = events[-1].response.output
    assert joined == call.arguments, joined


@check("the agent's own tool calls are shown")
def _():
    response = ask("tool parallel mcp")
    calls = [item for item in response.output if item.type == "mcp_call"]
    assert len(calls) == 4 and all(item.output and item.status == "completed" for item in calls), calls
    [tools] = [item for item in response.output if item.type == "mcp_list_tools"]
    assert tools.server_label == "calendar" and tools.tools[0].name == "next_event"


@check("refusals, images, files, data and all characters arrive")
def _():
    response = ask("refusal")
    assert response.output[0].content[0].type == "refusal", response.output
    assert "image_generation_call" in types(ask("image"))
    assert "hello.txt" in ask("file").output_text
    assert '"degrees"' in ask("data").output_text
    whole = ask("unicode").output_text
    streamed = "".join(e.delta for e in events_of("unicode") if e.type == "response.output_text.delta")
    assert whole == streamed and "👩‍👩‍👧‍👦" in whole and "\u2028" in whole


@check("an approval is requested and decided only once")
def _():
    first = ask("approval")
    [asked] = [item for item in first.output if item.type == "mcp_approval_request"]
    answer = {"type": "mcp_approval_response", "approval_request_id": asked.id, "approve": True}
    raises(openai.BadRequestError, 400, lambda: ask("go on", previous_response_id=first.id), param="input")
    # Found by its id, without previous_response_id.
    second = ask([answer])
    assert second.status == "completed" and second.output, second
    raises(openai.BadRequestError, 400, lambda: ask([answer], previous_response_id=first.id), param="input")


@check("a question is answered by the output of its call")
def _():
    first = ask("question")
    [call] = [item for item in first.output if item.type == "function_call"]
    assert call.name == "request_input" and "colour" in call.arguments, call
    output = {"type": "function_call_output", "call_id": call.call_id, "output": '{"colour": "red"}'}
    second = ask([output], previous_response_id=first.id)
    assert "red" in second.output_text, second.output_text


@check("a failed response has an error, an incomplete one its reason, and both their text")
def _():
    failed = ask("fail")
    assert failed.status == "failed" and failed.error.code == "server_error" and failed.output, failed
    assert "RuntimeError" not in ask("error").error.message
    cut = ask("incomplete")
    assert cut.status == "incomplete" and cut.incomplete_details.reason == "max_output_tokens", cut
    broken = events_of("break")
    assert broken[-1].type == "response.failed", broken[-1]
    assert broken[-1].response.output, "what was said before is kept"


@check("a chain keeps its history, and an older response can be continued as a branch")
def _():
    first = ask("history")
    second = ask("history", previous_response_id=first.id)
    assert "message 2" in second.output_text, second.output_text
    third = ask("history", previous_response_id=second.id)
    assert "message 3" in third.output_text, third.output_text
    fork = ask("history", previous_response_id=first.id)
    assert "message 2" in fork.output_text, fork.output_text


@check("the input of a response is listed in pages")
def _():
    items = [{"role": "user", "content": f"word {number}"} for number in range(25)]
    response = ask(items)
    listed = list(client.responses.input_items.list(response.id, order="asc", limit=10))
    assert [item.content[0].text for item in listed] == [f"word {number}" for number in range(25)]
    newest = client.responses.input_items.list(response.id, limit=1)
    assert newest.data[0].content[0].text == "word 24" and newest.has_more


@check("an item is referred to by its id")
def _():
    first = ask("hello")
    reference = {"type": "item_reference", "id": first.output[0].id}
    second = ask([{"role": "user", "content": "hello"}, reference, {"role": "user", "content": "and again"}])
    kinds = [item.type for item in client.responses.input_items.list(second.id)]
    assert kinds == ["message"] * 3, kinds


@check("a background response is polled to its end")
def _():
    begun = ask("long 5 20", background=True)
    assert begun.status in ("queued", "in_progress") and begun.background, begun.status
    done = ended(begun.id)
    assert done.status == "completed" and done.output_text, done


@check("a background response can be cancelled twice")
def _():
    begun = ask("long 1000 50", background=True)
    cancelled = client.responses.cancel(begun.id)
    assert cancelled.status == "cancelled", cancelled.status
    assert client.responses.cancel(begun.id).status == "cancelled"
    foreground = ask("hello")
    raises(openai.BadRequestError, 400, lambda: client.responses.cancel(foreground.id))


@check("a cut stream is resumed with the same events")
def _():
    stream = ask("long 40 10", stream=True, background=True)
    seen = []
    for event in stream:
        seen.append(event)
        if len(seen) == 8:
            break
    stream.close()
    response_id = seen[0].response.id
    rest = list(client.responses.retrieve(response_id, stream=True, starting_after=seen[-1].sequence_number))
    numbers = [event.sequence_number for event in seen + rest]
    assert numbers == list(range(len(numbers))), numbers
    assert rest[-1].type == "response.completed"
    again = list(client.responses.retrieve(response_id, stream=True))
    assert [event.model_dump_json() for event in again] == [event.model_dump_json() for event in seen + rest]
    last = numbers[-1]
    assert list(client.responses.retrieve(response_id, stream=True, starting_after=last)) == []
    # A number beyond the end yields the terminal event.
    [end] = client.responses.retrieve(response_id, stream=True, starting_after=10_000)
    assert end.sequence_number == last and end.type == "response.completed", end


@check("a foreground run is cancelled when its client disconnects")
def _():
    stream = ask("long 2000 20", stream=True)
    response_id = next(iter(stream)).response.id
    stream.close()
    assert ended(response_id).status == "cancelled"


@check("a response is deleted once, and an unstored one is never found")
def _():
    response = ask("hello")
    client.responses.delete(response.id)
    raises(openai.NotFoundError, 404, lambda: client.responses.retrieve(response.id))
    raises(openai.NotFoundError, 404, lambda: client.responses.delete(response.id))
    hidden = ask("hello", store=False)
    raises(openai.NotFoundError, 404, lambda: client.responses.retrieve(hidden.id))
    raises(
        openai.BadRequestError,
        400,
        lambda: ask("x", previous_response_id=hidden.id),
        code="previous_response_not_found",
        param="previous_response_id",
    )


@check("a conversation is created, used, changed and deleted")
def _():
    conversation = client.conversations.create(
        metadata={"topic": "weather"}, items=[{"type": "message", "role": "user", "content": "before"}]
    )
    assert conversation.metadata == {"topic": "weather"}
    first = ask("hello", conversation=conversation.id)
    assert first.conversation.id == conversation.id
    items = list(client.conversations.items.list(conversation.id, order="asc"))
    assert [item.type for item in items] == ["message"] * 3, items
    assert items[-1].id == first.output[0].id, "an item has one id"
    added = client.conversations.items.create(
        conversation.id, items=[{"type": "message", "role": "user", "content": "one more"}]
    )
    assert len(added.data) == 1
    one = client.conversations.items.retrieve(added.data[0].id, conversation_id=conversation.id)
    assert one.content[0].text == "one more"
    client.conversations.items.delete(one.id, conversation_id=conversation.id)
    assert len(list(client.conversations.items.list(conversation.id))) == 3
    changed = client.conversations.update(conversation.id, metadata={"topic": "news"})
    assert client.conversations.retrieve(conversation.id).metadata == changed.metadata == {"topic": "news"}
    assert client.conversations.delete(conversation.id).deleted
    raises(openai.NotFoundError, 404, lambda: client.conversations.retrieve(conversation.id))


@check("settings are echoed and the usage of the agent is reported")
def _():
    response = ask(
        "usage hello", temperature=0.5, metadata={"a": "b"}, instructions="Be kind.", tools=[TOOL], tool_choice="none"
    )
    assert response.temperature == 0.5 and response.metadata == {"a": "b"} and response.instructions == "Be kind."
    assert response.tools[0].name == "get_location" and response.tool_choice == "none"
    assert response.usage and response.usage.total_tokens > 0, response.usage


@check("images and files are sent to the agent")
def _():
    picture = {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "auto"}
    text = {"type": "input_text", "text": "look"}
    response = ask([{"role": "user", "content": [text, picture]}])
    assert "image" in response.output_text, response.output_text


@check("every agent is a model, under each of its names")
def _():
    names = [model.id for model in client.models.list()]
    assert {"demo", "gone", "gpt-demo"} <= set(names), names
    assert client.models.retrieve("demo").owned_by
    assert client.responses.create(model="gpt-demo", input="hello").model == "gpt-demo"


@check("tokens are estimated, and a context is compacted to one item")
def _():
    if hasattr(client.responses, "input_tokens"):
        assert client.responses.input_tokens.count(model="demo", input="hello there").input_tokens > 0
    if hasattr(client.responses, "compact"):
        kept = client.responses.compact(model="demo", input="my name is Ada")
        [item] = kept.output
        assert item.type == "compaction" and item.encrypted_content
        response = ask([item.model_dump(exclude_none=True), {"role": "user", "content": "history"}])
        assert response.status == "completed", response


@check("every fault is the SDK's own error class")
def _():
    raises(openai.BadRequestError, 400, lambda: ask("x", temperature=9), code="invalid_value", param="temperature")
    raises(
        openai.BadRequestError, 400, lambda: ask([{"role": "user", "content": [7]}]), "invalid_type", "input[0].content[0]"
    )
    raises(openai.NotFoundError, 404, lambda: client.responses.create(model="who", input="x"), "model_not_found", "model")
    raises(openai.NotFoundError, 404, lambda: client.responses.retrieve("resp_nothing"))
    raises(openai.NotFoundError, 404, lambda: client.get("/nowhere", cast_to=object))
    raises(openai.InternalServerError, 502, lambda: client.responses.create(model="gone", input="x"), "upstream_error")
    raises(
        openai.InternalServerError, 502, lambda: client.responses.create(model="gone", input="x", stream=True), "upstream_error"
    )
    conversation = client.conversations.create()
    slow = ask("long 200 20", conversation=conversation.id, background=True)
    raises(openai.ConflictError, 409, lambda: ask("x", conversation=conversation.id), "conversation_busy")
    client.responses.cancel(slow.id)


if hasattr(client.responses, "connect"):

    @check("a WebSocket carries several turns and survives an error")
    def _():
        with client.responses.connect() as connection:

            def turn(**asked):
                connection.response.create(**asked)
                events = []
                for event in connection:
                    events.append(event)
                    if event.type in ("response.completed", "response.failed", "error"):
                        return events
                raise AssertionError("the connection was closed")

            first = turn(model="demo", input="hello")
            assert [event.sequence_number for event in first] == list(range(len(first)))
            assert first[0].type == "response.created" and first[-1].type == "response.completed", first[-1]
            [mistake] = turn(model="who", input="hello")
            assert mistake.type == "error" and "who" in str(mistake), mistake
            second = turn(model="demo", input="history", previous_response_id=first[-1].response.id)
            assert "message 2" in second[-1].response.output[0].content[0].text, second[-1]


    @check("over a WebSocket an unstored chain continues, tools included, and only on its connection")
    def _():
        with client.responses.connect() as connection, client.responses.connect() as other:

            def turn(connection, **asked):
                connection.response.create(model="demo", store=False, **asked)
                for event in connection:
                    if event.type in ("response.completed", "response.failed", "error"):
                        return event
                raise AssertionError("the connection was closed")

            function = {"type": "function", "name": "get_location", "parameters": {"type": "object"}, "strict": False}
            first = turn(connection, input="client tool", tools=[function]).response
            [call] = [item for item in first.output if item.type == "function_call"]
            output = {"type": "function_call_output", "call_id": call.call_id, "output": "Berlin"}
            asked = {"input": [output], "previous_response_id": first.id, "tools": [function]}
            missing = turn(other, **asked)
            assert missing.type == "error" and "previous_response_not_found" in str(missing), missing
            second = turn(connection, **asked)
            assert second.type == "response.completed" and "Berlin" in str(second.response.output), second
            wrong = [{"type": "function_call_output", "call_id": "nothing", "output": "x"}]
            assert turn(connection, input=wrong, previous_response_id=second.response.id).type == "error"
            evicted = turn(connection, input="history", previous_response_id=second.response.id)
            assert "previous_response_not_found" in str(evicted), evicted


close()
