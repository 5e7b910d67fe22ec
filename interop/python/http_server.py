"""A small HTTP server for the servers of the SDKs, so that the tests need no server package.

It calls `answer(method, path, headers, body)`, which returns a status, headers, and the pieces of the body as an async iterator.
"""

import asyncio
import threading


class Server:
    """Serves in a thread of its own until `stop()`."""

    def __init__(self) -> None:
        self.url = ''
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self, make_answer) -> str:
        """`make_answer(url)` returns the function that answers. It runs in the loop of the server."""
        self._make_answer = make_answer
        self._thread.start()
        if not self._ready.wait(30):
            raise RuntimeError('the server did not start')
        return self.url

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._listen())
        self._loop.run_forever()
        # The SDK leaves tasks that wait for the end of the server.
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        if left:
            self._loop.run_until_complete(asyncio.wait(left, timeout=5))

    async def _listen(self) -> None:
        server = await asyncio.start_server(self._serve, '127.0.0.1', 0)
        host, port = server.sockets[0].getsockname()
        self.url = f'http://{host}:{port}'
        self._answer = self._make_answer(self.url)
        self._ready.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b'\r\n\r\n')).decode()
            request, *lines = head.split('\r\n')
            method, path, _ = request.split(' ')
            headers = {}
            for line in filter(None, lines):
                name, _, value = line.partition(':')
                headers[name.strip().lower()] = value.strip()
            body = await reader.readexactly(int(headers.get('content-length', 0)))
            status, reply, pieces = await self._answer(method, path, headers, body)
            writer.write(f'HTTP/1.1 {status} Status\r\nconnection: close\r\n'.encode())
            for name, value in reply:
                writer.write(f'{name}: {value}\r\n'.encode())
            writer.write(b'\r\n')
            async for piece in pieces:
                writer.write(piece)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


def asgi(app):
    """Answers with an ASGI application, such as Starlette's."""

    async def answer(method, path, headers, body):
        path, _, query = path.partition('?')
        scope = {
            'type': 'http',
            'asgi': {'version': '3.0'},
            'http_version': '1.1',
            'method': method,
            'scheme': 'http',
            'path': path,
            'raw_path': path.encode(),
            'query_string': query.encode(),
            'headers': [(name.encode(), value.encode()) for name, value in headers.items()],
            'server': ('127.0.0.1', 80),
            'client': ('127.0.0.1', 1),
        }
        messages: asyncio.Queue = asyncio.Queue(maxsize=64)
        sent = asyncio.Event()

        async def receive():
            if sent.is_set():
                # The client stays; its end is noticed when writing fails.
                await asyncio.Event().wait()
            sent.set()
            return {'type': 'http.request', 'body': body, 'more_body': False}

        async def run():
            try:
                await app(scope, receive, messages.put)
            except Exception as error:
                # A server would log it. If the response has begun, it ends here.
                body = f'{type(error).__name__}: {error}'.encode()
                await messages.put({'type': 'http.response.start', 'status': 500, 'headers': []})
                await messages.put({'type': 'http.response.body', 'body': body})
            await messages.put(None)

        running = asyncio.ensure_future(run())
        start = await messages.get()
        status = start['status']
        reply = [
            (name.decode(), value.decode())
            for name, value in start['headers']
            if name.lower() != b'connection'
        ]

        async def pieces():
            try:
                while message := await messages.get():
                    yield message.get('body', b'')
                    if not message.get('more_body'):
                        return
            finally:
                running.cancel()

        return status, reply, pieces()

    return answer
