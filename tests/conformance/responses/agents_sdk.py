"""The OpenAI Agents SDK against the built-in demo agent: its tool loop, its streams, its sessions, its approvals."""

import os

from agents import Agent, HostedMCPTool, ModelSettings, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

from checks import GATEWAY_URL, check, close

set_tracing_disabled(True)
URL = os.environ.get("INTERLINGUA_URL") or f"{GATEWAY_URL}/v1"


def model():
    return OpenAIResponsesModel("demo", AsyncOpenAI(base_url=URL, api_key="none", max_retries=0))


@function_tool
def get_location(precision: str) -> str:
    """Where the user is."""
    return f"Berlin, to the {precision}"


@check("an agent answers")
async def _():
    result = await Runner.run(Agent(name="a", model=model(), instructions="Be kind."), "hello there")
    assert "hello there" in result.final_output, result.final_output


@check("the tool loop calls the client's tool and goes on with its output")
async def _():
    result = await Runner.run(Agent(name="a", model=model(), tools=[get_location]), "client tool")
    assert "Berlin" in result.final_output, result.final_output


@check("the tool loop is streamed")
async def _():
    result = Runner.run_streamed(Agent(name="a", model=model(), tools=[get_location]), "client tool")
    seen = [event.type async for event in result.stream_events()]
    assert "Berlin" in result.final_output and "run_item_stream_event" in seen, seen


@check("tools the agent runs itself do not confuse the loop")
async def _():
    result = await Runner.run(Agent(name="a", model=model(), tools=[get_location]), "reasoning tool mcp hello")
    assert "hello" in result.final_output, result.final_output


@check("a second turn follows on the first, by history and by chain")
async def _():
    agent = Agent(name="a", model=model())
    first = await Runner.run(agent, "hello")
    second = await Runner.run(agent, first.to_input_list() + [{"role": "user", "content": "and again"}])
    assert "and again" in second.final_output, second.final_output
    third = await Runner.run(agent, "history", previous_response_id=first.last_response_id)
    assert "message 2" in third.final_output, third.final_output


@check("an approval interrupts the run, and is decided")
async def _():
    server = {"type": "mcp", "server_label": "mailer", "server_url": "https://mailer.invalid", "require_approval": "always"}
    agent = Agent(name="a", model=model(), tools=[HostedMCPTool(tool_config=server)], model_settings=ModelSettings())
    result = await Runner.run(agent, "approval")
    assert result.interruptions, "nothing was asked"
    state = result.to_state()
    for item in result.interruptions:
        state.approve(item)
    result = await Runner.run(agent, state)
    assert not result.interruptions and result.final_output, result.final_output


close()
