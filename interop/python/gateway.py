"""The real `longshore serve --demo` with the real OpenCode, for one run of the tests."""

import dataclasses
import os
import pathlib
import selectors
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOLS = ROOT / '.tools' / 'bin'
TOKEN = 'a-token-for-tests-only-0123456789'

# A gateway that has not said by then that it listens will never do so.
START_SECONDS = 60


@dataclasses.dataclass
class Gateway:
    """A gateway that runs."""

    url: str
    token: str
    place: list[str]
    workspace: pathlib.Path
    process: subprocess.Popen
    environment: dict[str, str]

    def stop(self) -> None:
        """Ends the gateway and the OpenCode that it started, and nothing else."""
        self.process.kill()
        self.process.wait()
        subprocess.run(
            [binary(), 'stop', *self.place],
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
        raise RuntimeError(f'{binary()} is not there: run cargo build --package longshore')
    workspace = directory / 'workspace'
    make_repository(workspace)
    home = directory / 'home'
    home.mkdir()
    environment = {
        'PATH': f'{TOOLS}{os.pathsep}{os.environ["PATH"]}',
        'HOME': str(home),
        'A2A_BEARER_TOKEN': TOKEN,
    }
    place = ['--demo', '--data-dir', str(directory / 'data'), '--workspace', str(workspace)]
    log = directory / 'gateway.log'
    with log.open('wb') as stderr:
        process = subprocess.Popen(
            [binary(), 'serve', *place, '--port', '0'],
            env=environment,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
        )
    gateway = Gateway('', TOKEN, place, workspace, process, environment)
    try:
        gateway.url = listening(process)
    except Exception as error:
        gateway.stop()
        raise RuntimeError(f'{error}; it logged:\n{log.read_text()}') from error
    return gateway


def listening(process: subprocess.Popen) -> str:
    """Reads what the gateway says until it says where it is."""
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
    raise RuntimeError(f'longshore did not say that it listens; it said: {said.decode()!r}')


def make_repository(directory: pathlib.Path) -> None:
    """A git repository with one commit: OpenCode names a project by its first commit."""
    directory.mkdir()
    (directory / 'README.md').write_text('# Harbour\n')
    identity = ['-c', 'user.name=Ada', '-c', 'user.email=ada@example.com']
    for command in (['init', '--quiet'], ['add', '.'], [*identity, 'commit', '--quiet', '--message=First']):
        subprocess.run(['git', *command], cwd=directory, check=True, capture_output=True)
