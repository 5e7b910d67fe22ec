"""Push notifications, read with the types of the official SDK of 0.3."""

from a2a.types import PushNotificationAuthenticationInfo, PushNotificationConfig, Task, TaskState

from hooks import hook  # noqa: F401 (pytest finds fixtures by name)
from test_sdk03 import ask, send


async def test_a_notification_is_the_task(connect, hook):  # noqa: F811
    secret = PushNotificationAuthenticationInfo(schemes=['Bearer'], credentials='knows-me')
    config = PushNotificationConfig(url=hook.url, token='told', authentication=secret)
    client = connect(push_notification_configs=[config], streaming=False)
    task = await send(client, ask('scn:text n=2'))
    headers, body = await hook.next()

    told = Task.model_validate_json(body)
    assert (told.kind, told.id, told.context_id) == ('task', task.id, task.context_id)
    assert told.status.state == TaskState.completed
    assert told.artifacts
    assert (headers['authorization'], headers['x-a2a-notification-token']) == ('Bearer knows-me', 'told')
