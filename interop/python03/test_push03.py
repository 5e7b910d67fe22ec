"""Push configurations with the official SDK of 0.3, over both bindings. It can neither list nor delete them."""

from a2a.types import (
    GetTaskPushNotificationConfigParams,
    PushNotificationAuthenticationInfo,
    PushNotificationConfig,
    TaskPushNotificationConfig,
)

from test_sdk03 import ask, send

# Nothing listens there: these tests look at the configurations only.
URL = 'http://127.0.0.1:1025/hook'


def config(**fields):
    secret = PushNotificationAuthenticationInfo(schemes=['Bearer'], credentials='planted-credentials')
    return PushNotificationConfig(url=URL, token='planted-token', authentication=secret, **fields)


def check(found, task, identifier):
    shown = found.push_notification_config
    assert (found.task_id, shown.id, shown.url) == (task.id, identifier, URL)
    assert shown.authentication.schemes == ['Bearer']
    assert not shown.authentication.credentials and not shown.token


async def test_a_configuration_is_created_and_read(connect):
    client = connect(streaming=False)
    task = await send(client, ask('scn:text n=1'))
    wanted = TaskPushNotificationConfig(task_id=task.id, push_notification_config=config(id='hook'))
    check(await client.set_task_callback(wanted), task, 'hook')
    read = GetTaskPushNotificationConfigParams(id=task.id, push_notification_config_id='hook')
    check(await client.get_task_callback(read), task, 'hook')


async def test_a_send_brings_its_configuration(connect):
    client = connect(push_notification_configs=[config(id='hook')], streaming=False)
    task = await send(client, ask('scn:text n=1'))
    read = GetTaskPushNotificationConfigParams(id=task.id, push_notification_config_id='hook')
    check(await client.get_task_callback(read), task, 'hook')
