"""Clients of a server: streams, probes and scrapes, each a thread with a connection of its own."""

import http.client
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TIMEOUT = 300


def get(port: int, path: str) -> tuple[int, bytes]:
    """One GET over a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def prompt(tokens: int, seed: int, ids: range) -> list[int]:
    """Token ids that no other prompt begins with, so that no cache of prefixes helps anybody."""
    return [ids[(seed * 104_729 + i * 7919) % len(ids)] for i in range(tokens)]


def stream(port: int, path: str, body: dict, count_tokens) -> dict:
    """One streaming request: when it was sent, when its first event came, when it ended, and its tokens."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
    sent = time.perf_counter()
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    first, last, said = None, b"", b""
    for line in answer:
        if line.startswith(b"data: ") and line.strip() != b"data: [DONE]":
            first = first or time.perf_counter()
            last = line
        elif first is None:
            said = line
    connection.close()
    if answer.status != 200 or first is None:
        raise RuntimeError(f"{path} answered {answer.status} without events: {said.decode(errors='replace')[:200]}")
    tokens = count_tokens(json.loads(last[len(b"data: ") :]))
    return {"sent": sent, "first": first, "ended": time.perf_counter(), "tokens": tokens}


def clients(server, count: int, each: int, plan: dict, seed: int) -> list[dict]:
    """`count` clients at the same time, each with `each` requests one after the other."""
    done, errors, max_tokens = [], [], plan["output"]

    def client(number: int) -> None:
        for turn in range(each):
            ids = prompt(plan["prompt"], seed + number * each + turn, range(*plan["ids"]))
            try:
                done.append(stream(server.port, *server.request(ids, max_tokens), server.count_tokens))
            except (OSError, RuntimeError, http.client.HTTPException, KeyError, ValueError) as error:
                errors.append(error)
                return

    together([lambda number=number: client(number) for number in range(count)])
    if errors:
        raise RuntimeError(f"{server.name}: {len(errors)} of {count} clients failed: {errors[0]}")
    short = [request["tokens"] for request in done if request["tokens"] != max_tokens]
    if short:
        raise RuntimeError(f"{server.name}: asked for {max_tokens} tokens, got {short[0]}")
    return done


def together(jobs: list) -> None:
    """Runs all jobs at the same time, and waits for them."""
    threads = [threading.Thread(target=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Beat:
    """Asks for a path at a fixed pace until it is stopped, and keeps the seconds that each answer took."""

    def __init__(self, port: int, path: str, every: float):
        self.port, self.path, self.every = port, path, every
        self.seconds, self.failures = [], 0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self) -> None:
        """The pace is kept where an answer takes longer than a beat."""
        due = time.perf_counter()
        while not self.over.wait(max(0, due - time.perf_counter())):
            began = time.perf_counter()
            try:
                status, _ = get(self.port, self.path)
                self.failures += status != 200
            except (OSError, http.client.HTTPException):
                self.failures += 1
            self.seconds.append(time.perf_counter() - began)
            due = max(due + self.every, time.perf_counter())

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


class Sink:
    """A collector that takes everything and keeps nothing, so that traces are really sent."""

    def __init__(self):
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), _TakesAll)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


class _TakesAll(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):  # noqa: N802, the library's name
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        """Silent."""
