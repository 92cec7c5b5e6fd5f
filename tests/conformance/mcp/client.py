"""MCP with the official Python client in both of its modes: lists, calls, results, errors, prompts and resources."""

import base64

import anyio
import mcp_types as t
from mcp import MCPError

from calls import MODES, Notes, ask, connected, in_each_mode, is_note, meta, native_run, raises, texts
from checks import close

SAID = "You said: hello there\nSay help to see what else I can do."


@in_each_mode("the client finds the revision and what the server offers")
async def _(mode):
    async with connected(mode) as client:
        assert client.protocol_version == MODES[mode], client.protocol_version
        assert client.server_info.name == "interlingua", client.server_info
        capabilities = client.server_capabilities
        assert capabilities.tools.list_changed and capabilities.prompts and capabilities.resources, capabilities
        assert capabilities.completions is not None and capabilities.logging is None, capabilities
        assert "answer" in client.instructions and "session" in client.instructions, client.instructions


@in_each_mode("each agent is a tool, in the order of names, and the two tools of the gateway are the last")
async def _(mode):
    async with connected(mode) as client:
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools] == ["demo", "gone", "translate", "answer", "wait"], tools
        demo, _, translate, answer, wait = tools
        assert demo.description.startswith("A scripted agent that needs no model"), demo
        assert demo.input_schema["required"] == ["message"], demo.input_schema
        assert set(demo.input_schema["properties"]) == {"message", "session", "attachments"}, demo.input_schema
        assert demo.output_schema is None and demo.annotations.read_only_hint is False, demo
        assert (translate.title, translate.annotations.read_only_hint) == ("Translator", True), translate
        assert translate.input_schema["properties"]["language"]["enum"] == ["de", "da", "fr"], translate
        assert "session" in translate.input_schema["properties"], translate
        assert answer.input_schema["required"] == ["run"] and answer.annotations.destructive_hint, answer
        assert wait.annotations.read_only_hint, wait


@in_each_mode("a server of one agent offers that agent only")
async def _(mode):
    async with connected(mode, "/one/demo") as client:
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools] == ["demo", "answer", "wait"], tools
        assert texts(await ask(client, "hello there")) == [SAID]


@in_each_mode("a call is answered with the text, and its run and session are named")
async def _(mode):
    async with connected(mode) as client:
        result = await ask(client, "hello there")
        assert not result.is_error and texts(result) == [SAID], result
        assert result.structured_content is None, result
        assert meta(result, "status") == "completed", result.meta
        assert is_note(result.content[-1]), result.content
        assert result.content[-1].text == f"[session {meta(result, 'session')}]", result.content
        assert (await native_run(meta(result, "run")))["status"] == "completed"


@in_each_mode("the session of a result goes on with the conversation")
async def _(mode):
    async with connected(mode) as client:
        first = await ask(client, "my name is Ada")
        session = meta(first, "session")
        second = await ask(client, "history", arguments={"session": session})
        assert "message 2 of yours" in texts(second)[0] and "my name is Ada" in texts(second)[0], second
        assert meta(second, "session") == session and meta(second, "run") != meta(first, "run"), second.meta
        third = await ask(client, "history", meta={"interlingua/session": session})
        assert "message 3 of yours" in texts(third)[0], third
        unknown = await ask(client, "history", arguments={"session": "of-no-one"})
        assert unknown.is_error and texts(unknown)[0].startswith("RESOURCE_NOT_FOUND: no such session"), unknown


@in_each_mode("progress rises, names the run first, and its deltas are the text")
async def _(mode):
    notes, seen = Notes(), []

    async def progress(done, total, message):
        seen.append((done, total, message))

    async with connected(mode, notes=notes) as client:
        result = await ask(client, "tool long 40 20", progress_callback=progress)
        values = [params.progress for params in notes.progress()]
        assert len(values) >= 4 and all(a < b for a, b in zip(values, values[1:])), values
        assert {total for _, total, _ in seen} == {None} and all(message for *_, message in seen), seen
        assert notes.noted("run") == [meta(result, "run")], notes.progress()
        assert notes.noted("session") == [meta(result, "session")], notes.progress()
        messages = [params.message for params in notes.progress()]
        assert any("get_weather" in message for message in messages), messages
        assert notes.text() == "".join(texts(result)), (notes.text(), texts(result))


@in_each_mode("reasoning is progress, and never in the result")
async def _(mode):
    notes = Notes()

    async def progress(*_):
        pass

    async with connected(mode, notes=notes) as client:
        result = await ask(client, "reasoning hello there", progress_callback=progress)
        assert notes.noted("reasoning"), notes.progress()
        assert texts(result) == [SAID], result


