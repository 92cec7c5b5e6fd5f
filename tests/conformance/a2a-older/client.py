"""A2A 0.3 with the official Python client of that version, over both bindings, against the demo agent."""

import uuid

import httpx
from checks import GATEWAY_URL, check, close
from receiver import Receiver

from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientHTTPError, A2AClientJSONRPCError
from a2a.types import (
    DataPart,
    GetTaskPushNotificationConfigParams,
    Message,
    Part,
    PushNotificationAuthenticationInfo,
    PushNotificationConfig,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskIdParams,
    TaskPushNotificationConfig,
    TaskQueryParams,
    TaskState,
    TaskStatusUpdateEvent,
    TextPart,
    TransportProtocol,
)

AGENT = f"{GATEWAY_URL}/agents/demo"


class Session:
    """A client of one binding."""

    def __init__(self, binding, streaming=True, polling=False, push=None):
        self.http = httpx.AsyncClient(timeout=30)
        self.config = ClientConfig(
            streaming=streaming,
            polling=polling,
            httpx_client=self.http,
            supported_transports=[binding],
            use_client_preference=True,
            push_notification_configs=push or [],
        )

    async def __aenter__(self):
        card = await A2ACardResolver(self.http, AGENT).get_agent_card()
        return ClientFactory(self.config).create(card)

    async def __aexit__(self, *_):
        await self.http.aclose()


def message(*parts, task=None, context=None):
    read = [Part(root=TextPart(text=part)) if isinstance(part, str) else Part(root=DataPart(data=part)) for part in parts]
    return Message(message_id=str(uuid.uuid4()), role=Role.user, parts=read, task_id=task, context_id=context)


async def events(stream):
    return [event async for event in stream]


async def whole(client, said):
    got = await events(client.send_message(said))
    task = got[-1][0]
    assert isinstance(task, Task), got
    return task


def text_of(parts):
    return "".join(part.root.text for part in parts if isinstance(part.root, TextPart))


async def refused(code, awaitable):
    """The protocol error over JSON-RPC, its HTTP status over REST."""
    try:
        await awaitable
    except A2AClientJSONRPCError as error:
        assert error.error.code == code[0], error
    except A2AClientHTTPError as error:
        # For streams this client reports 400, whatever the actual status.
        wanted = (code[1], 400) if "text/event-stream" in error.message else (code[1],)
        assert error.status_code in wanted, error
    else:
        raise AssertionError("no error")


NOT_FOUND, NOT_CANCELABLE, UNSUPPORTED = (-32001, 404), (-32002, 409), (-32004, 501)


@check("the card is found at both well-known paths and has the fields that 0.3 clients need")
async def _():
    async with httpx.AsyncClient() as http:
        card = await A2ACardResolver(http, AGENT).get_agent_card()
        assert (card.protocol_version, card.url, card.preferred_transport) == ("0.3.0", AGENT, "JSONRPC"), card
        assert [i.transport for i in card.additional_interfaces] == ["JSONRPC", "HTTP+JSON"]
        older = await A2ACardResolver(http, AGENT, agent_card_path="/.well-known/agent.json").get_agent_card()
        assert older == card


