"""Questions to people with the official Python client: forms, declined, dismissed and undecided ones, a model that
answers in the place of a person, and answers that arrive over another protocol."""

import asyncio

import mcp_types as t

from calls import (
    CANCEL, DECLINE, Notes, Person, accept, ask, connected, http_json, in_each_mode, meta, native_answer, raises,
    status_of, texts,
)
from checks import check, close

ASKS = "I would like to send a mail. May I?"


async def progress(*_):
    """Asks for progress notifications."""


@in_each_mode("the form of an approval shows the call, and nothing in it is decided beforehand")
async def _(mode):
    person = Person(accept(decision="accept"))
    async with connected(mode, person=person) as client:
        result = await ask(client, "approval")
        (form,) = person.forms
        assert form.message.startswith("Send this mail?") and "send_mail" in form.message, form
        assert '"to":"ada@example.com"' in form.message.replace(" ", ""), form
        properties = form.requested_schema["properties"]
        assert set(properties["decision"]["enum"]) == {"accept", "edit", "respond", "reject"}, form
        assert form.requested_schema["required"] == ["decision"], form
        assert "default" not in str(form.requested_schema), form
        assert {"arguments", "text"} <= set(properties), form
        # The words before the question are not lost.
        assert texts(result) == [ASKS, "The mail was sent to ada@example.com."], result
        assert meta(result, "status") == "completed" and not result.is_error, result


for sentence, answer, expected in (
    ("edited", accept(decision="edit", arguments='{"to":"bob@example.com"}'), "The mail was sent to bob@example.com."),
    ("answered in words", accept(decision="respond", text="later"), "took this for the result: later"),
    ("rejected", accept(decision="reject"), "because you rejected it"),
    ("rejected with a reason", accept(decision="reject", text="too early"), "because you rejected it: too early"),
    ("declined, which rejects", DECLINE, "because you rejected it"),
):

    @in_each_mode(f"an approval is {sentence}")
    async def _(mode, answer=answer, expected=expected):
        async with connected(mode, person=Person(answer)) as client:
            result = await ask(client, "approval")
            assert texts(result)[0] == ASKS and expected in texts(result)[1], result


@in_each_mode("several approvals are asked for, and decided one by one")
async def _(mode):
    async def decide(params):
        return accept(decision="accept" if "ada@" in params.message else "reject")

    person = Person(decide)
    async with connected(mode, person=person) as client:
        result = await ask(client, "approvals")
        assert len(person.forms) == 2, person.forms
        said = " ".join(texts(result))
        assert "The mail was sent to ada@example.com." in said and "because you rejected it" in said, result


@in_each_mode("a question has the agent's own schema, and its answer reaches the agent")
async def _(mode):
    person = Person(accept(colour="green"))
    async with connected(mode, person=person) as client:
        result = await ask(client, "question")
        (form,) = person.forms
        assert form.message == "Which colour should it be?", form
        assert form.requested_schema["properties"]["colour"]["enum"] == ["red", "green", "blue"], form
        assert '"colour":"green"' in texts(result)[0].replace(" ", ""), result


@in_each_mode("a login shows its page, and opening the page decides nothing")
async def _(mode):
    async def answer(params):
        return accept() if params.mode == "url" else accept(done="yes")

    person = Person(answer)
    async with connected(mode, person=person) as client:
        result = await ask(client, "login")
        # A modern client is shown both at once.
        assert [params.url for params in person.seen if params.mode == "url"] == ["https://example.com/login"], person.seen
        assert len(person.forms) == 1, person.seen
        assert texts(result) == ["Thank you, you are logged in."], result

    async def refuse(params):
        return accept() if params.mode == "url" else accept(done="no")

    async with connected(mode, person=Person(refuse)) as client:
        assert texts(await ask(client, "login")) == ["Without a login I cannot go on."]


@in_each_mode("a call for the client's tool is answered by a person")
async def _(mode):
    person = Person(accept(output="Rome"))
    async with connected(mode, person=person) as client:
        result = await ask(client, "client tool")
        assert "get_location" in person.forms[0].message, person.forms
        assert texts(result) == ["Your tool get_location says: Rome"], result


