#!/usr/bin/env python3
"""Stands in for `opencode serve` in the tests of its supervision.

It takes the same arguments, prints the same line when it listens, and answers /global/health with the password.
FAKE_OPENCODE, a list of words, makes it behave otherwise:

    exit       ends at once with an error
    mute       never says that it listens
    early      is reachable for a while before it says that it listens, and reports a request that comes that early
    stubborn   does not end when it is asked to
    tool       leaves a tool running in a session of its own, with its pid in tool.pid in the working directory
    orphan     the same, but the tool does not descend from it any more
"""

import base64
import http.server
import os
import signal
import subprocess
import sys
import threading
import time

words = os.environ.get("FAKE_OPENCODE", "").split()
port = int(sys.argv[sys.argv.index("--port") + 1])
assert sys.argv[1:4] == ["serve", "--hostname", "127.0.0.1"], sys.argv
expected = "Basic " + base64.b64encode(b"opencode:" + os.environ["OPENCODE_SERVER_PASSWORD"].encode()).decode()
ready = threading.Event()

print("some words before", flush=True)
if "exit" in words:
    print("ServeError", file=sys.stderr, flush=True)
    sys.exit(1)
if "stubborn" in words:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *arguments):
        pass

    def do_GET(self):
        if not ready.is_set():
            print("EARLY", flush=True)
            time.sleep(1000)
        allowed = self.headers.get("authorization") == expected
        body = b'{"healthy":true,"version":"0.0.0-fake"}' if allowed and self.path == "/global/health" else b""
        self.send_response(200 if allowed else 401)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
server.daemon_threads = True
threading.Thread(target=server.serve_forever, daemon=True).start()
if "tool" in words:
    tool = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    with open("tool.pid", "w") as file:
        file.write(str(tool.pid))
if "orphan" in words:
    subprocess.run(["sh", "-c", "setsid sleep 1000 & echo $! > tool.pid"], check=True)
if "early" in words:
    time.sleep(0.5)
ready.set()
if "mute" not in words:
    print(f"opencode server listening on http://127.0.0.1:{port}", flush=True)
while True:
    time.sleep(1000)
