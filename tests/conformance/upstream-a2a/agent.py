"""An A2A 1.0 agent on the official Python server: the wire of the scripted agent (`shared/scripted_a2a.py`).

    python agent.py --port PORT

JSON-RPC at /, HTTP+JSON at /rest, both with the library's v0.3 compatibility; the card at its well-known path.
"""

import sys

from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore
from a2a.types import a2a_pb2
from scripted_a2a import CARD, main
from google.protobuf.json_format import MessageToDict, ParseDict
from starlette.applications import Starlette

ROLE = "ROLE_AGENT"


def text(words, **metadata):
    return {"text": words, **({"metadata": metadata} if metadata else {})}


def data(value, **metadata):
    return {"data": value, "mediaType": "application/json", **({"metadata": metadata} if metadata else {})}


def raw(content, media_type, name):
    return {"raw": content, "mediaType": media_type, "filename": name}


def link(url, media_type):
    return {"url": url, "mediaType": media_type}


def status(state):
    return {"status": {"state": f"TASK_STATE_{state}"}}


def parsed(kind, value):
    return ParseDict(value, getattr(a2a_pb2, kind)())


def shown(message):
    return MessageToDict(message)


def app(agent, url):
    interfaces = [
        {"url": url + path, "protocolBinding": binding, "protocolVersion": version}
        for version in ("1.0", "0.3")
        for path, binding in (("/", "JSONRPC"), ("/rest", "HTTP+JSON"))
    ]
    card = parsed("AgentCard", {**CARD, "supportedInterfaces": interfaces})
    handler = DefaultRequestHandler(agent_executor=agent, task_store=InMemoryTaskStore(), agent_card=card)
    served = Starlette()
    served.routes.extend(create_agent_card_routes(card))
    served.routes.extend(create_jsonrpc_routes(handler, "/", enable_v0_3_compat=True))
    served.routes.extend(create_rest_routes(handler, path_prefix="/rest", enable_v0_3_compat=True))
    return served


if __name__ == "__main__":
    main(sys.modules[__name__], app)
