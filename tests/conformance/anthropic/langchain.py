"""LangChain's Anthropic integration against the built-in demo agent."""

from langchain_anthropic import ChatAnthropic
from langchain_core.tools import tool

from checks import GATEWAY_URL, check, close


def model(**more):
    url = f"{GATEWAY_URL}/anthropic"
    return ChatAnthropic(model="demo", base_url=url, api_key="none", max_retries=0, max_tokens=2000, **more)


@tool
def get_location(precision: str) -> str:
    """Where the user is."""
    return f"Berlin, to the {precision}"


@check("a question is answered with and without streaming")
def _():
    assert "hello there" in model().invoke("hello there").text
    whole = None
    for chunk in model().stream("usage hello there"):
        whole = chunk if whole is None else whole + chunk
    assert "hello there" in whole.text and whole.usage_metadata["total_tokens"] > 0, whole


@check("a tool is called and its output is used")
def _():
    bound = model().bind_tools([get_location])
    first = bound.invoke("client tool")
    [call] = first.tool_calls
    assert call["name"] == "get_location" and "precision" in call["args"], call
    answer = bound.invoke([("user", "client tool"), first, get_location.invoke(call)])
    assert "Berlin" in answer.text, answer
    whole = None
    for chunk in bound.stream("client tool"):
        whole = chunk if whole is None else whole + chunk
    assert whole.tool_calls[0]["args"] == call["args"], whole.tool_calls


@check("reasoning is shown, and its blocks can be sent back")
def _():
    thinking = model(thinking={"type": "enabled", "budget_tokens": 1024})
    first = thinking.invoke("reasoning my name is Ada")
    assert any(block["type"] == "reasoning" for block in first.content_blocks), first.content_blocks
    answer = thinking.invoke([("user", "reasoning my name is Ada"), first, ("user", "history")])
    assert "Ada" in answer.text, answer.text


@check("blocks of the agent's tools can be sent back")
def _():
    first = model().invoke("tool hello")
    answer = model().invoke([("user", "tool hello"), first, ("user", "hello again")])
    assert "hello again" in answer.text, answer


close()
