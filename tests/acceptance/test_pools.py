"""Hanging files and token services block only their own requests. Hanging threads are logged, their worker replaced."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.acceptance.conftest import event
from tests.support.builders import event_type_body
from tests.support.server import running_server
from tests.support.tokens import ADMINISTRATOR, bearer, write_tokens
from tests.support.waiting import wait_until


pytestmark = [pytest.mark.slow, pytest.mark.one_server]

PATIENCE_S = 45
"""The limit for a request that meets a hanging resource, on a slow machine: locks time out after 10 s."""

LOCK_HOLDER = """
import fcntl, os, signal, sys
files = [open(path, "w") for path in sys.argv[1:]]
for file in files:
    fcntl.flock(file, fcntl.LOCK_EX)
print("locked", flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
"""


@contextlib.contextmanager
def stopped_holder(*paths):
    """A process that holds the locks of files and is suspended."""
    command = [sys.executable, "-c", LOCK_HOLDER, *map(str, paths)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        try:
            assert holder.stdout.readline() == b"locked\n"
            yield
        finally:
            holder.kill()


def answers_of(work, count):
    """The statuses of so many rounds of requests, and the longest duration, in seconds."""
    statuses, longest_s = set(), 0.0
    for number in range(count):
        begun_s = time.monotonic()
        statuses.add(work(number).status_code)
        longest_s = max(longest_s, time.monotonic() - begun_s)
    return statuses, longest_s


def test_streams_waiting_for_the_quota_delay_no_other_requests(tmp_path, name):
    with running_server(tmp_path / "data", "--workers", "1") as server, server.client() as client:
        client.post("/event-types", json=event_type_body(name=name))
        body = {"owning_application": "shop", "event_types": [name], "read_from": "begin"}
        subscription = client.post("/subscriptions", json=body).json()["id"]

        def open_stream(_number):
            path = f"{server.url}/subscriptions/{subscription}/events"
            with httpx.stream("GET", path, timeout=PATIENCE_S, verify=False) as stream:
                return stream.status_code

        with stopped_holder(tmp_path / "data" / "slots.db-lock"), ThreadPoolExecutor(40) as threads:
            streams = [threads.submit(open_stream, number) for number in range(40)]
            # The first of them hang by now, or are about to.
            for work in (
                lambda _number: client.get("/event-types"),
                lambda _number: client.post(f"/event-types/{name}/events", json=[event()]),
                lambda number: client.post("/event-types", json=event_type_body(name=f"{name}-{number}")),
                lambda _number: client.get(f"/subscriptions/{subscription}/cursors"),
            ):
                statuses, longest_s = answers_of(work, 10)
                assert statuses <= {200, 201}
                assert longest_s < PATIENCE_S / 10, statuses
            assert {each.result(2 * PATIENCE_S) for each in streams} == {503}
        # Other streams may still be waiting for the quota for a moment.
        wait_until(lambda: open_stream(0) == 200)


def test_a_storage_that_hangs_does_not_affect_others(tmp_path, name):
    with running_server(tmp_path / "data", "--workers", "1") as server, server.client() as client:
        client.post("/event-types", json=event_type_body(name=name))
        client.post("/storages", json={"id": "other", "storage_type": "embedded"})
        client.put("/storages/default/other")
        client.post("/event-types", json=event_type_body(name=f"{name}-other"))
        assert client.post(f"/event-types/{name}-other/events", json=[event()]).status_code == 200

        def publish(event_type):
            path = f"{server.url}/event-types/{event_type}/events"
            return httpx.post(path, json=[event()], timeout=PATIENCE_S, verify=False).status_code

        with stopped_holder(tmp_path / "data" / "events-other.db-lock"), ThreadPoolExecutor(30) as threads:
            hanging = [threads.submit(publish, f"{name}-other") for _ in range(30)]
            for work in (
                lambda _number: client.post(f"/event-types/{name}/events", json=[event()]),
                lambda _number: client.get("/event-types"),
            ):
                statuses, longest_s = answers_of(work, 20)
                assert statuses == {200}
                assert longest_s < PATIENCE_S / 10
            assert {each.result(2 * PATIENCE_S) for each in hanging} == {503}
        wait_until(lambda: publish(f"{name}-other") == 200)


TOKEN_SERVICE = """
import os, signal, socket
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
"""


def test_a_token_service_that_hangs_does_not_delay_clients_with_cached_tokens(tmp_path, name):
    tokens = tmp_path / "tokens.toml"
    write_tokens(tokens, {"known": {"uid": "alice"}})
    with subprocess.Popen([sys.executable, "-c", TOKEN_SERVICE], stdout=subprocess.PIPE) as service:
        port = int(service.stdout.readline())
        environment = {
            **ADMINISTRATOR,
            "RIONI_AUTH_MODE": "basic",
            "RIONI_AUTH_TOKENS": str(tokens),
            "RIONI_AUTH_TOKENINFO_LOCAL": f"http://127.0.0.1:{port}/tokeninfo",
        }
        try:
            with running_server(tmp_path / "data", "--workers", "1", environment=environment) as server:

                def ask(number):
                    headers = bearer(f"stranger-{number}")
                    return httpx.get(
                        f"{server.url}/event-types", headers=headers, timeout=PATIENCE_S, verify=False
                    ).status_code

                with ThreadPoolExecutor(60) as threads, server.client(headers=bearer("known")) as client:
                    strangers = [threads.submit(ask, number) for number in range(60)]
                    statuses, longest_s = answers_of(lambda _number: client.get("/event-types"), 20)
                    assert statuses == {200}
                    assert longest_s < PATIENCE_S / 10
                    assert {each.result(2 * PATIENCE_S) for each in strangers} == {503}
        finally:
            service.kill()


IMPATIENT = """
from gevent import monkey

monkey.patch_all()
from rioni.bootstrap import pools, watchdog

pools.KINDS = {**pools.KINDS, "tokens": pools.KINDS["tokens"]._replace(deadline_s=0.5)}
watchdog.Watchdog.__init__.__kwdefaults__["grace_s"] = 0.5
from rioni.cli import app

app.main()
"""
"""The broker, with shorter deadlines, so that the test need not wait for the real ones."""


def test_hanging_threads_are_logged_with_their_stacks_and_workers_replaced_one_by_one(tmp_path):
    """Reference operations#hanging-threads, operations#liveness."""
    tokens, pipe = tmp_path / "tokens.toml", tmp_path / "pipe"
    write_tokens(tokens, {"known": {"uid": "alice"}})
    saved = tokens.read_bytes()
    environment = {**ADMINISTRATOR, "RIONI_AUTH_MODE": "basic", "RIONI_AUTH_TOKENS": str(tokens)}
    program = "-c", IMPATIENT
    with running_server(tmp_path / "data", "--workers", "2", environment=environment, program=program) as server:
        before = wait_until(lambda: pids if len(pids := server.workers()) == 2 else None)

        def ask():
            with contextlib.suppress(httpx.HTTPError):
                return httpx.get(
                    f"{server.url}/event-types", headers=bearer("known"), timeout=PATIENCE_S, verify=False
                ).status_code

        def live():
            with contextlib.suppress(httpx.HTTPError):
                answer = httpx.get(f"{server.url}/livez", timeout=PATIENCE_S, verify=False)
                return answer.status_code, answer.json()["checks"]["threads"]
            return 0, {}

        wait_until(lambda: ask() == 200)
        # A disk on which every thread hangs that opens the file.
        os.mkfifo(pipe)
        pipe.rename(tokens)
        _, threads = wait_until(lambda: found if ask() == 503 and (found := live())[0] == 503 else None)
        assert threads["reason"].startswith("The pool tokens makes no progress: 2 of 2 threads busy, the oldest for ")
        assert "tokens_file.py" in threads["detail"]
        wait_until(lambda: [line for line in server.lines if "replacing this worker" in line])
        wait_until(lambda: len({*before} & {*server.workers()}) == 1)
        assert len([line for line in server.lines if "replacing this worker" in line]) == 1
        assert [line for line in server.lines if "a native thread hangs" in line and "tokens_file.py" in line]
        # The disk answers again: hanging threads find the pipe empty, and the file is read next time.
        tokens.rename(pipe)
        tokens.write_bytes(saved)
        with contextlib.suppress(OSError):  # no thread hangs there any more
            os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
        wait_until(lambda: {ask() for _ in range(20)} == {200} and {live()[0] for _ in range(20)} == {200})
        assert len(server.workers()) == 2


def test_a_worker_whose_hub_hangs_logs_its_stacks(tmp_path):
    with running_server(tmp_path / "data", "--workers", "1") as server:
        # The address is announced first.
        wait_until(lambda: httpx.get(f"{server.url}/health", timeout=PATIENCE_S, verify=False).status_code == 200)
        (worker,) = server.workers()
        # The signal that gunicorn sends to a worker without a heartbeat for 30 s.
        os.kill(worker, signal.SIGABRT)
        wait_until(lambda: [line for line in server.lines if "most recent call first" in line])
        wait_until(lambda: server.workers() and server.workers() != [worker])
