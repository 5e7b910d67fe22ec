"""Helpers for tests with the official SDK."""

import uuid

from a2a.helpers.proto_helpers import get_text_parts, new_data_part, new_text_part
from a2a.types import Message, Role, SendMessageConfiguration, SendMessageRequest


def ask(content, *, context_id=None, task_id=None, **configuration):
    """A request with one text or data part."""
    part = new_text_part(content) if isinstance(content, str) else new_data_part(content)
    message = Message(
        message_id=str(uuid.uuid4()),
        role=Role.ROLE_USER,
        parts=[part],
        context_id=context_id,
        task_id=task_id,
    )
    return SendMessageRequest(message=message, configuration=SendMessageConfiguration(**configuration))


def texts(task):
    """The name and text of each artifact of a task."""
    return [(artifact.name, ''.join(get_text_parts(artifact.parts))) for artifact in task.artifacts]


async def send(client, request):
    """Sends a message, waits for the end and returns the task."""
    [answer] = [event async for event in client.send_message(request)]
    assert answer.HasField('task'), f'expected a task, got {answer}'
    return answer.task


async def gather(stream):
    return [event async for event in stream]


def fold(events):
    """Applies the events of a stream and returns the resulting task."""
    assert events[0].HasField('task'), f'expected a task first, got {events[0]}'
    task = type(events[0].task)()
    task.CopyFrom(events[0].task)
    for event in events[1:]:
        if event.HasField('status_update'):
            task.status.CopyFrom(event.status_update.status)
            continue
        assert event.HasField('artifact_update'), f'expected an update, got {event}'
        update = event.artifact_update
        known = next((a for a in task.artifacts if a.artifact_id == update.artifact.artifact_id), None)
        if known is None:
            task.artifacts.append(update.artifact)
        elif update.append:
            known.parts.extend(update.artifact.parts)
        else:
            known.CopyFrom(update.artifact)
    return task
