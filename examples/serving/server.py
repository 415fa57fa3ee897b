"""A model on two nodes: rank 0 answers HTTP and asks rank 1, which holds the other half of the weights.

    gangctl run examples/serving/replica-a.yaml
    curl 'http://127.0.0.1:8000/?x=1,2,3,4'                       # 30.0, and which rank has summed what

The model is one row of weights. What matters is what a rank does when its peer is gone: it ends, and gangctl starts
both again. Between the two, the port is closed, so a readinessProbe fails.
"""

import json
import os
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

WEIGHTS = [1.0, 2.0, 3.0, 4.0]
HALF = len(WEIGHTS) // 2
PEER_SECONDS = 10.0
ADDRESS = (os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ.get("MASTER_PORT", "29500")))


class Peer:
    """Rank 0's connection to rank 1: one question at a time, a line of JSON each."""

    def __init__(self) -> None:
        family = socket.AF_INET6 if ":" in ADDRESS[0] else socket.AF_INET
        with socket.create_server(ADDRESS, family=family) as listener:
            connection, _ = listener.accept()  # without a deadline: rank 1 may load its weights for long
        connection.settimeout(PEER_SECONDS)
        self._lines = connection.makefile("rw", encoding="utf-8")
        self._turn = threading.Lock()

    def half(self, values: list[float]) -> float:
        """Rank 1's part of the sum; OSError if rank 1 doesn't answer."""
        with self._turn:
            self._lines.write(json.dumps(values) + "\n")
            self._lines.flush()
            line = self._lines.readline()
        if not line:
            raise ConnectionResetError("rank 1 has closed its connection")
        return float(line)


class Handler(BaseHTTPRequestHandler):
    """GET /?x=1,2,3,4 and GET /healthz, which asks rank 1 too: ready means that the whole model answers."""

    peer: Peer

    def do_GET(self) -> None:
        """Answer with 200, with 400 for a bad x, or with 503 if rank 1 is gone; then this rank ends as well."""
        given = parse_qs(urlsplit(self.path).query).get("x", ["0,0,0,0"])[0]
        try:
            x = [float(one) for one in given.split(",")]
        except ValueError:
            x = []
        if len(x) != len(WEIGHTS):
            self.answer(400, {"error": f"x is {given!r}; give {len(WEIGHTS)} numbers, such as ?x=1,2,3,4"})
            return
        try:
            parts = [dot(WEIGHTS[:HALF], x[:HALF]), self.peer.half(x[HALF:])]
        except OSError as error:
            self.answer(503, {"error": f"rank 1: {error}; the gang restarts"})
            self.server.shutdown()
            return
        self.answer(200, {"y": sum(parts), "parts": parts, "gang": os.environ.get("GANG_NAME", "")})

    def answer(self, status: int, body: dict[str, object]) -> None:
        """Write the whole answer."""
        content = json.dumps(body).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """No line for each request."""


def dot(weights: list[float], x: list[float]) -> float:
    """One rank's part of the sum."""
    return sum(one * other for one, other in zip(weights, x))  # noqa: B905 - Python 3.8 has no strict


def serve() -> None:
    """Rank 0: open the port only when the other half is there."""
    Handler.peer = Peer()
    port = int(os.environ.get("PORT", "8000"))
    with ThreadingHTTPServer(("", port), Handler) as server:
        print(f"rank 0 serves on port {port}", flush=True)
        server.serve_forever()
    raise SystemExit("rank 0: rank 1 doesn't answer; ends, so that both start again")


def compute() -> None:
    """Rank 1: answer rank 0 until its connection ends."""
    with connect() as connection, connection.makefile("rw", encoding="utf-8") as lines:
        print("rank 1 is connected", flush=True)
        for line in lines:
            lines.write(f"{dot(WEIGHTS[HALF:], json.loads(line))!r}\n")
            lines.flush()
    raise SystemExit("rank 1: rank 0 is gone; ends, so that both start again")


def connect() -> socket.socket:
    """Rank 0 may listen a little later: try until it does."""
    while True:
        try:
            return socket.create_connection(ADDRESS)
        except ConnectionRefusedError:
            time.sleep(0.05)


if __name__ == "__main__":
    serve() if os.environ["RANK"] == "0" else compute()
