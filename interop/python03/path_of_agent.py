"""The path of `interop/python/path_of_agent.py`, with the client of A2A 0.3."""

import contextlib
import uuid

from a2a.types import TaskArtifactUpdateEvent, TaskIdParams, TaskQueryParams, TaskState

from test_sdk03 import ask, blocks, send, stream


def said(task):
    """What the agent said, without its tool calls."""
    return ''.join(text for kind, text in blocks(task) if kind == 'text')


async def test_before_restart(connect, gateway, binding):
    client, streaming, polling = connect(streaming=False), connect(), connect(streaming=False, polling=True)

    sent = await send(client, ask('scn:text n=3 text="The tide turns at six."'))
    assert (sent.status.state, said(sent)) == (TaskState.completed, 'The tide turns at six.'), sent
    context = sent.context_id

    # Streams.
    prompt = ask('scn:text n=6 text="Anchors aweigh, and off we go."', context_id=context)
    streamed, _ = await stream(streaming.send_message(prompt))
    stored = await client.get_task(TaskQueryParams(id=streamed.id))
    assert said(stored) == 'Anchors aweigh, and off we go.', stored
    assert (said(streamed), streamed.status.state) == (said(stored), stored.status.state)

    # Loses a stream, and reads the rest from a new one.
    async with contextlib.aclosing(
        streaming.send_message(ask('scn:text n=60 delay=50', context_id=context))
    ) as events:
        async for task, update in events:
            if isinstance(update, TaskArtifactUpdateEvent):
                break
    resumed, _ = await stream(streaming.resubscribe(TaskIdParams(id=task.id)))
    stored = await client.get_task(TaskQueryParams(id=task.id))
    assert (resumed.status.state, said(resumed)) == (TaskState.completed, said(stored)), resumed

    # Cancels.
    running = await send(polling, ask('scn:forever delay=20', context_id=context))
    async with contextlib.aclosing(streaming.resubscribe(TaskIdParams(id=running.id))) as events:
        async for _, update in events:
            if isinstance(update, TaskArtifactUpdateEvent):
                break
    canceled = await client.cancel_task(TaskIdParams(id=running.id))
    assert canceled.status.state == TaskState.canceled, canceled

    # Answers permission requests.
    for answer, is_allowed in (('once', True), ('reject', False)):
        name = str(uuid.uuid4())
        waiting = await send(client, ask(gateway.touch.replace('FILE', name), context_id=context))
        assert waiting.status.state == TaskState.input_required, waiting
        assert not (gateway.workspace / name).exists()
        answered = await send(client, ask(answer, task_id=waiting.id, context_id=context))
        assert (answered.id, answered.status.state) == (waiting.id, TaskState.completed), answered
        assert (gateway.workspace / name).exists() == is_allowed, answered

    again = await send(client, ask('scn:text n=2 text="once more"', context_id=context))
    assert (again.status.state, said(again)) == (TaskState.completed, 'once more'), again
    gateway.note(binding, context)


async def test_after_restart(connect, gateway, binding):
    context = gateway.context(binding)
    task = await send(connect(streaming=False), ask('scn:text n=2 text="after the restart"', context_id=context))
    assert (task.status.state, task.context_id) == (TaskState.completed, context), task
    assert said(task) == 'after the restart', task
