"""Runs the public A2A conformance kits against Longshore, with an agent that acts out their scenarios.

    tools/conformance/run.py KIT      called by `make conformance`, which builds and installs what is needed

KIT is a checkout of a2aproject/a2a-tck, or a folder with several: the one for A2A 1.0 and the one for 0.3 are told
apart by their tests. Nothing is written into them. Every test that fails must be named in docs/conformance.md, which
says why; the end is a failure when one is not, or when a named one has not failed.
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

# A program that has not said by then where it listens will never do so.
START_SECONDS = 60
# The kits' own choice; the agent's long task is made for it.
STREAMING_TIMEOUT = '2.0'


@dataclasses.dataclass(frozen=True)
class Run:
    """One run of a part of a kit."""

    name: str
    # What pytest gets.
    selection: tuple[str, ...]
    # Below the gateway's URL.
    base: str = ''


@dataclasses.dataclass(frozen=True)
class Line:
    """How the kit of one line of A2A is told from others, and run."""

    version: str
    commit: str
    mark: str
    host_option: str
    more: tuple[str, ...]
    runs: tuple[Run, ...]


MULTI = 'tests/optional/multi_transport'

LINES = [
    Line(
        version='1.0',
        commit='357c4a8',
        mark='tests/compatibility',
        host_option='--sut-host',
        more=(),
        runs=(
            Run('JSON-RPC', ('tests/compatibility', '--transport=jsonrpc')),
            Run('REST', ('tests/compatibility', '--transport=http_json')),
            Run('the card of 1.0 alone', ('tests/compatibility/agent_card',), base='/a2a/1.0'),
        ),
    ),
    Line(
        version='0.3',
        commit='eb1f804',
        mark='tests/mandatory',
        host_option='--sut-url',
        more=('--test-scope=all',),
        runs=(
            Run('JSON-RPC', ('tests/mandatory', 'tests/optional', f'--ignore={MULTI}', '--transports=jsonrpc')),
            # The kit's own runner, too, leaves the tests of JSON-RPC itself out of a run for REST.
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
            # A JSON-RPC send waits for the end, so that both bindings find the task in one state.
            Run('both together', (MULTI, '--transports=jsonrpc,rest', '--transport-strategy=prefer_jsonrpc')),
        ),
    ),
]


def main() -> int:
    """Runs every kit that is found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('kit', type=pathlib.Path)
    parser.add_argument('--only', help='a part of the names of the tests to run; what fails is then not judged')
    arguments = parser.parse_args()
    kits = find(arguments.kit)
    wrong = []
    for line, kit in kits:
        failed = set()
        print(f'\n==> The kit for A2A {line.version} in {kit}', flush=True)
        for part in line.runs:
            with tempfile.TemporaryDirectory(prefix='longshore-conformance-') as place:
                cases = run(line, kit, pathlib.Path(place), part, arguments.only)
            failed |= show(line, part, cases)
        if not arguments.only:
            wrong += judge(line, failed)
    for sentence in wrong:
        print(sentence)
    return 1 if wrong else 0


def find(folder: pathlib.Path) -> list[tuple[Line, pathlib.Path]]:
    """The kits in a folder, 1.0 first."""
    if not folder.is_dir():
        sys.exit(f'conformance: {folder} is no folder; make conformance KIT=folder takes a checkout of a2aproject/a2a-tck')
    places = [folder, *sorted(child for child in folder.iterdir() if child.is_dir())]
    kits = [(line, place.resolve()) for line in LINES for place in places if (place / line.mark).is_dir()]
    if not kits:
        commits = ' and '.join(f'{line.commit} (A2A {line.version})' for line in LINES)
        sys.exit(f'conformance: there is no kit in {folder}; check out a2aproject/a2a-tck there, at {commits}')
    return kits


