"""Fixtures for the tests of both Python SDKs: a gateway, its card, and an HTTP client with its credential."""

import httpx
import pytest

from a2a.client import A2ACardResolver

import gateway as gateways
from served_agent import served


# No call takes longer, not even the first turn of an OpenCode that has just started.
TIMEOUT = 60.0


@pytest.fixture(scope='session')
def gateway(tmp_path_factory):
    running = served() or gateways.start(tmp_path_factory.mktemp('longshore'))
    yield running
    running.stop()


@pytest.fixture
async def http(gateway):
    """An HTTP client with the gateway's credential, that ignores proxies of the environment."""
    headers = {'Authorization': f'Bearer {gateway.token}'}
    async with httpx.AsyncClient(headers=headers, timeout=TIMEOUT, trust_env=False) as client:
        yield client


@pytest.fixture
async def card(gateway):
    """The public card, read without a credential."""
    async with httpx.AsyncClient(timeout=TIMEOUT, trust_env=False) as client:
        return await A2ACardResolver(client, gateway.url).get_agent_card()


@pytest.fixture(params=['JSONRPC', 'HTTP+JSON', 'GRPC'])
def binding(request):
    return request.param
