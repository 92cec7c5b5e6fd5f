"""LangChain's `ChatOpenAI` over Chat Completions against the built-in demo agent."""

import os

import openai
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

from checks import GATEWAY_URL, check, close

URL = os.environ.get("INTERLINGUA_URL") or f"{GATEWAY_URL}/v1"
model = ChatOpenAI(
    model="demo", base_url=URL, api_key="none", use_responses_api=False, max_retries=0, stream_usage=True
)


@tool
def get_location(precision: str) -> str:
    """Where the user is."""
    return f"Berlin, to the {precision}"


def joined(chunks):
    whole = None
    for chunk in chunks:
        whole = chunk if whole is None else whole + chunk
    return whole


@check("a question is answered with and without streaming")
def _():
    answer = model.invoke("hello there")
    assert "hello there" in answer.text and answer.response_metadata["finish_reason"] == "stop"
    whole = joined(model.stream("usage hello there"))
    assert "hello there" in whole.text and whole.usage_metadata["total_tokens"] > 0, whole


@check("a tool is called and its output is used")
def _():
    bound = model.bind_tools([get_location])
    first = bound.invoke("client tool")
    [call] = first.tool_calls
    assert call["name"] == "get_location" and "precision" in call["args"], call
    answer = bound.invoke([("user", "client tool"), first, get_location.invoke(call)])
    assert "Berlin" in answer.text, answer
    whole = joined(bound.stream("client tool"))
    assert whole.tool_calls[0]["args"] == call["args"] and not whole.invalid_tool_calls, whole


@check("a chain of turns goes on")
def _():
    first = model.invoke([SystemMessage("be brief"), HumanMessage("my name is Ada")])
    again = model.invoke([SystemMessage("be brief"), HumanMessage("my name is Ada"), first, HumanMessage("and again")])
    assert isinstance(again, AIMessage) and "and again" in again.text


@check("a structured answer is parsed")
def _():
    class Weather(BaseModel):
        city: str
        degrees: int

    wanted = model.with_structured_output(Weather, method="json_schema")
    assert wanted.invoke('echo {"city": "Paris", "degrees": 18}') == Weather(city="Paris", degrees=18)


@check("a failure within a stream is raised")
def _():
    for word in ("fail please", "break please"):
        try:
            whole = joined(model.stream(word))
        except openai.APIError as error:
            assert str(error)
        else:
            raise AssertionError(f"{word}: {whole}")


close()
