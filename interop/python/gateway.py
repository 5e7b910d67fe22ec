"""The real `longshore serve --demo` with the real OpenCode, for one run of the tests."""

import dataclasses
import json
import os
import pathlib
import selectors
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOLS = ROOT / '.tools' / 'bin'
TOKEN = 'a-token-for-tests-only-0123456789'

# A gateway that has not printed its URL by then has failed to start.
START_SECONDS = 60


@dataclasses.dataclass
class Gateway:
    """A running gateway."""

    url: str
    token: str
    flags: list[str]
    data: pathlib.Path
    workspace: pathlib.Path
    process: subprocess.Popen
    environment: dict[str, str]

    async def abort_at_opencode(self, prompt: str) -> None:
        """Aborts the turn of this prompt directly in OpenCode, without the gateway."""
        # The environment of the MCP client has no httpx, and does not come here.
        import httpx

        record = json.loads((self.data / 'managed.json').read_text())
        options = {
            'base_url': f'http://127.0.0.1:{record["port"]}',
            'auth': ('opencode', record['password']),
            'headers': {'x-opencode-directory': str(self.workspace.resolve())},
        }
        async with httpx.AsyncClient(**options, timeout=30, trust_env=False) as client:
            for session in (await client.get('/session')).json():
                messages = (await client.get(f'/session/{session["id"]}/message')).json()
                if any(part.get('text') == prompt for message in messages for part in message['parts']):
                    (await client.post(f'/session/{session["id"]}/abort')).raise_for_status()
                    return
        raise RuntimeError(f'OpenCode did not receive the prompt {prompt!r}')

    def kill_and_restart(self) -> None:
        """Kills the gateway, and starts it again at the same URL. The OpenCode that it manages goes on."""
        self.process.kill()
        self.process.wait()
        port = self.url.rsplit(':', 1)[1]
        log = self.data.parent / 'gateway-restarted.log'
        with log.open('ab') as stderr:
            self.process = subprocess.Popen(
                [binary(), 'serve', *self.flags, '--port', port],
                env=self.environment,
                cwd=self.data.parent,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
            )
        try:
            listening(self.process)
        except Exception as error:
            raise RuntimeError(f'{error}; it logged:\n{log.read_text()}') from error

    def stop(self) -> None:
        """Ends the gateway and the OpenCode that it started, and nothing else."""
        self.process.kill()
        self.process.wait()
        subprocess.run(
            [binary(), 'stop', *self.flags],
            env=self.environment,
            check=True,
            capture_output=True,
        )


def binary() -> str:
    """The program under test."""
    return os.environ.get('LONGSHORE_BIN', str(ROOT / 'target' / 'debug' / 'longshore'))


def start(directory: pathlib.Path) -> Gateway:
    """Starts a gateway whose data and workspace are in `directory`, and waits until it listens."""
    for program in ('opencode', 'rg'):
        if not (TOOLS / program).exists():
            raise RuntimeError(f'{program} is not installed for the tests: run tools/install-opencode.sh')
    if not pathlib.Path(binary()).exists():
        raise RuntimeError(f'{binary()} is missing: run cargo build --package longshore')
    workspace = directory / 'workspace'
    make_repository(workspace)
    home = directory / 'home'
    home.mkdir()
    environment = {
        'PATH': f'{TOOLS}{os.pathsep}{os.environ["PATH"]}',
        'HOME': str(home),
        'A2A_BEARER_TOKEN': TOKEN,
        # Receivers of push notifications are on this machine.
        'LONGSHORE_PUSH_ALLOW_HTTP': 'true',
        'LONGSHORE_PUSH_INTERNAL_NETWORKS': '127.0.0.1',
    }
    data = directory / 'data'
    flags = ['--demo', '--data-dir', str(data), '--workspace', str(workspace)]
    log = directory / 'gateway.log'
    with log.open('wb') as stderr:
        process = subprocess.Popen(
            [binary(), 'serve', *flags, '--port', '0'],
            env=environment,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
        )
    gateway = Gateway('', TOKEN, flags, data, workspace, process, environment)
    try:
        gateway.url = listening(process)
    except Exception as error:
        gateway.stop()
        raise RuntimeError(f'{error}; it logged:\n{log.read_text()}') from error
    return gateway


def listening(process: subprocess.Popen) -> str:
    """Reads the output of the gateway until it prints its URL."""
    said = b''
    deadline = time.monotonic() + START_SECONDS
    descriptor = process.stdout.fileno()
    with selectors.DefaultSelector() as ready:
        ready.register(descriptor, selectors.EVENT_READ)
        while ready.select(max(0.0, deadline - time.monotonic())):
            piece = os.read(descriptor, 4096)
            said += piece
            for line in said.decode().splitlines(keepends=True):
                name, _, url = line.strip().partition(' ')
                if line.endswith('\n') and name == 'url':
                    return url.strip()
            if not piece:
                break
    raise RuntimeError(f'longshore did not print its URL; its output: {said.decode()!r}')


def make_repository(directory: pathlib.Path) -> None:
    """A git repository with one commit: OpenCode names a project by its first commit."""
    directory.mkdir()
    (directory / 'README.md').write_text('# Harbour\n')
    identity = ['-c', 'user.name=Ada', '-c', 'user.email=ada@example.com']
    for command in (['init', '--quiet'], ['add', '.'], [*identity, 'commit', '--quiet', '--message=First']):
        subprocess.run(['git', *command], cwd=directory, check=True, capture_output=True)
