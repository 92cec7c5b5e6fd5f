"""The OpenAI Agents SDK against the built-in demo agent: its tool loop, its streams, its sessions, its approvals."""

import os
from contextlib import asynccontextmanager

from agents import Agent, HostedMCPTool, ModelSettings, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
from agents.models.openai_responses import OpenAIResponsesWSModel
from openai import AsyncOpenAI, NotFoundError

from checks import GATEWAY_URL, check, close

set_tracing_disabled(True)
URL = os.environ.get("INTERLINGUA_URL") or f"{GATEWAY_URL}/v1"


@asynccontextmanager
async def an_agent(**more):
    async with AsyncOpenAI(base_url=URL, api_key="none", max_retries=0) as client:
        yield Agent(name="a", model=OpenAIResponsesModel("demo", client), **more)


@function_tool
def get_location(precision: str) -> str:
    """Where the user is."""
    return f"Berlin, to the {precision}"


@check("an agent answers")
async def _():
    async with an_agent(instructions="Be kind.") as agent:
        result = await Runner.run(agent, "hello there")
    assert "hello there" in result.final_output, result.final_output


@check("the tool loop calls the client's tool and continues with its output")
async def _():
    async with an_agent(tools=[get_location]) as agent:
        result = await Runner.run(agent, "client tool")
    assert "Berlin" in result.final_output, result.final_output


@check("the tool loop is streamed")
async def _():
    async with an_agent(tools=[get_location]) as agent:
        result = Runner.run_streamed(agent, "client tool")
        seen = [event.type async for event in result.stream_events()]
    assert "Berlin" in result.final_output and "run_item_stream_event" in seen, seen


@check("tools that the agent runs itself do not disturb the loop")
async def _():
    async with an_agent(tools=[get_location]) as agent:
        result = await Runner.run(agent, "reasoning tool mcp hello")
    assert "hello" in result.final_output, result.final_output


@check("a second turn continues the first, by history and by chain")
async def _():
    async with an_agent() as agent:
        first = await Runner.run(agent, "hello")
        second = await Runner.run(agent, first.to_input_list() + [{"role": "user", "content": "and again"}])
        third = await Runner.run(agent, "history", previous_response_id=first.last_response_id)
    assert "and again" in second.final_output, second.final_output
    assert "message 2" in third.final_output, third.final_output


@check("an approval interrupts the run, is decided, and is in the history of the next turn")
async def _():
    server = {"type": "mcp", "server_label": "mailer", "server_url": "https://mailer.invalid", "require_approval": "always"}
    async with an_agent(tools=[HostedMCPTool(tool_config=server)]) as agent:
        result = await Runner.run(agent, "approval")
        assert result.interruptions, "nothing was asked"
        state = result.to_state()
        for item in result.interruptions:
            state.approve(item)
        result = await Runner.run(agent, state)
        assert not result.interruptions and result.final_output, result.final_output
        after = await Runner.run(agent, result.to_input_list() + [{"role": "user", "content": "thanks"}])
    assert "thanks" in after.final_output, after.final_output



@check("over a WebSocket nothing is stored, and the tool turn sends only its output")
async def _():
    async with AsyncOpenAI(base_url=URL, api_key="none", max_retries=0) as client:
        model = OpenAIResponsesWSModel("demo", client)
        settings = ModelSettings(store=False)
        agent = Agent(name="a", model=model, model_settings=settings, tools=[get_location])
        for word in ("client tool", "reasoning tool client tool"):
            result = await Runner.run(agent, word, auto_previous_response_id=True)
            assert "Berlin" in result.final_output, result.final_output
        streamed = Runner.run_streamed(agent, "client tool", auto_previous_response_id=True)
        async for _event in streamed.stream_events():
            pass
        assert "Berlin" in streamed.final_output, streamed.final_output
        last = result.last_response_id
        try:
            await client.responses.retrieve(last)
        except NotFoundError:
            pass
        else:
            raise AssertionError("it was stored")
        await model.close()


close()
