"""An agent that is a program: JSON messages as lines over its standard streams, in both directions.

It answers prompts of several sessions at the same time, and asks questions that stay open over prompts.
"""
import json
import os
import sys

prompts = {}  # the id of the open prompt of each session
waiting = []  # sessions whose prompt waits for another session


def write(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def say(session, text):
    write({"method": "update", "session": session, "text": text})


def end(session, reason="end"):
    write({"id": prompts.pop(session), "result": reason})


def prompt(session, text):
    if text == "approve":
        write({"id": "q-" + session, "method": "ask", "session": session, "name": "rm"})
    elif text == "hang":
        say(session, "working")
    elif text == "crash":
        say(session, "last words")
        os._exit(1)
    elif text == "wait":
        waiting.append(session)
        say(session, "waiting")
    elif text == "go":
        for other in waiting:
            say(other, " released by " + session)
            end(other)
        waiting.clear()
        end(session)
    elif text == "later":
        end(session)
        say(session, "from the background, ")
    else:
        say(session, "%d: " % os.getpid())
        say(session, text)
        end(session)


for line in sys.stdin:
    message = json.loads(line)
    method = message.get("method")
    if method == "initialize":
        write({"id": message["id"], "result": {"pid": os.getpid()}})
    elif method == "prompt":
        prompts[message["session"]] = message["id"]
        prompt(message["session"], message["text"])
    elif method == "cancel":
        if message["session"] in prompts:
            end(message["session"], "cancelled")
        with open(sys.argv[1], "a") as log:
            log.write("cancelled " + message["session"] + "\n")
    elif str(message.get("id", "")).startswith("q-"):
        session = message["id"][2:]
        say(session, "decided: " + message["result"])
        end(session)
