"""Every operation of A2A 0.3 that Longshore serves, with the official SDK of that version, over both bindings."""

import asyncio
import base64
import uuid

import grpc
import pytest

from a2a.client import ClientConfig, ClientFactory
from a2a.client.errors import A2AClientHTTPError, A2AClientJSONRPCError
from a2a.types import (
    FilePart,
    FileWithBytes,
    Message,
    Part,
    Role,
    TaskArtifactUpdateEvent,
    TaskIdParams,
    TaskQueryParams,
    TaskState,
    TaskStatusUpdateEvent,
    TextPart,
)

# No wait of these tests takes longer.
PATIENCE = 30


def ask(text, **ids):
    """A message with one text part."""
    return Message(message_id=str(uuid.uuid4()), role=Role.user, parts=[Part(root=TextPart(text=text))], **ids)


def text_of(parts):
    return ''.join(part.root.text for part in parts if part.root.kind == 'text')


def texts(task):
    """The text of each artifact of a task. In 0.3 one artifact holds the whole output."""
    return [text_of(artifact.parts) for artifact in task.artifacts or []]


def blocks(task):
    """The output of the agent as pairs of block type and content. Consecutive parts of one type are merged, and only the last
    state of a tool call is kept. A part without a block type is text."""
    found = []
    for part in (part.root for artifact in task.artifacts or [] for part in artifact.parts):
        kind = (part.metadata or {}).get('shared', {}).get('stream', {}).get('block_type', 'text')
        if part.kind == 'data':
            call = part.data['call_id']
            found = [(before, said) for before, said in found if isinstance(said, str) or said['call_id'] != call]
            found.append((kind, part.data))
        elif found and found[-1][0] == kind and isinstance(found[-1][1], str):
            found[-1] = (kind, found[-1][1] + part.text)
        else:
            found.append((kind, part.text))
    return found


async def send(client, message):
    """Sends a message and returns the task of the response."""
    [(task, update)] = [event async for event in client.send_message(message)]
    assert update is None
    return task


async def stream(events):
    """The task that the SDK assembles from a stream, and its updates."""
    task, updates = None, []
    async for task, update in events:
        updates.append(update)
    return task, updates


# The gRPC status that belongs to a JSON-RPC code.
STATUS = {
    -32001: grpc.StatusCode.NOT_FOUND,
    -32002: grpc.StatusCode.FAILED_PRECONDITION,
    -32004: grpc.StatusCode.FAILED_PRECONDITION,
}


async def refused(call, *, code, http, binding):
    """Awaits a call that has to fail with this JSON-RPC code, this HTTP status, or the gRPC status that belongs to the code."""
    if binding == 'GRPC':
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await call
        assert error.value.code() == STATUS[code]
        return
    if binding == 'JSONRPC':
        with pytest.raises(A2AClientJSONRPCError) as error:
            await call
        assert error.value.error.code == code
    else:
        with pytest.raises(A2AClientHTTPError) as error:
            await call
        assert error.value.status_code == http


async def test_the_card_names_every_binding_and_what_opens_them(card):
    assert card.protocol_version.startswith('0.3')
    assert card.preferred_transport == 'HTTP+JSON'
    interfaces = {interface.transport for interface in card.additional_interfaces}
    assert interfaces | {card.preferred_transport} == {'JSONRPC', 'HTTP+JSON', 'GRPC'}
    assert card.capabilities.streaming
    assert card.capabilities.push_notifications
    assert card.supports_authenticated_extended_card
    assert [scheme.root.scheme.lower() for scheme in card.security_schemes.values()] == ['bearer']
    assert [set(requirement) for requirement in card.security] == [set(card.security_schemes)]
    assert card.skills and all(skill.id and skill.description and skill.tags for skill in card.skills)


