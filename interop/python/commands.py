"""One path through `longshore call` and the other commands, for any agent that repeats what it is told.

The agent answers "You said: TEXT." in pieces. For a few words it does something else: `ask` asks "Which colour?" and repeats the
answer, `fail` fails with "Because.", `wait` works until it is canceled, and `message` answers with a message and no task.
"""

import dataclasses
import json
import os
import pathlib
import pty
import select
import subprocess
import time

from gateway import binary

# A command that has shown nothing new for so long hangs.
SECONDS = 60


@dataclasses.dataclass
class Commands:
    """Commands for one agent, which know nothing but its URL."""

    url: str
    home: pathlib.Path
    # What the agent can do. Not every SDK has everything. `None`: it does not say that it cannot, so it is not tried.
    lists: bool | None = True
    extends_cards: bool = True
    lists_webhooks: bool = True
    removes_webhooks: bool = True
    variables: dict = dataclasses.field(default_factory=dict)

    def run(self, *words):
        return subprocess.run(
            [binary(), *words],
            env=self._environment(),
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )

    def of(self, *words):
        """A command that has its URL in a flag."""
        return self.run(*words, '--url', self.url)

    def call(self, *words):
        return self.run('call', self.url, *words)

    def _environment(self):
        return {'PATH': os.environ['PATH'], 'HOME': str(self.home), 'TERM': 'xterm', **self.variables}

    def on_terminal(self, *words, answers=()):
        """Runs a command on a pseudo-terminal, types each answer at a prompt, and returns what was shown and the exit code."""
        master, slave = pty.openpty()
        process = subprocess.Popen(
            [binary(), *words], env=self._environment(), cwd=self.home, stdin=slave, stdout=slave, stderr=slave
        )
        os.close(slave)
        shown, read, answers = '', 0, list(answers)
        deadline = time.monotonic() + SECONDS
        while select.select([master], [], [], max(0.0, deadline - time.monotonic()))[0]:
            try:
                piece = os.read(master, 4096)
            except OSError:
                # The other side is closed: the command has ended.
                break
            if not piece:
                break
            shown += piece.decode(errors='replace')
            if answers and '> ' in shown[read:]:
                read = len(shown)
                os.write(master, (answers.pop(0) + '\n').encode())
        os.close(master)
        return shown, process.wait(SECONDS)


def said(run):
    """How a command ended, for a comparison that shows everything when it fails."""
    return run.returncode, run.stdout, run.stderr


def path(commands):
    """Every command, on a pipe and on a terminal."""
    card = commands.run('card', commands.url)
    assert (card.returncode, card.stdout.splitlines()[0]) == (0, 'Echo 1'), said(card)
    whole = commands.run('card', commands.url, '--output', 'json')
    assert json.loads(whole.stdout)['name'] == 'Echo', said(whole)
    extended = commands.run('card', commands.url, '--extended')
    assert extended.returncode == 0, said(extended)
    assert ('and more' in extended.stdout) == commands.extends_cards, said(extended)

    task = calls(commands)
    on_terminal(commands)
    asks(commands)
    cancels(commands)
    reads(commands, task)
    webhooks(commands, task)


def calls(commands):
    called = commands.call('hello')
    assert (called.returncode, called.stdout) == (0, 'You said: hello.\n'), said(called)
    assert called.stderr.startswith('completed · ') and '\x1b' not in called.stderr, said(called)
    lines = commands.call('hello', '--output', 'jsonl')
    events = [json.loads(line) for line in lines.stdout.splitlines()]
    pieces = [part['text'] for event in events for part in parts(event)]
    assert (lines.returncode, ''.join(pieces)) == (0, 'You said: hello.'), said(lines)
    failed = commands.call('fail')
    assert (failed.returncode, failed.stdout) == (1, '') and 'Because.' in failed.stderr, said(failed)
    message = commands.call('message')
    assert (message.returncode, message.stdout) == (0, 'Only a message.\n'), said(message)
    whole = commands.call('hello', '--output', 'json')
    task = json.loads(whole.stdout)
    assert task['status']['state'] == 'TASK_STATE_COMPLETED', said(whole)
    assert ''.join(part['text'] for part in parts({'task': task})) == 'You said: hello.', said(whole)
    return task['id']


