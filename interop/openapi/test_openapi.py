"""The OpenAPI document is valid, and nothing that is answered is outside of it."""

import collections
import re

import httpx
import openapi_spec_validator
import pytest

import checks
import deployment
import generator


CREDENTIALS = {
    'bearer': {'bearer': deployment.TOKEN},
    'basic': {'username': 'ada', 'password': deployment.PASSWORD},
    'apiKey': {'api_key': deployment.KEY},
}

# One of each kind of turn of the fake OpenCode.
TURNS = 7

# What ends a task or an ask can do so once: each of these paths and methods gets some of its own.
CANCELS = ['/tasks/{id}:cancel', '/v1/tasks/{id}:cancel', '/?CancelTask', '/?tasks/cancel']
REPLY = '/?a2a.interrupt.permission.reply'
ENDING = {'CancelTask', 'tasks/cancel', *(method for method in checks.RESULTS if 'interrupt' in method)}

# The streams of 0.3 go on when a task asks.
WAITING = ['/', '/?message/stream', '/?tasks/resubscribe', '/v1/message:stream', '/v1/tasks/{id}:subscribe']


def client(running, *, is_caller=True):
    headers = {'Authorization': f'Bearer {deployment.TOKEN}'} if is_caller else {}
    return httpx.Client(base_url=running.url, headers=headers, timeout=30, trust_env=False)


def document(running, *, is_caller=True):
    with client(running, is_caller=is_caller) as http:
        return http.get('/openapi.json').raise_for_status().json()


def credential(told, scheme):
    """The credential of a scheme, under the name that the document gives the scheme."""
    schemes = told['components']['securitySchemes'].items()
    [name] = [name for name, each in schemes if scheme in (each['type'], each.get('scheme'))]
    return {name: CREDENTIALS[scheme]}


def extensions(told):
    """The URIs of all extensions, as a caller activates them."""
    contracts = told['paths']['/']['post']['x-a2a-extension-contracts'].values()
    return ','.join(contract['extension_uri'] for contract in contracts)


def send(http, told, nth):
    """Sends a message and waits until its turn ends or asks."""
    message = {'messageId': f'known-{nth}', 'role': 'ROLE_USER', 'parts': [{'text': 'Look around.'}]}
    headers = {'A2A-Version': '1.0', 'A2A-Extensions': extensions(told)}
    return http.post('/message:send', json={'message': message}, headers=headers).raise_for_status()


def known(running, told):
    """Tasks and files that there are, for the paths and methods that name one."""
    tasks, files = [], set()
    with client(running) as http:
        for nth in range(TURNS):
            sent = send(http, told, nth)
            tasks.append(sent.json()['task']['id'])
            files.update(re.findall(r'/artifacts/([^"/]+)', sent.text))
    assert files, 'no turn has handed back a file'
    ids = {path: {'path.id': tasks} for path in told['paths'] if '/tasks/{id}' in path}
    for method in ['GetTask', 'SubscribeToTask', 'tasks/get', 'tasks/resubscribe']:
        ids[f'/?{method}'] = {'body.params.id': tasks}
    return ids | {'/artifacts/{id}': {'path.id': sorted(files)}}


def open_asks(running, told):
    """Tasks that ask, for what ends them, and their asks, for what answers them."""
    asking, asks, nth = [], [], TURNS
    with client(running) as http:
        while len(asking) < 3 * len(CANCELS) or len(asks) < 3:
            task = send(http, told, nth).json()['task']
            nth += 1
            if task['status']['state'] == 'TASK_STATE_INPUT_REQUIRED':
                if len(asks) < 3:
                    asks += re.findall(r'per_[A-Za-z0-9]+', str(task))[:1]
                else:
                    asking.append(task['id'])
    ids = {path: asking[3 * place : 3 * place + 3] for place, path in enumerate(CANCELS)}
    named = {path: {'body.params.id' if '?' in path else 'path.id': each} for path, each in ids.items()}
    for path in ['/tasks/{id}:cancel', '/?CancelTask']:
        named[path]['header.A2A-Version'] = ['1.0']
    return named | {REPLY: {'body.params.request_id': asks, 'body.params.reply': ['once']}}


@pytest.mark.parametrize('name', ['default', 'full'])
@pytest.mark.parametrize('is_caller', [False, True], ids=['anonymous', 'authenticated'])
def test_the_document_is_valid(request, name, is_caller):
    told = document(request.getfixturevalue(name), is_caller=is_caller)
    assert told['openapi'].startswith('3.1.')
    assert ('/' in told['paths']) == is_caller
    openapi_spec_validator.validate(told, cls=openapi_spec_validator.OpenAPIV31SpecValidator)


