"""Asks of OpenCode, answered with plain messages: this client activates no extension."""

import asyncio
import dataclasses
import re
import uuid

import pytest

from a2a.helpers.proto_helpers import get_text_parts
from a2a.types import CancelTaskRequest, GetTaskRequest, ListTasksRequest, SubscribeToTaskRequest, TaskState
from a2a.utils.errors import InvalidParamsError, UnsupportedOperationError

from sdk import ask, fold, gather, send, texts

# The answer of the demo model to `scn:text n=2`.
TEXT = 'anchor  ballast '

COMPLETED = TaskState.TASK_STATE_COMPLETED
FAILED = TaskState.TASK_STATE_FAILED
CANCELED = TaskState.TASK_STATE_CANCELED


@dataclasses.dataclass
class Scenario:
    """A turn with one ask. `{n}` is a unique name, `{outside}` a directory outside the workspace."""

    # The name of its recording.
    name: str
    prompt: str
    asked: str
    answer: object
    state: int = COMPLETED
    # The final text of the agent, or the reason of the failure.
    said: str = TEXT
    # Each tool call with its final status; and text in the result of the first one.
    calls: tuple = ()
    told: str = ''
    # A file that exists at the end. None: the file `{n}` does not exist.
    file: str | None = None


TOUCH = 'scn:bash cmd="touch {n}" scn:text n=2'
TO_TOUCH = 'The agent asks for permission to run: touch {n}'
OUTSIDE = 'asks for permission to work outside its directory'

SCENARIOS = [
    Scenario('permission_once', TOUCH, TO_TOUCH, 'once', calls=('bash completed',), file='{n}'),
    Scenario(
        'permission_always',
        'scn:read path="{outside}/one.txt" scn:read path="{outside}/two.txt" scn:text n=2',
        OUTSIDE,
        'always',
        calls=('read completed', 'read completed'),
        told='seen from afar',
    ),
    Scenario('permission_reject', TOUCH, TO_TOUCH, 'reject', FAILED, 'rejected permission', ('bash error',)),
    Scenario(
        'permission_reject_message',
        TOUCH,
        TO_TOUCH,
        'reject: list the files instead',
        calls=('bash error',),
        told='list the files instead',
    ),
    Scenario(
        'permission_reject_message, as data',
        TOUCH,
        TO_TOUCH,
        {'reply': 'reject', 'message': 'not today'},
        calls=('bash error',),
        told='not today',
    ),
    Scenario(
        'permission_edit',
        'scn:write path=guarded-{n} scn:text n=2',
        'asks for permission to edit: guarded-{n}',
        'once',
        calls=('write completed',),
        file='guarded-{n}',
    ),
    Scenario(
        'permission_external_directory',
        'scn:read path="{outside}/one.txt" scn:text n=2',
        OUTSIDE,
        'once',
        calls=('read completed',),
        told='seen from afar',
    ),
    Scenario(
        'question_answer',
        'scn:question q="Which way?" options="Left|Right" scn:text n=2',
        'The agent asks: Which way? (Left, Right)',
        'Right',
        calls=('question completed',),
        told='Right',
    ),
    Scenario(
        'question_answer, in own words',
        'scn:question q="Which way?" options="Left|Right" scn:text n=2',
        'The agent asks: Which way? (Left, Right)',
        'straight ahead',
        calls=('question completed',),
        told='straight ahead',
    ),
    Scenario(
        'question_multi',
        'scn:question q="Sails?" options="Jib|Main|Mizzen" n=2 multiple=1 scn:text n=2',
        'Sails? 1 (Jib, Main, Mizzen) Sails? 2',
        'Jib, Mizzen\nnone of these',
        calls=('question completed',),
        told='Jib, Mizzen',
    ),
    Scenario(
        'question_multi, as data',
        'scn:question q="Sails?" options="Jib|Main|Mizzen" n=2 multiple=1 scn:text n=2',
        'Sails? 1 (Jib, Main, Mizzen) Sails? 2',
        {'answers': [['Jib', 'Mizzen'], ['Main']]},
        calls=('question completed',),
        told='Jib, Mizzen',
    ),
    Scenario(
        'question_reject',
        'scn:question q="May I?" scn:text n=2',
        'The agent asks: May I?',
        'reject',
        FAILED,
        'dismissed this question',
        ('question error',),
    ),
    # The ask of a sub-agent, on the only task that the client knows.
    Scenario(
        'task_permission',
        r'scn:task desc=errand prompt="scn:bash cmd=\"touch {n}\" scn:text n=3" scn:text n=2',
        'A sub-agent asks for permission to run: touch {n}',
        'once',
        calls=('task completed',),
        told='anchor  ballast buoy ca ',
        file='{n}',
    ),
]


