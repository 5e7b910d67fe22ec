"""`longshore call` and the other commands against a server of the official Python SDK, over every binding."""

import json
import os
import subprocess

import pytest

from a2a.helpers import new_text_message, new_text_part, new_task_from_user_message
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, Role
from starlette.applications import Starlette

from gateway import binary
from http_server import Server, asgi


class Agent(AgentExecutor):
    """Answers in pieces, and asks first if the message says so."""

    async def execute(self, context, queue):
        task = context.current_task
        if task is None:
            task = new_task_from_user_message(context.message)
            await queue.enqueue_event(task)
        updater = TaskUpdater(queue, task.id, task.context_id)
        await updater.start_work()
        text = context.get_user_input()
        if text == 'ask':
            ids = {'context_id': task.context_id, 'task_id': task.id}
            await updater.requires_input(new_text_message('Which colour?', role=Role.ROLE_AGENT, **ids))
            return
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


def card(url, binding, version):
    return AgentCard(
        name='Echo',
        description='Repeats what it is told.',
        version='1',
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=['text/plain'],
        default_output_modes=['text/plain'],
        supported_interfaces=[AgentInterface(url=url, protocol_binding=binding, protocol_version=version)],
    )


@pytest.fixture(params=[('JSONRPC', '1.0'), ('HTTP+JSON', '1.0'), ('JSONRPC', '0.3')], ids='-'.join)
def agent(request):
    binding, version = request.param

    def answer(url):
        described = card(url, binding, version)
        handler = DefaultRequestHandler(Agent(), InMemoryTaskStore(), described)
        is_old = version == '0.3'
        calls = (
            create_jsonrpc_routes(handler, '/', enable_v0_3_compat=is_old)
            if binding == 'JSONRPC'
            else create_rest_routes(handler)
        )
        return asgi(Starlette(routes=[*create_agent_card_routes(described), *calls]))

    server = Server()
    yield server.start(answer)
    server.stop()


def run(tmp_path, *words):
    """A command that knows nothing but the URL."""
    environment = {'PATH': os.environ['PATH'], 'HOME': str(tmp_path)}
    options = {'capture_output': True, 'text': True, 'stdin': subprocess.DEVNULL, 'timeout': 60}
    return subprocess.run([binary(), *words], env=environment, cwd=tmp_path, **options)


def test_an_answer_in_pieces_is_printed_once(agent, tmp_path):
    called = run(tmp_path, 'call', agent, 'hello')
    assert (called.returncode, called.stdout) == (0, 'You said: hello.\n'), called.stderr


def test_an_ask_is_answered_later(agent, tmp_path):
    asked = run(tmp_path, 'call', agent, 'ask')
    assert asked.returncode == 3, asked.stderr
    assert 'Which colour?' in asked.stderr
    printed = next(line for line in asked.stderr.splitlines() if line.startswith('To answer later: longshore '))
    task = printed.split()[6]
    answered = run(tmp_path, 'asks', 'answer', task, 'blue', '--url', agent)
    assert (answered.returncode, answered.stdout) == (0, 'You said: blue.\n'), answered.stderr
    shown = run(tmp_path, 'tasks', 'get', task, '--url', agent, '--output', 'json')
    assert json.loads(shown.stdout)['status']['state'] == 'TASK_STATE_COMPLETED', shown.stderr


def test_the_card_is_read(agent, tmp_path):
    shown = run(tmp_path, 'card', agent)
    assert (shown.returncode, shown.stdout.splitlines()[0]) == (0, 'Echo 1'), shown.stderr
