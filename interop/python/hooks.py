"""A receiver of push notifications on this machine, for the tests of both Python SDKs."""

import asyncio
import queue

import pytest

from http_server import Server


class Hook:
    def __init__(self) -> None:
        self._calls: queue.Queue = queue.Queue()
        self._server = Server()
        self.url = self._server.start(lambda url: self._answer) + '/hook'

    async def next(self):
        """The headers and the body of the next call."""
        return await asyncio.to_thread(self._calls.get, True, 60)

    def stop(self) -> None:
        self._server.stop()

    async def _answer(self, method, path, headers, body):
        self._calls.put((headers, body))

        async def nothing():
            return
            yield b''

        return 204, [], nothing()


@pytest.fixture
def hook():
    running = Hook()
    yield running
    running.stop()
