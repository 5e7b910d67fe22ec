"""`longshore call` and the other commands against a server of the last Python SDK that supports only 0.3."""

import asyncio
import json
import types

import grpc
import pytest

from a2a.grpc import a2a_pb2_grpc
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler, GrpcHandler, JSONRPCHandler, RESTHandler
from a2a.server.tasks import InMemoryPushNotificationConfigStore, InMemoryTaskStore, TaskUpdater
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetAuthenticatedExtendedCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    JSONRPCErrorResponse,
    ListTaskPushNotificationConfigRequest,
    MethodNotFoundError,
    Part,
    SendMessageRequest,
    SendStreamingMessageRequest,
    SetTaskPushNotificationConfigRequest,
    TaskResubscriptionRequest,
    TextPart,
)
from a2a.utils import new_agent_text_message, new_task
from a2a.utils.error_handlers import A2AErrorToHttpStatus
from a2a.utils.errors import ServerError

from commands import Commands, path
from http_server import Server


class Agent(AgentExecutor):
    """See commands.py."""

    async def execute(self, context, queue):
        text = context.get_user_input()
        if text == 'message':
            await queue.enqueue_event(new_agent_text_message('Only a message.'))
            return
        task = context.current_task
        if task is None:
            # Without a time in its status, as the SDK makes it.
            task = new_task(context.message)
            await queue.enqueue_event(task)
        updater = TaskUpdater(queue, task.id, task.context_id)
        await updater.start_work()
        if text == 'ask':
            message = new_agent_text_message('Which colour?', task.context_id, task.id)
            await updater.requires_input(message, final=True)
            return
        if text == 'fail':
            await updater.failed(new_agent_text_message('Because.', task.context_id, task.id))
            return
        if text == 'wait':
            await asyncio.Event().wait()
        pieces = ['You said: ', text, '.']
        for index, piece in enumerate(pieces):
            await updater.add_artifact(
                [Part(root=TextPart(text=piece))],
                artifact_id='answer',
                append=index > 0,
                last_chunk=index == len(pieces) - 1,
            )
        await updater.complete()

    async def cancel(self, context, queue):
        await TaskUpdater(queue, context.task_id, context.context_id).cancel()


def card(url, binding, description='Repeats what it is told.'):
    return AgentCard(
        name='Echo',
        description=description,
        version='1',
        url=url,
        preferred_transport=binding,
        capabilities=AgentCapabilities(streaming=True, push_notifications=True),
        supports_authenticated_extended_card=True,
        default_input_modes=['text/plain'],
        default_output_modes=['text/plain'],
        skills=[],
    )


def written(model):
    return model.model_dump_json(by_alias=True, exclude_none=True).encode()


async def one(body):
    yield body


JSON = [('content-type', 'application/json')]
EVENTS = [('content-type', 'text/event-stream')]


def jsonrpc(described, requests, longer):
    """The methods of the SDK's JSON-RPC server. Its application needs a server package."""
    handler = JSONRPCHandler(described, requests, extended_agent_card=longer)
    single = {
        'message/send': (SendMessageRequest, handler.on_message_send),
        'tasks/get': (GetTaskRequest, handler.on_get_task),
        'tasks/cancel': (CancelTaskRequest, handler.on_cancel_task),
        'tasks/pushNotificationConfig/set': (
            SetTaskPushNotificationConfigRequest,
            handler.set_push_notification_config,
        ),
        'tasks/pushNotificationConfig/get': (
            GetTaskPushNotificationConfigRequest,
            handler.get_push_notification_config,
        ),
        'tasks/pushNotificationConfig/list': (
            ListTaskPushNotificationConfigRequest,
            handler.list_push_notification_config,
        ),
        'tasks/pushNotificationConfig/delete': (
            DeleteTaskPushNotificationConfigRequest,
            handler.delete_push_notification_config,
        ),
        'agent/getAuthenticatedExtendedCard': (
            GetAuthenticatedExtendedCardRequest,
            handler.get_authenticated_extended_card,
        ),
    }
    streams = {
        'message/stream': (SendStreamingMessageRequest, handler.on_message_send_stream),
        'tasks/resubscribe': (TaskResubscriptionRequest, handler.on_resubscribe_to_task),
    }

    async def events(stream):
        async for event in stream:
            yield b'data: ' + written(event) + b'\n\n'

    async def reply(_method, _path, _headers, body):
        request = json.loads(body)
        # As the SDK reads it.
        if request.get('params') == {}:
            del request['params']
        if request['method'] in streams:
            model, call = streams[request['method']]
            return 200, EVENTS, events(call(model.model_validate(request)))
        if request['method'] not in single:
            return 200, JSON, one(written(JSONRPCErrorResponse(id=request['id'], error=MethodNotFoundError())))
        model, call = single[request['method']]
        return 200, JSON, one(written(await call(model.model_validate(request))))

    return reply


