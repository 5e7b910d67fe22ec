"""Runs schemathesis on a document, as its users do, and reads what came of it."""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent

# A run that takes longer hangs.
PATIENCE_SECONDS = 600

SEED = 20261115

# An answer takes milliseconds, also where a machine has much else to do. A stream that says nothing for so long is left.
REQUEST_SECONDS = 10
WAITING_SECONDS = 2


# For a run that differs from the long one in who asks and how, and not in what is asked.
BRIEF = {'phases': 'examples,fuzzing', 'examples': 4}


@dataclasses.dataclass
class Run:
    """What is generated, and for whom."""

    document: dict
    url: str
    phases: str = 'examples,coverage,fuzzing,stateful'
    examples: int = 10
    # What to say by which security scheme.
    credentials: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)
    # The paths whose streams may wait for an answer that nobody gives.
    waiting: list[str] = dataclasses.field(default_factory=list)
    # Parameters with fixed values, and those whose value is mostly or always one of these, by path.
    fixed: dict[str, str] = dataclasses.field(default_factory=dict)
    known: dict[str, dict[str, list[str]]] = dataclasses.field(default_factory=dict)
    certain: dict[str, dict[str, list[str]]] = dataclasses.field(default_factory=dict)


def run(directory: pathlib.Path, wanted: Run) -> list[dict]:
    """Every answer that was given. Raises what schemathesis says when it found something."""
    document = directory / 'openapi.json'
    document.write_text(json.dumps(readable(wanted.document)))
    configuration = directory / 'schemathesis.toml'
    configuration.write_text(configured(wanted))
    seen = directory / 'seen.jsonl'
    seen.touch()
    program = pathlib.Path(sys.executable).parent / 'schemathesis'
    command = [program, '--config-file', configuration, '--no-color', 'run', document, '--url', wanted.url]
    command += ['--phases', wanted.phases, '--max-examples', str(wanted.examples)]
    ended = subprocess.run(
        command,
        cwd=directory,
        env={
            'PATH': os.environ['PATH'],
            'HOME': str(directory),
            'PYTHONPATH': str(HERE),
            'HYPOTHESIS_STORAGE_DIRECTORY': str(directory / 'hypothesis'),
            'SEEN': str(seen),
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    if ended.returncode != 0:
        raise AssertionError(f'schemathesis found something:\n{ended.stdout}\n{ended.stderr}')
    return [json.loads(line) for line in seen.read_text().splitlines()]


def readable(document: dict) -> dict:
    """The document as schemathesis can read it.

    It takes the schema of an event stream for that of one event, and ours is about the whole text; `checks.py` looks at
    the events. Where requests go is the run's to say. Every method of JSON-RPC gets a path of its own, so that it is
    generated for as thoroughly as the paths of REST are.
    """
    document = json.loads(json.dumps(document))
    if '/' in document['paths']:
        for method, call in calls(document).items():
            document['paths'][f'/?{method}'] = call
    for item in document['paths'].values():
        item.pop('servers', None)
    for media in all_under(document, 'text/event-stream'):
        del media['schema']
    return document


def calls(document: dict) -> dict[str, dict]:
    """What the document says of the path of JSON-RPC, for each method alone."""
    schemas, found = document['components']['schemas'], {}
    for reference in schemas['JsonRpcRequest']['oneOf']:
        method = schemas[reference['$ref'].rsplit('/', 1)[1]]['properties']['method']['const']
        call = json.loads(json.dumps(document['paths']['/']))
        call['post']['operationId'] += f'_{method}'
        media = call['post']['requestBody']['content']['application/json']
        media['schema'] = reference
        examples = media['examples'].items()
        media['examples'] = {name: each for name, each in examples if each['value']['method'] == method}
        found[method] = call
    return found


def all_under(value, key):
    if isinstance(value, dict):
        if key in value:
            yield value[key]
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from all_under(each, key)


def configured(wanted: Run) -> str:
    """The configuration of schemathesis. JSON texts, numbers and lists are TOML too."""
    lines = [
        f'seed = {SEED}',
        'hooks = "checks"',
        f'request-timeout = {REQUEST_SECONDS}',
        'continue-on-failure = true',
        'suppress-health-check = ["all"]',
        'warnings = false',
        '[cache]',
        'enabled = false',
        '[generation]',
        'database = "none"',
        'no-shrink = true',
        '[checks]',
        # The state of a task and of the deployment can refuse what is well formed, and more is taken than is told.
        'positive_data_acceptance.enabled = false',
        'negative_data_rejection.enabled = false',
    ]
    for scheme, fields in wanted.credentials.items():
        lines.append(f'[auth.openapi.{scheme}]')
        lines += [f'{name} = {json.dumps(value)}' for name, value in fields.items()]
    if wanted.fixed:
        lines.append('[parameters]')
        lines += [f'{json.dumps(name)} = {json.dumps(value)}' for name, value in wanted.fixed.items()]
    for path in dict.fromkeys([*wanted.known, *wanted.certain, *wanted.waiting]):
        operation = ['[[operations]]', f'include-path = {json.dumps(path)}']
        if path in wanted.waiting:
            operation.append(f'request-timeout = {WAITING_SECONDS}')
        operation.append('[operations.parameters]')
        certain = wanted.certain.get(path, {})
        for name, values in (wanted.known.get(path, {}) | certain).items():
            dictionary = json.dumps(f'{name} of {path}')
            lines += [f'[dictionaries.{dictionary}]', f'values = {json.dumps(values)}']
            probability = 1.0 if name in certain else 0.75
            operation.append(f'{json.dumps(name)} = {{ dictionary = {dictionary}, probability = {probability} }}')
        lines += operation
    return '\n'.join(lines) + '\n'