@in_each_mode("images, sounds, files and data are blocks")
async def _(mode):
    async with connected(mode) as client:
        kinds = {}
        for word in ("image", "audio", "file", "video", "data"):
            result = await ask(client, word)
            assert not result.is_error, result
            kinds[word] = [block for block in result.content if not is_note(block)]
        image, sound, file, video = (kinds[word][1] for word in ("image", "audio", "file", "video"))
        assert (image.type, image.mime_type) == ("image", "image/png") and base64.b64decode(image.data), image
        assert (sound.type, sound.mime_type) == ("audio", "audio/wav") and base64.b64decode(sound.data), sound
        assert (file.type, file.resource.mime_type) == ("resource", "text/plain"), file
        assert file.resource.text == "Hello from the demo agent.\n", file
        assert (video.type, video.uri) == ("resource_link", "https://example.com/video.mp4"), video
        assert '"degrees":18' in texts(await ask(client, "data"))[1].replace(" ", "")


@in_each_mode("declared arguments fill the agent's message, and are checked")
async def _(mode):
    async with connected(mode) as client:
        result = await client.call_tool("translate", {"language": "de", "text": "good morning"})
        assert texts(result) == ["de: good morning"], result
        for arguments, field in (({"language": "de"}, "text"), ({"language": "xx", "text": "a"}, "language")):
            wrong = await client.call_tool("translate", arguments)
            assert wrong.is_error and field in texts(wrong)[0], wrong


@in_each_mode("attachments reach the agent")
async def _(mode):
    picture = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()
    attachments = [
        {"name": "a.png", "mime_type": "image/png", "data": picture},
        {"name": "notes.txt", "mime_type": "text/plain", "text": "remember the milk"},
        {"mime_type": "video/mp4", "url": "https://example.com/video.mp4"},
    ]
    async with connected(mode) as client:
        result = await ask(client, "hello there", arguments={"attachments": attachments})
        assert "I also got: image, file, video." in texts(result)[0], result
        two = {"url": "https://a.example/", "text": "b"}
        for wrong in ({"name": "a.png"}, two, {"mime_type": "image/png", "data": "%"}):
            refused = await ask(client, "hello there", arguments={"attachments": [wrong]})
            assert refused.is_error, (wrong, refused)


@in_each_mode("a failed run is an error that the model reads, with the code first and then the words so far")
async def _(mode):
    async with connected(mode) as client:
        failed = await ask(client, "fail")
        assert failed.is_error and texts(failed)[0] == "MODEL_EXECUTION_FAILED: the model stopped working", failed
        assert texts(failed)[1] == "So far everything went well, but", failed
        assert meta(failed, "status") == "failed", failed.meta
        assert meta(failed, "error")["message"] == "the model stopped working", failed.meta
        for word, status, code in (
            ("break", "failed", "UPSTREAM_TRUNCATED"), ("reject", "rejected", ""), ("cancel", "canceled", "CANCELED"),
        ):
            ended = await ask(client, word)
            assert ended.is_error and meta(ended, "status") == status, (word, ended)
            assert texts(ended)[0].startswith(code), (word, ended)
        gone = await ask(client, "hello", tool="gone")
        assert gone.is_error and texts(gone)[0].startswith("UPSTREAM_UNREACHABLE: "), gone
        cut = await ask(client, "incomplete")
        assert not cut.is_error and texts(cut)[-1] == "[the answer was cut off]", cut


@in_each_mode("an unknown tool is a protocol error, wrong arguments are errors for the model")
async def _(mode):
    async with connected(mode) as client:
        error = await raises(t.INVALID_PARAMS, client.call_tool("nobody", {"message": "hello"}))
        assert "nobody" in error.message, error
        for arguments, code in (
            ({}, "MISSING_PARAMETER"), ({"message": "  "}, "MISSING_PARAMETER"), ({"message": 1}, "MISSING_PARAMETER"),
            ({"message": "hello", "colour": "red"}, "INVALID_PARAMETER"),
            ({"message": "hello", "session": 1}, "PARAMETER_VALIDATION"),
        ):
            wrong = await client.call_tool("demo", arguments)
            assert wrong.is_error and texts(wrong)[0].startswith(f"{code}: "), (arguments, wrong)


@in_each_mode("an answer without words and an answer in many languages arrive whole")
async def _(mode):
    async with connected(mode) as client:
        empty = await ask(client, "empty")
        assert not empty.is_error and texts(empty) == [], empty
        assert "世界! Привет мир" in texts(await ask(client, "unicode"))[0]
        usage = meta(await ask(client, "usage hello"), "usage")
        assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"], usage


