"""Every wait has a deadline, and threads are started and waited for only in the listed modules.

These are the rules of `docs/decisions/0017-native-threads-and-gevent.md`, where source code shows them.
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest


ROOT = Path(__file__).parents[1]

WAITS = {"result", "get", "join", "wait", "acquire"}
"""Methods that wait for ever when they are called without arguments."""

THREADS = {"_thread", "threading", "queue", "multiprocessing", "concurrent"}

OWN_COMMAND = "a command of its own, which its user may interrupt"
USERS_PROCESS = "runs in the process of a user, where nothing is patched; every wait has a deadline"
ON_THE_HUB = "used by greenlets alone: events with deadlines, and locks held for changes in memory"

MAY_USE_THREADS: Mapping[str, str] = {
    "rioni/config/logs.py": "a native lock, held while a line is written",
    "rioni/server/worker.py": "an event that is only set and looked at",
    "rioni/commands/system/client_activity.py": ON_THE_HUB,
    "rioni/commands/system/denied_requests.py": "a lock that greenlets hold for changes in memory",
    "rioni/cli/broker/archive.py": OWN_COMMAND,
    "rioni/cli/events/copy.py": OWN_COMMAND,
    "rioni/cli/registry/subscription_events.py": OWN_COMMAND,
    "rioni/cli/registry/subscription_lag.py": OWN_COMMAND,
    "rioni/cli/definitions/planning.py": OWN_COMMAND,
    "rioni/cli/doctor/diagnosis.py": OWN_COMMAND,
    "rioni/cli/events/copy_state.py": OWN_COMMAND,
    "rioni/cli/events/copying.py": OWN_COMMAND,
    "rioni/cli/events/across_partitions.py": OWN_COMMAND,
    "rioni/cli/events/selecting.py": OWN_COMMAND,
    "rioni/cli/publishing/uploading.py": OWN_COMMAND,
    "rioni/client/_sync/concurrency.py": USERS_PROCESS,
    "rioni/testing/launcher.py": USERS_PROCESS,
    "rioni/testing/process.py": USERS_PROCESS,
    "rioni/lake/archive.py": OWN_COMMAND,
    "rioni/tools/job_reporter.py": "a thread of a command; waits have deadlines",
    "rioni/cli/demo.py": OWN_COMMAND,
    "rioni/console/bounded_transport.py": "a timer that ends a request to the provider of logins",
    "rioni/console/oidc.py": "a lock with a deadline, for one request to that provider at a time",
    "rioni/http/answer_budget.py": "a condition of greenlets, for changes in memory; waits have deadlines",
    "rioni/http/health_checks.py": "greenlets that look at what may hang; waiting for them has a deadline",
    "rioni/http/bodies/reading.py": "a lock that greenlets take in turn, for one step of some milliseconds each",
    "rioni/http/dependencies.py": "an event that is only set and looked at",
    "rioni/http/streaming/stream_context.py": ON_THE_HUB,
    "rioni/projections/bulk/audit_table.py": OWN_COMMAND,
    "rioni/projections/bulk/rebuild.py": OWN_COMMAND,
    "rioni/projections/registry.py": "a lock with a deadline",
    "rioni/storage/embedded/signals.py": "a greenlet that listens, events with deadlines; threads share Places",
    "rioni/storage/log/segments.py": OWN_COMMAND,
    "rioni/storage/log/log_head.py": "a greenlet with a connection of its own",
    "rioni/storage/group_commit.py": "greenlets that submit, and one that has their jobs written",
    "rioni/storage/kafka/topics/admin.py": "the native queue, in which answers of Kafka arrive",
    "rioni/storage/kafka/idempotence/idempotent_appender.py": "an event that is never set, in place of a sleep",
    "rioni/storage/kafka/tail_follower.py": "a greenlet that has Kafka polled",
    "rioni/storage/sql/database_locks.py": "a greenlet with a connection of its own",
    "rioni/storage/tokens/sources.py": ON_THE_HUB,
    "rioni/storage/tokens/jwt_tokens.py": ON_THE_HUB,
    "rioni/storage/tokens/tokeninfo.py": ON_THE_HUB,
    "rioni/storage/tokens/tokens_file.py": "a lock that is only tried",
    "rioni/storage/tokens/token_servers.py": "locks held for changes in memory, and a timer that ends a connection",
    "rioni/storage/zookeeper/coordination.py": ON_THE_HUB,
    "rioni/storage/zookeeper/session.py": ON_THE_HUB,
    "rioni/storage/zookeeper/node_cache.py": ON_THE_HUB,
    "rioni/storage/zookeeper/quota.py": ON_THE_HUB,
}

MAY_WAIT: Mapping[tuple[str, str], str] = {
    ("rioni/client/_async/concurrency.py", "event.wait()"): "within asyncio.timeout",
    ("rioni/client/_async/concurrency.py", "semaphore.acquire()"): "within asyncio.timeout, or there is a free one",
    ("rioni/client/_sync/concurrency.py", "self.lock.acquire()"): "held for changes in memory",
    ("rioni/installation/pools.py", "CLIENT.get()"): "a variable of the context",
    ("rioni/storage/tokens/token_servers.py", "CLIENT.get()"): "a variable of the context",
    ("rioni/testing/launcher.py", "self._process.wait()"): "it has been killed",
    ("rioni/cli/events/copying.py", "each.result()"): "it is done",
    ("rioni/cli/demo.py", "server.wait()"): OWN_COMMAND,
    ("rioni/cli/demo.py", "thread.join()"): OWN_COMMAND,
    ("rioni/cli/cluster/cluster.py", "server.wait()"): "it has been killed",
    ("rioni/cli/cluster/servers.py", "self._process.wait()"): "it has been killed",
    ("rioni/projections/bulk/audit_table.py", "job.result()"): "it is done",
    ("rioni/projections/bulk/rebuild.py", "job.result()"): "it is done",
    ("rioni/spark/writer.py", "TaskContext.get()"): "it does not wait",
    ("rioni/projections/bulk/session.py", "gateway.proc.wait()"): "it has been killed",
    ("rioni/storage/log/segments.py", "begun.popleft().result()"): OWN_COMMAND,
    ("rioni/storage/embedded/file_lock.py", "self._orders.get()"): "a native thread that has nothing else to do",
    (
        "rioni/storage/embedded/file_lock.py",
        "fcntl.flock(order.fd, fcntl.LOCK_EX)",
    ): "a native thread that others wait for with a deadline",
    (
        "rioni/storage/kafka/topics/admin.py",
        "self.begin(name, *arguments, timeout_s=timeout_s).result()",
    ): "it has a deadline",
    ("rioni/storage/kafka/topics/readiness.py", "request.result()"): "it has a deadline",
}


def _waits(source: str) -> Iterator[str]:
    """The calls in a module that may wait for ever."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        timeouts = [*node.args, *(each.value for each in node.keywords if each.arg == "timeout")]
        endless = not (node.args or node.keywords) or any(
            isinstance(each, ast.Constant) and each.value is None for each in timeouts
        )
        # A dictionary may be called with None for a default.
        of_dictionary = node.func.attr == "get" and len(node.args) > 1
        if node.func.attr in WAITS and endless and not of_dictionary:
            yield ast.unparse(node)
        if node.func.attr == "flock" and not {"LOCK_NB", "LOCK_UN"} & {
            each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)
        }:
            yield ast.unparse(node)


