"""A real AgentScope Runtime behind the gateway: clients see well-formed streams whatever it sends.

Every stream is validated by `native.Stream.well_formed`; the checks below cover its content.
"""

import json
import threading
import time
import uuid

from agent import ACTS
from checks import GATEWAY_URL, UPSTREAM_URL, check, close
from native import Connection, Stream, question, run

AGENT = f"{GATEWAY_URL}/agents/friday"
PROCESS = f"{AGENT}/process"

# Commands that fail, and commands whose reply is checked individually below.
FAILING = {"error", "late-error", "quota"}


def ask(text, **more) -> Stream:
    return run(PROCESS, question(text, **more))


for word in sorted(ACTS):

    @check(f"`{word}` is a well-formed stream with one ending")
    def _():
        stream = ask(word)
        wanted = "failed" if word in FAILING else "completed"
        assert stream.status == wanted, stream.last


@check("a reply is streamed as it is generated")
def _():
    stream = ask("text")
    assert stream.text == stream.streamed_text == "Hello, world!", stream.text


@check("a reply that the runtime sends without deltas arrives once")
def _():
    assert ask("plain").text == "A plain answer."


@check("a message that the runtime never closes is closed and kept")
def _():
    assert ask("open").text == "Never closed"


@check("interleaved reasoning and reply are separated without losing characters")
def _():
    stream = ask("think")
    reasoning = [part["text"] for message in stream.messages("reasoning") for part in message["content"]]
    assert "".join(reasoning) == "Let me think." and stream.text == "42 is it.", (reasoning, stream.text)


@check("unicode arrives unchanged")
def _():
    from agent import UNICODE

    assert ask("unicode").text == UNICODE


def tool_bodies(stream, *kinds):
    return [part["data"] for m in stream.output if m["type"] in kinds for part in m["content"] if part["type"] == "data"]


for word, kind in (("tool", "plugin_call"), ("mcp", "mcp_call")):

    @check(f"`{word}`: a call with growing arguments is shown with its full arguments and its output")
    def _():
        stream = ask(word)
        (call,), (output,) = tool_bodies(stream, kind), tool_bodies(stream, f"{kind}_output")
        assert json.loads(call["arguments"]) == {"city": "Paris"} and call["name"] == "get_weather", call
        assert output["call_id"] == call["call_id"] == "call_1" and "18 C" in output["output"], output
        if word == "mcp":
            assert call["server_label"] == "weather", call


@check("two calls at once keep their own arguments and outputs")
def _():
    stream = ask("parallel")
    calls = {body["call_id"]: json.loads(body["arguments"])["city"] for body in tool_bodies(stream, "plugin_call")}
    outputs = {body["call_id"]: body["output"] for body in tool_bodies(stream, "plugin_call_output")}
    assert calls == {"call_a": "Paris", "call_b": "Oslo"}, calls
    assert "18 C" in outputs["call_a"] and "-3 C" in outputs["call_b"], outputs


for word, kind in (("image", "image"), ("image64", "image"), ("audio", "audio"), ("video", "video"), ("file", "file")):

    @check(f"`{word}`: output that the runtime omits is in the output of the gateway")
    def _():
        assert ask(word).contents(kind)


@check("an image and its caption arrive in order")
def _():
    stream = ask("picture")
    assert [m["content"][0]["type"] for m in stream.output] == ["image", "text"] and stream.text == "A cat.", stream.output


@check("text and image of one message stay in it")
def _():
    stream = ask("captioned")
    assert stream.contents("text") and stream.contents("image"), stream.output


@check("an approval request, a client's tool and a refusal keep their types")
def _():
    (approval,) = tool_bodies(ask("approval"), "mcp_approval_request")
    assert approval["id"] == "appr_1", approval
    (call,) = tool_bodies(ask("client-tool"), "function_call")
    assert call["name"] == "pick_colour", call
    assert ask("refusal").contents("refusal")[0]["refusal"] == "I cannot help with that."


@check("heartbeats are not messages")
def _():
    stream = ask("heartbeat")
    assert not stream.messages("heartbeat") and stream.text == "Still here.", stream.output


@check("a second response inside the stream neither ends it nor changes its id")
def _():
    assert ask("builder-whole").text == "Hello, world"


