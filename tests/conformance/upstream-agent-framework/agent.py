"""An agent of Microsoft Agent Framework behind each of its servers, with a scripted model (`scripted_chat.py`).

    PYTHONPATH=../shared python agent.py --port PORT

POST /ag-ui as `add_agent_framework_fastapi_endpoint` serves it; /a2a with `A2AExecutor`, which streams; POST
/v1/responses as the README of the hosting helpers writes the route.
"""

import argparse

import uvicorn
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore
from a2a.types import AgentCapabilities, AgentCard, AgentInterface
from agent_framework_a2a import A2AExecutor
from agent_framework_ag_ui import add_agent_framework_fastapi_endpoint
from agent_framework_hosting import AgentState
from agent_framework_hosting_responses import (
    create_response_id,
    responses_from_run,
    responses_from_streaming_run,
    responses_session_id,
    responses_to_run,
)
from fastapi import Body, FastAPI
from fastapi.responses import JSONResponse, StreamingResponse
from scripted_chat import agent


def serve_a2a(app, port):
    card = AgentCard(
        name="scripted", description="Scripted.", version="1.0.0",
        default_input_modes=["text"], default_output_modes=["text"], skills=[],
        capabilities=AgentCapabilities(streaming=True),
        supported_interfaces=[AgentInterface(url=f"http://127.0.0.1:{port}/a2a", protocol_binding="JSONRPC")],
    )
    executor = A2AExecutor(agent(), stream=True)
    handler = DefaultRequestHandler(agent_executor=executor, task_store=InMemoryTaskStore(), agent_card=card)
    app.router.routes.extend(create_agent_card_routes(card, card_url="/a2a/.well-known/agent-card.json"))
    app.router.routes.extend(create_jsonrpc_routes(handler, "/a2a"))


def serve_responses(app):
    state = AgentState(agent())

    @app.post("/v1/responses")
    async def responses(body: dict = Body(...)):
        run = responses_to_run(body)
        session_id, _ = responses_session_id(body)
        response_id = create_response_id()
        session = await state.get_or_create_session(session_id or response_id)
        target = await state.get_target()
        if not body.get("stream"):
            result = await target.run(run["messages"], session=session)
            await state.set_session(response_id, session)
            return JSONResponse(responses_from_run(result, response_id=response_id))

        async def events():
            stream = target.run(run["messages"], session=session, stream=True)
            async for event in responses_from_streaming_run(stream, response_id=response_id):
                yield event
            await state.set_session(response_id, session)

        return StreamingResponse(events(), media_type="text/event-stream")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    port = parser.parse_args().port
    app = FastAPI()
    add_agent_framework_fastapi_endpoint(app, agent(), "/ag-ui", single_user=True)
    serve_a2a(app, port)
    serve_responses(app)
    app.add_api_route("/health", lambda: {})
    # Without a limit an open stream holds the server for ever when it is stopped.
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning", timeout_graceful_shutdown=1)


if __name__ == "__main__":
    main()
