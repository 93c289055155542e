"""Hanging files and token services block only their own requests. Hanging threads are logged, their worker replaced."""

import contextlib
import http.client
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.acceptance.conftest import event
from tests.support.builders import event_type_body
from tests.support.campaigns import length
from tests.support.server import running_server
from tests.support.tokens import ADMINISTRATOR, bearer, write_tokens
from tests.support.waiting import WAIT_S, wait_until


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
    """The statuses of `count` rounds of requests, and the longest duration, in seconds."""
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
            with httpx.stream("GET", path, timeout=WAIT_S, verify=False) as stream:
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
            return httpx.post(path, json=[event()], timeout=WAIT_S, verify=False).status_code

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


def test_evaluations_of_filters_do_not_delay_changes_even_of_the_same_client(tmp_path, name):
    """Both are measured in one run: with a shared pool, a change took some 90 times as long meanwhile."""
    events = [{"a": ["x" * 12_000]}] * 20
    body = {"filter": " || ".join(["event.a == 1"] * 60), "events": events}
    with running_server(tmp_path / "data", "--workers", "1") as server, server.client() as client:

        def typical_s(round_of):
            """The median time of a change."""
            taken_s = []
            for number in range(7):
                begun_s = time.monotonic()
                answer = client.post("/event-types", json=event_type_body(name=f"{name}-{round_of}-{number}"))
                taken_s.append(time.monotonic() - begun_s)
                assert answer.status_code == 201, answer.text
            return statistics.median(taken_s)

        typical_s("first")
        alone_s, answered, ended = typical_s("alone"), [], threading.Event()

        def evaluate(_number):
            with server.client() as other:
                while not ended.is_set():
                    answered.append(other.post("/filter-evaluations", json=body).status_code)

        with ThreadPoolExecutor(16) as threads:
            flood = [threads.submit(evaluate, number) for number in range(16)]
            try:
                wait_until(lambda: len(answered) >= 3)
                beside_s = typical_s("beside")
            finally:
                ended.set()
            for each in flood:
                each.result(WAIT_S)
        assert {*answered} == {200}
        assert beside_s < 25 * alone_s, f"{beside_s:.3f} s beside evaluations, {alone_s:.3f} s alone"


def sent(server, method, path, body=None, headers=None):
    """A connection over which a request was sent; its answer is to be read."""
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=2 * PATIENCE_S)
    connection.request(method, path, json.dumps(body), {"Content-Type": "application/json", **(headers or {})})
    return connection


def status_of(connection):
    """The status of the answer to a request that was sent."""
    with contextlib.closing(connection):
        return connection.getresponse().status


TOKEN_SERVICE = """
import os, signal, socket
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
"""


@contextlib.contextmanager
def stopped_token_service():
    """The settings of a broker with the token `known`, which asks a suspended service about all others."""
    with subprocess.Popen([sys.executable, "-c", TOKEN_SERVICE], stdout=subprocess.PIPE) as service:
        try:
            port = int(service.stdout.readline())
            yield {"RIONI_AUTH_MODE": "basic", "RIONI_AUTH_TOKENINFO_LOCAL": f"http://127.0.0.1:{port}/tokeninfo"}
        finally:
            service.kill()


def test_a_token_service_that_hangs_does_not_delay_clients_with_cached_tokens(tmp_path, name):
    tokens = tmp_path / "tokens.toml"
    write_tokens(tokens, {"known": {"uid": "alice"}})
    with stopped_token_service() as settings:
        environment = {**ADMINISTRATOR, **settings, "RIONI_AUTH_TOKENS": str(tokens)}
        with (
            running_server(tmp_path / "data", "--workers", "1", environment=environment) as server,
            server.client(headers=bearer("known")) as client,
        ):
            strangers = [sent(server, "GET", "/event-types", headers=bearer(f"stranger-{n}")) for n in range(60)]
            statuses, longest_s = answers_of(lambda _number: client.get("/event-types"), 20)
            assert statuses == {200}
            assert longest_s < PATIENCE_S / 10
            assert {status_of(each) for each in strangers} == {503}


@pytest.mark.nightly
def test_three_resources_that_hang_at_once_block_only_the_requests_that_need_them(tmp_path, name):
    tokens, data, other = tmp_path / "tokens.toml", tmp_path / "data", f"{name}-other"
    write_tokens(tokens, {"known": {"uid": "stups_nakadi", "realm": "/services"}})
    count = length(40, 400)
    with contextlib.ExitStack() as stack:
        settings = stack.enter_context(stopped_token_service())
        environment = {**ADMINISTRATOR, **settings, "RIONI_AUTH_TOKENS": str(tokens)}
        server = stack.enter_context(running_server(data, "--workers", "1", environment=environment))
        client = stack.enter_context(server.client(headers=bearer("known")))
        client.post("/event-types", json=event_type_body(name=name))
        client.post("/storages", json={"id": "other", "storage_type": "embedded"})
        client.post("/event-types", json=event_type_body(name=other))
        client.post(f"/event-types/{other}/timelines", json={"storage_id": "other"})
        body = {"owning_application": "shop", "event_types": [name], "read_from": "begin"}
        subscription = client.post("/subscriptions", json=body).json()["id"]
        assert client.post(f"/event-types/{other}/events", json=[event()]).status_code == 200

        with stopped_holder(data / "slots.db-lock", data / "events-other.db-lock"):
            known, hanging = bearer("known"), []
            for number in range(count):
                hanging.append(sent(server, "GET", f"/subscriptions/{subscription}/events", headers=known))
                hanging.append(sent(server, "POST", f"/event-types/{other}/events", [event()], known))
                hanging.append(sent(server, "GET", "/event-types", headers=bearer(f"stranger-{number}")))
            for work in (
                lambda _number: client.get("/event-types"),
                lambda _number: client.post(f"/event-types/{name}/events", json=[event()]),
                lambda number: client.post("/event-types", json=event_type_body(name=f"{name}-{number}")),
                lambda _number: client.get(f"/subscriptions/{subscription}/cursors"),
            ):
                statuses, longest_s = answers_of(work, 10)
                assert statuses <= {200, 201}
                assert longest_s < PATIENCE_S / 10, statuses
            assert {status_of(each) for each in hanging} == {503}
        wait_until(lambda: client.post(f"/event-types/{other}/events", json=[event()]).status_code == 200)


