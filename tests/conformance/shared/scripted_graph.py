"""A LangGraph graph with tools, interrupts and a scripted model: the first words of a message say what happens."""

import asyncio

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.memory import MemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import interrupt
from scripted_words import plain_answer

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
COLORS = {"type": "object", "properties": {"color": {"type": "string"}}, "required": ["color"]}


@tool
def weather(city: str) -> str:
    """What the weather is."""
    return '{"celsius":21}' if city == "Paris" else '{"celsius":25}'


@tool
def delete_file(path: str) -> str:
    """Deletes a file, if the user allows it."""
    config = {"allow_accept": True, "allow_edit": True, "allow_respond": True, "allow_ignore": False}
    request = {"action": "delete_file", "args": {"path": path}}
    answer = interrupt({"action_request": request, "config": config, "description": f"May I delete {path}?"})
    return f"answered: {answer!r}"


@tool
def break_down() -> str:
    """Breaks."""
    raise RuntimeError("the tool's code broke")


OWN = {t.name: t for t in (weather, delete_file, break_down)}


def call(own_id, name, *pieces, index=0):
    first, *others = pieces
    yield {"tool_call_chunks": [{"id": own_id, "name": name, "args": first, "index": index, "type": "tool_call_chunk"}]}
    for piece in others:
        yield {"tool_call_chunks": [{"id": None, "name": None, "args": piece, "index": index, "type": "tool_call_chunk"}]}


def script(words, outputs, before):
    """What the model says: texts, dicts of a chunk's fields, pauses; an exception is raised."""
    if outputs:
        return ["I got ", repr(outputs)]
    match words.split():
        case ["reasoning", *_]:
            thoughts = [{"content": [{"type": "thinking", "thinking": t, "index": 0}]} for t in ("I look at ", "it.")]
            return [*thoughts, {"content": [{"type": "text", "text": "The answer is 42.", "index": 1}]}]
        case ["deepseek", *_]:
            return [{"additional_kwargs": {"reasoning_content": "I look at it."}}, "The answer ", "is 42."]
        case ["tool", *_]:
            return ["I look it up.", *call("call_1", "weather", '{"city":', '"Paris"}')]
        case ["parallel", *_]:
            other = call("call_2", "weather", '{"city":', '"Rome"}', index=1)
            return [*call("call_1", "weather", '{"city":', '"Paris"}'), *other]
        case ["client", "tool", *_]:
            return [*call("call_1", "locate", '{"precise":', "true}")]
        case ["approval", *_]:
            return ["I would like to delete.", *call("call_1", "delete_file", '{"path":"a.txt"}')]
        case ["both", *_]:
            other = call("call_2", "delete_file", '{"path":"b.txt"}', index=1)
            return [*call("call_1", "delete_file", '{"path":"a.txt"}'), *other]
        case ["broken", *_]:
            return [*call("call_1", "break_down", "{}")]
        case ["image", *_]:
            picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
            return [{"content": [{"type": "text", "text": "Here: "}, picture]}]
    return plain_answer(words, before)


def text_of(message):
    return message.content if isinstance(message.content, str) else message.text


class Scripted(BaseChatModel):
    _llm_type = "scripted"

    async def _astream(self, messages, *_, **__):
        humans = [n for n, message in enumerate(messages) if message.type == "human"]
        last = humans[-1] if humans else 0
        outputs = [m.content for m in messages[last:] if isinstance(m, ToolMessage)]
        before = [text_of(messages[n]) for n in humans[:-1]]
        for part in script(text_of(messages[last]), outputs, before):
            if isinstance(part, float):
                await asyncio.sleep(part)
            elif isinstance(part, Exception):
                raise part
            else:
                fields = {"content": part} if isinstance(part, str) else {"content": "", **part}
                yield ChatGenerationChunk(message=AIMessageChunk(**fields))
        used = {"input_tokens": 7, "output_tokens": 2, "total_tokens": 9}
        yield ChatGenerationChunk(message=AIMessageChunk(content="", usage_metadata=used))

    async def _agenerate(self, messages, *_, **__):
        whole = None
        async for chunk in self._astream(messages):
            whole = chunk if whole is None else whole + chunk
        return ChatResult(generations=[ChatGeneration(message=whole.message)])

    def _generate(self, *_, **__):
        raise NotImplementedError


class State(MessagesState):
    tools: list


async def ask_model(state, config):
    messages, words = state["messages"], text_of(next(m for m in reversed(state["messages"]) if m.type == "human"))
    if words.startswith("question"):
        answer = interrupt({"reason": "input_required", "message": "Which color?", "response_schema": COLORS})
        messages = [HumanMessage(f"my answer: {answer!r}")]
    if words.startswith("silent"):  # said by the graph, not by its model
        return {"messages": [AIMessage("Said without a model.")]}
    return {"messages": [await Scripted().ainvoke(messages, config)]}


def next_node(state):
    names = [call["name"] for call in getattr(state["messages"][-1], "tool_calls", [])]
    return "tools" if names and all(name in OWN for name in names) else END


async def run_tools(state, config):
    """The tools, with ids on what they give, which some adapters do not do without."""
    done = await ToolNode(list(OWN.values()), handle_tool_errors=False).ainvoke(state, config)
    for message in done["messages"]:
        message.id = message.id or f"{message.tool_call_id}-result"
    return done


def graph(ids=False):
    builder = StateGraph(State)
    builder.add_node("model", ask_model)
    builder.add_node("tools", run_tools if ids else ToolNode(list(OWN.values()), handle_tool_errors=False))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", next_node, ["tools", END])
    builder.add_edge("tools", "model")
    return builder.compile(checkpointer=MemorySaver())
