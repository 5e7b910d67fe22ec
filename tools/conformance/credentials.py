"""A pytest plugin that gives the requests of a conformance kit the credential that Longshore asks for.

Neither kit can be told of one, and Longshore serves nobody without. A request that brings a credential of its own, wrong
or right, is left as it is; so are those of the tests that are about a missing one.

LONGSHORE_SUT is the gateway's `host:port`, LONGSHORE_TOKEN the token. Loaded with `pytest -p credentials`.
"""

import os
import pathlib

import httpx
import pytest

PLACE = os.environ['LONGSHORE_SUT']
CREDENTIAL = f'Bearer {os.environ["LONGSHORE_TOKEN"]}'

# Here the kit for 0.3 looks at what happens without a credential: with `requests`, while its clients use httpx.
BARE = {
    'test_auth_compliance_v030.py',
    'test_auth_enforcement.py',
    'test_a2a_v030_authentication.py',
    'test_agent_card_security.py',
    'test_authentication.py',
    'test_extended_agent_card.py',
    'test_in_task_authentication.py',
}

# A test that is named so has its client ask without a credential.
BARE_NAME = 'without_auth'

current, name = '', ''


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    """Notes which test comes."""
    global current, name
    current, name = pathlib.Path(item.fspath).name, item.name


def completed(headers: dict, place: str) -> None:
    """Adds the credential where there is none."""
    if place == PLACE and BARE_NAME not in name and not {'authorization', 'x-api-key'} & {name.lower() for name in headers}:
        headers['Authorization'] = CREDENTIAL


def patch_httpx() -> None:
    """Completes what httpx sends, with a client or without."""
    blocking, asynchronous = httpx.Client.send, httpx.AsyncClient.send

    def send(self, request, **options):
        completed(request.headers, request.url.netloc.decode())
        return blocking(self, request, **options)

    async def send_async(self, request, **options):
        completed(request.headers, request.url.netloc.decode())
        return await asynchronous(self, request, **options)

    httpx.Client.send, httpx.AsyncClient.send = send, send_async


def patch_requests() -> None:
    """Completes what requests sends, but for the tests that are about a missing credential."""
    try:
        import requests
    except ImportError:
        return
    original = requests.Session.send

    def send(self, request, **options):
        if current not in BARE:
            completed(request.headers, request.url.split('/')[2])
        return original(self, request, **options)

    requests.Session.send = send


patch_httpx()
patch_requests()
