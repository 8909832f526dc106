"""SGLang's gateway, unmodified, in front of two servers, of which one is killed and comes back: `clients_gateway.py SERVER`."""

import json
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

server = sys.argv[1]
work = pathlib.Path(tempfile.mkdtemp())
children = []


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def start(name, command):
    with open(work / f"{name}.log", "ab") as log:
        child = subprocess.Popen(command, stdout=log, stderr=log)
    children.append(child)
    return child


def start_server(port):
    flags = ["--model", "scripted:step_ms=10", "--port", str(port), "--admin-port", "0", "--incidents", str(work)]
    return start(f"server-{port}", [server, *flags])


def ask(url, body=None, timeout=30):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        return answer.read().decode()


def until(what, condition, limit=30):
    end = time.monotonic() + limit
    while True:
        try:
            if condition():
                return
        except (OSError, urllib.error.HTTPError):
            pass
        if time.monotonic() > end:
            raise AssertionError(f"{what} does not come within {limit} s")
        time.sleep(0.05)


def answers_of(port):
    """Requests that ended well at this server."""
    lines = ask(f"http://127.0.0.1:{port}/metrics").splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("radiosonde_num_requests_total"))


def main():
    ports = [free_port(), free_port()]
    urls = [f"http://127.0.0.1:{port}" for port in ports]
    servers = [start_server(port) for port in ports]
    for url in urls:
        until(url, lambda url=url: ask(f"{url}/health"))
    port = free_port()
    gateway = f"http://127.0.0.1:{port}"
    flags = ["--worker-urls", *urls, "--policy", "round_robin", "--host", "127.0.0.1", "--port", str(port)]
    flags += ["--prometheus-port", str(free_port()), "--worker-startup-check-interval", "1"]
    flags += ["--health-check-interval-secs", "1", "--health-failure-threshold", "1", "--health-success-threshold", "1"]
    flags += ["--cb-failure-threshold", "1", "--cb-timeout-duration-secs", "1"]  # one failure, and nobody asks for a second
    start("gateway", [sys.executable, "-m", "sglang_router.launch_router", *flags])

    def healthy():
        workers = json.loads(ask(f"{gateway}/workers"))["workers"]
        return sorted(worker["url"] for worker in workers if worker["is_healthy"])

    until("the gateway", lambda: healthy() == sorted(urls))
    completion = {"model": "default", "prompt": "a", "max_tokens": 16, "ignore_eos": True}
    generate = {"text": "a", "sampling_params": {"max_new_tokens": 16, "ignore_eos": True}}

    for _ in range(4):
        answer = json.loads(ask(f"{gateway}/v1/completions", completion))
        assert answer["usage"]["completion_tokens"] == 16, answer
        answer = json.loads(ask(f"{gateway}/generate", generate))
        assert answer["meta_info"]["completion_tokens"] == 16, answer
    stream = ask(f"{gateway}/v1/completions", completion | {"stream": True})
    assert stream.rstrip().endswith("data: [DONE]"), stream
    assert all(answers_of(port) >= 4 for port in ports), "both servers are asked"
    print("gateway: both servers are asked")

    stop, outcomes = threading.Event(), []

    def load():
        while not stop.is_set():
            try:
                outcomes.append(json.loads(ask(f"{gateway}/generate", generate))["meta_info"]["completion_tokens"])
            except urllib.error.HTTPError as error:
                outcomes.append(f"{error.code} {error.read()}")
            except OSError as error:
                outcomes.append(error)

    threads = [threading.Thread(target=load) for _ in range(4)]
    for thread in threads:
        thread.start()
    until("load", lambda: len(outcomes) > 8)
    servers[1].send_signal(signal.SIGKILL)
    servers[1].wait()
    until("the gateway to see the death", lambda: healthy() == urls[:1])
    seen = len(outcomes)
    until("answers of the other", lambda: len(outcomes) > seen + 8)
    servers[1] = start_server(ports[1])
    until("the gateway to see the return", lambda: healthy() == sorted(urls))
    until("work for the one that is back", lambda: answers_of(ports[1]) >= 4)
    stop.set()
    for thread in threads:
        thread.join()
    lost = [outcome for outcome in outcomes if outcome != 16]
    assert not lost, f"{len(lost)} of {len(outcomes)} requests were lost: {lost[:3]}"
    print(f"gateway: one server was killed and came back, and none of {len(outcomes)} requests was lost")


try:
    main()
except BaseException:
    for log in work.glob("*.log"):
        print(f"--- {log.name}\n{log.read_text()[-3000:]}", file=sys.stderr)
    raise
finally:
    for child in children:
        child.kill()
        child.wait()