def _uses_threads(source: str) -> bool:
    """Whether a module imports the means to start threads."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            continue
        if THREADS & {name.partition(".")[0] for name in names}:
            return True
    return False


def _modules() -> dict[str, str]:
    return {str(path.relative_to(ROOT)): path.read_text() for path in sorted(ROOT.glob("rioni/**/*.py"))}


def test_every_wait_has_a_deadline():
    found = {(name, wait) for name, source in _modules().items() for wait in _waits(source)}
    assert found - set(MAY_WAIT) == set(), "give it a timeout, or say in MAY_WAIT why it ends"
    assert set(MAY_WAIT) - found == set(), "take it out of MAY_WAIT"


def test_threads_are_used_only_in_the_listed_modules():
    found = {name for name, source in _modules().items() if _uses_threads(source)}
    assert found - set(MAY_USE_THREADS) == set(), "use a pool of rioni/installation/pools.py"
    assert set(MAY_USE_THREADS) - found == set(), "take it out of MAY_USE_THREADS"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("future.result()", True),
        ("future.result(timeout=None)", True),
        ("event.wait(None)", True),
        ("lock.acquire()", True),
        ("self._thread.join()", True),
        ("queue.get()", True),
        ("fcntl.flock(fd, fcntl.LOCK_EX)", True),
        ("fcntl.flock(fd, fcntl.LOCK_SH)", True),
        ("future.result(5)", False),
        ("event.wait(timeout=left_s)", False),
        ("lock.acquire(blocking=False)", False),
        ("mapping.get(key)", False),
        ("mapping.get(key, None)", False),
        ("', '.join(names)", False),
        ("fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)", False),
        ("fcntl.flock(fd, fcntl.LOCK_UN)", False),
    ],
)
def test_waits_without_a_deadline_are_recognised(source, found):
    assert bool([*_waits(f"def function():\n    {source}")]) == found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import threading", True),
        ("import os, threading as t", True),
        ("from threading import Lock", True),
        ("from concurrent.futures import ThreadPoolExecutor", True),
        ("def function():\n    import queue", True),
        ("import kazoo.handlers.threading", False),
        ("from rioni.storage.threads import Places", False),
    ],
)
def test_uses_of_threads_are_recognised(source, found):
    assert _uses_threads(source) == found
