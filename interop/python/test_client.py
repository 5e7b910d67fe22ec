"""`longshore call` and the other commands against a server of the official Python SDK, and the one of JavaScript."""

import asyncio
import pathlib
import subprocess

import grpc
import pytest

from a2a.compat.v0_3 import a2a_v0_3_pb2_grpc
from a2a.compat.v0_3.grpc_handler import CompatGrpcHandler
from a2a.helpers import new_task_from_user_message, new_text_message, new_text_part
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler, GrpcHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryPushNotificationConfigStore, InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Role, a2a_pb2_grpc
from starlette.applications import Starlette

from commands import Commands, path
from http_server import Server, asgi

JAVASCRIPT = pathlib.Path(__file__).resolve().parents[1] / 'js' / 'agent.mjs'


def matrix(*quick):
    """Every binding and version. Those that are not named here run in `make test-long` only."""
    cases = [(binding, version) for version in ('1.0', '0.3') for binding in ('JSONRPC', 'HTTP+JSON', 'GRPC')]
    return [
        pytest.param(*case, id='-'.join(case), marks=[] if case in quick else [pytest.mark.long]) for case in cases
    ]


class Agent(AgentExecutor):
    """See commands.py."""

    async def execute(self, context, queue):
        text = context.get_user_input()
        task = context.current_task
        if text == 'message':
            await queue.enqueue_event(new_text_message('Only a message.', role=Role.ROLE_AGENT))
            return
        if task is None:
            task = new_task_from_user_message(context.message)
            await queue.enqueue_event(task)
        updater = TaskUpdater(queue, task.id, task.context_id)
        ids = {'context_id': task.context_id, 'task_id': task.id}
        await updater.start_work()
        if text == 'ask':
            await updater.requires_input(new_text_message('Which colour?', role=Role.ROLE_AGENT, **ids))
            return
        if text == 'fail':
            await updater.failed(new_text_message('Because.', role=Role.ROLE_AGENT, **ids))
            return
        if text == 'wait':
            await asyncio.Event().wait()
        pieces = ['You said: ', text, '.']
        for index, piece in enumerate(pieces):
            await updater.add_artifact(
                [new_text_part(piece)],
                artifact_id='answer',
                append=index > 0,
                last_chunk=index == len(pieces) - 1,
            )
        await updater.complete()

    async def cancel(self, context, queue):
        await TaskUpdater(queue, context.task_id, context.context_id).cancel()


def card(url, binding, version, description='Repeats what it is told.'):
    return AgentCard(
        name='Echo',
        description=description,
        version='1',
        capabilities=AgentCapabilities(streaming=True, push_notifications=True, extended_agent_card=True),
        default_input_modes=['text/plain'],
        default_output_modes=['text/plain'],
        skills=[AgentSkill(id='echo', name='Echo', description=description, tags=['echo'])],
        supported_interfaces=[AgentInterface(url=url, protocol_binding=binding, protocol_version=version)],
    )


async def any_url(_url):
    """The SDK refuses webhooks on this machine otherwise."""
    return True


@pytest.mark.parametrize(('binding', 'version'), matrix(('JSONRPC', '1.0')))
def test_every_command_works_with_an_agent_of_the_python_sdk(binding, version, tmp_path):
    # The loop keeps no reference to its tasks, and nothing else one to the server.
    running = []

    def answer(url):
        services = grpc.aio.server()
        if binding == 'GRPC':
            url = f'127.0.0.1:{services.add_insecure_port("127.0.0.1:0")}'
        described = card(url, binding, version)
        handler = DefaultRequestHandler(
            Agent(),
            InMemoryTaskStore(),
            described,
            push_config_store=InMemoryPushNotificationConfigStore(),
            push_url_validator=any_url,
            extended_agent_card=card(url, binding, version, 'Repeats what it is told, and more.'),
        )
        is_old = version == '0.3'
        calls = []
        if binding == 'JSONRPC':
            calls = create_jsonrpc_routes(handler, '/', enable_v0_3_compat=is_old)
        elif binding == 'HTTP+JSON':
            calls = create_rest_routes(handler, enable_v0_3_compat=is_old)
        elif is_old:
            a2a_v0_3_pb2_grpc.add_A2AServiceServicer_to_server(CompatGrpcHandler(handler), services)
        else:
            a2a_pb2_grpc.add_A2AServiceServicer_to_server(GrpcHandler(handler), services)
        if binding == 'GRPC':
            running.extend([services, asyncio.ensure_future(services.start())])
        return asgi(Starlette(routes=[*create_agent_card_routes(described), *calls]))

    server = Server()
    url = server.start(answer)
    try:
        # 0.3 has a list of tasks over REST only, and the SDK lacks it there, as it lacks the removal of webhooks.
        removes = (binding, version) != ('HTTP+JSON', '0.3')
        path(Commands(url, tmp_path, lists=version == '1.0', removes_webhooks=removes))
    finally:
        server.stop()


@pytest.mark.parametrize(('binding', 'version'), matrix(('GRPC', '0.3')))
def test_every_command_works_with_an_agent_of_the_javascript_sdk(binding, version, tmp_path):
    node = ['node', str(JAVASCRIPT), binding, version]
    with subprocess.Popen(node, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as agent:
        try:
            name, _, url = agent.stdout.readline().strip().partition(' ')
            assert name == 'url', f'the agent did not print its URL but {name!r}'
            # Over REST of 0.3 the SDK takes `v1` for a tenant, and lists its tasks. Without users, it shows everybody the
            # public card.
            lists = True if version == '1.0' else None if binding == 'HTTP+JSON' else False
            path(Commands(url, tmp_path, lists=lists, extends_cards=False))
        finally:
            agent.kill()
