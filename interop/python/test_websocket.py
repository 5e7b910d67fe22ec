"""The WebSocket binding with the Python package `websockets`, and the example of docs/connections.md."""

import json
import os
import re
import subprocess
import sys
import uuid

import pytest
import websockets

from gateway import ROOT


def address(gateway):
    return gateway.url.replace('http', 'ws', 1) + '/ws'


def connect(gateway, **options):
    headers = {'Authorization': f'Bearer {gateway.token}'}
    return websockets.connect(address(gateway), additional_headers=headers, proxy=None, **options)


def request(number, method, params, **more):
    return json.dumps({'jsonrpc': '2.0', 'id': number, 'method': method, 'params': params, **more})


def message(text):
    part = {'messageId': str(uuid.uuid4()), 'role': 'ROLE_USER', 'parts': [{'text': text}]}
    return {'message': part}


async def events(socket, number):
    """The events of a request until its stream is complete."""
    seen = []
    async for text in socket:
        received = json.loads(text)
        if received.get('method') == '$/requestEnded' and received['params']['id'] == number:
            return seen
        if received.get('id') == number:
            assert 'error' not in received, received
            seen.append(received)
    raise AssertionError('the socket was closed')


async def test_two_streams_share_a_socket_and_one_is_resumed(gateway):
    async with connect(gateway) as socket:
        await socket.send(request(1, 'SendStreamingMessage', message('scn:text n=4 text="ahoy on a socket"')))
        whole = await events(socket, 1)
        task = whole[0]['result']['task']['id']
        # From the first event on, beside another request.
        again = {'serviceParameters': {'Last-Event-ID': whole[0]['eventId']}}
        await socket.send(request('again', 'SubscribeToTask', {'id': task}, **again))
        await socket.send(request(2, 'GetTask', {'id': task}))
        rest = await events(socket, 'again')
        assert [event['eventId'] for event in rest] == [event['eventId'] for event in whole[1:]]
        updates = [event['result'].get('artifactUpdate') for event in whole]
        parts = [part for update in updates if update for part in update['artifact']['parts']]
        assert 'ahoy on a socket' in ''.join(part.get('text', '') for part in parts)


async def test_a_wrong_credential_is_refused(gateway):
    with pytest.raises(websockets.InvalidStatus) as refused:
        async with websockets.connect(address(gateway), proxy=None):
            pass
    assert refused.value.response.status_code == 401


def test_the_example_of_the_documentation_runs(gateway):
    page = (ROOT / 'docs' / 'connections.md').read_text()
    example = re.search(r'```python\n(.*?)```', page, re.DOTALL).group(1)
    environment = {**os.environ, 'TOKEN': gateway.token, 'WS_URL': address(gateway)}
    done = subprocess.run(
        [sys.executable, '-c', example], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    kinds = [line.split()[1] for line in done.stdout.splitlines()]
    assert kinds[0] == 'task' and kinds[-1] == 'statusUpdate', done.stdout