async def test_the_extended_card_is_the_public_one_and_more(connect, card):
    extended = await connect().get_card()
    assert (extended.name, extended.url) == (card.name, card.url)
    assert {skill.id for skill in extended.skills} >= {skill.id for skill in card.skills}
    # The public card serves both versions and names each extension twice; the extended card has only the 0.3 names.
    public = {extension.uri for extension in card.capabilities.extensions if extension.uri.startswith('https://')}
    assert public
    assert {extension.uri for extension in extended.capabilities.extensions} >= public


async def test_send_waits_for_the_end_and_get_gives_the_same_task(connect):
    client = connect(streaming=False)
    task = await send(client, ask('scn:text n=4 text="ahoy from the demo model"'))
    assert task.status.state == TaskState.completed, task
    assert texts(task) == ['ahoy from the demo model']
    assert [message.role for message in task.history] == [Role.user]
    assert await client.get_task(TaskQueryParams(id=task.id)) == task
    assert len((await client.get_task(TaskQueryParams(id=task.id, history_length=1))).history) == 1


async def test_a_stream_folds_into_the_task(connect):
    client = connect()
    task, updates = await stream(client.send_message(ask('scn:reason rn=2 n=2 text="thought through"')))
    assert task.status.state == TaskState.completed, task
    stored = await client.get_task(TaskQueryParams(id=task.id))
    assert texts(stored) == ['Thought 1 of 2. Thought 2 of 2. thought through']
    assert (texts(task), task.status.state) == (texts(stored), stored.status.state)
    # Reasoning and answer can be distinguished.
    assert blocks(stored) == [('reasoning', 'Thought 1 of 2. Thought 2 of 2. '), ('text', 'thought through')]
    assert blocks(task) == blocks(stored)
    # Clients of 0.3 read the answer from the status of the task; in the stream it came as an artifact.
    assert text_of(stored.status.message.parts) == 'thought through'
    statuses = [update for update in updates if isinstance(update, TaskStatusUpdateEvent)]
    assert [status.final for status in statuses] == [False] * (len(statuses) - 1) + [True]
    assert updates[-1] is statuses[-1]


async def test_a_tool_call_is_a_data_part(connect):
    client = connect()
    task, _ = await stream(client.send_message(ask('scn:bash cmd="echo aboard" scn:text n=1')))
    assert task.status.state == TaskState.completed, task
    stored = await client.get_task(TaskQueryParams(id=task.id))
    parts = [part.root for artifact in stored.artifacts for part in artifact.parts]
    [call] = [part.data for part in parts if part.kind == 'data']
    assert (call['tool'], call['status'], call['output']) == ('bash', 'completed', 'aboard\n')
    assert ('tool_call', call) in blocks(stored)
    assert blocks(task) == blocks(stored)


@pytest.mark.parametrize('media_type', ['application/octet-stream', None])
async def test_the_bytes_of_a_file_arrive_as_they_are(connect, http, card, media_type):
    # Over REST the SDK encodes the bytes twice. The second content has base64 without padding, which looks like plain text.
    for content in [bytes(range(256)), bytes([255, 0, 129, 7])]:
        file = FileWithBytes(bytes=base64.b64encode(content).decode(), mime_type=media_type, name='a.bin')
        message = ask('scn:text n=1')
        message.parts.append(Part(root=FilePart(file=file)))
        task = await send(connect(streaming=False, polling=True), message)
        rpc = ClientConfig(httpx_client=http, supported_transports=['JSONRPC'])
        stored = await ClientFactory(rpc).create(card).get_task(TaskQueryParams(id=task.id))
        assert base64.b64decode(stored.history[0].parts[1].root.file.bytes) == content


async def test_a_conversation_goes_on_in_its_context(connect):
    client = connect(streaming=False)
    first = await send(client, ask('scn:text n=1'))
    second = await send(client, ask('scn:text n=2', context_id=first.context_id))
    assert second.status.state == TaskState.completed, second
    assert second.context_id == first.context_id
    assert second.id != first.id


