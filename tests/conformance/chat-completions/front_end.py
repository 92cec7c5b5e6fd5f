"""`llm`, a chat front end for the command line, against the built-in demo agent: one question, a stream, a tool, a chat."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from checks import GATEWAY_URL, check, close

URL = os.environ.get("INTERLINGUA_URL") or f"{GATEWAY_URL}/v1"
HOME = Path(tempfile.mkdtemp())
LLM = Path(sys.executable).parent / "llm"
MODELS = [
    {"model_id": "demo", "model_name": "demo", "api_base": URL, "supports_tools": True, "supports_schema": True},
]
(HOME / "extra-openai-models.yaml").write_text(json.dumps(MODELS))
TOOLS = '''
def get_location(precision: str) -> str:
    "Where the user is"
    return "Berlin, to the " + precision
'''


def llm(*arguments, text=None):
    environment = {**os.environ, "LLM_USER_PATH": str(HOME), "OPENAI_API_KEY": "none"}
    ran = subprocess.run([LLM, *arguments], input=text, capture_output=True, text=True, env=environment, timeout=60)
    return ran.returncode, ran.stdout.strip(), ran.stderr.strip()


def said(*arguments, text=None):
    code, out, errors = llm(*arguments, text=text)
    assert code == 0, errors
    return out


@check("a question is answered with and without streaming")
def _():
    streamed = said("-m", "demo", "hello there")
    assert "hello there" in streamed, streamed
    # Of a whole answer it reads the usage, whether there is one or not.
    assert "hello there" in said("-m", "demo", "--no-stream", "usage hello there")


@check("the conversation goes on")
def _():
    said("-m", "demo", "my name is Ada")
    assert "history" in said("-m", "demo", "-c", "what is the history of this?")


@check("a tool of the front end is run")
def _():
    answer = said("-m", "demo", "--functions", TOOLS, "client tool")
    assert "Berlin" in answer, answer


@check("a chat of several turns, with an approval in words")
def _():
    out = said("chat", "-m", "demo", text="approval\napprove\nexit\n")
    assert "[approval " in out and "was sent to" in out, out


@check("a failure is an error, not an answer")
def _():
    for word in ("fail please", "break please"):
        code, out, errors = llm("-m", "demo", word)
        assert code != 0 and errors, (word, out)


close()
