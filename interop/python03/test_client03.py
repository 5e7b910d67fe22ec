"""`longshore call` and the other commands against a server of the last Python SDK that supports only 0.3."""

import json
import os
import subprocess

import pytest

from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler, JSONRPCHandler
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    CancelTaskRequest,
    GetTaskRequest,
    JSONRPCErrorResponse,
    MethodNotFoundError,
    Part,
    SendMessageRequest,
    SendStreamingMessageRequest,
    TaskResubscriptionRequest,
    TextPart,
)
from a2a.utils import new_agent_text_message, new_task

from gateway import binary
from http_server import Server


class Agent(AgentExecutor):
    """Answers in pieces, and asks first if the message says so."""

    async def execute(self, context, queue):
        task = context.current_task
        if task is None:
            # Without a time in its status, as the SDK makes it.
            task = new_task(context.message)
            await queue.enqueue_event(task)
        updater = TaskUpdater(queue, task.id, task.context_id)
        await updater.start_work()
        text = context.get_user_input()
        if text == 'ask':
            message = new_agent_text_message('Which colour?', task.context_id, task.id)
            await updater.requires_input(message, final=True)
            return
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


@pytest.fixture(scope='module')
def agent():
    server = Server()
    yield server.start(answer)
    server.stop()


def answer(url):
    card = AgentCard(
        name='Echo',
        description='Repeats what it is told.',
        version='1',
        url=url,
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=['text/plain'],
        default_output_modes=['text/plain'],
        skills=[],
    )
    handler = JSONRPCHandler(card, DefaultRequestHandler(Agent(), InMemoryTaskStore()))
    single = {
        'message/send': (SendMessageRequest, handler.on_message_send),
        'tasks/get': (GetTaskRequest, handler.on_get_task),
        'tasks/cancel': (CancelTaskRequest, handler.on_cancel_task),
    }
    streams = {
        'message/stream': (SendStreamingMessageRequest, handler.on_message_send_stream),
        'tasks/resubscribe': (TaskResubscriptionRequest, handler.on_resubscribe_to_task),
    }

    def written(model):
        return model.model_dump_json(by_alias=True, exclude_none=True).encode()

    async def one(body):
        yield body

    async def events(stream):
        async for event in stream:
            yield b'data: ' + written(event) + b'\n\n'

    async def reply(method, path, headers, body):
        if method == 'GET':
            found = path == '/.well-known/agent-card.json'
            return (200 if found else 404), [('content-type', 'application/json')], one(written(card))
        request = json.loads(body)
        if request['method'] in streams:
            model, call = streams[request['method']]
            stream = call(model.model_validate(request))
            return 200, [('content-type', 'text/event-stream')], events(stream)
        if request['method'] not in single:
            error = JSONRPCErrorResponse(id=request['id'], error=MethodNotFoundError())
            return 200, [('content-type', 'application/json')], one(written(error))
        model, call = single[request['method']]
        return 200, [('content-type', 'application/json')], one(written(await call(model.model_validate(request))))

    return reply


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
    again = run(tmp_path, 'tasks', 'watch', task, '--url', agent)
    assert (again.returncode, again.stdout) == (0, 'You said: blue.\n'), again.stderr


def test_a_list_says_that_the_agent_has_none(agent, tmp_path):
    listed = run(tmp_path, 'tasks', 'list', '--url', agent)
    assert listed.returncode == 1 and listed.stderr.startswith('error: '), listed
