"""MCP with the client of FastMCP, which raises the first block of an error and makes types of schemas."""


from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult
from fastmcp.exceptions import ToolError

from calls import in_each_mode
from checks import GATEWAY_URL, close


def connected(mode, path="/mcp", **more):
    return Client(f"{GATEWAY_URL}{path}", mode=mode, timeout=30, **more)


def text(result):
    return result.content[0].text


@in_each_mode("FastMCP: tools, prompts and resources are listed")
async def _(mode):
    async with connected(mode) as client:
        assert [tool.name for tool in await client.list_tools()] == ["demo", "gone", "translate", "answer", "wait"]
        assert {prompt.name for prompt in await client.list_prompts()} == {"demo", "gone", "translate"}
        assert "interlingua://agents/demo" in [str(resource.uri) for resource in await client.list_resources()]
        found = await client.read_resource("interlingua://agents/demo")
        assert '"demo"' in found[0].text, found


@in_each_mode("FastMCP: a call with progress")
async def _(mode):
    seen = []

    async def progress(done, total, message):
        seen.append((done, total, message))

    async with connected(mode) as client:
        result = await client.call_tool("demo", {"message": "long 40 20"}, progress_handler=progress)
        assert not result.is_error and text(result), result
        assert len(seen) > 2 and all(total is None for _, total, _ in seen), seen
        assert result.meta["interlingua/status"] == "completed", result.meta


@in_each_mode("FastMCP: an error has the code and the reason in its text")
async def _(mode):
    async with connected(mode) as client:
        for arguments, expected in (
            ({"message": "fail"}, "MODEL_EXECUTION_FAILED: the model stopped working"),
            ({"message": ""}, "MISSING_PARAMETER: "),
        ):
            try:
                await client.call_tool("demo", arguments)
            except ToolError as error:
                assert expected in str(error), error
            else:
                raise AssertionError("no error")


@in_each_mode("FastMCP: a question becomes a type, and the answer reaches the agent")
async def _(mode):
    asked = []

    async def person(message, response_type, params, _):
        asked.append((message, response_type))
        return {"colour": "green"}

    async with connected(mode, elicitation_handler=person) as client:
        result = await client.call_tool("demo", {"message": "question"})
        assert asked[0][0] == "Which colour should it be?" and asked[0][1] is not None, asked
        assert '"colour":"green"' in text(result).replace(" ", ""), result


@in_each_mode("FastMCP: an approval is accepted, and declined")
async def _(mode):
    for answer, expected in (
        (ElicitResult(action="accept", content={"decision": "accept"}), "The mail was sent to ada@example.com."),
        (ElicitResult(action="decline"), "I did not send it, because you rejected it"),
    ):

        async def person(*_, answer=answer):
            return answer

        async with connected(mode, elicitation_handler=person) as client:
            result = await client.call_tool("demo", {"message": "approval"})
            assert result.content[1].text == expected, result


@in_each_mode("FastMCP: a form that the client itself refuses leaves the run waiting")
async def _(mode):
    async def person(*_):
        raise ValueError("no one is here")

    async with connected(mode, elicitation_handler=person) as client:
        try:
            result = await client.call_tool("demo", {"message": "approval"})
        except Exception as error:
            assert mode == "auto" and "no one is here" in str(error), error
        else:
            assert mode == "legacy" and result.meta["interlingua/status"] == "input_required", result


@in_each_mode("FastMCP: structured output is data")
async def _(mode):
    async with connected(mode, "/structured") as client:
        result = await client.call_tool("demo", {"message": "echo hello"})
        assert result.structured_content["text"] == "hello", result
        assert result.data is not None, result


close()
