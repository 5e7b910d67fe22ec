"""Every operation of A2A 1.0 that Longshore serves, with the official SDK, over both bindings."""

import asyncio
import uuid

import httpx
import pytest

from a2a.client.auth import AuthInterceptor, CredentialService
from a2a.client.client import ClientConfig
from a2a.client.client_factory import ClientFactory
from a2a.client.errors import A2AClientError
from a2a.types import (
    CancelTaskRequest,
    GetExtendedAgentCardRequest,
    GetTaskRequest,
    ListTasksRequest,
    Role,
    SubscribeToTaskRequest,
    TaskState,
)
from a2a.utils.errors import (
    ContentTypeNotSupportedError,
    InvalidParamsError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)

from grpc_channel import channels
from sdk import ask, fold, gather, send, texts


async def test_the_card_names_every_binding_and_what_opens_them(card):
    assert card.name
    assert card.capabilities.streaming
    assert card.capabilities.push_notifications
    interfaces = {(interface.protocol_binding, interface.protocol_version) for interface in card.supported_interfaces}
    bindings = ('JSONRPC', 'HTTP+JSON', 'GRPC', 'urn:longshore:binding:websocket:v1')
    assert interfaces == {(binding, version) for binding in bindings for version in ('1.0', '0.3')}
    assert card.skills and all(skill.id and skill.description and skill.tags for skill in card.skills)
    schemes = [scheme.http_auth_security_scheme.scheme.lower() for scheme in card.security_schemes.values()]
    assert schemes == ['bearer']
    assert card.security_requirements


async def test_the_extended_card_is_the_public_one_and_more(connect, card):
    extended = await connect().get_extended_agent_card(GetExtendedAgentCardRequest())
    assert extended.name == card.name
    assert {skill.id for skill in extended.skills} >= {skill.id for skill in card.skills}
    assert extended.ByteSize() > card.ByteSize()


async def test_send_waits_for_the_end_and_get_gives_the_same_task(connect):
    client = connect(streaming=False)
    task = await send(client, ask('scn:text n=4 text="ahoy from the demo model"'))
    assert task.status.state == TaskState.TASK_STATE_COMPLETED, task
    assert texts(task) == [('text', 'ahoy from the demo model')]
    assert [message.role for message in task.history] == [Role.ROLE_USER]

    assert await client.get_task(GetTaskRequest(id=task.id)) == task
    short = await client.get_task(GetTaskRequest(id=task.id, history_length=0))
    assert not short.history, short


async def test_a_stream_folds_into_the_task(connect):
    client = connect()
    prompt = 'scn:reason rn=2 n=2 text="thought through"'
    events = await gather(client.send_message(ask(prompt)))
    task = await client.get_task(GetTaskRequest(id=events[0].task.id))
    assert texts(task) == [('reasoning', 'Thought 1 of 2. Thought 2 of 2. '), ('text', 'thought through')]
    folded = fold(events)
    assert texts(folded) == texts(task)
    assert folded.status == task.status
    assert task.status.state == TaskState.TASK_STATE_COMPLETED, task
    told = [event.status_update.status.state for event in events if event.HasField('status_update')]
    assert set(told[:-1]) == {TaskState.TASK_STATE_WORKING}, told
    assert told[-1] == TaskState.TASK_STATE_COMPLETED


async def test_a_tool_call_is_a_data_part(connect):
    events = await gather(connect().send_message(ask('scn:bash cmd="echo aboard" scn:text n=1')))
    task = fold(events)
    [call] = [artifact for artifact in task.artifacts if artifact.name == 'tool:bash']
    [part] = call.parts
    data = part.data.struct_value
    assert data['status'] == 'completed', task
    assert data['output'] == 'aboard\n'
    assert data['input']['command'] == 'echo aboard'