def test_callers_get_no_answer_outside_of_it(default, tmp_path):
    told = document(default)
    wanted = generator.Run(told, default.url, credentials=credential(told, 'bearer'), known=known(default, told))
    seen = generator.run(tmp_path, wanted)

    # The generator got everywhere, or what it did not find would mean nothing.
    statuses = collections.defaultdict(set)
    for answer in seen:
        statuses[answer['operation']].add(answer['status'])
    for path, item in told['paths'].items():
        for verb, operation in item.items():
            if verb not in ('parameters', 'servers'):
                name = f'{verb.upper()} {path}'
                is_refused = 'Not supported yet' in operation.get('description', '')
                is_cancel = path in CANCELS
                assert is_refused or is_cancel or 200 in statuses[name], f'{name}: only {statuses[name]}'
                assert operation.get('security') is not None or 401 in statuses[name], f'{name}: never 401'
                if '{id}' in path and not is_refused:
                    assert 404 in statuses[name], f'{name}: never 404'
    streamed = {answer['operation'] for answer in seen if answer['frames'] > 1}
    assert {'POST /message:stream', 'POST /v1/message:stream'} <= streamed
    assert {'POST /?SendStreamingMessage', 'POST /?message/stream'} <= streamed


    given = {answer['method'] for answer in seen if answer['is_result']}
    assert set(checks.RESULTS) - given <= ENDING, 'these were never done'


def test_nor_do_those_who_name_another_version(default, tmp_path):
    told = document(default)
    versions = ['1.0', '0.3', '1.0.7', '0.3.0', '9.9', '1', ' ']
    ids = {path: {'header.A2A-Version': versions} for path in told['paths']}
    wanted = generator.Run(told, default.url, credentials=credential(told, 'bearer'), known=ids, **generator.BRIEF)
    seen = generator.run(tmp_path, wanted)
    assert {answer['status'] for answer in seen} > {200, 400, 401, 404}


def test_nor_do_callers_of_a_deployment_with_everything_configured(full, tmp_path):
    told = document(full)
    wanted = generator.Run(
        told,
        full.url,
        credentials=credential(told, 'basic'),
        fixed={'header.A2A-Extensions': extensions(told)},
        known=known(full, told),
        certain=open_asks(full, told),
        waiting=WAITING,
        phases='examples,fuzzing',
        examples=6,
    )
    seen = generator.run(tmp_path, wanted)
    given = {answer['method'] for answer in seen if answer['is_result']}
    assert {'CancelTask', 'tasks/cancel', 'a2a.interrupt.permission.reply'} <= given
    done = {answer['operation'] for answer in seen if answer['status'] == 200}
    assert {f'POST {path}' for path in CANCELS} <= done


@pytest.mark.parametrize('line', ['1.0', '0.3'])
def test_nor_do_they_under_the_base_of_a_line(full, tmp_path, line):
    told = document(full)
    base = f'{full.url}/a2a/{line}'
    ids = known(full, told)
    told['paths'] = {path: item for path, item in told['paths'].items() if {'url': base} in item['servers']}
    assert '/' in told['paths'] and len(told['paths']) > 5
    wanted = generator.Run(
        told,
        base,
        credentials=credential(told, 'apiKey'),
        fixed={'header.A2A-Extensions': extensions(told)},
        known=ids,
        waiting=WAITING,
        **generator.BRIEF,
    )
    seen = generator.run(tmp_path, wanted)
    assert {answer['status'] for answer in seen} > {200, 400, 401}
    assert {answer['version'] for answer in seen} == {line}


def test_nor_do_strangers(default, tmp_path):
    told = document(default)
    seen = generator.run(tmp_path, generator.Run(told, default.url, **generator.BRIEF))
    public = set(document(default, is_caller=False)['paths']) | {'/openapi.json'}
    assert seen
    for answer in seen:
        is_public = answer['operation'].split(' ')[1] in public
        assert is_public or answer['status'] == 401, answer


@pytest.mark.parametrize('name', ['default', 'full'])
def test_nor_do_they_by_their_own_document(request, tmp_path, name):
    running = request.getfixturevalue(name)
    told = document(running, is_caller=False)
    seen = generator.run(tmp_path, generator.Run(told, running.url))
    assert {answer['status'] for answer in seen} > {200, 405}