@pytest.fixture
def fill(gateway):
    """Replaces the placeholders in a text with unique names."""
    name = str(uuid.uuid4())
    outside = gateway.workspace.parent / f'outside-{name}'
    outside.mkdir()
    for file in ('one.txt', 'two.txt'):
        (outside / file).write_text('seen from afar\n')
    return lambda text: text.replace('{n}', name).replace('{outside}', str(outside))


def calls(task):
    """The data of each tool call."""
    return [a.parts[0].data.struct_value for a in task.artifacts if a.name.startswith('tool:')]


def said(task):
    """The text of the status message."""
    return ''.join(get_text_parts(task.status.message.parts))


def asked(task):
    """The text of the ask of a task that waits for its user."""
    assert task.status.state == TaskState.TASK_STATE_INPUT_REQUIRED, task
    assert 'Answer with a message on this task' in said(task), task
    return said(task)


@pytest.mark.parametrize('scenario', SCENARIOS, ids=lambda scenario: scenario.name)
async def test_an_ask_is_answered_by_a_plain_message(connect, gateway, fill, scenario):
    client = connect(streaming=False)
    waiting = await send(client, ask(fill(scenario.prompt)))
    assert fill(scenario.asked) in asked(waiting)
    # Only the status is compared: the tool call may have been updated since.
    assert (await client.get_task(GetTaskRequest(id=waiting.id))).status == waiting.status

    # The stream of the answer contains the rest of the task.
    answer = ask(scenario.answer, task_id=waiting.id)
    done = fold(await gather(connect().send_message(answer)))
    assert (done.id, done.status.state) == (waiting.id, scenario.state), done
    assert [f'{call["tool"]} {call["status"]}' for call in calls(done)] == list(scenario.calls), done
    first = calls(done)[0]
    result = first['output'] if 'output' in first.fields else first['error']
    assert scenario.told in result, done
    if scenario.state == COMPLETED:
        assert texts(done)[-1] == ('text', scenario.said), done
    else:
        assert scenario.said in said(done), done

    stored = await client.get_task(GetTaskRequest(id=done.id))
    assert stored.status == done.status
    assert [message.parts[0] for message in stored.history][1:] == list(answer.message.parts)
    assert (gateway.workspace / fill(scenario.file or '{n}')).exists() == bool(scenario.file)
    with pytest.raises(UnsupportedOperationError):
        await send(client, ask(scenario.answer, task_id=waiting.id))


async def test_an_answer_names_one_of_several_asks(connect, gateway, fill):
    client = connect(streaming=False)
    task = await send(client, ask(fill('scn:pair a="touch {n}-a" b="touch {n}-b" scn:text n=2')))
    # An ambiguous answer is refused with a list of the open asks. The second ask may open a moment after the first.
    requests = []
    async with asyncio.timeout(30):
        while len(requests) < 2:
            with pytest.raises(InvalidParamsError) as refused:
                await send(client, ask('perhaps', task_id=task.id))
            requests = re.findall(r'per_\w+', str(refused.value))
    with pytest.raises(InvalidParamsError, match='which ask'):
        await send(client, ask('once', task_id=task.id))
    for request, left in zip(requests, ('-b', '')):
        task = await send(client, ask({'request_id': request, 'reply': 'once'}, task_id=task.id))
        if left:
            assert fill('touch {n}') + left in asked(task)
    assert task.status.state == COMPLETED, task
    assert texts(task)[-1] == ('text', TEXT)
    assert [(gateway.workspace / fill('{n}' + which)).exists() for which in ('-a', '-b')] == [True, True]


async def test_an_invalid_answer_changes_nothing(connect):
    client = connect(streaming=False)
    waiting = await send(client, ask('scn:bash cmd="touch unclear" scn:text n=1'))
    for words in ('perhaps', '', 'once and for all', {'reply': 'perhaps'}, {'answers': [['once']]}):
        with pytest.raises(InvalidParamsError):
            await send(client, ask(words, task_id=waiting.id))
        task = await client.get_task(GetTaskRequest(id=waiting.id))
        assert (task.status, task.history) == (waiting.status, waiting.history)
    await client.cancel_task(CancelTaskRequest(id=waiting.id))


