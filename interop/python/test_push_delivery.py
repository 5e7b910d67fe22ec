"""Push notifications, read with the types of the official SDK and checked with the library of Standard Webhooks."""

import pytest
from google.protobuf.json_format import Parse
from standardwebhooks import Webhook, WebhookVerificationError

from a2a.types import AuthenticationInfo, StreamResponse, TaskPushNotificationConfig, TaskState

from hooks import hook  # noqa: F401 (pytest finds fixtures by name)
from sdk import ask, send

SECRET = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw'


async def test_a_signed_notification_is_read_and_verified(connect, hook):  # noqa: F811
    secret = AuthenticationInfo(scheme='StandardWebhooks', credentials=SECRET)
    config = TaskPushNotificationConfig(id='hook', url=hook.url, token='told', authentication=secret)
    client = connect(streaming=False)
    task = await send(client, ask('scn:text n=2', task_push_notification_config=config))
    headers, body = await hook.next()

    update = Parse(body, StreamResponse()).status_update
    assert (update.task_id, update.context_id) == (task.id, task.context_id)
    assert update.status.state == TaskState.TASK_STATE_COMPLETED
    assert headers['x-a2a-notification-token'] == 'told'
    assert 'authorization' not in headers
    Webhook(SECRET).verify(body, headers)
    for changed in (body[:-1] + b' }', body.replace(b'COMPLETED', b'CANCELED')):
        with pytest.raises(WebhookVerificationError):
            Webhook(SECRET).verify(changed, headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(body, headers | {'webhook-id': 'evt_other'})


async def test_an_ask_and_the_end_are_told(connect, hook):  # noqa: F811
    secret = AuthenticationInfo(scheme='bearer', credentials='knows-me')
    config = TaskPushNotificationConfig(url=hook.url, authentication=secret)
    client = connect(streaming=False)
    question = 'scn:question q="Which way?" options="Left|Right" scn:text n=2'
    task = await send(client, ask(question, task_push_notification_config=config))
    told = [await hook.next()]
    await send(client, ask('Right', task_id=task.id, context_id=task.context_id))
    told.append(await hook.next())
    updates = [Parse(body, StreamResponse()).status_update for _, body in told]
    states = [TaskState.TASK_STATE_INPUT_REQUIRED, TaskState.TASK_STATE_COMPLETED]
    assert [update.status.state for update in updates] == states
    assert [headers['authorization'] for headers, _ in told] == ['Bearer knows-me'] * 2
    assert len({headers['webhook-id'] for headers, _ in told}) == 2