async def test_a_conversation_goes_on_in_its_context(connect):
    client = connect(streaming=False)
    first = await send(client, ask('scn:text n=1'))
    second = await send(client, ask('scn:text n=2', context_id=first.context_id))
    assert second.context_id == first.context_id
    assert second.id != first.id

    # Newest first, page by page, without artifacts unless requested.
    listed = await client.list_tasks(ListTasksRequest(context_id=first.context_id, page_size=1))
    assert [task.id for task in listed.tasks] == [second.id]
    assert (listed.total_size, listed.page_size) == (2, 1)
    assert not listed.tasks[0].artifacts
    rest = await client.list_tasks(
        ListTasksRequest(
            context_id=first.context_id, page_size=1, page_token=listed.next_page_token, include_artifacts=True
        )
    )
    assert [task.id for task in rest.tasks] == [first.id]
    assert texts(rest.tasks[0]) == texts(first)
    assert rest.next_page_token == ''
    done = await client.list_tasks(
        ListTasksRequest(context_id=first.context_id, status=TaskState.TASK_STATE_COMPLETED)
    )
    assert done.total_size == 2
    working = await client.list_tasks(
        ListTasksRequest(context_id=first.context_id, status=TaskState.TASK_STATE_WORKING)
    )
    assert list(working.tasks) == []


async def test_a_task_is_subscribed_to_and_canceled(connect):
    client = connect(streaming=False)
    task = await send(client, ask('scn:forever delay=20', return_immediately=True))
    assert task.status.state in (TaskState.TASK_STATE_SUBMITTED, TaskState.TASK_STATE_WORKING), task

    watcher = connect()
    seen = []
    spoke = asyncio.Event()

    async def watch():
        async for event in watcher.subscribe(SubscribeToTaskRequest(id=task.id)):
            seen.append(event)
            if event.HasField('artifact_update'):
                spoke.set()

    watching = asyncio.create_task(watch())
    await asyncio.wait_for(spoke.wait(), timeout=30)
    canceled = await client.cancel_task(CancelTaskRequest(id=task.id))
    assert canceled.status.state == TaskState.TASK_STATE_CANCELED, canceled
    await asyncio.wait_for(watching, timeout=30)
    assert seen[0].task.id == task.id
    assert seen[-1].status_update.status.state == TaskState.TASK_STATE_CANCELED

    with pytest.raises(TaskNotCancelableError):
        await client.cancel_task(CancelTaskRequest(id=task.id))
    with pytest.raises(UnsupportedOperationError):
        await gather(watcher.subscribe(SubscribeToTaskRequest(id=task.id)))
    with pytest.raises(UnsupportedOperationError):
        await send(client, ask('more', task_id=task.id))


async def test_what_is_unknown_is_refused(connect):
    client = connect(streaming=False)
    unknown = str(uuid.uuid4())
    with pytest.raises(TaskNotFoundError):
        await client.get_task(GetTaskRequest(id=unknown))
    with pytest.raises(TaskNotFoundError):
        await client.cancel_task(CancelTaskRequest(id=unknown))
    with pytest.raises(TaskNotFoundError):
        await gather(connect().subscribe(SubscribeToTaskRequest(id=unknown)))
    with pytest.raises(TaskNotFoundError):
        await send(client, ask('hello', task_id=unknown))


async def test_bad_requests_are_refused(connect):
    client = connect(streaming=False)
    empty = ask('x')
    del empty.message.parts[:]
    with pytest.raises(InvalidParamsError):
        await send(client, empty)
    with pytest.raises(InvalidParamsError):
        await client.list_tasks(ListTasksRequest(page_size=101))
    with pytest.raises(InvalidParamsError):
        await client.list_tasks(ListTasksRequest(page_token='made up'))
    film = ask('look')
    film.message.parts.add(raw=b'ftypisom', media_type='video/mp4')
    with pytest.raises(ContentTypeNotSupportedError):
        await send(client, film)


class OneToken(CredentialService):
    def __init__(self, token):
        self.token = token

    async def get_credentials(self, security_scheme_name, context):
        return self.token


async def test_the_card_is_enough_to_authenticate(gateway, card, binding):
    async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
        config = ClientConfig(
            httpx_client=http,
            grpc_channel_factory=channels(),
            streaming=False,
            supported_protocol_bindings=[binding],
        )
        right = ClientFactory(config).create(card, [AuthInterceptor(OneToken(gateway.token))])
        task = await send(right, ask('scn:text n=1'))
        assert task.status.state == TaskState.TASK_STATE_COMPLETED, task

        wrong = ClientFactory(config).create(card, [AuthInterceptor(OneToken('not the token'))])
        with pytest.raises(A2AClientError, match='401|UNAUTHENTICATED'):
            await send(wrong, ask('scn:text n=1'))
