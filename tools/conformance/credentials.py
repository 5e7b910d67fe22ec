"""A pytest plugin that adds Longshore's credential to the requests of a conformance kit.

Neither kit can be configured with a credential, and Longshore requires one. A request with a credential of its own, valid or
not, is not changed, and neither are requests of tests that check a missing credential.

LONGSHORE_SUT is the gateway's `host:port`, LONGSHORE_TOKEN the token. Loaded with `pytest -p credentials`.
"""

import os
import pathlib

import grpc
import httpx
import pytest

GATEWAY = os.environ['LONGSHORE_SUT']
CREDENTIAL = f'Bearer {os.environ["LONGSHORE_TOKEN"]}'

# In these files the 0.3 kit checks requests without a credential. It sends them with `requests`; its clients use httpx.
BARE = {
    'test_auth_compliance_v030.py',
    'test_auth_enforcement.py',
    'test_a2a_v030_authentication.py',
    'test_agent_card_security.py',
    'test_authentication.py',
    'test_extended_agent_card.py',
    'test_in_task_authentication.py',
}

# A test with this text in its name makes its client send requests without a credential.
BARE_NAME = 'without_auth'

current, name = '', ''


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    """Remembers the current test."""
    global current, name
    current, name = pathlib.Path(item.fspath).name, item.name


def add_credential(headers: dict, host: str) -> None:
    """Adds the credential if there is none."""
    if host == GATEWAY and BARE_NAME not in name and not {'authorization', 'x-api-key'} & {name.lower() for name in headers}:
        headers['Authorization'] = CREDENTIAL


def patch_httpx() -> None:
    """Adds the credential to requests of httpx."""
    blocking, asynchronous = httpx.Client.send, httpx.AsyncClient.send

    def send(self, request, **options):
        add_credential(request.headers, request.url.netloc.decode())
        return blocking(self, request, **options)

    async def send_async(self, request, **options):
        add_credential(request.headers, request.url.netloc.decode())
        return await asynchronous(self, request, **options)

    httpx.Client.send, httpx.AsyncClient.send = send, send_async


class Interceptor(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):
    """Adds the credential to the calls of a gRPC channel."""

    def __init__(self, host: str) -> None:
        self.host = host

    def intercept_unary_unary(self, continuation, details, request):
        return continuation(self.with_credential(details), request)

    def intercept_unary_stream(self, continuation, details, request):
        return continuation(self.with_credential(details), request)

    def with_credential(self, details: grpc.ClientCallDetails) -> grpc.ClientCallDetails:
        """The details of a call, with the credential if there was none."""
        metadata = dict(details.metadata or ())
        add_credential(metadata, self.host)
        # gRPC accepts only names in lowercase.
        return details._replace(metadata=[(name.lower(), value) for name, value in metadata.items()])


def patch_grpc() -> None:
    """Adds the credential to calls of gRPC."""
    original = grpc.insecure_channel

    def insecure_channel(target: str, *options, **named):
        return grpc.intercept_channel(original(target, *options, **named), Interceptor(target))

    grpc.insecure_channel = insecure_channel


def patch_requests() -> None:
    """Adds the credential to requests of `requests`, except in tests that check a missing credential."""
    try:
        import requests
    except ImportError:
        return
    original = requests.Session.send

    def send(self, request, **options):
        if current not in BARE:
            add_credential(request.headers, request.url.split('/')[2])
        return original(self, request, **options)

    requests.Session.send = send


patch_httpx()
patch_grpc()
patch_requests()
