"""A2A 1.0 with the official Python client, over both bindings, against the demo agent."""

import asyncio
import uuid

import httpx
from checks import GATEWAY_URL, check, close
from google.protobuf.json_format import MessageToDict

from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import a2a_pb2 as t
from a2a.utils.errors import (
    InvalidParamsError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from receiver import Receiver

AGENT = f"{GATEWAY_URL}/agents/demo"
STATE = t.TaskState


class Session:
    """A client of one binding."""

    def __init__(self, binding, streaming=True, polling=False):
        self.http = httpx.AsyncClient(timeout=30)
        self.config = ClientConfig(
            streaming=streaming,
            polling=polling,
            httpx_client=self.http,
            supported_protocol_bindings=[binding],
            use_client_preference=True,
        )

    async def __aenter__(self):
        self.card = await A2ACardResolver(self.http, AGENT).get_agent_card()
        return ClientFactory(self.config).create(self.card)

    async def __aexit__(self, *_):
        await self.http.aclose()


def request(*parts, task=None, context=None, configuration=None):
    message = t.Message(message_id=str(uuid.uuid4()), role=t.Role.ROLE_USER)
    for part in parts:
        message.parts.append(t.Part(text=part) if isinstance(part, str) else part)
    if task:
        message.task_id = task
    if context:
        message.context_id = context
    return t.SendMessageRequest(message=message, configuration=configuration or t.SendMessageConfiguration())


def data(value):
    part = t.Part()
    part.data.struct_value.update(value)
    return part


async def events(stream):
    return [event async for event in stream]


async def whole(client, question):
    """The task that a blocking call returns."""
    answers = await events(client.send_message(question))
    assert answers and answers[-1].HasField("task"), answers
    return answers[-1].task


def text_of(parts):
    return "".join(part.text for part in parts)


def streamed_text(got):
    return "".join(text_of(event.artifact_update.artifact.parts) for event in got if event.HasField("artifact_update"))


async def raises(kind, awaitable):
    try:
        await awaitable
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


@check("the card is found and lists four interfaces")
async def _():
    async with httpx.AsyncClient() as http:
        card = await A2ACardResolver(http, AGENT).get_agent_card()
        assert [(i.protocol_binding, i.protocol_version) for i in card.supported_interfaces] == [
            ("JSONRPC", "1.0"), ("HTTP+JSON", "1.0"), ("JSONRPC", "0.3"), ("HTTP+JSON", "0.3"),
        ], card
        assert all(i.url == AGENT for i in card.supported_interfaces) and card.skills and card.capabilities.streaming
        root = await A2ACardResolver(http, GATEWAY_URL).get_agent_card()
        assert root.name == card.name


for binding in ("JSONRPC", "HTTP+JSON"):

    def on(sentence, binding=binding):
        return check(f"{binding}: {sentence}")

    @on("a reply is streamed: the task first, its end last")
    async def _(binding=binding):
        async with Session(binding) as client:
            got = await events(client.send_message(request("hello there")))
            assert got[0].HasField("task") and got[0].task.status.state == STATE.TASK_STATE_SUBMITTED, got[0]
            assert got[-1].status_update.status.state == STATE.TASK_STATE_COMPLETED, got[-1]
            assert "hello there" in streamed_text(got), got
            task = await client.get_task(t.GetTaskRequest(id=got[0].task.id))
            assert text_of(task.artifacts[0].parts) == streamed_text(got)
            assert [len(a.parts) for a in task.artifacts] == [1], "fragments of one text are one part"

    @on("a blocking call returns the task with its artifacts")
    async def _(binding=binding):
        async with Session(binding, streaming=False) as client:
            task = await whole(client, request("hello"))
            assert task.status.state == STATE.TASK_STATE_COMPLETED and task.artifacts and task.history, task
            assert task.history[0].parts[0].text == "hello" and task.history[0].task_id == task.id

    @on("a non-blocking call is polled to its end")
    async def _(binding=binding):
        async with Session(binding, streaming=False) as client:
            settings = t.SendMessageConfiguration(return_immediately=True)
            task = await whole(client, request("long 10 50", configuration=settings))
            assert task.status.state in (STATE.TASK_STATE_SUBMITTED, STATE.TASK_STATE_WORKING), task
            for _ in range(100):
                task = await client.get_task(t.GetTaskRequest(id=task.id))
                if task.status.state == STATE.TASK_STATE_COMPLETED:
                    break
                await asyncio.sleep(0.1)
            assert task.status.state == STATE.TASK_STATE_COMPLETED, task

    @on("tools and reasoning are status updates, and the reply is the first artifact")
    async def _(binding=binding):
        async with Session(binding) as client:
            got = await events(client.send_message(request("reasoning, then use a tool")))
            said = [event.status_update.status.message for event in got if event.HasField("status_update")]
            marks = [MessageToDict(part.metadata) for message in said for part in message.parts]
            assert any(mark.get("thought") for mark in marks) or any(mark.get("type") for mark in marks), marks
            artifacts = [event for event in got if event.HasField("artifact_update")]
            assert artifacts and artifacts[0].artifact_update.artifact.parts[0].text, artifacts

    @on("an image is a part with a media type")
    async def _(binding=binding):
        async with Session(binding, streaming=False) as client:
            task = await whole(client, request("image"))
            files = [part for artifact in task.artifacts for part in artifact.parts if part.raw or part.url]
            assert files and files[0].media_type.startswith("image/"), task

    @on("an approval is requested, not guessed from text, given, and the task continues")
    async def _(binding=binding):
        async with Session(binding) as client:
            got = await events(client.send_message(request("approval")))
            last = got[-1].status_update
            assert last.status.state == STATE.TASK_STATE_INPUT_REQUIRED, got[-1]
            item = MessageToDict(last.status.message.parts[1].data)["interrupt"]
            assert item["kind"] == "approval" and "accept" in item["decisions"], item
            # A text without a decision: the same interrupt again.
            again = await events(client.send_message(request("what would that do?", task=last.task_id)))
            assert again[-1].task.status.state == STATE.TASK_STATE_INPUT_REQUIRED, again
            answer = data({"interrupt_id": item["id"], "decision": "accept"})
            done = await events(client.send_message(request(answer, task=last.task_id)))
            assert done[0].task.id == last.task_id
            assert done[-1].status_update.status.state == STATE.TASK_STATE_COMPLETED, done[-1]
            task = await client.get_task(t.GetTaskRequest(id=last.task_id))
            # In order: the interrupt, then the messages to it, including the one without a decision.
            roles = [t.Role.ROLE_USER, t.Role.ROLE_AGENT, t.Role.ROLE_USER, t.Role.ROLE_USER]
            assert [m.role for m in task.history[:4]] == roles, task.history
            assert task.history[2].parts[0].text == "what would that do?", task.history
            assert MessageToDict(task.history[3].parts[0].data)["interrupt_id"] == item["id"]

    @on("a single word decides an approval")
    async def _(binding=binding):
        async with Session(binding, streaming=False) as client:
            asked = await whole(client, request("approval"))
            done = await whole(client, request("reject", task=asked.id))
            assert done.id == asked.id and done.status.state == STATE.TASK_STATE_COMPLETED, done

    @on("a question is answered by text")
    async def _(binding=binding):
        async with Session(binding, streaming=False) as client:
            asked = await whole(client, request("question"))
            assert asked.status.state == STATE.TASK_STATE_INPUT_REQUIRED, asked
            kind = MessageToDict(asked.status.message.parts[1].data)["interrupt"]["kind"]
            assert kind == "input", kind

    @on("a client's tool is run by the client")
    async def _(binding=binding):
        async with Session(binding, streaming=False) as client:
            asked = await whole(client, request("client tool"))
            call = MessageToDict(asked.status.message.parts[1].data)["function_call"]
            output = data({"function_call_output": {"call_id": call["call_id"], "output": "Rome"}})
            done = await whole(client, request(output, task=asked.id))
            assert done.status.state == STATE.TASK_STATE_COMPLETED, done
            assert "Rome" in "".join(text_of(a.parts) for a in done.artifacts), done

    @on("a login makes the task wait for authentication")
    async def _(binding=binding):
        async with Session(binding, streaming=False) as client:
            asked = await whole(client, request("login"))
            assert asked.status.state == STATE.TASK_STATE_AUTH_REQUIRED, asked

    @on("an agent's failure fails the task, with a code")
    async def _(binding=binding):
        async with Session(binding) as client:
            got = await events(client.send_message(request("fail")))
            last = got[-1].status_update
            assert last.status.state == STATE.TASK_STATE_FAILED, got[-1]
            assert MessageToDict(last.metadata)["agent_api"]["error"]["code"], last

    @on("a late subscriber misses nothing, and a client that disconnects stops nothing")
    async def _(binding=binding):
        async with Session(binding) as client:
            stream = client.send_message(request("long 30 50"))
            seen, task = "", None
            async for event in stream:
                if event.HasField("task"):
                    task = event.task.id
                if event.HasField("artifact_update"):
                    seen += text_of(event.artifact_update.artifact.parts)
                if len(seen) > 10:
                    break
            await stream.aclose()
            got = await events(client.subscribe(t.SubscribeToTaskRequest(id=task)))
            assert got[0].HasField("task") and got[-1].status_update.status.state == STATE.TASK_STATE_COMPLETED, got
            before = "".join(text_of(a.parts) for a in got[0].task.artifacts)
            final = await client.get_task(t.GetTaskRequest(id=task))
            assert before + streamed_text(got) == text_of(final.artifacts[0].parts)
            await raises(UnsupportedOperationError, events(client.subscribe(t.SubscribeToTaskRequest(id=task))))

    @on("a task is canceled once")
    async def _(binding=binding):
        async with Session(binding, streaming=False) as client:
            settings = t.SendMessageConfiguration(return_immediately=True)
            task = await whole(client, request("long 200 50", configuration=settings))
            ended = await client.cancel_task(t.CancelTaskRequest(id=task.id))
            assert ended.status.state == STATE.TASK_STATE_CANCELED, ended
            await raises(TaskNotCancelableError, client.cancel_task(t.CancelTaskRequest(id=task.id)))

    @on("lists are paged, filtered and counted")
    async def _(binding=binding):
        async with Session(binding, streaming=False) as client:
            context = str(uuid.uuid4())
            ids = [(await whole(client, request("hello", context=context))).id for _ in range(3)]
            page = await client.list_tasks(t.ListTasksRequest(context_id=context, page_size=2))
            assert (len(page.tasks), page.total_size, page.page_size) == (2, 3, 2), page
            assert not page.tasks[0].artifacts, "artifacts only if they are asked for"
            rest = await client.list_tasks(
                t.ListTasksRequest(context_id=context, page_size=2, page_token=page.next_page_token, include_artifacts=True)
            )
            assert [task.id for task in [*page.tasks, *rest.tasks]] == ids[::-1] and not rest.next_page_token
            assert rest.tasks[0].artifacts
            none = await client.list_tasks(t.ListTasksRequest(context_id=context, status=STATE.TASK_STATE_FAILED))
            assert none.total_size == 0

    @on("push configs are stored, listed and removed")
    async def _(binding=binding):
        async with Session(binding, streaming=False) as client:
            task = await whole(client, request("hello"))
            config = t.TaskPushNotificationConfig(task_id=task.id, url="http://127.0.0.1:9/hook", token="tok")
            config.authentication.scheme, config.authentication.credentials = "Bearer", "s3cr3t"
            made = await client.create_task_push_notification_config(config)
            assert made.id and made.url == config.url and made.authentication.credentials == "s3cr3t", made
            get = t.GetTaskPushNotificationConfigRequest(task_id=task.id, id=made.id)
            assert (await client.get_task_push_notification_config(get)).token == "tok"
            listed = await client.list_task_push_notification_configs(t.ListTaskPushNotificationConfigsRequest(task_id=task.id))
            assert [c.id for c in listed.configs] == [made.id]
            await client.delete_task_push_notification_config(
                t.DeleteTaskPushNotificationConfigRequest(task_id=task.id, id=made.id)
            )
            await raises(TaskNotFoundError, client.get_task_push_notification_config(get))

    @on("a receiver in the private network is refused")
    async def _(binding=binding):
        async with Session(binding, streaming=False) as client:
            task = await whole(client, request("hello"))
            for url in ("https://10.0.0.1/", "https://0x7f.2/", "https://[::ffff:10.0.0.1]/", "https://[::1]/", GATEWAY_URL, "ftp://x/"):
                config = t.TaskPushNotificationConfig(task_id=task.id, url=url)
                await raises(InvalidParamsError, client.create_task_push_notification_config(config))

    @on("the events of a task are pushed in order")
    async def _(binding=binding):
        receiver = Receiver(refuse=1)
        async with Session(binding, streaming=False) as client:
            config = t.TaskPushNotificationConfig(url=receiver.url, token="tok")
            config.authentication.scheme, config.authentication.credentials = "Bearer", "s3cr3t"
            settings = t.SendMessageConfiguration(task_push_notification_config=config)
            task = await whole(client, request("hello", configuration=settings))
            ended = lambda got: any("COMPLETED" in str(body.get("statusUpdate")) for _, body in got)
            got = receiver.wait(ended)
            headers = got[0][0]
            assert headers["authorization"] == "Bearer s3cr3t" and headers["x-a2a-notification-token"] == "tok", headers
            assert headers["content-type"] == "application/a2a+json" and headers["a2a-version"] == "1.0", headers
            bodies = [body for _, body in got]
            assert bodies[0]["task"]["id"] == task.id, bodies
            text = "".join(part["text"] for body in bodies if "artifactUpdate" in body for part in body["artifactUpdate"]["artifact"]["parts"])
            assert text == text_of(task.artifacts[0].parts), bodies
        receiver.close()

    @on("errors are the client's own classes")
    async def _(binding=binding):
        async with Session(binding) as client:
            nobody = str(uuid.uuid4())
            await raises(TaskNotFoundError, client.get_task(t.GetTaskRequest(id=nobody)))
            await raises(TaskNotFoundError, client.get_task(t.GetTaskRequest(id="nonsense")))
            await raises(TaskNotFoundError, client.cancel_task(t.CancelTaskRequest(id=nobody)))
            await raises(TaskNotFoundError, events(client.subscribe(t.SubscribeToTaskRequest(id=nobody))))
            await raises(TaskNotFoundError, events(client.send_message(request("x", task=nobody))))
            await raises(InvalidParamsError, events(client.send_message(t.SendMessageRequest(message=t.Message(message_id="m")))))
            got = await events(client.send_message(request("hello")))
            task = got[0].task
            await raises(UnsupportedOperationError, events(client.send_message(request("more", task=task.id))))
            await raises(InvalidParamsError, events(client.send_message(request("x", task=task.id, context="other"))))
            await raises(InvalidParamsError, client.list_tasks(t.ListTasksRequest(page_size=1000)))


@check("clients of two versions work on one task")
async def _():
    async with Session("JSONRPC", streaming=False) as client, httpx.AsyncClient() as http:
        asked = await whole(client, request("approval"))
        old = await http.post(AGENT, json={"jsonrpc": "2.0", "id": "a", "method": "tasks/get", "params": {"id": asked.id}})
        old = old.json()["result"]
        assert (old["kind"], old["status"]["state"]) == ("task", "input-required"), old
        body = {"message": {"messageId": "m-9", "taskId": asked.id, "role": "ROLE_USER", "content": [{"text": "approve"}]}}
        done = (await http.post(f"{AGENT}/v1/message:send", json=body)).json()["task"]
        assert done["id"] == asked.id and done["status"]["state"] == "TASK_STATE_COMPLETED", done
        task = await client.get_task(t.GetTaskRequest(id=asked.id))
        assert [m.message_id for m in task.history if m.role == t.Role.ROLE_USER][-1] == "m-9"


@check("another tenant's task does not exist")
async def _():
    async with Session("HTTP+JSON", streaming=False) as client:
        task = await whole(client, request("hello"))
        await raises(TaskNotFoundError, client.get_task(t.GetTaskRequest(id=task.id, tenant="other")))


close()
