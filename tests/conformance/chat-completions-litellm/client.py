"""LiteLLM as a client of Chat Completions, against the built-in demo agent."""

import os

# Its list of prices is part of the package, too.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm

from checks import GATEWAY_URL, check, close

litellm.suppress_debug_info = True
URL = os.environ.get("INTERLINGUA_URL") or f"{GATEWAY_URL}/v1"
LOCATION = {
    "type": "function",
    "function": {
        "name": "get_location",
        "description": "Where the user is",
        "parameters": {"type": "object", "properties": {"precision": {"type": "string"}}, "required": ["precision"]},
    },
}


def ask(messages, **more):
    messages = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
    return litellm.completion(
        model="openai/demo", api_base=URL, api_key="none", messages=messages, num_retries=0, **more
    )


@check("a question is answered with and without streaming")
def _():
    whole = ask("hello there").choices[0]
    assert "hello there" in whole.message.content and whole.finish_reason == "stop"
    chunks = list(ask("usage hello there", stream=True, stream_options={"include_usage": True}))
    built = litellm.stream_chunk_builder(chunks)
    assert "hello there" in built.choices[0].message.content and built.usage.total_tokens > 0


@check("reasoning is read")
def _():
    assert ask("reasoning hello").choices[0].message.reasoning_content
    chunks = list(ask("reasoning hello", stream=True))
    assert any(getattr(chunk.choices[0].delta, "reasoning_content", None) for chunk in chunks)


@check("a tool is called and its output is used")
def _():
    messages = [{"role": "user", "content": "client tool"}]
    built = litellm.stream_chunk_builder(list(ask(messages, tools=[LOCATION], stream=True)))
    [call] = built.choices[0].message.tool_calls
    assert call.function.name == "get_location" and "precision" in call.function.arguments
    messages += [built.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "Berlin"}]
    assert "Berlin" in ask(messages, tools=[LOCATION]).choices[0].message.content


@check("a failure is raised, within a stream too")
def _():
    for more in ({}, {"stream": True}):
        try:
            answer = ask("fail please", **more)
            list(answer) if more else None
        except Exception as error:
            assert isinstance(error, litellm.exceptions.APIError) or hasattr(error, "status_code"), error
        else:
            raise AssertionError(f"{more}: nothing was raised")


close()
