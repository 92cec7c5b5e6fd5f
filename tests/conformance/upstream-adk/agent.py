"""Google's ADK as `adk api_server --a2a` serves it, with a scripted model (`scripted_adk.py`).

    PYTHONPATH=../shared python agent.py --port PORT

The server finds an agent in a folder with `agent.py` and `agent.json`, which this script writes.
"""

import argparse
import json
import pathlib
import sys
import tempfile

from google.adk.cli.cli_tools_click import main as adk


def card(name, port, **capabilities):
    """The card as ADK's documentation shows one."""
    return {
        "name": name, "description": "Scripted.", "version": "1.0.0", "capabilities": capabilities,
        "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
        "url": f"http://127.0.0.1:{port}/a2a/{name}",
        "skills": [{"id": "all", "name": "all", "description": "All.", "tags": ["all"]}],
    }


def write(agents, name, port, **capabilities):
    folder = pathlib.Path(agents) / name
    folder.mkdir()
    (folder / "agent.json").write_text(json.dumps(card(name, port, **capabilities)))
    (folder / "__init__.py").write_text("from . import agent\n")
    # The folder of this script is on the path.
    (folder / "agent.py").write_text("from scripted_adk import agent\n\nroot_agent = agent()\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    port = parser.parse_args().port
    with tempfile.TemporaryDirectory() as agents:
        write(agents, "polled", port)
        write(agents, "streamed", port, streaming=True)
        sys.exit(adk(["api_server", "--a2a", "--port", str(port), agents]))


if __name__ == "__main__":
    main()