def parts(event):
    """The parts of the artifacts in an event."""
    artifacts = event.get('task', {}).get('artifacts', [])
    artifacts += [event['artifactUpdate']['artifact']] if 'artifactUpdate' in event else []
    return [part for artifact in artifacts for part in artifact['parts']]


def on_terminal(commands):
    shown, code = commands.on_terminal('call', commands.url, 'hello')
    assert (code, shown.count('You said: hello.')) == (0, 1) and '\x1b[2mcompleted' in shown, shown
    shown, code = commands.on_terminal('call', commands.url, 'ask', answers=['blue'])
    assert (code, shown.count('You said: blue.')) == (0, 1) and '\x1b[1mWhich colour?' in shown, shown


def asks(commands):
    asked = commands.call('ask')
    assert asked.returncode == 3 and 'Which colour?' in asked.stderr, said(asked)
    printed = next(line for line in asked.stderr.splitlines() if line.startswith('To answer later: longshore '))
    task = printed.split()[6]
    listed = commands.of('asks', 'list')
    if commands.lists:
        assert listed.returncode == 0 and f'{task}  Which colour?' in listed.stdout, said(listed)
    elif commands.lists is False:
        assert listed.returncode == 1 and listed.stderr.startswith('error: '), said(listed)
    answered = commands.of('asks', 'answer', task, 'blue')
    assert (answered.returncode, answered.stdout) == (0, 'You said: blue.\n'), said(answered)
    again = commands.of('asks', 'answer', task, 'blue')
    assert again.returncode == 2 and 'asks nothing: it is completed' in again.stderr, said(again)


def cancels(commands):
    with subprocess.Popen(
        [binary(), 'call', commands.url, 'wait', '--output', 'jsonl'],
        env=commands._environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as waiting:
        try:
            task = json.loads(waiting.stdout.readline())['task']['id']
            canceled = commands.of('tasks', 'cancel', task)
            expected = (0, '', f'The task {task} is canceled.\n')
            assert said(canceled) == expected
            assert waiting.wait(SECONDS) == 4, waiting.stderr.read()
        finally:
            waiting.kill()
    # Some agents accept it, because the task is canceled already.
    late = commands.of('tasks', 'cancel', task)
    assert late.returncode == 0 or (late.returncode == 1 and late.stderr.startswith('error: ')), said(late)


def reads(commands, task):
    for words in (['tasks', 'get', task], ['tasks', 'watch', task]):
        shown = commands.of(*words)
        assert (shown.returncode, shown.stdout) == (0, 'You said: hello.\n'), said(shown)
    missing = commands.of('tasks', 'get', 'no-such-task')
    assert missing.returncode == 1 and missing.stderr.startswith('error: '), said(missing)
    listed = commands.of('tasks', 'list')
    if commands.lists:
        assert listed.returncode == 0 and f'{task}  completed' in listed.stdout, said(listed)
    elif commands.lists is False:
        assert listed.returncode == 1 and listed.stderr.startswith('error: '), said(listed)


def webhooks(commands, task):
    added = commands.of('tasks', 'notify', task, 'http://127.0.0.1:9/hook', '--output', 'jsonl')
    assert added.returncode == 0, said(added)
    webhook = json.loads(added.stdout)
    assert (webhook['taskId'], webhook['url']) == (task, 'http://127.0.0.1:9/hook') and webhook['id'], webhook
    listed = commands.of('tasks', 'notify', task)
    if commands.lists_webhooks:
        assert (listed.returncode, listed.stdout) == (0, f'{webhook["id"]}  http://127.0.0.1:9/hook\n'), said(listed)
    else:
        assert listed.returncode == 1 and listed.stderr.startswith('error: '), said(listed)
    removed = commands.of('tasks', 'notify', task, '--remove', webhook['id'])
    assert removed.returncode == (0 if commands.removes_webhooks else 1), said(removed)