@in_each_mode("a text of two megabytes in one word is cut, and the rest is a resource")
async def _(mode):
    async with connected(mode) as client:
        result = await ask(client, "echo " + "ö" * 1_000_000)
        assert len(texts(result)[0]) < 1_000_000, len(texts(result)[0])
        (link,) = [block for block in result.content if block.type == "resource_link"]
        whole = await client.read_resource(link.uri)
        assert whole.contents[0].text.count("ö") == 1_000_000


@in_each_mode("structured output is declared, and complete in every result")
async def _(mode):
    async with connected(mode, "/structured") as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(tools["demo"].output_schema["required"]) == {"text", "status", "session", "run"}, tools["demo"]
        # The client validates each of them.
        found = (await ask(client, "tool data")).structured_content
        assert found["status"] == "completed" and found["text"] and found["data"][0]["degrees"] == 18, found
        assert [step["name"] for step in found["steps"]] == ["get_weather"], found
        waits = (await ask(client, "approval")).structured_content
        assert waits["status"] == "input_required" and waits["pending"][0]["name"] == "send_mail" and waits["next"], waits
        failed = await ask(client, "fail")
        assert failed.is_error, failed


@in_each_mode("each agent is a prompt, with the arguments of its tool")
async def _(mode):
    async with connected(mode) as client:
        prompts = {prompt.name: prompt for prompt in (await client.list_prompts()).prompts}
        assert set(prompts) == {"demo", "gone", "translate"}, prompts
        assert [argument.name for argument in prompts["demo"].arguments] == ["message"], prompts["demo"]
        assert {argument.name for argument in prompts["translate"].arguments} >= {"text", "language"}, prompts
        found = await client.get_prompt("translate", {"language": "fr", "text": "good night"})
        (message,) = found.messages
        assert message.role == "user" and "translate" in message.content.text, found
        assert "good night" in message.content.text, found
        await raises(t.INVALID_PARAMS, client.get_prompt("nobody", {}))


@in_each_mode("arguments are completed from their enumeration")
async def _(mode):
    async with connected(mode) as client:
        prompt = t.PromptReference(type="ref/prompt", name="translate")
        found = await client.complete(prompt, {"name": "language", "value": "d"})
        assert found.completion.values == ["de", "da"] or found.completion.values == ["da", "de"], found
        assert (await client.complete(prompt, {"name": "text", "value": "d"})).completion.values == []


@in_each_mode("agents and runs are resources")
async def _(mode):
    async with connected(mode) as client:
        listed = (await client.list_resources()).resources
        assert "interlingua://agents/demo" in [resource.uri for resource in listed], listed
        agent = (await client.read_resource("interlingua://agents/demo")).contents[0]
        assert '"name":"demo"' in agent.text.replace(" ", ""), agent
        templates = (await client.list_resource_templates()).resource_templates
        assert {template.uri_template for template in templates} == {
            "interlingua://runs/{run}", "interlingua://runs/{run}/parts/{n}",
        }, templates
        run = meta(await ask(client, "image"), "run")
        assert run in (await client.read_resource(f"interlingua://runs/{run}")).contents[0].text
        part = (await client.read_resource(f"interlingua://runs/{run}/parts/2")).contents[0]
        assert part.mime_type == "image/png" and base64.b64decode(part.blob), part
        unknown = t.INVALID_PARAMS if mode == "auto" else -32002
        for uri in ("interlingua://runs/01a2b3c4-0000-7000-8000-000000000000", "interlingua://agents/nobody", "test://x"):
            await raises(unknown, client.read_resource(uri))


@in_each_mode("an unknown cursor is an error")
async def _(mode):
    async with connected(mode) as client:
        for walk in (client.list_tools, client.list_prompts, client.list_resources):
            await raises(t.INVALID_PARAMS, walk(cursor="of-no-one"))


@in_each_mode("fifty calls at once get their own answers")
async def _(mode):
    async with connected(mode) as client, anyio.create_task_group() as group:

        async def one(number):
            result = await ask(client, f"echo number {number}")
            assert texts(result) == [f"number {number}"], result

        for number in range(50):
            group.start_soon(one, number)


@in_each_mode("methods that were removed, or never served, are unknown")
async def _(mode):
    async with connected(mode) as client:
        ping = t.Request[dict, str](method="ping", params={})
        if mode == "legacy":
            await client.session.send_request(ping, t.EmptyResult)
        else:
            await raises(t.METHOD_NOT_FOUND, client.session.send_request(ping, t.EmptyResult))
        for method in ("logging/setLevel", "resources/subscribe", "tasks/list"):
            request = t.Request[dict, str](method=method, params={"level": "info", "uri": "test://x"})
            try:
                await client.session.send_request(request, t.EmptyResult)
            except MCPError as error:
                assert error.code == t.METHOD_NOT_FOUND, error
            else:
                raise AssertionError(f"{method} was answered")


close()
