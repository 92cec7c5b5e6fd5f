"""LangChain's OpenAI integration in its Responses form against the built-in demo agent."""

import os

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

from checks import GATEWAY_URL, check, close

URL = os.environ.get("INTERLINGUA_URL") or f"{GATEWAY_URL}/v1"
model = ChatOpenAI(model="demo", base_url=URL, api_key="none", use_responses_api=True, max_retries=0)


@tool
def get_location(precision: str) -> str:
    """Where the user is."""
    return f"Berlin, to the {precision}"


@check("a question is answered with and without streaming")
def _():
    assert "hello there" in model.invoke("hello there").text
    chunks = list(model.stream("usage hello there"))
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    assert "hello there" in whole.text and whole.usage_metadata["total_tokens"] > 0, whole


@check("a tool is called and its output is used")
def _():
    bound = model.bind_tools([get_location])
    first = bound.invoke("client tool")
    [call] = first.tool_calls
    assert call["name"] == "get_location" and "precision" in call["args"], call
    answer = bound.invoke([("user", "client tool"), first, get_location.invoke(call)])
    assert "Berlin" in answer.text, answer
    whole = None
    for chunk in bound.stream("client tool"):
        whole = chunk if whole is None else whole + chunk
    assert whole.tool_calls[0]["args"] == call["args"], whole.tool_calls


@check("reasoning is shown")
def _():
    answer = model.invoke("reasoning hello")
    assert any(block["type"] == "reasoning" for block in answer.content_blocks), answer.content_blocks


close()