@check("usage reaches the response")
def _():
    usage = ask("usage").last["usage"]
    assert usage["input_tokens"] == 11 and usage["output_tokens"] == 5, usage


@check("a failure has a code, keeps the partial output, and shows no internal details")
def _():
    stream = ask("late-error")
    assert stream.last["error"]["code"], stream.last
    assert "RuntimeError" not in json.dumps(stream.frames) and "Traceback" not in json.dumps(stream.frames), stream.last
    assert stream.streamed_text == "Partial answer", stream.streamed_text
    assert ask("quota").last["error"]["code"], "a code of the runtime's own"


@check("turns of a session reach one upstream session, and two sessions stay separate")
def _():
    one, other = str(uuid.uuid4()), str(uuid.uuid4())
    texts = [ask("turn", session_id=session, user_id="u1").text for session in (one, one, other)]
    assert [text.split(",")[0] for text in texts] == ["turn 1", "turn 2", "turn 1"], texts


@check("anonymous clients get separate sessions")
def _():
    sessions = {ask("whoami").text for _ in range(3)}
    assert len(sessions) == 3 and not any("None" in session for session in sessions), sessions


@check("unknown fields of the client reach the agent")
def _():
    assert "biz_params" in ask("extra", biz_params={"a": 1}).text


def together(count, body_of):
    """The replies to this number of concurrent clients."""
    answers, threads = [None] * count, []

    def one(place):
        answers[place] = run(PROCESS, body_of(place))

    for place in range(count):
        threads.append(threading.Thread(target=one, args=(place,)))
        threads[-1].start()
    for thread in threads:
        thread.join(90)
    assert all(answers), "not everybody was answered"
    return answers


@check("forty concurrent clients each get their own full reply")
def _():
    answers = together(40, lambda place: question(f"long {20 + place} 5"))
    for place, stream in enumerate(answers):
        assert stream.status == "completed" and len(stream.text.split()) == 20 + place, (place, stream.last)


@check("parallel turns of one session do not conflict with the lock of the runtime")
def _():
    session = str(uuid.uuid4())
    answers = together(3, lambda place: question("long 10 20", session_id=session, user_id="u1"))
    assert [stream.status for stream in answers] == ["completed"] * 3, [stream.last for stream in answers]


def first_words(session, text="long 2000 20"):
    """A connection whose response has started."""
    connection = Connection(PROCESS, question(text, session_id=session, user_id="u1"))
    frames = connection.frames()
    seen = []
    for frame in frames:
        seen.append(frame)
        if frame["object"] == "content":
            return connection, frames, seen
    raise AssertionError(f"no word was said: {seen}")


@check("a stop ends the run and its stream")
def _():
    session = str(uuid.uuid4())
    connection, frames, seen = first_words(session)
    with Connection(f"{AGENT}/stop", {"session_id": session, "user_id": "u1"}) as stop:
        assert stop.status == 200, stop.answer.read()
    stream = Stream(seen + list(frames)).well_formed()
    assert stream.status in ("canceled", "failed"), stream.last
    assert len(stream.frames) < 1000, "it was not stopped at all"
    connection.close()
    assert ask("text", session_id=session, user_id="u1").status == "completed"


@check("a client that disconnects frees its upstream session")
def _():
    session = str(uuid.uuid4())
    connection, *_ = first_words(session)
    connection.close()
    begun = time.monotonic()
    stream = ask("text", session_id=session, user_id="u1")
    assert stream.status == "completed", stream.last
    assert time.monotonic() - begun < 20, "the session was held until the long answer had ended"


@check("a background task finishes with the full response")
def _():
    with Connection(f"{PROCESS}/task", question("tool")) as connection:
        task = connection.json()["task_id"]
    for _ in range(200):
        with Connection(f"{PROCESS}/task/{task}", None, method="GET") as connection:
            state = connection.json()
        if state["status"] == "finished":
            break
        time.sleep(0.05)
    assert state["result"]["status"] == "completed" and len(state["result"]["output"]) == 4, state


@check("the upstream is still healthy")
def _():
    with Connection(f"{UPSTREAM_URL}/health", None, method="GET") as connection:
        assert connection.json()["status"] == "healthy"


close()
