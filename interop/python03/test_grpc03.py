"""What is special about gRPC, with the stubs of the official SDK of A2A 0.3: `interop/python/test_grpc.py` says more."""

import uuid

import grpc
import pytest

from a2a.grpc import a2a_pb2, a2a_pb2_grpc

from grpc_channel import channels, cursor, metadata, reason

# No wait of these tests takes longer.
PATIENCE = 30


@pytest.fixture
def binding():
    return 'GRPC'


@pytest.fixture
async def stub(http, gateway):
    async with channels(http.headers['Authorization'])(gateway.url) as channel:
        yield a2a_pb2_grpc.A2AServiceStub(channel)


async def test_a_stream_that_was_cut_goes_on_after_its_cursor(stub):
    message = a2a_pb2.Message(message_id=str(uuid.uuid4()), role=a2a_pb2.ROLE_USER)
    message.content.add(text='scn:text n=6 delay=30 text="one two three four five six"')
    call = stub.SendStreamingMessage(a2a_pb2.SendMessageRequest(request=message))
    seen = [await call.read() for _ in range(3)]
    call.cancel()
    subscribe = a2a_pb2.TaskSubscriptionRequest(name=f'tasks/{seen[0].task.id}')
    after = [('last-event-id', cursor(seen[-1]))]
    rest = [event async for event in stub.TaskSubscription(subscribe, metadata=after, timeout=PATIENCE)]
    assert not any(event.HasField('task') for event in rest), rest
    # An empty last chunk of 0.3 has no cursor of its own.
    cursors = [cursor(event) for event in [*seen, *rest] if 'longshore' in metadata(event)]
    numbers = [int(cursor.split('.')[0]) for cursor in cursors]
    assert numbers == sorted(set(numbers)), numbers
    assert rest[-1].status_update.status.state == a2a_pb2.TASK_STATE_COMPLETED, rest[-1]
    assert rest[-1].status_update.final


async def test_an_error_has_its_reason(stub):
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await stub.GetTask(a2a_pb2.GetTaskRequest(name='tasks/no-such-task'))
    assert error.value.code() == grpc.StatusCode.NOT_FOUND
    assert reason(error.value) == ('a2a-protocol.org', 'TASK_NOT_FOUND')