def rest(described, requests, longer):
    """The paths of the SDK's REST server, and its errors."""
    handler = RESTHandler(described, requests)
    tasks = '/v1/tasks/'

    async def longer_card(_request, _context):
        return longer.model_dump(mode='json', by_alias=True, exclude_none=True)

    def found(method, path):
        """The function for a request, whether it streams, and the ids in the path."""
        if path in ('/v1/message:send', '/v1/message:stream', '/v1/card', '/v1/tasks'):
            function = {
                '/v1/message:send': handler.on_message_send,
                '/v1/message:stream': handler.on_message_send_stream,
                '/v1/card': longer_card,
                '/v1/tasks': handler.list_tasks,
            }[path]
            return function, path.endswith(':stream'), {}
        if not path.startswith(tasks):
            return None, False, {}
        task, _, rest = path.removeprefix(tasks).partition('/')
        if rest:
            push = rest.removeprefix('pushNotificationConfigs').removeprefix('/')
            names = {
                ('POST', False): handler.set_push_notification,
                ('GET', False): handler.list_push_notifications,
                ('GET', True): handler.get_push_notification,
            }
            return names.get((method, bool(push))), False, {'id': task, 'push_id': push}
        task, _, verb = task.partition(':')
        names = {
            ('GET', ''): handler.on_get_task,
            ('POST', 'cancel'): handler.on_cancel_task,
            ('GET', 'subscribe'): handler.on_resubscribe_to_task,
        }
        return names.get((method, verb)), verb == 'subscribe', {'id': task}

    async def events(stream):
        async for event in stream:
            yield b'data: ' + event.replace('\n', ' ').encode() + b'\n\n'

    async def reply(method, path, _headers, body):
        path, _, query = path.partition('?')
        function, streams, ids = found(method, path)
        if function is None:
            return 405, JSON, one(b'{"detail": "Method Not Allowed"}')

        async def whole():
            return body

        request = types.SimpleNamespace(body=whole, path_params=ids, query_params=dict(), query=query)
        try:
            result = function(request, None)
            if streams:
                return 200, EVENTS, events(result)
            return 200, JSON, one(json.dumps(await result).encode())
        except ServerError as error:
            said = {'message': error.error.message}
            return A2AErrorToHttpStatus.get(type(error.error), 500), JSON, one(json.dumps(said).encode())
        except Exception as error:
            return 500, JSON, one(json.dumps({'message': f'unknown exception: {error}'}).encode())

    return reply


@pytest.mark.parametrize('binding', ['HTTP+JSON', *(pytest.param(name, marks=pytest.mark.long) for name in ('JSONRPC', 'GRPC'))])
def test_every_command_works_with_an_agent_of_the_old_python_sdk(binding, tmp_path):
    # The loop keeps no reference to its tasks, and nothing else one to the server.
    running = []

    def answer(url):
        services = grpc.aio.server()
        called = url
        if binding == 'GRPC':
            called = f'127.0.0.1:{services.add_insecure_port("127.0.0.1:0")}'
        described = card(called, binding)
        longer = card(called, binding, 'Repeats what it is told, and more.')
        webhooks = InMemoryPushNotificationConfigStore()
        requests = DefaultRequestHandler(Agent(), InMemoryTaskStore(), push_config_store=webhooks)
        reply = (jsonrpc if binding == 'JSONRPC' else rest)(described, requests, longer)
        if binding == 'GRPC':
            a2a_pb2_grpc.add_A2AServiceServicer_to_server(GrpcHandler(described, requests), services)
            running.extend([services, asyncio.ensure_future(services.start())])

        async def all_of_it(method, path, headers, body):
            if path.startswith('/.well-known/'):
                status = 200 if path == '/.well-known/agent-card.json' else 404
                return status, JSON, one(written(described))
            return await reply(method, path, headers, body)

        return all_of_it

    server = Server()
    url = server.start(answer)
    try:
        # Over REST and gRPC the SDK neither lists nor removes webhooks.
        is_rpc = binding == 'JSONRPC'
        abilities = {'lists': False, 'lists_webhooks': is_rpc, 'removes_webhooks': is_rpc}
        # Over gRPC the SDK has one card for everybody.
        abilities['extends_cards'] = binding != 'GRPC'
        # The SDK does not tell the first stream that its task was canceled, so the command notices it when it looks at the task.
        soon = {'A2A_CLIENT_TIMEOUT_SECONDS': '5'}
        path(Commands(url, tmp_path, **abilities, variables=soon))
    finally:
        server.stop()