for binding in (TransportProtocol.jsonrpc, TransportProtocol.http_json):

    def on(sentence, binding=binding):
        return check(f"{binding.value}: {sentence}")

    @on("a reply is streamed and its last event is final")
    async def _(binding=binding):
        async with Session(binding) as client:
            # The client mutates the task object it returned before, so the first state is checked first.
            stream = client.send_message(message("hello there"))
            first, update = await anext(stream)
            assert update is None and first.status.state == TaskState.submitted, first
            got = await events(stream)
            task, last = got[-1]
            assert isinstance(last, TaskStatusUpdateEvent) and last.final and last.status.state == TaskState.completed
            assert "hello there" in text_of(task.artifacts[0].parts), task
            assert any(isinstance(update, TaskArtifactUpdateEvent) for _, update in got)
            kept = await client.get_task(TaskQueryParams(id=task.id))
            assert text_of(kept.artifacts[0].parts) == text_of(task.artifacts[0].parts) and len(kept.artifacts[0].parts) == 1

    @on("a blocking call returns the task")
    async def _(binding=binding):
        async with Session(binding, streaming=False) as client:
            task = await whole(client, message("hello"))
            assert task.status.state == TaskState.completed and task.artifacts and task.history[0].parts[0].root.text == "hello"

    @on("a non-blocking call returns at once")
    async def _(binding=binding):
        async with Session(binding, streaming=False, polling=True) as client:
            task = await whole(client, message("long 10 50"))
            assert task.status.state in (TaskState.submitted, TaskState.working), task
            ended = await client.cancel_task(TaskIdParams(id=task.id))
            assert ended.status.state == TaskState.canceled, ended
            await refused(NOT_CANCELABLE, client.cancel_task(TaskIdParams(id=task.id)))

    @on("an approval is requested, given, and the task continues")
    async def _(binding=binding):
        async with Session(binding) as client:
            got = await events(client.send_message(message("approval")))
            task, last = got[-1]
            assert last.final and last.status.state == TaskState.input_required, last
            item = last.status.message.parts[1].root.data["interrupt"]
            answer = message({"interrupt_id": item["id"], "decision": "accept"}, task=task.id)
            done, last = (await events(client.send_message(answer)))[-1]
            assert done.id == task.id and last.status.state == TaskState.completed, last

    @on("a single word decides an approval, any other text does not")
    async def _(binding=binding):
        async with Session(binding, streaming=False) as client:
            asked = await whole(client, message("approval"))
            again = await whole(client, message("why?", task=asked.id))
            assert again.status.state == TaskState.input_required, again
            done = await whole(client, message("yes", task=asked.id))
            assert done.status.state == TaskState.completed, done

    @on("a late subscriber misses nothing")
    async def _(binding=binding):
        async with Session(binding) as client:
            stream = client.send_message(message("long 30 50"))
            task = (await anext(stream))[0]
            await anext(stream)
            await stream.aclose()
            got = await events(client.resubscribe(TaskIdParams(id=task.id)))
            final = await client.get_task(TaskQueryParams(id=task.id))
            assert got[-1][1].final and text_of(got[-1][0].artifacts[0].parts) == text_of(final.artifacts[0].parts)
            await refused(UNSUPPORTED, events(client.resubscribe(TaskIdParams(id=task.id))))

    @on("push configs are stored and read without their id")
    async def _(binding=binding):
        async with Session(binding, streaming=False) as client:
            task = await whole(client, message("hello"))
            secret = PushNotificationAuthenticationInfo(schemes=["Bearer"], credentials="s3cr3t")
            config = PushNotificationConfig(url="http://127.0.0.1:9/hook", token="tok", authentication=secret)
            if binding == TransportProtocol.http_json:
                # This client puts the id of the config into a resource name.
                config.id = "c1"
            made = await client.set_task_callback(TaskPushNotificationConfig(task_id=task.id, push_notification_config=config))
            assert made.push_notification_config.url == config.url, made
            wanted = made.push_notification_config.id
            get = GetTaskPushNotificationConfigParams(id=task.id, push_notification_config_id=wanted)
            kept = await client.get_task_callback(get)
            assert kept.push_notification_config.authentication == secret and kept.push_notification_config.token == "tok", kept

    @on("the full task is pushed when it changes")
    async def _(binding=binding):
        receiver = Receiver()
        config = PushNotificationConfig(url=receiver.url, token="tok")
        async with Session(binding, streaming=False, push=[config]) as client:
            task = await whole(client, message("hello"))
            got = receiver.wait(lambda got: any(body.get("status", {}).get("state") == "completed" for _, body in got))
            headers, last = got[-1]
            assert headers["content-type"] == "application/json" and "a2a-version" not in headers, headers
            pushed = Task.model_validate(last)
            assert pushed.id == task.id and text_of(pushed.artifacts[0].parts) == text_of(task.artifacts[0].parts), last
        receiver.close()

    @on("errors are told in the client's own classes")
    async def _(binding=binding):
        async with Session(binding, streaming=True) as client:
            nobody = str(uuid.uuid4())
            await refused(NOT_FOUND, client.get_task(TaskQueryParams(id=nobody)))
            await refused(NOT_FOUND, client.cancel_task(TaskIdParams(id=nobody)))
            await refused(NOT_FOUND, events(client.send_message(message("x", task=nobody))))
            await refused(NOT_FOUND, events(client.resubscribe(TaskIdParams(id=nobody))))
            got = await events(client.send_message(message("hello")))
            await refused(UNSUPPORTED, events(client.send_message(message("more", task=got[-1][0].id))))


close()
