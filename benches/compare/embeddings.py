"""Embeddings of a batch of texts: the server over HTTP, onnxruntime in process, in turn."""

import http.client
import json
import time
from statistics import median

from child import Missing
from engine import say
from texts import texts

TEXTS = 32


class OverHttp:
    """A server with an encoder, as if it were a `Child`."""

    def __init__(self, server, seconds: float):
        self.server, self.seconds = server, seconds

    def measure(self, case: str) -> dict:
        """Batches, one after the other, over one connection."""
        body = json.dumps({"model": "default", "input": texts(int(case.removeprefix("embeddings:")))})
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        self.batch(connection, body)
        seconds, began = [], time.perf_counter()
        while not seconds or time.perf_counter() - began < self.seconds:
            seconds.append(self.batch(connection, body))
        connection.close()
        return {"case": case, "units": TEXTS, "seconds": seconds}

    def batch(self, connection, body: str) -> float:
        """Seconds for one batch."""
        began = time.perf_counter()
        connection.request("POST", "/v1/embeddings", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise Missing(f"/v1/embeddings answered {answer.status}: {text[:200].decode(errors='replace')}")
        return time.perf_counter() - began

    def close(self) -> None:
        """Ends the server."""
        self.server.stop()


def compare(starters: dict, rounds: int) -> dict:
    """Texts per second of each round, by engine; and who is missing, and why."""
    found, missing = {}, {}
    for turn in range(rounds):
        names = [name for name in starters if name not in missing]
        for name in names[turn % 2 :] + names[: turn % 2]:
            try:
                found.setdefault(name, []).append(one_round(starters[name]))
            except Missing as error:
                missing[name] = str(error)
                say(f"{name} is left out: {error}")
    return {"texts": TEXTS, "rates": {name: rates for name, rates in found.items() if rates}, "missing": missing}


def one_round(starter) -> float:
    """Texts per second of one engine, started anew."""
    child = starter()
    try:
        answer = child.measure(f"embeddings:{TEXTS}")
    finally:
        child.close()
    return answer["units"] / median(answer["seconds"])