@in_each_mode("a dismissed form decides nothing: the run waits, and the next call asks again")
async def _(mode):
    person = Person(CANCEL, accept(decision="accept"))
    async with connected(mode, person=person) as client:
        result = await ask(client, "approval")
        assert not result.is_error and meta(result, "status") == "input_required", result
        run, session = meta(result, "run"), meta(result, "session")
        assert run in " ".join(texts(result)) and "answer" in " ".join(texts(result)), result
        again = await ask(client, "send it, I say", arguments={"session": session})
        assert len(person.forms) == 2 and "Send this mail?" in person.forms[1].message, person.forms
        assert "The mail was sent to ada@example.com." in texts(again), again
        assert not any("send it, I say" in text for text in texts(again)), again


@in_each_mode("a form without a decision is asked three times with the reason, then the run waits")
async def _(mode):
    for undecided in (accept(), accept(decision="edit"), accept(decision="edit", arguments="[]")):
        person = Person(undecided)
        async with connected(mode, person=person) as client:
            result = await ask(client, "approval")
            assert len(person.forms) == 3, len(person.forms)
            assert person.forms[1].message != person.forms[0].message, person.forms
            assert person.forms[1].message.endswith(person.forms[0].message), person.forms
            assert meta(result, "status") == "input_required", result


@in_each_mode("a wrong form is asked for again, and the second answer counts")
async def _(mode):
    person = Person(accept(colour="pink"), accept(colour="blue"))
    async with connected(mode, person=person) as client:
        result = await ask(client, "question")
        assert len(person.forms) == 2 and '"colour":"blue"' in texts(result)[0].replace(" ", ""), result


@in_each_mode("without a person the call ends, and a model may reject but not approve")
async def _(mode):
    async with connected(mode) as client:
        waits = await ask(client, "approval")
        assert meta(waits, "status") == "input_required" and not waits.is_error, waits
        assert texts(waits)[0] == ASKS and "send_mail" in " ".join(texts(waits)), waits
        run = meta(waits, "run")
        for decision in ({"decision": "accept"}, {"decision": "edit", "arguments": {"to": "me@example.com"}},
                         {"decision": "respond", "text": "done"}):
            refused = await client.call_tool("answer", {"run": run, **decision})
            assert refused.is_error and texts(refused)[0].startswith("PERMISSION_DENIED: "), (decision, refused)
        undecided = await client.call_tool("answer", {"run": run})
        assert undecided.is_error and texts(undecided)[0].startswith("ANSWER_UNDECIDED: "), undecided
        done = await client.call_tool("answer", {"run": run, "decision": "reject", "text": "not today"})
        assert not done.is_error and "because you rejected it: not today" in " ".join(texts(done)), done
        late = await client.call_tool("answer", {"run": run, "decision": "reject"})
        assert late.is_error and texts(late)[0].startswith("NOT_WAITING: "), late
        for arguments, code in (({}, "MISSING_PARAMETER"), ({"run": "nobody"}, "RESOURCE_NOT_FOUND")):
            wrong = await client.call_tool("answer", arguments)
            assert wrong.is_error and texts(wrong)[0].startswith(f"{code}: "), wrong


@in_each_mode("a model answers a question, and names the item where several are open")
async def _(mode):
    async with connected(mode) as client:
        run = meta(await ask(client, "question"), "run")
        done = await client.call_tool("answer", {"run": run, "value": {"colour": "red"}})
        assert '"colour":"red"' in " ".join(texts(done)).replace(" ", ""), done
        two = await ask(client, "approvals")
        which = await client.call_tool("answer", {"run": meta(two, "run"), "decision": "reject"})
        assert which.is_error and texts(which)[0].startswith("ANSWER_UNDECIDED: "), which


@in_each_mode("where the operator allows it, a model approves")
async def _(mode):
    async with connected(mode, "/trusting") as client:
        run = meta(await ask(client, "approval"), "run")
        done = await client.call_tool("answer", {"run": run, "decision": "edit", "arguments": {"to": "eve@example.com"}})
        assert "The mail was sent to eve@example.com." in texts(done), done


