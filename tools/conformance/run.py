"""Runs the public A2A conformance kits against Longshore, with a fake agent that plays their scenarios.

    tools/conformance/run.py KIT      called by `make conformance`, which builds and installs what is needed

KIT is a checkout of a2aproject/a2a-tck, or a folder with several. The kits for A2A 1.0 and 0.3 are recognised by their
test folders. Nothing is written into them. docs/conformance.md lists every test that may fail, with the reason. The command
fails if another test fails, or if a listed test passes.
"""

import argparse
import collections
import contextlib
import dataclasses
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import urllib.parse
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = ROOT / os.environ.get('CARGO_TARGET_DIR', 'target') / 'debug'
PYTHON = ROOT / '.tools' / 'venv-conformance' / 'bin' / 'python'
PAGE = ROOT / 'docs' / 'conformance.md'
TOKEN = 'a-token-for-conformance-only-0123456789'

# A program that has not printed its URL by then has failed to start.
START_SECONDS = 60
# The default of the kits; the long task of the fake agent is made for it.
STREAMING_TIMEOUT = '2.0'


@dataclasses.dataclass(frozen=True)
class Run:
    """One run of a part of a kit."""

    name: str
    # Arguments of pytest.
    selection: tuple[str, ...]
    # Path below the gateway's URL.
    base: str = ''


@dataclasses.dataclass(frozen=True)
class Kit:
    """The kit of one protocol version: how to recognise and run it."""

    version: str
    commit: str
    mark: str
    host_option: str
    more: tuple[str, ...]
    runs: tuple[Run, ...]


MULTI = 'tests/optional/multi_transport'

KITS = [
    Kit(
        version='1.0',
        commit='357c4a8',
        mark='tests/compatibility',
        host_option='--sut-host',
        more=(),
        runs=(
            Run('JSON-RPC', ('tests/compatibility', '--transport=jsonrpc')),
            Run('REST', ('tests/compatibility', '--transport=http_json')),
            Run('gRPC', ('tests/compatibility', '--transport=grpc')),
            Run('the card of 1.0 alone', ('tests/compatibility/agent_card',), base='/a2a/1.0'),
        ),
    ),
    Kit(
        version='0.3',
        commit='eb1f804',
        mark='tests/mandatory',
        host_option='--sut-url',
        more=('--test-scope=all',),
        runs=(
            Run('JSON-RPC', ('tests/mandatory', 'tests/optional', f'--ignore={MULTI}', '--transports=jsonrpc')),
            # The kit's own runner also leaves out the JSON-RPC tests for REST.
            Run(
                'REST',
                (
                    'tests/mandatory',
                    'tests/optional',
                    '--ignore=tests/mandatory/jsonrpc',
                    f'--ignore={MULTI}',
                    '--transports=rest',
                ),
            ),
            Run(
                'gRPC',
                (
                    'tests/mandatory',
                    'tests/optional',
                    '--ignore=tests/mandatory/jsonrpc',
                    f'--ignore={MULTI}',
                    '--transports=grpc',
                ),
            ),
            # A JSON-RPC send waits for the end, so both bindings see the task in the same state.
            Run('JSON-RPC and REST together', (MULTI, '--transports=jsonrpc,rest', '--transport-strategy=prefer_jsonrpc')),
        ),
    ),
]


