"""Push configurations with the official SDK, in both versions and over both bindings."""

import httpx
import pytest

from a2a.client.card_resolver import A2ACardResolver
from a2a.types import (
    AuthenticationInfo,
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigsRequest,
    TaskPushNotificationConfig,
)
from a2a.utils.errors import TaskNotFoundError

from sdk import ask, send

# Nothing listens there: these tests look at the configurations only.
URL = 'http://127.0.0.1:1025/hook'


def config(**fields):
    secret = AuthenticationInfo(scheme='Bearer', credentials='planted-credentials')
    return TaskPushNotificationConfig(url=URL, token='planted-token', authentication=secret, **fields)


@pytest.fixture(params=['1.0', '0.3'])
async def card(request, gateway, card):
    """The card of both versions, of which the SDK takes 1.0, and that of 0.3."""
    if request.param == '1.0':
        return card
    async with httpx.AsyncClient(timeout=60, trust_env=False) as client:
        return await A2ACardResolver(client, f'{gateway.url}/a2a/0.3').get_agent_card()


# The SDK does not offer these two over REST of 0.3.
def is_whole(card, binding):
    return binding == 'JSONRPC' or card.supported_interfaces[0].protocol_version == '1.0'


async def test_a_configuration_is_created_read_listed_and_deleted(connect, card, binding):
    assert card.capabilities.push_notifications
    client = connect(streaming=False)
    task = await send(client, ask('scn:text n=1'))
    created = await client.create_task_push_notification_config(config(task_id=task.id, id='hook'))
    assert (created.task_id, created.id, created.url) == (task.id, 'hook', URL)
    assert (created.authentication.scheme, created.authentication.credentials, created.token) == ('Bearer', '', '')
    read = GetTaskPushNotificationConfigRequest(task_id=task.id, id='hook')
    assert await client.get_task_push_notification_config(read) == created
    if is_whole(card, binding):
        listed = await client.list_task_push_notification_configs(
            ListTaskPushNotificationConfigsRequest(task_id=task.id)
        )
        assert list(listed.configs) == [created]
        await client.delete_task_push_notification_config(
            DeleteTaskPushNotificationConfigRequest(task_id=task.id, id='hook')
        )
        with pytest.raises(TaskNotFoundError):
            await client.get_task_push_notification_config(read)


async def test_a_send_brings_its_configuration(connect):
    client = connect(streaming=False)
    task = await send(client, ask('scn:text n=1', task_push_notification_config=config(id='hook')))
    read = GetTaskPushNotificationConfigRequest(task_id=task.id, id='hook')
    assert (await client.get_task_push_notification_config(read)).url == URL