@pytest.mark.skipif(not shutil.which("strace"), reason="delays calls of the kernel with strace")
def test_while_the_disk_hangs_in_fsync_reads_are_answered_and_writes_are_unknown(tmp_path, name):
    environment = {"RIONI_APPEND_TIMEOUT_S": "2"}
    with (
        running_server(tmp_path / "data", "--workers", "1", environment=environment) as server,
        server.client() as client,
    ):
        client.post("/event-types", json=event_type_body(name=name))
        (worker,) = server.workers()
        calls = "fsync,fdatasync"
        command = ["strace", "-f", "-qq", "-o", str(tmp_path / "trace"), "-p", str(worker), f"-etrace={calls}"]
        with subprocess.Popen([*command, f"-einject={calls}:delay_enter={PATIENCE_S}s"]) as strace:
            try:
                wait_until(lambda: "TracerPid:\t0\n" not in (Path("/proc") / str(worker) / "status").read_text())
                (result,) = client.post(f"/event-types/{name}/events", json=[event("1")]).json()
                assert (result["publishing_status"], result["detail"]) == ("failed", "timed out")
                # It waits behind the first batch, and is withdrawn.
                assert client.post(f"/event-types/{name}/events", json=[event("2")]).status_code == 503
                for work in (
                    lambda _number: client.get("/event-types"),
                    lambda _number: client.get(f"/event-types/{name}/partitions"),
                ):
                    statuses, longest_s = answers_of(work, 10)
                    assert statuses == {200}
                    assert longest_s < PATIENCE_S / 10
            finally:
                strace.terminate()
        # The disk has written the first batch after all.
        wait_until(lambda: client.post(f"/event-types/{name}/events", json=[event("3")]).status_code == 200)
        cursors = [{"partition": "0", "offset": "BEGIN"}]
        with httpx.stream(
            "GET",
            f"{server.url}/event-types/{name}/events",
            params={"batch_limit": 2, "stream_limit": 2, "stream_timeout": PATIENCE_S},
            headers={"X-Nakadi-Cursors": json.dumps(cursors)},
            timeout=WAIT_S,
            verify=False,
        ) as stream:
            read = [each for line in stream.iter_lines() for each in json.loads(line).get("events", [])]
        assert [each["order_id"] for each in read] == ["1", "3"]


IMPATIENT = """
from gevent import monkey

monkey.patch_all()
from rioni.installation import pools
from rioni.server import watchdog

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
    with (
        running_server(tmp_path / "data", "--workers", "2", environment=environment, program=program) as server,
        contextlib.ExitStack() as disk,
    ):
        before = wait_until(lambda: pids if len(pids := server.workers()) == 2 else None)

        def ask():
            with contextlib.suppress(httpx.HTTPError):
                return httpx.get(
                    f"{server.url}/event-types", headers=bearer("known"), timeout=WAIT_S, verify=False
                ).status_code

        def live():
            with contextlib.suppress(httpx.HTTPError):
                answer = httpx.get(f"{server.url}/livez", timeout=WAIT_S, verify=False)
                return answer.status_code, answer.json()["checks"]["threads"]
            return 0, {}

        wait_until(lambda: ask() == 200)
        # A disk on which every thread hangs that reads the file: a pipe whose writer writes nothing.
        os.mkfifo(pipe)
        disk.callback(os.close, os.open(pipe, os.O_RDWR))
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
        disk.close()
        wait_until(lambda: {ask() for _ in range(20)} == {200} and {live()[0] for _ in range(20)} == {200})
        assert len(server.workers()) == 2


def test_a_worker_whose_hub_hangs_logs_its_stacks(tmp_path):
    with running_server(tmp_path / "data", "--workers", "1") as server:
        # The address is announced first.
        wait_until(lambda: httpx.get(f"{server.url}/health", timeout=WAIT_S, verify=False).status_code == 200)
        (worker,) = server.workers()
        # The signal that gunicorn sends to a worker without a heartbeat for 30 s.
        os.kill(worker, signal.SIGABRT)
        wait_until(lambda: [line for line in server.lines if "most recent call first" in line])
        wait_until(lambda: server.workers() and server.workers() != [worker])