def main() -> int:
    """Runs every kit in the folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('kit', type=pathlib.Path)
    parser.add_argument('--only', help='run only tests whose names match; failures are then not compared with docs/conformance.md')
    arguments = parser.parse_args()
    wrong = []
    for kit, folder in find(arguments.kit):
        failed = set()
        print(f'\n==> The kit for A2A {kit.version} in {folder}', flush=True)
        for part in kit.runs:
            with tempfile.TemporaryDirectory(prefix='longshore-conformance-') as place:
                cases = run(kit, folder, pathlib.Path(place), part, arguments.only)
            failed |= show(kit, part, cases)
        if not arguments.only:
            wrong += judge(kit, failed)
    for sentence in wrong:
        print(sentence)
    return 1 if wrong else 0


def find(folder: pathlib.Path) -> list[tuple[Kit, pathlib.Path]]:
    """The kits in a folder, 1.0 first."""
    if not folder.is_dir():
        sys.exit(f'conformance: {folder} is not a folder; make conformance KIT=folder needs a checkout of a2aproject/a2a-tck')
    places = [folder, *sorted(child for child in folder.iterdir() if child.is_dir())]
    kits = [(kit, place.resolve()) for kit in KITS for place in places if (place / kit.mark).is_dir()]
    if not kits:
        commits = ' and '.join(f'{kit.commit} (A2A {kit.version})' for kit in KITS)
        sys.exit(f'conformance: no kit found in {folder}; check out a2aproject/a2a-tck there, at {commits}')
    return kits


def run(kit: Kit, folder: pathlib.Path, place: pathlib.Path, part: Run, only: str | None) -> list:
    """Runs a part of a kit against a new gateway. Returns the test cases of its report."""
    report = place / 'report.xml'
    with gateway(place) as url:
        environment = os.environ | {
            'LONGSHORE_SUT': urllib.parse.urlsplit(url).netloc,
            'LONGSHORE_TOKEN': TOKEN,
            'PYTHONDONTWRITEBYTECODE': '1',
            'PYTHONPATH': f'{pathlib.Path(__file__).parent}{os.pathsep}{folder}',
            'TCK_STREAMING_TIMEOUT': STREAMING_TIMEOUT,
            'NO_PROXY': '*',
        }
        command = [PYTHON, '-m', 'pytest', '-p', 'credentials', '-p', 'no:cacheprovider', *part.selection]
        command += [f'{kit.host_option}={url}{part.base}', *kit.more, '-q', '--tb=no', '-rN', f'--junitxml={report}']
        command += ['-k', only] if only else []
        with (place / 'kit.log').open('wb') as log:
            subprocess.run(command, cwd=folder, env=environment, stdout=log, stderr=log, check=False)
        if not report.exists():
            sys.exit(f'conformance: the kit did not run:\n{(place / "kit.log").read_text()}')
        return list(xml.etree.ElementTree.parse(report).getroot().iter('testcase'))


@contextlib.contextmanager
def gateway(place: pathlib.Path):
    """The fake agent, and a gateway attached to it."""
    with contextlib.ExitStack() as stack:
        agent = start(stack, [TARGET / 'examples' / 'conformance_agent'], {'LONGSHORE_TOKEN': TOKEN}, place / 'agent.log')
        said = listening(agent)
        flags = ['--port', '0', '--data-dir', place / 'data', '--workspace', said['directory']]
        # The kits send many messages with the same id, and read only the first artifact.
        flags += ['--idempotency-window', '0', '--thinking-exposure', 'none']
        # The 1.0 kit skips a test of a card that names a binding which it does not know.
        flags += ['--websocket-path', 'off']
        settings = {
            'A2A_BEARER_TOKEN': TOKEN,
            'OPENCODE_BASE_URL': said['url'],
            'HOME': str(place),
            # The kits receive push notifications on this machine.
            'LONGSHORE_PUSH_ALLOW_HTTP': 'true',
            'LONGSHORE_PUSH_INTERNAL_HOSTS': 'localhost',
            'LONGSHORE_PUSH_INTERNAL_NETWORKS': '127.0.0.1',
        }
        url = listening(start(stack, [TARGET / 'longshore', 'serve', *flags], settings, place / 'gateway.log'))['url']
        agent.stdin.write(f'{url}\n'.encode())
        agent.stdin.flush()
        yield url


def start(stack: contextlib.ExitStack, command: list, environment: dict[str, str], log: pathlib.Path) -> subprocess.Popen:
    """Starts a program that is killed when the stack closes."""
    if not pathlib.Path(command[0]).exists():
        sys.exit(f'conformance: {command[0]} is not built; run make conformance')
    errors = stack.enter_context(log.open('wb'))
    environment = {'PATH': os.environ['PATH'], **environment}
    process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process


def listening(process: subprocess.Popen) -> dict[str, str]:
    """Reads the output of a program until it prints its URL. Later output is discarded."""
    said = {}
    patience = threading.Timer(START_SECONDS, process.kill)
    patience.start()
    for line in process.stdout:
        name, _, value = line.decode().strip().partition(' ')
        said[name] = value.strip()
        if name == 'url':
            patience.cancel()
            threading.Thread(target=process.stdout.read, daemon=True).start()
            return said
    patience.cancel()
    sys.exit(f'conformance: {process.args[0]} did not print its URL')


def outcome(case: xml.etree.ElementTree.Element) -> tuple[str, str]:
    """The outcome of a test, and its message."""
    for mark in ('failure', 'error', 'skipped'):
        found = case.find(mark)
        if found is not None:
            expected = found.get('type') == 'pytest.xfail'
            return ('missed' if expected else mark), found.get('message') or ''
    return 'passed', ''


def identity(case: xml.etree.ElementTree.Element) -> str:
    """The name of a test as docs/conformance.md writes it: `file::class::name`, without the folders."""
    parts = case.get('classname', '').split('.')
    place = next(i for i, part in enumerate(parts) if part.startswith('test_'))
    return '::'.join([f'{parts[place]}.py', *parts[place + 1 :], case.get('name')])


def show(kit: Kit, part: Run, cases: list) -> set[str]:
    """Prints the figures of a run and the tests that did not pass. Returns the names of the failed tests."""
    results = [(identity(case), *outcome(case)) for case in cases]
    counts = collections.Counter(kind for _, kind, _ in results)
    failed = {test for test, kind, _ in results if kind in ('failure', 'error')}
    for test, kind, words in results:
        if kind in ('failure', 'error', 'missed'):
            print(f'  {kind}: {test}\n    {" ".join(words.split())[:600]}')
    reasons = collections.Counter(' '.join(words.split())[:160] for _, kind, words in results if kind == 'skipped')
    for words, count in reasons.most_common():
        print(f'  skipped {count}: {words}')
    print(
        f'| {kit.version} | {part.name} | {counts["passed"]} | {counts["failure"] + counts["error"]} '
        f'| {counts["missed"]} | {counts["skipped"]} |',
        flush=True,
    )
    return failed


def judge(kit: Kit, failed: set[str]) -> list[str]:
    """Compares the failed tests with those listed in docs/conformance.md."""
    section = re.search(rf'^## A2A {re.escape(kit.version)}$(.*?)(?=^## |\Z)', PAGE.read_text(), re.M | re.S)
    named = set(re.findall(r'`(test_\w+\.py::[^`]+)`', section[1] if section else ''))
    wrong = [f'A2A {kit.version}: {test} failed, and docs/conformance.md does not say why' for test in sorted(failed - named)]
    return wrong + [
        f'A2A {kit.version}: {test} did not fail, but docs/conformance.md says that it does' for test in sorted(named - failed)
    ]


if __name__ == '__main__':
    sys.exit(main())