@in_each_mode("an answer over the Agent API goes on with the call, and the form's own answer comes too late")
async def _(mode):
    notes = Notes()

    async def answered_elsewhere(_):
        (run,), (session,) = notes.noted("run"), notes.noted("session")
        answer = await native_answer(run, session, approve=True)
        assert answer["status"] == "completed", answer
        if mode == "legacy":
            await asyncio.sleep(20)  # the gateway withdraws the question
        return accept(decision="reject")

    async with connected(mode, person=Person(answered_elsewhere), notes=notes) as client:
        result = await asyncio.wait_for(ask(client, "approval", progress_callback=progress), 15)
        assert texts(result) == [ASKS, "The mail was sent to ada@example.com."], result
        assert meta(result, "run") == notes.noted("run")[0], result.meta


@in_each_mode("a run that waits over MCP is answered over the Agent API, and a later call knows it")
async def _(mode):
    async with connected(mode) as client:
        waits = await ask(client, "approval")
        run, session = meta(waits, "run"), meta(waits, "session")
        answer = await native_answer(run, session, approve=False)
        assert answer["status"] == "completed", answer
        whole = await client.call_tool("wait", {"run": run})
        assert texts(whole)[0] == ASKS and "because you rejected it" in " ".join(texts(whole)), whole
        later = await ask(client, "history", arguments={"session": session})
        assert "message 2 of yours" in texts(later)[0], later


@in_each_mode("a run that waits over A2A is answered over MCP")
async def _(mode):
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "question"}]}
    call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    _, asked = await http_json("POST", "/a2a/demo", call, {"a2a-version": "1.0"})
    task = asked["result"]["task"]
    assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED", asked
    async with connected(mode) as client:
        done = await client.call_tool("answer", {"run": task["id"], "value": {"colour": "blue"}})
        assert not done.is_error and '"colour":"blue"' in " ".join(texts(done)).replace(" ", ""), done


async def first_round(client, **arguments):
    asked = await client.session.call_tool("demo", {"message": "approval", **arguments}, allow_input_required=True)
    assert isinstance(asked, t.InputRequiredResult), asked
    return asked


def responses(asked, answer):
    return {key: answer for key in asked.input_requests}


@check("a state is bound to its call, and one that was changed or stolen is refused")
async def _():
    async with connected("auto", person=Person(CANCEL)) as client:
        asked = await first_round(client)
        state, reject = asked.request_state, responses(asked, accept(decision="reject"))

        def again(message="approval", state=state, tool="demo"):
            return client.session.call_tool(
                tool, {"message": message}, input_responses=reject, request_state=state, allow_input_required=True
            )

        for changed in (state[:-1], f"{state}x", state[1:], state.swapcase()):
            error = await raises(t.INVALID_PARAMS, again(state=changed))
            assert error.data["code"] == "STATE_INVALID", error.data
        await raises(t.INVALID_PARAMS, again(message="approvals"))
        await raises(t.INVALID_PARAMS, again(tool="gone"))
        done = await again()
        assert "because you rejected it" in " ".join(texts(done)), done


@check("a call that is repeated with its state has the same result, and nothing is done twice")
async def _():
    async with connected("auto", person=Person(CANCEL)) as client:
        asked = await first_round(client)
        results = []
        for decision in ("accept", "reject"):
            results.append(await client.session.call_tool(
                "demo", {"message": "approval"}, input_responses=responses(asked, accept(decision=decision)),
                request_state=asked.request_state, allow_input_required=True,
            ))
        assert [texts(result) for result in results] == [[ASKS, "The mail was sent to ada@example.com."]] * 2, results
        assert meta(results[0], "run") == meta(results[1], "run"), results


@check("a person has time: the connection of a modern call is closed while it waits")
async def _():
    async with connected("auto", person=Person(CANCEL)) as client:
        asked = await first_round(client)
    await asyncio.sleep(0.3)
    async with connected("auto", person=Person(CANCEL)) as other:
        done = await other.session.call_tool(
            "demo", {"message": "approval"}, input_responses=responses(asked, accept(decision="accept")),
            request_state=asked.request_state, allow_input_required=True,
        )
        assert texts(done) == [ASKS, "The mail was sent to ada@example.com."], done
        assert await status_of(meta(done, "run"), "completed") == "completed"


close()
