"""A LangGraph agent behind its AG-UI integration, with a scripted model: the first words of a message say what happens.

    PYTHONPATH=../shared python agent.py --port PORT

POST / as the integration is by default (`on_interrupt`, raw events); POST /outcome with interrupts as outcomes and
without raw events.
"""

import argparse

import uvicorn
from ag_ui_langgraph import LangGraphAgent, add_langgraph_fastapi_endpoint
from fastapi import FastAPI
from scripted_graph import graph


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    port = parser.parse_args().port

    app = FastAPI()
    add_langgraph_fastapi_endpoint(app, LangGraphAgent(name="scripted", graph=graph()), "/")
    newer = LangGraphAgent(name="outcome", graph=graph(), emit_interrupt_outcome=True, emit_raw_events=False)
    add_langgraph_fastapi_endpoint(app, newer, "/outcome")
    # Without a limit an open stream holds the server for ever when it is stopped.
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning", timeout_graceful_shutdown=1)


if __name__ == "__main__":
    main()
