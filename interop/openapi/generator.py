"""Runs schemathesis on a document and reads its results."""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent

# A run that takes longer is stuck.
PATIENCE_SECONDS = 600

SEED = 20261115

# A response takes milliseconds, even on a busy machine. A silent stream is closed after this time.
REQUEST_SECONDS = 10
WAITING_SECONDS = 2


# For runs that differ from the main one in the caller or the base path, not in the requests.
BRIEF = {'phases': 'examples,fuzzing', 'examples': 4}


@dataclasses.dataclass
class Run:
    """One run of schemathesis."""

    document: dict
    url: str
    phases: str = 'examples,coverage,fuzzing,stateful'
    examples: int = 10
    # Credentials by security scheme.
    credentials: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)
    # Paths whose streams may wait for an ask that is never answered.
    waiting: list[str] = dataclasses.field(default_factory=list)
    # Parameters with a fixed value; and, by path, parameters that mostly (known) or always (certain) have one of these values.
    fixed: dict[str, str] = dataclasses.field(default_factory=dict)
    known: dict[str, dict[str, list[str]]] = dataclasses.field(default_factory=dict)
    certain: dict[str, dict[str, list[str]]] = dataclasses.field(default_factory=dict)


def run(directory: pathlib.Path, wanted: Run) -> list[dict]:
    """Returns every response. Raises the report of schemathesis if it found something."""
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

    Schemathesis applies the schema of an event stream to one event, and ours describes the whole text, so that schema is removed;
    `checks.py` checks the events. The servers are removed because the run names the URL. Every JSON-RPC method gets a path of
    its own, so that it is tested as thoroughly as a REST path.
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
    """The description of the JSON-RPC path, separately for each method."""
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
    """The configuration of schemathesis. JSON strings, numbers and lists are also valid TOML."""
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
        # Task state and configuration can refuse a well-formed request, and the gateway accepts more than the document says.
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