def run(line: Line, kit: pathlib.Path, place: pathlib.Path, part: Run, only: str | None) -> list:
    """Runs a part of a kit against a gateway of its own. Gives the test cases of its report."""
    report = place / 'report.xml'
    with gateway(place) as url:
        environment = os.environ | {
            'LONGSHORE_SUT': urllib.parse.urlsplit(url).netloc,
            'LONGSHORE_TOKEN': TOKEN,
            'PYTHONDONTWRITEBYTECODE': '1',
            'PYTHONPATH': f'{pathlib.Path(__file__).parent}{os.pathsep}{kit}',
            'TCK_STREAMING_TIMEOUT': STREAMING_TIMEOUT,
            'NO_PROXY': '*',
        }
        command = [PYTHON, '-m', 'pytest', '-p', 'credentials', '-p', 'no:cacheprovider', *part.selection]
        command += [f'{line.host_option}={url}{part.base}', *line.more, '-q', '--tb=no', '-rN', f'--junitxml={report}']
        command += ['-k', only] if only else []
        with (place / 'kit.log').open('wb') as log:
            subprocess.run(command, cwd=kit, env=environment, stdout=log, stderr=log, check=False)
        if not report.exists():
            sys.exit(f'conformance: the kit did not run:\n{(place / "kit.log").read_text()}')
        return list(xml.etree.ElementTree.parse(report).getroot().iter('testcase'))


@contextlib.contextmanager
def gateway(place: pathlib.Path):
    """The agent that acts, and a gateway in front of it."""
    with contextlib.ExitStack() as stack:
        agent = start(stack, [TARGET / 'examples' / 'conformance_agent'], {'LONGSHORE_TOKEN': TOKEN}, place / 'agent.log')
        said = listening(agent)
        flags = ['--port', '0', '--data-dir', place / 'data', '--workspace', said['directory']]
        # The kits send many messages under one id, and look at the first artifact only.
        flags += ['--idempotency-window', '0', '--thinking-exposure', 'none']
        settings = {'A2A_BEARER_TOKEN': TOKEN, 'OPENCODE_BASE_URL': said['url'], 'HOME': str(place)}
        url = listening(start(stack, [TARGET / 'longshore', 'serve', *flags], settings, place / 'gateway.log'))['url']
        agent.stdin.write(f'{url}\n'.encode())
        agent.stdin.flush()
        yield url


def start(stack: contextlib.ExitStack, command: list, environment: dict[str, str], log: pathlib.Path) -> subprocess.Popen:
    """Starts a program that ends with the stack."""
    if not pathlib.Path(command[0]).exists():
        sys.exit(f'conformance: {command[0]} is not built; run it as make conformance')
    errors = stack.enter_context(log.open('wb'))
    environment = {'PATH': os.environ['PATH'], **environment}
    process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process


def listening(process: subprocess.Popen) -> dict[str, str]:
    """Reads what a program says until it says where it is. What it says later is thrown away."""
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
    sys.exit(f'conformance: {process.args[0]} did not say that it listens')


def outcome(case: xml.etree.ElementTree.Element) -> tuple[str, str]:
    """What became of a test, and what was said of it."""
    for mark in ('failure', 'error', 'skipped'):
        found = case.find(mark)
        if found is not None:
            expected = found.get('type') == 'pytest.xfail'
            return ('missed' if expected else mark), found.get('message') or ''
    return 'passed', ''


def identity(case: xml.etree.ElementTree.Element) -> str:
    """The name of a test as docs/conformance.md has it: `file::class::name`, without the folders."""
    parts = case.get('classname', '').split('.')
    place = next(i for i, part in enumerate(parts) if part.startswith('test_'))
    return '::'.join([f'{parts[place]}.py', *parts[place + 1 :], case.get('name')])


def show(line: Line, part: Run, cases: list) -> set[str]:
    """Prints the figures of a run, and what did not pass. Gives the names of the tests that failed."""
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
        f'| {line.version} | {part.name} | {counts["passed"]} | {counts["failure"] + counts["error"]} '
        f'| {counts["missed"]} | {counts["skipped"]} |',
        flush=True,
    )
    return failed


def judge(line: Line, failed: set[str]) -> list[str]:
    """Compares what failed with what docs/conformance.md names."""
    section = re.search(rf'^## A2A {re.escape(line.version)}$(.*?)(?=^## |\Z)', PAGE.read_text(), re.M | re.S)
    named = set(re.findall(r'`(test_\w+\.py::[^`]+)`', section[1] if section else ''))
    wrong = [f'A2A {line.version}: {test} failed, and docs/conformance.md does not say why' for test in sorted(failed - named)]
    return wrong + [
        f'A2A {line.version}: {test} did not fail, but docs/conformance.md says that it does' for test in sorted(named - failed)
    ]


if __name__ == '__main__':
    sys.exit(main())