@pytest.mark.parametrize('streaming', [False, True])
async def test_an_ask_is_answered_by_a_plain_message(connect, streaming):
    client = connect(streaming=False)
    waiting = await send(client, ask('scn:question q="Which way?" options="Left|Right" scn:text n=2'))
    assert waiting.status.state == TaskState.input_required, waiting
    assert 'Which way? (Left, Right)' in text_of(waiting.status.message.parts)
    answer = ask('Right', task_id=waiting.id, context_id=waiting.context_id)
    done, _ = await stream(connect(streaming=streaming).send_message(answer))
    assert (done.id, done.status.state) == (waiting.id, TaskState.completed), done
    stored = await client.get_task(TaskQueryParams(id=done.id))
    assert [text_of(message.parts) for message in stored.history][1:] == ['Right']
    assert 'anchor' in texts(stored)[0]


async def test_a_task_is_resubscribed_to_in_the_middle_and_canceled(connect):
    client = connect(streaming=False, polling=True)
    task = await send(client, ask('scn:forever delay=20'))
    assert task.status.state in (TaskState.submitted, TaskState.working), task

    spoke = asyncio.Event()
    seen = []

    async def watch():
        async for event in connect().resubscribe(TaskIdParams(id=task.id)):
            seen.append(event)
            if isinstance(event[1], TaskArtifactUpdateEvent):
                spoke.set()

    watching = asyncio.create_task(watch())
    await asyncio.wait_for(spoke.wait(), timeout=PATIENCE)
    canceled = await client.cancel_task(TaskIdParams(id=task.id))
    assert canceled.status.state == TaskState.canceled, canceled
    await asyncio.wait_for(watching, timeout=PATIENCE)
    folded, last = seen[-1]
    assert (folded.id, folded.status.state, last.final) == (task.id, TaskState.canceled, True)
    assert texts(folded) == texts(await client.get_task(TaskQueryParams(id=task.id)))

    # In 0.3 a second cancel returns the task.
    assert (await client.cancel_task(TaskIdParams(id=task.id))).status == canceled.status


async def test_resubscribing_after_the_end_gives_the_task_once(connect):
    task = await send(connect(streaming=False), ask('scn:text n=2'))
    events = [event async for event in connect().resubscribe(TaskIdParams(id=task.id))]
    assert [(seen.id, seen.status, update) for seen, update in events] == [(task.id, task.status, None)]
    assert texts(events[0][0]) == texts(task)


async def test_an_unknown_task_is_refused(connect, binding):
    client = connect(streaming=False)
    unknown = str(uuid.uuid4())
    missing = {'code': -32001, 'http': 404, 'binding': binding}
    await refused(client.get_task(TaskQueryParams(id=unknown)), **missing)
    await refused(client.cancel_task(TaskIdParams(id=unknown)), **missing)
    await refused(send(client, ask('hello', task_id=unknown)), **missing)
    # Over REST the SDK reports every response that is not a stream as a 400, whatever its status.
    not_a_stream = {**missing, 'http': 400}
    await refused(stream(connect().resubscribe(TaskIdParams(id=unknown))), **not_a_stream)


async def test_a_task_that_ended_takes_no_message_and_is_not_canceled(connect, binding):
    client = connect(streaming=False)
    task = await send(client, ask('scn:text n=1'))
    await refused(send(client, ask('more', task_id=task.id)), code=-32004, http=400, binding=binding)
    await refused(client.cancel_task(TaskIdParams(id=task.id)), code=-32002, http=409, binding=binding)


async def test_a_wrong_token_is_refused(connect, http):
    http.headers['Authorization'] = 'Bearer not the token'
    with pytest.raises((A2AClientHTTPError, grpc.aio.AioRpcError)) as error:
        await send(connect(streaming=False), ask('hello'))
    status = getattr(error.value, 'status_code', None) or error.value.code()
    assert status in (401, grpc.StatusCode.UNAUTHENTICATED)
