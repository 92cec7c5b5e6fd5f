"""Records byte for byte what AgentScope Runtime sends: the golden input for the tests of the Agent API reader.

    python record.py OUTPUT_FOLDER [FRAMEWORK ...]

Starts `agent.py` once for each framework and sends it every command. A file contains one unmodified response body
(`FRAMEWORK-WORD.sse`; `.json` if the response is not a stream), including the ids, times and repetitions of the
server.
"""

import http.client
import json
import pathlib
import sys
import threading
import time

from drive import Agent

WORDS = {
    "agentscope": None,  # every act of agent.py
    "text": ["text", "late-error"],
    "langgraph": ["text", "tool", "tool-chunks"],
    "agno": ["text", "tool"],
}

# Commands whose reply depends on the caller; they are not recorded.
NOT_RECORDED = {"turn", "whoami", "extra"}


def ask(agent, path, body, on_chunk=lambda chunk: None):
    connection = http.client.HTTPConnection("127.0.0.1", agent.port, timeout=30)
    connection.request("POST", path, body, {"content-type": "application/json"})
    answer = connection.getresponse()
    received = b""
    while chunk := answer.read1(65536):
        received += chunk
        on_chunk(chunk)
    connection.close()
    return received


def question(text, session="s-1", **more):
    part = {"type": "text", "text": text}
    message = {"role": "user", "type": "message", "content": [part]}
    return json.dumps({"input": [message], "session_id": session, "user_id": "u1", **more})


def record_words(agent, framework, words, folder):
    for word in words:
        spoken = "long 40" if word == "long" else word
        (folder / f"{framework}-{word}.sse").write_bytes(ask(agent, "/process", question(spoken)))


def record_refusals(agent, folder):
    """Requests that the runtime refuses, each differently."""
    bodies = {
        "refused-role": {"input": [{"role": "developer", "content": [{"type": "text", "text": "x"}]}]},
        "refused-content-string": {"input": [{"role": "user", "content": "x"}]},
        "refused-n": {"input": [], "n": 9},
        "refused-null-content": {"input": [{"role": "user", "content": None}], "session_id": "s", "user_id": "u"},
    }
    for name, body in bodies.items():
        (folder / f"agentscope-{name}.sse").write_bytes(ask(agent, "/process", json.dumps(body)))
    (folder / "agentscope-http-422.json").write_bytes(ask(agent, "/process", "not json"))


def record_builder(agent, folder):
    (folder / "builder-without-runner.sse").write_bytes(ask(agent, "/builder", "{}"))


def record_busy_and_stop(agent, folder):
    """A second turn while the first runs, then a stop of the first."""
    begun, bodies = threading.Event(), {}

    def first():
        bodies["stopped"] = ask(agent, "/process", question("long 600 50", "s-busy"), lambda chunk: begun.set())

    thread = threading.Thread(target=first)
    thread.start()
    assert begun.wait(20), "the first turn said nothing"
    bodies["busy"] = ask(agent, "/process", question("text", "s-busy"))
    time.sleep(0.3)  # a few words more, so that the stop falls in the middle of a message
    ask(agent, "/stop", json.dumps({"user_id": "u1", "session_id": "s-busy"}))
    thread.join(30)
    for name, body in bodies.items():
        (folder / f"agentscope-{name}.sse").write_bytes(body)


def record_task(agent, folder):
    submitted = ask(agent, "/process/task", question("tool", "s-task"))
    (folder / "agentscope-task-submitted.json").write_bytes(submitted)
    task = json.loads(submitted)["task_id"]
    for _ in range(100):
        connection = http.client.HTTPConnection("127.0.0.1", agent.port, timeout=30)
        connection.request("GET", f"/process/task/{task}")
        body = connection.getresponse().read()
        if json.loads(body)["status"] == "finished":
            (folder / "agentscope-task-finished.json").write_bytes(body)
            return
        time.sleep(0.1)
    raise SystemExit("the task never finished")


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for framework in sys.argv[2:] or list(WORDS):
        with Agent(framework) as agent:
            words = WORDS[framework]
            if words is None:
                from agent import ACTS

                words = sorted(set(ACTS) - NOT_RECORDED)
            record_words(agent, framework, words, folder)
            if framework == "agentscope":
                record_refusals(agent, folder)
                record_builder(agent, folder)
                record_busy_and_stop(agent, folder)
                record_task(agent, folder)


if __name__ == "__main__":
    main()
