"""Checks of every response, in addition to those of schemathesis, and a record of the responses.

Schemathesis loads this file by name (`hooks` in its configuration).
"""

import json
import os

import jsonschema_rs
import schemathesis


# The schema of the result of each JSON-RPC method. The document has one schema for all results.
RESULTS = {
    'SendMessage': 'SendMessageResponse',
    'SendStreamingMessage': 'StreamResponse',
    'GetTask': 'Task',
    'ListTasks': 'TaskPage',
    'CancelTask': 'Task',
    'SubscribeToTask': 'StreamResponse',
    'GetExtendedAgentCard': 'AgentCard',
    'message/send': 'V03Task',
    'message/stream': 'V03StreamResponse',
    'tasks/get': 'V03Task',
    'tasks/list': 'V03TaskPage',
    'tasks/cancel': 'V03Task',
    'tasks/resubscribe': 'V03StreamResponse',
    'agent/getAuthenticatedExtendedCard': 'V03AgentCard',
    'a2a.interrupt.permission.reply': 'InterruptAnswered',
    'a2a.interrupt.question.reply': 'InterruptAnswered',
    'a2a.interrupt.question.reject': 'InterruptAnswered',
    'opencode.permissions.list': 'InterruptList',
    'opencode.questions.list': 'InterruptList',
}


@schemathesis.check
def responses_have_no_undocumented_fields(ctx, response, case):
    """No response has a field that the document does not name."""
    media = documented(case, response)
    if media is not None and 'json' in media_type(response):
        validate(case, media['schema'], json.loads(response.content), 'the body')


@schemathesis.check
def results_match_their_method(ctx, response, case):
    """The result of a call has the schema of its own method."""
    method = called(response).get('method')
    if method in RESULTS and media_type(response) == 'application/json' and response.status_code == 200:
        answer = json.loads(response.content)
        if 'result' in answer:
            validate(case, reference(RESULTS[method]), answer['result'], f'the result of {method}')


@schemathesis.check
def frames_match_the_document(ctx, response, case):
    """Each event of a stream has the documented schema, and a higher number than the event before."""
    if media_type(response) != 'text/event-stream':
        return
    media = documented(case, response)
    assert media is not None, 'the document declares no stream here'
    last = 0
    frames = [frame for frame in response.content.decode().split('\n\n') if frame and not frame.startswith(':')]
    for frame in frames:
        fields = dict(line.split(': ', 1) for line in frame.split('\n'))
        assert list(fields) in (['id', 'data'], ['data']), f'a frame has {list(fields)}'
        data = json.loads(fields['data'])
        validate(case, media['x-event-data'], data, 'a frame')
        call = called(response)
        method = call.get('method')
        if method is not None:
            assert data['id'] == call.get('id'), 'a frame has the id of another call'
        if method in RESULTS and 'result' in data:
            validate(case, reference(RESULTS[method]), data['result'], f'a frame of {method}')
        if 'id' in fields:
            # The event number; the epoch of the store follows after the dot.
            number = int(fields['id'].partition('.')[0])
            assert last < number, f'frame {fields["id"]} follows {last}'
            last = number


@schemathesis.hook
def after_call(context, case, response):
    """Records the response, so that the test can verify that the generator reached every operation."""
    seen = {
        'operation': case.operation.label,
        'method': called(response).get('method'),
        'status': response.status_code,
        'is_result': b'"result":' in response.content,
        'version': response.headers.get('a2a-version', [None])[0],
        'frames': response.content.count(b'data: ') if media_type(response) == 'text/event-stream' else 0,
    }
    with open(os.environ['SEEN'], 'a', encoding='utf-8') as file:
        file.write(json.dumps(seen) + '\n')


def media_type(response):
    """The media type of a response without parameters, or an empty string."""
    named = response.headers.get('content-type', [''])[0]
    return named.split(';')[0].strip() if response.content else ''


def called(response):
    """The body of a JSON-RPC request, as it was sent."""
    request = response.request
    if request.method != 'POST' or not request.body or 'json' not in request.headers.get('Content-Type', ''):
        return {}
    try:
        body = json.loads(request.body)
    except ValueError:
        return {}
    return body if isinstance(body, dict) and isinstance(body.get('method'), str) else {}


def documented(case, response):
    """What the document declares for responses with this status and media type."""
    document = case.operation.schema.raw_schema
    operation = document['paths'][case.operation.path].get(case.method.lower())
    if operation is None:
        return None
    answer = operation['responses'].get(str(response.status_code), {})
    if '$ref' in answer:
        answer = document['components']['responses'][answer['$ref'].rsplit('/', 1)[1]]
    return answer.get('content', {}).get(media_type(response))


def reference(name):
    return {'$ref': f'#/components/schemas/{name}'}


def validate(case, schema, value, what):
    error = next(validator(case, json.dumps(schema)).iter_errors(value), None)
    if error is not None:
        raise AssertionError(f'{what} does not match the document: {error}')


# Cached by schema: one run reads one document.
VALIDATORS = {}


def validator(case, schema):
    """A strict validator for a schema of the document."""
    if schema not in VALIDATORS:
        schemas = case.operation.schema.raw_schema['components']['schemas']
        parts = set(in_all_of(schemas))
        schemas = {name: closed(each, name in parts) for name, each in schemas.items()}
        document = {**closed(json.loads(schema)), 'components': {'schemas': schemas}}
        VALIDATORS[schema] = jsonschema_rs.Draft202012Validator(document, validate_formats=True)
    return VALIDATORS[schema]


def in_all_of(schema):
    """The names of schemas that are parts of others. Such a part alone cannot forbid additional fields."""
    if isinstance(schema, dict):
        for part in schema.get('allOf', []):
            if '$ref' in part:
                yield part['$ref'].rsplit('/', 1)[1]
        for each in schema.values():
            yield from in_all_of(each)
    elif isinstance(schema, list):
        for each in schema:
            yield from in_all_of(each)


def closed(schema, is_part=False):
    """The schema, with additional fields forbidden."""
    if not isinstance(schema, dict):
        return schema
    made = {}
    for key, value in schema.items():
        if key == 'properties':
            made[key] = {name: closed(each) for name, each in value.items()}
        elif key == 'allOf':
            made[key] = [closed(each, True) for each in value]
        elif key in ('oneOf', 'anyOf'):
            made[key] = [closed(each, is_part) for each in value]
        elif key in ('items', 'additionalProperties'):
            made[key] = closed(value)
        else:
            made[key] = value
    if not is_part and 'additionalProperties' not in schema and ('properties' in schema or 'allOf' in schema):
        made['unevaluatedProperties'] = False
    return made
