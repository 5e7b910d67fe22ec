"""The real `longshore serve`, attached to the fake OpenCode of the test kit, so that a turn takes milliseconds."""

import contextlib
import dataclasses
import json
import os
import pathlib
import subprocess

import gateway


# Three credentials, one of each scheme.
TOKEN = 'a-token-for-tests-only-0123456789'
PASSWORD = 'a-password-for-tests-only-0123456789'
KEY = 'a-key-for-tests-only-0123456789'

# Every setting that changes a document. Callers must activate an extension.
FULL = {
    'A2A_TITLE': 'Harbour',
    'A2A_DESCRIPTION': 'Works on the harbour.',
    'A2A_VERSION': '3.2.1',
    'A2A_PROJECT': 'harbour',
    'A2A_DOCUMENTATION_URL': 'https://example.com/agent',
    'A2A_EXPOSE_WORKSPACE_ROOT_IN_CARD': 'true',
    'A2A_ALLOW_DIRECTORY_OVERRIDE': 'false',
    'A2A_HTTP_GZIP_MINIMUM_SIZE': '0',
    'A2A_SANDBOX_MODE': 'workspace-write',
    'A2A_SANDBOX_FILESYSTEM_SCOPE': 'workspace_and_declared_roots',
    'A2A_SANDBOX_WRITABLE_ROOTS': '/srv/cache',
    'A2A_NETWORK_ACCESS': 'restricted',
    'A2A_NETWORK_ALLOWED_DOMAINS': 'example.com',
    'A2A_APPROVAL_POLICY': 'on-request',
    'A2A_APPROVAL_ESCALATION_BEHAVIOR': 'manual',
    'A2A_WRITE_ACCESS_SCOPE': 'workspace_and_declared_roots',
    'A2A_WRITE_ACCESS_OUTSIDE_WORKSPACE': 'disallowed',
    'IACCODE_A2A_TEXT_MIME_TYPES': 'application/x-log',
    'LONGSHORE_THINKING_EXPOSURE': 'tool_trace',
    'LONGSHORE_MISSING_VERSION': '0.3',
    'LONGSHORE_REQUIRED_EXTENSIONS': 'urn:opencode-a2a:extension:stream-hints:v1',
    'OPENCODE_AGENT': 'build',
    'OPENCODE_VARIANT': 'high',
    'A2A_STATIC_AUTH_CREDENTIALS': json.dumps([
        {'scheme': 'bearer', 'token': TOKEN, 'principal': 'ada'},
        {'scheme': 'basic', 'username': 'ada', 'password': PASSWORD},
        {'scheme': 'api_key', 'key': KEY, 'principal': 'ada'},
    ]),
}
# Unanswered asks expire soon, so that no task and no stream stays open for long. With FULL they stay open, so that there are
# tasks to cancel and asks to answer.
DEFAULT = {'A2A_BEARER_TOKEN': TOKEN, 'A2A_INTERRUPT_REQUEST_TTL_SECONDS': '0.3'}


@dataclasses.dataclass
class Deployment:
    """A running gateway."""

    url: str
    log: pathlib.Path


def fake() -> str:
    """The fake OpenCode: `cargo test --no-run` builds it beside the gateway."""
    return os.environ.get('FAKE_OPENCODE_BIN', str(pathlib.Path(gateway.binary()).parent / 'examples' / 'fake_opencode'))


@contextlib.contextmanager
def running(directory: pathlib.Path, configured: dict[str, str]):
    """A gateway with this configuration, whose data and log are in `directory`."""
    for program in (gateway.binary(), fake()):
        if not pathlib.Path(program).exists():
            raise RuntimeError(f'{program} is missing: run cargo test --workspace --no-run')
    home = directory / 'home'
    home.mkdir()
    environment = {'PATH': os.environ['PATH'], 'HOME': str(home)}
    log = directory / 'gateway.log'
    with contextlib.ExitStack() as ends:
        opencode = subprocess.Popen([fake()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        ends.callback(end, opencode)
        workspace = opencode.stdout.readline().decode().removeprefix('directory ').strip()
        upstream = opencode.stdout.readline().decode().removeprefix('url ').strip()
        command = [gateway.binary(), 'serve', '--port', '0', '--data-dir', str(directory / 'data')]
        command += ['--workspace', workspace, '--opencode-url', upstream]
        stderr = ends.enter_context(log.open('wb'))
        process = subprocess.Popen(
            command,
            env=environment | configured,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
        )
        ends.callback(process.wait)
        ends.callback(process.kill)
        try:
            url = gateway.listening(process)
        except RuntimeError as error:
            raise RuntimeError(f'{error}; it logged:\n{log.read_text()}') from error
        yield Deployment(url.rstrip('/'), log)
        assert process.poll() is None, f'the gateway has exited; it logged:\n{log.read_text()}'


def end(opencode: subprocess.Popen) -> None:
    """Ends the fake OpenCode by closing its standard input."""
    opencode.stdin.close()
    opencode.wait()
