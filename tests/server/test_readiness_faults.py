"""`/readyz` tries what a node is for: with each fault it names the check that failed and what to do, and recovers."""

import contextlib
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from rioni.files.signing_key import load_key
from tests.support.builders import event_type_body
from tests.support.server import RunningServer, running_server
from tests.support.waiting import WAIT_S, wait_until


UNLIMITED = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


@contextlib.contextmanager
def size_limit(server: RunningServer, data: Path) -> Iterator[None]:
    """No file can grow: neither the databases nor their logs."""
    size = min(path.stat().st_size for path in data.glob("*.db-wal"))
    for pid in server.workers():
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        for pid in server.workers():
            resource.prlimit(pid, resource.RLIMIT_FSIZE, UNLIMITED)


def unlockable(name: str) -> Callable[[RunningServer, Path], contextlib.AbstractContextManager[None]]:
    """A file that can't be written: its lock can't be taken. Root may write any file, whatever its mode is."""

    @contextlib.contextmanager
    def fault(_server: RunningServer, data: Path) -> Iterator[None]:
        lock = data / f"{name}-lock"
        lock.rename(data / "kept")
        lock.mkdir()
        try:
            yield
        finally:
            lock.rmdir()
            (data / "kept").rename(lock)

    return fault


def key(change: Callable[[Path], object]) -> Callable[[RunningServer, Path], contextlib.AbstractContextManager[None]]:
    @contextlib.contextmanager
    def fault(_server: RunningServer, data: Path) -> Iterator[None]:
        path = data / "log-signing.key"
        shutil.copy(path, data / "kept")
        change(path)
        try:
            yield
        finally:
            if path.is_dir():
                path.rmdir()
            (data / "kept").rename(path)

    return fault


def other_key(path: Path) -> None:
    path.unlink()
    load_key(path)


FAULTS = {
    "files at their size limit": (size_limit, {"database", "events", "coordination"}, "ulimit -f"),
    "registry.db not writable": (unlockable("registry.db"), {"database"}, "file system that is read-only"),
    "events.db not writable": (unlockable("events.db"), {"events"}, "file system that is read-only"),
    "coordination.db not writable": (unlockable("coordination.db"), {"coordination"}, "file system that is read-only"),
    "slots.db not writable": (unlockable("slots.db"), {"coordination"}, "file system that is read-only"),
    "key is another one": (key(other_key), {"signing_key"}, "Put the right file back"),
    "key is empty": (key(lambda path: path.write_bytes(b"")), {"signing_key"}, "rotate-key --lost"),
    "key is cut off": (key(lambda path: os.truncate(path, 60)), {"signing_key"}, "rotate-key --lost"),
    "key is missing": (key(lambda path: path.unlink()), {"signing_key"}, "Copy it back"),
    "key can be read by others": (key(lambda path: path.chmod(0o644)), {"signing_key"}, "chmod 600"),
    "key is a directory": (key(lambda path: (path.unlink(), path.mkdir())), {"signing_key"}, "can't be read"),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningServer, Path]]:
    data = tmp_path_factory.mktemp("readiness") / "data"
    with running_server(data, "--workers", "1") as running, running.client() as client:
        client.post("/event-types", json=event_type_body(name="a"))
        wait_until(lambda: failed(running) == {})
        yield running, data


def failed(server: RunningServer) -> dict[str, str]:
    answer = httpx.get(f"{server.url}/readyz", timeout=WAIT_S)
    found = {name: each["reason"] for name, each in answer.json()["checks"].items() if each["status"] == "failed"}
    assert answer.status_code == (503 if found else 200)
    return found


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_fails_its_checks_with_advice_until_it_is_over(server, name):
    running, data = server
    fault, checks, advice = FAULTS[name]
    wait_until(lambda: failed(running) == {})
    with fault(running, data):
        wait_until(lambda: failed(running).keys() == checks)
        assert all(advice in reason for reason in failed(running).values()), failed(running)
        assert httpx.get(f"{running.url}/health", timeout=WAIT_S).status_code == 200
        # Pages of the console show what is wrong, and do not fail themselves.
        assert httpx.get(f"{running.url}/console", timeout=WAIT_S, follow_redirects=True).status_code != 500
    wait_until(lambda: failed(running) == {})


def test_a_check_that_meets_an_unknown_error_has_failed_at_once_and_says_so():
    from rioni.http.health_checks import HealthChecker  # noqa: PLC0415
    from rioni.storage.clock import SystemClock  # noqa: PLC0415

    results = HealthChecker({"broken": lambda: 1 / 0}, SystemClock()).results()
    assert results["broken"].reason == "ZeroDivisionError: division by zero"


def test_probes_change_nothing_that_a_broker_stores(server):
    running, _ = server
    with running.client() as client:
        # A new broker names its signing key in the log soon after its start.
        wait_until(lambda: client.get("/audit?kind=log-keys.added").json()["items"])
        before = client.get("/event-types").json(), client.get("/audit").json()["items"][:1]
        for _ in range(3):
            wait_until(lambda: failed(running) == {})
        assert (client.get("/event-types").json(), client.get("/audit").json()["items"][:1]) == before
