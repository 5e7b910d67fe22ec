"""The official client lists and calls the tools over both transports and in both eras of the protocol."""

import asyncio

import httpx2
import pytest

import gateway as gateways
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

# No call takes longer, not even the first turn of an OpenCode that has just started.
TIMEOUT = 60.0

TOOLS = ['a2a_discover', 'a2a_call', 'a2a_continue', 'a2a_answer', 'a2a_status', 'a2a_cancel']


@pytest.fixture(scope='module')
def gateway(tmp_path_factory):
    running = gateways.start(tmp_path_factory.mktemp('longshore'))
    yield running
    running.stop()


def over_http(gateway):
    headers = {'Authorization': f'Bearer {gateway.token}'}
    client = httpx2.AsyncClient(headers=headers, timeout=TIMEOUT, trust_env=False)
    return streamable_http_client(f'{gateway.url}/mcp', http_client=client)


def of_the_directory(gateway):
    """`longshore mcp`, for the gateway that serves a directory."""
    arguments = ['mcp', '--data-dir', str(gateway.data), '--workspace', str(gateway.workspace)]
    return stdio(gateway, arguments, {})


def at_the_url(gateway):
    """`longshore mcp --url`, with a credential in the environment."""
    return stdio(gateway, ['mcp', '--url', gateway.url], {'A2A_CLIENT_BEARER_TOKEN': gateway.token})


def stdio(gateway, arguments, more):
    environment = {**gateway.environment, **more}
    return stdio_client(StdioServerParameters(command=gateways.binary(), args=arguments, env=environment))


@pytest.fixture(params=[over_http, of_the_directory, at_the_url])
def transport(request, gateway):
    return lambda: request.param(gateway)


@pytest.fixture(params=['legacy', 'auto', '2026-07-28'])
def mode(request):
    return request.param


async def test_the_tools_are_listed_and_called(transport, mode):
    async with Client(transport(), mode=mode, read_timeout_seconds=TIMEOUT) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == TOOLS
        found = await client.call_tool('a2a_discover', {})
        agent = found.structured_content['agents'][0]['name']

        heard = []

        async def progress(done, total, message):
            heard.append(message)

        arguments = {'agent': agent, 'message': 'scn:text text="from the other side"'}
        called = await client.call_tool('a2a_call', arguments, progress_callback=progress)
        assert not called.is_error, called
        assert called.structured_content['state'] == 'completed', called
        assert 'from the other side' in called.content[0].text
        assert heard[0].startswith(f'{agent} has the message'), heard

        refused = await client.call_tool('a2a_call', {'agent': 'http://169.254.169.254/', 'message': 'x'})
        assert refused.is_error and 'The only agent here' in refused.content[0].text


async def test_an_ask_is_answered(transport):
    async with Client(transport(), read_timeout_seconds=TIMEOUT) as client:
        agent = (await client.call_tool('a2a_discover', {})).structured_content['agents'][0]['name']
        arguments = {'agent': agent, 'message': 'scn:bash cmd="touch guarded" scn:text text="touched"'}
        asked = await client.call_tool('a2a_call', arguments)
        assert asked.structured_content['state'] == 'asks', asked
        arguments = {'call': asked.structured_content['call'], 'answer': 'once'}
        answered = await client.call_tool('a2a_answer', arguments)
        assert answered.structured_content['state'] == 'completed', answered
        assert 'touched' in answered.content[0].text


async def test_a_call_outlives_a_kill_of_the_gateway_and_is_made_once(gateway):
    async with Client(at_the_url(gateway), read_timeout_seconds=TIMEOUT) as client:
        agent = (await client.call_tool('a2a_discover', {})).structured_content['agents'][0]['name']
        begun = asyncio.get_running_loop().create_future()

        async def progress(done, total, message):
            if not begun.done():
                begun.set_result(message)

        arguments = {'agent': agent, 'message': 'scn:long n=200 delay=20'}
        calling = asyncio.create_task(client.call_tool('a2a_call', arguments, progress_callback=progress))
        handle = (await begun).rsplit(' ', 1)[1]
        await asyncio.to_thread(gateway.kill_and_restart)
        called = await calling
        assert called.structured_content['state'] == 'completed', called
        assert called.structured_content['call'] == handle
