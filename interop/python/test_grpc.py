"""What is special about gRPC, with the stubs of the official SDK, in the packages of both versions."""

import uuid

import grpc
import pytest

from a2a.compat.v0_3 import a2a_v0_3_pb2, a2a_v0_3_pb2_grpc
from a2a.types import a2a_pb2, a2a_pb2_grpc

from grpc_channel import channels, cursor, metadata, reason

# No wait of these tests takes longer.
PATIENCE = 30

DOMAIN = 'a2a-protocol.org'


class V1:
    """Calls of `lf.a2a.v1`."""

    stub = a2a_pb2_grpc.A2AServiceStub

    def message(self, text):
        part = a2a_pb2.Part(text=text)
        message = a2a_pb2.Message(message_id=str(uuid.uuid4()), role=a2a_pb2.ROLE_USER, parts=[part])
        return a2a_pb2.SendMessageRequest(message=message)

    def empty(self):
        return a2a_pb2.SendMessageRequest()

    def task(self, id):
        return a2a_pb2.GetTaskRequest(id=id)

    def subscribe(self, stub, id, **options):
        return stub.SubscribeToTask(a2a_pb2.SubscribeToTaskRequest(id=id), **options)

    def cancel(self, id):
        return a2a_pb2.CancelTaskRequest(id=id)


class V03:
    """Calls of `a2a.v1`."""

    stub = a2a_v0_3_pb2_grpc.A2AServiceStub

    def message(self, text):
        part = a2a_v0_3_pb2.Part(text=text)
        message = a2a_v0_3_pb2.Message(
            message_id=str(uuid.uuid4()), role=a2a_v0_3_pb2.ROLE_USER, content=[part]
        )
        return a2a_v0_3_pb2.SendMessageRequest(request=message)

    def empty(self):
        return a2a_v0_3_pb2.SendMessageRequest()

    def task(self, id):
        return a2a_v0_3_pb2.GetTaskRequest(name=f'tasks/{id}')

    def subscribe(self, stub, id, **options):
        return stub.TaskSubscription(a2a_v0_3_pb2.TaskSubscriptionRequest(name=f'tasks/{id}'), **options)

    def cancel(self, id):
        return a2a_v0_3_pb2.CancelTaskRequest(name=f'tasks/{id}')


@pytest.fixture(params=[V1(), V03()], ids=['1.0', '0.3'])
def calls(request):
    return request.param


@pytest.fixture
def binding():
    return 'GRPC'


@pytest.fixture
async def stub(http, gateway, calls):
    async with channels(http.headers['Authorization'])(gateway.url) as channel:
        yield calls.stub(channel)


async def test_a_stream_that_was_cut_goes_on_after_its_cursor(stub, calls):
    call = stub.SendStreamingMessage(calls.message('scn:text n=6 delay=30 text="one two three four five six"'))
    seen = [await call.read() for _ in range(3)]
    call.cancel()
    resumed = calls.subscribe(
        stub, seen[0].task.id, metadata=[('last-event-id', cursor(seen[-1]))], timeout=PATIENCE
    )
    rest = [event async for event in resumed]
    assert not any(event.HasField('task') for event in rest), rest
    # An empty last chunk of 0.3 has no cursor of its own.
    cursors = [cursor(event) for event in [*seen, *rest] if 'longshore' in metadata(event)]
    numbers = [int(cursor.split('.')[0]) for cursor in cursors]
    assert numbers == sorted(set(numbers)), numbers
    assert rest[-1].status_update.status.state == a2a_pb2.TASK_STATE_COMPLETED, rest[-1]


async def test_a_deadline_ends_the_call_and_not_the_task(stub, calls):
    call = stub.SendStreamingMessage(calls.message('scn:forever delay=20'), timeout=1.5)
    task = None
    with pytest.raises(grpc.aio.AioRpcError) as error:
        async for event in call:
            task = task or event.task.id
    assert error.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    found = await stub.GetTask(calls.task(task))
    assert found.status.state == a2a_pb2.TASK_STATE_WORKING
    await stub.CancelTask(calls.cancel(task))


async def test_a_call_without_a_credential_is_refused(gateway, calls):
    async with channels()(gateway.url) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await calls.stub(channel).GetTask(calls.task('x'))
    assert error.value.code() == grpc.StatusCode.UNAUTHENTICATED
    assert reason(error.value) == (DOMAIN, 'UNAUTHENTICATED')


async def test_errors_have_the_reason_that_the_sdks_map(stub, calls):
    call = stub.SendStreamingMessage(calls.message('scn:text n=1'), timeout=PATIENCE)
    task = [event async for event in call][-1].status_update.task_id
    for call, code, word in [
        (stub.GetTask(calls.task('no-such-task')), grpc.StatusCode.NOT_FOUND, 'TASK_NOT_FOUND'),
        (calls.subscribe(stub, 'no-such-task').read(), grpc.StatusCode.NOT_FOUND, 'TASK_NOT_FOUND'),
        (stub.CancelTask(calls.cancel(task)), grpc.StatusCode.FAILED_PRECONDITION, 'TASK_NOT_CANCELABLE'),
        (stub.SendMessage(calls.empty()), grpc.StatusCode.INVALID_ARGUMENT, 'INVALID_PARAMS'),
    ]:
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await call
        assert (error.value.code(), reason(error.value)) == (code, (DOMAIN, word)), error.value
