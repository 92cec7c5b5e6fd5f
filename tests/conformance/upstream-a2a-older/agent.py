"""An A2A 0.3 agent on the official Python server: the wire of the scripted agent (`shared/scripted_a2a.py`).

    python agent.py --port PORT

JSON-RPC at /, HTTP+JSON at /rest; the card at its well-known path.
"""

import sys

from a2a import types
from a2a.server.apps import A2ARESTFastAPIApplication, A2AStarletteApplication
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryTaskStore
from scripted_a2a import CARD, main

ROLE = "agent"


def text(words, **metadata):
    return {"kind": "text", "text": words, "metadata": metadata or None}


def data(value, **metadata):
    return {"kind": "data", "data": value, "metadata": metadata or None}


def raw(content, media_type, name):
    return {"kind": "file", "file": {"bytes": content, "mimeType": media_type, "name": name}}


def link(url, media_type):
    return {"kind": "file", "file": {"uri": url, "mimeType": media_type}}


def status(state):
    state = state.lower().replace("_", "-")
    return {"status": {"state": state}, "final": state not in ("submitted", "working")}


def parsed(kind, value):
    return getattr(types, kind).model_validate(value)


def shown(message):
    return message.model_dump(mode="json", by_alias=True, exclude_none=True)


def app(agent, url):
    interfaces = [{"url": url + "/", "transport": "JSONRPC"}, {"url": url + "/rest", "transport": "HTTP+JSON"}]
    own = {"url": url + "/", "protocolVersion": "0.3.0", "preferredTransport": "JSONRPC"}
    card = parsed("AgentCard", {**CARD, **own, "additionalInterfaces": interfaces})
    handler = DefaultRequestHandler(agent_executor=agent, task_store=InMemoryTaskStore())
    served = A2AStarletteApplication(agent_card=card, http_handler=handler).build()
    served.mount("/rest", A2ARESTFastAPIApplication(agent_card=card, http_handler=handler).build())
    return served


if __name__ == "__main__":
    main(sys.modules[__name__], app)
