"""A travel agent built with LangGraph, served over AG-UI.

Its model is a script, so that it runs without a key. Put a real one in its place:

    from langchain.chat_models import init_chat_model
    model = init_chat_model("openai:gpt-6").bind_tools(TOOLS)
"""

import uvicorn
from ag_ui_langgraph import LangGraphAgent, add_langgraph_fastapi_endpoint
from fastapi import FastAPI
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.memory import MemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import interrupt


@tool
def weather(city: str) -> str:
    """What the weather is in a city."""
    return f"sunny in {city}"


@tool
def book(city: str) -> str:
    """Books a trip, if the user allows it."""
    request = {"action": "book", "args": {"city": city}}
    answer = interrupt({"action_request": request, "description": f"Book a trip to {city}?"})
    return f"booked a trip to {city}" if answer.get("type") == "accept" else "not booked"


TOOLS = [weather, book]


class Script(BaseChatModel):
    """Calls the tool that the user names, with the user's last word as the city, and says what came of it."""

    _llm_type = "script"

    def _stream(self, messages, *_, **__):
        last = messages[-1]
        said = last.content.split() if last.type == "human" else []
        name = next((tool.name for tool in TOOLS if tool.name in said), None)
        if name:
            call = {"name": name, "args": {"city": said[-1].strip("?.!")}, "id": f"call_{len(messages)}"}
            yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_calls=[call]))
            return
        answer = f"It is done: {last.content}." if last.type == "tool" else f"You said: {last.content}"
        for word in answer.split():
            yield ChatGenerationChunk(message=AIMessageChunk(content=word + " "))

    def _generate(self, *arguments, **more):
        chunks = list(self._stream(*arguments, **more))
        return ChatResult(generations=[sum(chunks[1:], chunks[0])])


model = Script()


async def ask_model(state, config):
    return {"messages": [await model.ainvoke(state["messages"], config)]}


graph = StateGraph(MessagesState)
graph.add_node("model", ask_model)
graph.add_node("tools", ToolNode(TOOLS))
graph.add_edge(START, "model")
graph.add_conditional_edges("model", tools_condition)
graph.add_edge("tools", "model")

app = FastAPI()
# Without raw events, answers are a quarter of the size; with outcomes, every question has an id of its own.
agent = LangGraphAgent(
    name="travel",
    graph=graph.compile(checkpointer=MemorySaver()),
    emit_interrupt_outcome=True,
    emit_raw_events=False,
)
add_langgraph_fastapi_endpoint(app, agent, "/")

if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=8000, log_level="warning")
