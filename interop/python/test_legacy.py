"""The same SDK as a client of A2A 0.3: the card under /a2a/0.3 offers only that version."""

import asyncio
import uuid

import httpx
import pytest

from a2a.client.card_resolver import A2ACardResolver
from a2a.client.errors import A2AClientError
from a2a.types import (
    CancelTaskRequest,
    GetExtendedAgentCardRequest,
    GetTaskRequest,
    SubscribeToTaskRequest,
    TaskState,
)
from a2a.utils.errors import MethodNotFoundError, TaskNotFoundError

from sdk import ask, fold, gather, send, texts


@pytest.fixture
async def card(gateway):
    """The card of 0.3, instead of the card of both versions."""
    async with httpx.AsyncClient(timeout=60, trust_env=False) as client:
        return await A2ACardResolver(client, f'{gateway.url}/a2a/0.3').get_agent_card()


async def test_the_extended_card(connect, card):
    assert {interface.protocol_version[:3] for interface in card.supported_interfaces} == {'0.3'}
    extended = await connect().get_extended_agent_card(GetExtendedAgentCardRequest())
    assert extended.name == card.name
    assert {skill.id for skill in extended.skills} >= {skill.id for skill in card.skills}


async def test_send_and_get(connect):
    client = connect(streaming=False)
    first = await send(client, ask('scn:text n=4 text="ahoy from the demo model"'))
    assert first.status.state == TaskState.TASK_STATE_COMPLETED, first
    assert [text for _, text in texts(first)] == ['ahoy from the demo model']
    assert await client.get_task(GetTaskRequest(id=first.id)) == first
    second = await send(client, ask('scn:text n=1', context_id=first.context_id))
    assert (second.context_id, second.id != first.id) == (first.context_id, True)


async def test_a_stream_folds_into_the_task(connect):
    client = connect()
    folded = fold(await gather(client.send_message(ask('scn:reason rn=2 n=2 text="thought through"'))))
    stored = await client.get_task(GetTaskRequest(id=folded.id))
    assert [text for _, text in texts(stored)] == ['Thought 1 of 2. Thought 2 of 2. thought through']
    assert (texts(folded), folded.status.state) == (texts(stored), stored.status.state)
    # Clients of 0.3 read the answer from the status of the task; in the stream it came as an artifact.
    assert [part.text for part in stored.status.message.parts] == ['thought through']


async def test_an_ask_is_answered_by_a_plain_message(connect):
    client = connect(streaming=False)
    waiting = await send(client, ask('scn:question q="Which way?" options="Left|Right" scn:text n=2'))
    assert waiting.status.state == TaskState.TASK_STATE_INPUT_REQUIRED, waiting
    done = await send(client, ask('Right', task_id=waiting.id, context_id=waiting.context_id))
    assert (done.id, done.status.state) == (waiting.id, TaskState.TASK_STATE_COMPLETED), done


async def test_a_task_is_subscribed_to_and_canceled(connect):
    client = connect(streaming=False)
    task = await send(client, ask('scn:forever delay=20', return_immediately=True))
    spoke = asyncio.Event()
    seen = []

    async def watch():
        async for event in connect().subscribe(SubscribeToTaskRequest(id=task.id)):
            seen.append(event)
            if event.HasField('artifact_update'):
                spoke.set()

    watching = asyncio.create_task(watch())
    await asyncio.wait_for(spoke.wait(), timeout=30)
    canceled = await client.cancel_task(CancelTaskRequest(id=task.id))
    assert canceled.status.state == TaskState.TASK_STATE_CANCELED, canceled
    await asyncio.wait_for(watching, timeout=30)
    assert fold(seen).status == canceled.status

    # In 0.3 a finished task is sent once to a new subscriber, and a second cancel returns the task.
    [again] = await gather(connect().subscribe(SubscribeToTaskRequest(id=task.id)))
    assert again.task.status == canceled.status
    assert (await client.cancel_task(CancelTaskRequest(id=task.id))).status == canceled.status


# REST errors of 0.3 have no agreed format. This client looks for the names of its own error classes, and maps any other 404 to
# MethodNotFoundError. Over gRPC it tells only a timeout apart.
UNKNOWN = {'JSONRPC': TaskNotFoundError, 'HTTP+JSON': MethodNotFoundError, 'GRPC': A2AClientError}


async def test_an_unknown_task_is_refused(connect, binding):
    client = connect(streaming=False)
    unknown = str(uuid.uuid4())
    with pytest.raises(UNKNOWN[binding]):
        await client.get_task(GetTaskRequest(id=unknown))
    with pytest.raises(UNKNOWN[binding]):
        await client.cancel_task(CancelTaskRequest(id=unknown))
