"""The Agent API as a client sees it, against the built-in demo agent."""

import http.client
import json
import time
import urllib.parse

from checks import GATEWAY_URL, check, close
from native import Connection, question, run

AGENT = f"{GATEWAY_URL}/agents/demo"
PROCESS = f"{AGENT}/process"


def refused(body, *wanted, headers=None, url=PROCESS, method="POST"):
    """The body of an error response before the stream starts."""
    with Connection(url, body, method=method, headers=headers) as connection:
        assert connection.status in wanted, f"HTTP {connection.status}, not {wanted}: {connection.answer.read()[:300]}"
        assert connection.type == "application/json", connection.type
        answer = connection.json()
        assert "detail" in answer, answer
        return json.dumps(answer)


@check("a reply is streamed, and its deltas add up to the full text")
def _():
    stream = run(PROCESS, question("hello there"))
    assert stream.status == "completed", stream.last
    assert stream.text and stream.streamed_text == stream.text, (stream.streamed_text, stream.text)


@check("the session id of the client is used and is in every response frame")
def _():
    stream = run(PROCESS, question("hello", session_id="s-7", user_id="u-7"))
    assert stream.last["session_id"] == "s-7"


@check("two anonymous clients do not collide")
def _():
    with Connection(PROCESS, question("long 20 20")) as first, Connection(PROCESS, question("long 20 20")) as second:
        ends = [list(connection.frames())[-1] for connection in (first, second)]
    assert [end["status"] for end in ends] == ["completed", "completed"], ends
    assert ends[0]["session_id"] != ends[1]["session_id"]


@check("reasoning is a separate message")
def _():
    stream = run(PROCESS, question("reasoning"))
    assert stream.messages("reasoning") and stream.messages("message"), stream.output


@check("a tool call and its output are shown with the same id")
def _():
    stream = run(PROCESS, question("tool"))
    bodies = [part["data"] for part in stream.contents("data")]
    assert len({body["call_id"] for body in bodies}) == 1 and len(bodies) == 2, bodies


@check("an image is in the stored output")
def _():
    stream = run(PROCESS, question("image"))
    assert stream.contents("image"), stream.output


@check("an agent error fails the run with a code and without internal details")
def _():
    stream = run(PROCESS, question("error"))
    assert stream.status == "failed" and stream.last["error"]["code"], stream.last


@check("without streaming the response is one JSON object")
def _():
    with Connection(PROCESS, question("hello", stream=False)) as connection:
        assert (connection.status, connection.type) == (200, "application/json")
        answer = connection.json()
    assert (answer["object"], answer["status"]) == ("response", "completed"), answer


@check("a background task is submitted, polled and finished")
def _():
    with Connection(f"{PROCESS}/task", question("hello")) as connection:
        task = connection.json()["task_id"]
    for _ in range(200):
        with Connection(f"{PROCESS}/task/{task}", None, method="GET") as connection:
            state = connection.json()
        if state["status"] == "finished":
            break
        time.sleep(0.05)
    assert state["result"]["status"] == "completed", state


@check("a refusal names the field")
def _():
    assert "input" in refused({}, 422)
    assert "input" in refused({"input": "hello"}, 422)
    assert "role" in refused({"input": [{"role": "robot", "content": []}]}, 422)
    assert '"n"' in refused({**question("hello"), "n": 9}, 422)
    refused("not json", 422)
    refused("[]", 422)
    refused("[" * 100_000, 422)
    refused(b'{"input": [{"content": "\xff\xfe"}]}', 422)


@check("wrong content types, methods and paths are refused")
def _():
    refused(json.dumps(question("hello")), 415, 422, headers={"content-type": "text/plain"})
    refused(None, 405, method="GET")
    refused(question("hello"), 404, url=f"{AGENT}/nothing-here")
    refused(question("hello"), 404, url=f"{GATEWAY_URL}/agents/nobody/process")


@check("the gateway is healthy afterwards")
def _():
    where = urllib.parse.urlsplit(GATEWAY_URL)
    for path in ("/healthz", "/readyz"):
        connection = http.client.HTTPConnection(where.hostname, where.port, timeout=5)
        connection.request("GET", path)
        assert connection.getresponse().status == 200, path


close()
