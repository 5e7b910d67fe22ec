"""The official SDK over TLS, with a client certificate as its credential."""

import contextlib
import functools
import json
import os
import pathlib
import ssl
import subprocess

import grpc
import httpx
import pytest

from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import TaskState

import gateway as gateways

from fixtures import TIMEOUT
from sdk import ask, fold, gather, send, texts

CLIENT = 'spiffe://test/ci'


def openssl(directory: pathlib.Path, *arguments: str) -> None:
    subprocess.run(['openssl', *arguments], cwd=directory, check=True, capture_output=True)


def make_certificates(directory: pathlib.Path) -> None:
    """An authority, and a certificate of a server and of a client that it issued."""
    key = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes']
    openssl(directory, 'req', '-x509', *key, '-keyout', 'ca.key', '-out', 'ca.pem', '-days', '2', '-subj', '/CN=test',
            '-addext', 'keyUsage=critical,keyCertSign,cRLSign')  # fmt: skip
    for name, purpose, names in (
        ('server', 'serverAuth', 'DNS:localhost,IP:127.0.0.1'),
        ('client', 'clientAuth', f'URI:{CLIENT}'),
    ):
        extensions = f'basicConstraints=critical,CA:FALSE\nextendedKeyUsage={purpose}\nsubjectAltName={names}\n'
        (directory / f'{name}.ext').write_text(extensions)
        openssl(directory, 'req', '-new', *key, '-keyout', f'{name}.key', '-out', f'{name}.csr', '-subj', f'/CN={name}')
        openssl(directory, 'x509', '-req', '-in', f'{name}.csr', '-CA', 'ca.pem', '-CAkey', 'ca.key', '-CAcreateserial',
                '-days', '2', '-extfile', f'{name}.ext', '-out', f'{name}.pem')  # fmt: skip
    for key in directory.glob('*.key'):
        key.chmod(0o600)


@contextlib.contextmanager
def over_tls(gateway: gateways.Gateway, directory: pathlib.Path):
    """The URL of a second gateway, with TLS, before the same OpenCode."""
    make_certificates(directory)
    record = json.loads((gateway.data / 'managed.json').read_text())
    environment = {
        'PATH': os.environ['PATH'],
        'HOME': str(directory),
        'OPENCODE_BASE_URL': f'http://127.0.0.1:{record["port"]}',
        'OPENCODE_AUTH_PASSWORD': record['password'],
        'A2A_STATIC_AUTH_CREDENTIALS': json.dumps([{'scheme': 'mtls', 'san': CLIENT, 'principal': 'ci'}]),
    }
    flags = ['--workspace', str(gateway.workspace), '--port', '0', '--tls-certificate', 'server.pem']
    flags += ['--tls-key', 'server.key', '--tls-client-ca', 'ca.pem']
    process = subprocess.Popen(
        [gateways.binary(), 'serve', *flags],
        env=environment,
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    try:
        yield gateways.listening(process)
    finally:
        process.terminate()
        process.wait()


def trusting(directory: pathlib.Path, **more) -> httpx.AsyncClient:
    """An HTTP client that trusts the authority of the test."""
    context = ssl.create_default_context(cafile=directory / 'ca.pem')
    if more.pop('presents_certificate', False):
        context.load_cert_chain(directory / 'client.pem', directory / 'client.key')
    return httpx.AsyncClient(verify=context, timeout=TIMEOUT, trust_env=False, **more)


def channel(directory: pathlib.Path, address: str) -> grpc.aio.Channel:
    """A gRPC channel with the client certificate, that trusts the authority of the test."""
    files = [(directory / name).read_bytes() for name in ('ca.pem', 'client.key', 'client.pem')]
    options = [('grpc.enable_http_proxy', 0)]
    return grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(*files), options=options)


async def test_every_binding_works_over_tls_with_a_client_certificate(gateway, tmp_path):
    with over_tls(gateway, tmp_path) as url:
        async with trusting(tmp_path, presents_certificate=True) as http:
            card = await A2ACardResolver(http, url).get_agent_card()
            for interface in card.supported_interfaces:
                # The address of gRPC has no scheme.
                assert interface.url.startswith(('https://', 'wss://')) or interface.protocol_binding == 'GRPC'
            assert [scheme.WhichOneof('scheme') for scheme in card.security_schemes.values()] == ['mtls_security_scheme']
            for binding in ('JSONRPC', 'HTTP+JSON', 'GRPC'):
                options = {
                    'httpx_client': http,
                    'grpc_channel_factory': functools.partial(channel, tmp_path),
                    'supported_protocol_bindings': [binding],
                }
                config = ClientConfig(**options)
                events = await gather(ClientFactory(config).create(card).send_message(ask('scn:text n=4 text="ahoy"')))
                task = fold(events)
                assert task.status.state == TaskState.TASK_STATE_COMPLETED
                assert texts(task) == [('text', 'ahoy')]
                unary = ClientFactory(ClientConfig(**options, streaming=False))
                assert texts(await send(unary.create(card), ask('scn:text n=1 text="aye"'))) == [('text', 'aye')]
        async with trusting(tmp_path) as http:
            assert (await http.get(f'{url}/tasks')).status_code == 401
        async with httpx.AsyncClient(trust_env=False) as http:
            with pytest.raises(httpx.ConnectError):
                await http.get(f'{url}/tasks')