STOPPED = {
    'permission_abort': (TOUCH, 'once'),
    'question_abort': ('scn:question q="Shall I, {n}?" options="Yes|No" scn:text n=2', 'Yes'),
    'task_permission': (SCENARIOS[-1].prompt, 'once'),
}


# OpenCode sometimes aborts only the sub-agent of a turn whose sub-agent has an open ask, so that case is left out.
@pytest.mark.parametrize(
    'name, by',
    [(name, by) for name in STOPPED for by in ('client', 'opencode') if (name, by) != ('task_permission', 'opencode')],
)
async def test_an_ask_ends_with_its_turn(connect, gateway, fill, name, by):
    prompt, answer = STOPPED[name]
    client = connect(streaming=False)
    waiting = await send(client, ask(fill(prompt)))
    asked(waiting)
    watching = asyncio.create_task(gather(connect().subscribe(SubscribeToTaskRequest(id=waiting.id))))
    if by == 'client':
        canceled = await client.cancel_task(CancelTaskRequest(id=waiting.id))
        assert canceled.status.state == CANCELED, canceled
    else:
        await gateway.abort_at_opencode(fill(prompt))
    if not watching.done():
        await asyncio.wait_for(asyncio.wait([watching]), timeout=30)
    # The subscription may have started after the end.
    if watching.exception() is None:
        assert fold(watching.result()).status.state == CANCELED
    else:
        assert isinstance(watching.exception(), UnsupportedOperationError), watching.exception()

    stopped = await client.get_task(GetTaskRequest(id=waiting.id))
    assert stopped.status.state == CANCELED, stopped
    assert said(stopped) == ('' if by == 'client' else 'The turn was stopped at OpenCode itself.')
    with pytest.raises(UnsupportedOperationError):
        await send(client, ask(answer, task_id=waiting.id))
    after = await send(client, ask('scn:text n=2', context_id=waiting.context_id))
    assert (after.status.state, texts(after)) == (COMPLETED, [('text', TEXT)])
    assert not (gateway.workspace / fill('{n}')).exists()


async def test_a_message_on_a_running_task_joins_it(connect):
    client, watcher = connect(streaming=False), connect()
    task = await send(client, ask('scn:text n=60 delay=25 size=3', return_immediately=True))
    async for event in watcher.subscribe(SubscribeToTaskRequest(id=task.id)):
        if event.HasField('artifact_update'):
            break
    joined = await send(client, ask('scn:text n=1 text="as you wish"', task_id=task.id))
    assert (joined.id, joined.status.state) == (task.id, COMPLETED), joined
    assert texts(joined)[-1] == ('text', 'as you wish')
    stored = await client.get_task(GetTaskRequest(id=task.id))
    assert [message.parts[0].text for message in stored.history][1:] == ['scn:text n=1 text="as you wish"']
    # The message did not become a task of its own.
    listed = await client.list_tasks(ListTasksRequest(context_id=task.context_id))
    assert [listed.id for listed in listed.tasks] == [task.id]


@pytest.mark.parametrize('streaming', [False, True])
async def test_a_task_without_credentials_is_prompted_again(connect, streaming):
    client = connect(streaming=streaming)

    async def tell(request):
        return fold(await gather(client.send_message(request)))

    # The provider rejects the key twice, then accepts it.
    prompt = 'scn:auth times=2 body="no such key"'
    waiting = await tell(ask(prompt))
    again = await tell(ask(prompt, task_id=waiting.id))
    for task in (waiting, again):
        assert (task.id, task.status.state) == (waiting.id, TaskState.TASK_STATE_AUTH_REQUIRED), task
        assert 'no such key' in said(task), task
    done = await tell(ask(prompt, task_id=waiting.id))
    assert (done.id, done.status.state) == (waiting.id, COMPLETED), done
    assert texts(done) == [('text', 'This attempt went well.')]
    assert len((await client.get_task(GetTaskRequest(id=done.id))).history) == 3


async def test_a_task_without_credentials_can_be_canceled(connect):
    client = connect(streaming=False)
    waiting = await send(client, ask('scn:auth'))
    assert waiting.status.state == TaskState.TASK_STATE_AUTH_REQUIRED, waiting
    canceled = await client.cancel_task(CancelTaskRequest(id=waiting.id))
    assert canceled.status.state == CANCELED, canceled
    with pytest.raises(UnsupportedOperationError):
        await send(client, ask('scn:text n=1', task_id=waiting.id))
    after = await send(client, ask('scn:text n=2', context_id=waiting.context_id))
    assert (after.status.state, texts(after)) == (COMPLETED, [('text', TEXT)])
