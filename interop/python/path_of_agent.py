"""One path through what a caller does with an agent, with the client of A2A 1.0. For any agent: no text names one.

The matrix of `make test-long` runs it: `before_restart`, then the gateway is restarted, then `after_restart`.
"""

import contextlib
import uuid

from a2a.types import CancelTaskRequest, GetTaskRequest, SubscribeToTaskRequest, TaskState

from sdk import ask, fold, gather, send, texts

COMPLETED = TaskState.TASK_STATE_COMPLETED


def said(task):
    """What the agent said, without its tool calls."""
    return ''.join(text for name, text in texts(task) if name == 'text')


async def test_before_restart(connect, gateway, binding):
    client, streaming = connect(streaming=False), connect()

    sent = await send(client, ask('scn:text n=3 text="The tide turns at six."'))
    assert (sent.status.state, said(sent)) == (COMPLETED, 'The tide turns at six.'), sent
    context = sent.context_id

    # Streams.
    prompt = ask('scn:text n=6 text="Anchors aweigh, and off we go."', context_id=context)
    streamed = fold(await gather(streaming.send_message(prompt)))
    stored = await client.get_task(GetTaskRequest(id=streamed.id))
    assert said(stored) == 'Anchors aweigh, and off we go.', stored
    assert (texts(streamed), streamed.status) == (texts(stored), stored.status)

    # Loses a stream, and reads the rest from a new one.
    async with contextlib.aclosing(
        streaming.send_message(ask('scn:text n=60 delay=50', context_id=context))
    ) as events:
        async for event in events:
            if event.HasField('artifact_update'):
                lost = event.artifact_update.task_id
                break
    resumed = fold(await gather(streaming.subscribe(SubscribeToTaskRequest(id=lost))))
    stored = await client.get_task(GetTaskRequest(id=lost))
    assert (resumed.status.state, texts(resumed)) == (COMPLETED, texts(stored)), resumed

    # Cancels.
    running = await send(client, ask('scn:forever delay=20', context_id=context, return_immediately=True))
    async with contextlib.aclosing(streaming.subscribe(SubscribeToTaskRequest(id=running.id))) as events:
        async for event in events:
            if event.HasField('artifact_update'):
                break
    canceled = await client.cancel_task(CancelTaskRequest(id=running.id))
    assert canceled.status.state == TaskState.TASK_STATE_CANCELED, canceled

    # Answers permission requests.
    for answer, is_allowed in (('once', True), ('reject', False)):
        name = str(uuid.uuid4())
        waiting = await send(client, ask(gateway.touch.replace('FILE', name), context_id=context))
        assert waiting.status.state == TaskState.TASK_STATE_INPUT_REQUIRED, waiting
        assert not (gateway.workspace / name).exists()
        answered = await send(client, ask(answer, task_id=waiting.id))
        assert (answered.id, answered.status.state) == (waiting.id, COMPLETED), answered
        assert (gateway.workspace / name).exists() == is_allowed, answered

    again = await send(client, ask('scn:text n=2 text="once more"', context_id=context))
    assert (again.status.state, said(again)) == (COMPLETED, 'once more'), again
    gateway.note(binding, context)


async def test_after_restart(connect, gateway, binding):
    context = gateway.context(binding)
    task = await send(connect(streaming=False), ask('scn:text n=2 text="after the restart"', context_id=context))
    assert (task.status.state, task.context_id) == (COMPLETED, context), task
    assert said(task) == 'after the restart', task
