"""One gateway for all tests, and a client of the official SDK for each binding."""

import pytest

from a2a.client import ClientConfig, ClientFactory

from grpc_channel import channels
from fixtures import binding, card, gateway, http  # noqa: F401 (pytest finds fixtures by name)


@pytest.fixture
def connect(http, card, binding):  # noqa: F811
    """Makes a client of the binding under test: `connect(streaming=False)`."""

    def connect(**options):
        config = ClientConfig(
            httpx_client=http,
            grpc_channel_factory=channels(http.headers['Authorization']),
            supported_protocol_bindings=[binding],
            **options,
        )
        return ClientFactory(config).create(card)

    return connect
