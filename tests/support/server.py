"""A real `rioni serve` in a separate process, and what a client needs to use it."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import httpx

from tests.support.conformance import check
from tests.support.forked_servers import ForkedProcess
from tests.support.native_locks import FOUND
from tests.support.waiting import WAIT_S, Deadline, wait_until


SHOWN = 20
"""Batches of a stream that a failure shows."""
PROMETHEUS = {"Accept": "text/plain"}
"""The headers of a request for metrics in Prometheus' text format."""


class RunningServer:
    """A server that was started for a test."""

    def __init__(self, process: subprocess.Popen | ForkedProcess, url: str, lines: list[str]) -> None:
        self.process = process
        self.url = url
        self.lines = lines
        """The output of the server, its log included."""

    def client(self, **options) -> httpx.Client:
        """A client of the API, which checks each answer against the description of the API."""
        hooks = {"response": [check]}
        if self.url.startswith("http:"):
            # PERF: reading the certificates of all authorities, which no test uses, takes 24 ms for each client.
            options["verify"] = False
        return httpx.Client(base_url=self.url, timeout=WAIT_S, event_hooks=hooks, **options)

    def metric(self, name: str) -> float:
        """The value of a metric, summed over the workers; 0 if nothing was counted yet."""
        answer = httpx.get(f"{self.url}/metrics", timeout=WAIT_S, headers=PROMETHEUS, verify=False)  # PERF: as above
        lines = answer.text.splitlines()
        values = [line.rpartition(" ")[2] for line in lines if line.startswith(f"{name} ")]
        return float(values[0]) if values else 0.0

    def workers(self) -> list[int]:
        """The process ids of the workers."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(pid) for pid in children.split()]

    def kill(self) -> None:
        """Kill the server and its workers as a power cut would, without any chance to tidy up."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        # Its workers, also one that had just begun, hold the port until they have ended, too.
        wait_until(lambda: not any(map(runs, processes_of_group(self.process.pid))))

    def stop(self) -> int:
        """Ask the server to end, and return its exit code."""
        self.process.terminate()
        return self.process.wait(WAIT_S)


def processes_of_group(group: int) -> list[int]:
    """The processes of a process group, also those that have ended and that nobody has waited for."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            if int(path.read_text().rpartition(")")[2].split()[2]) == group:
                found.append(int(path.parent.name))
    return found


def runs(pid: int) -> bool:
    """Whether a process is there and has not ended, with all of its threads: the last one closes its files."""
    process = Path(f"/proc/{pid}")
    try:
        ended = (process / "stat").read_text().rpartition(")")[2].split()[0] in "ZX"
        return not ended or len(list((process / "task").iterdir())) > 1
    except OSError:
        return False


@contextlib.contextmanager
def running_server(
    data: Path, *options: str, environment: dict[str, str] | None = None, program: Sequence[str] | None = None
) -> Iterator[RunningServer]:
    """Start a server on a free port; it is ended with the block.

    Args:
        data: its data directory.
        options: of the command line.
        environment: what is added to that of the tests.
        program: arguments of Python that run it in a new process; by default a process that is ready is forked.
    """
    arguments = ["serve", "--port", "0", "--data", str(data), *options]
    environment = {**os.environ, **(environment or {})}
    if program is None:
        process = ForkedProcess(arguments, environment)
    else:
        process = subprocess.Popen(
            [sys.executable, *program, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env=environment,
        )
    lines: list[str] = []
    drain = threading.Thread(target=_drain, args=(process, lines))
    drain.start()
    try:
        yield RunningServer(process, _wait_for_url(process, lines), lines)
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(WAIT_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        drain.join(WAIT_S)
        process.stdout.close()
    assert not (found := [line for line in lines if FOUND in line]), found


def refused_start(data: Path, *options: str, environment: dict[str, str] | None = None) -> str:
    """The output of a server that refuses to start, which must be an error with the exit code 2."""
    arguments = ["serve", "--port", "0", "--data", str(data), *options]
    process = ForkedProcess(arguments, {**os.environ, **(environment or {})})
    with process.stdout:
        try:
            code = process.wait(WAIT_S)
        finally:
            process.terminate()
        said = process.stdout.read()
    assert code == 2, said
    return said


def _drain(process: subprocess.Popen | ForkedProcess, lines: list[str]) -> None:
    lines.extend(process.stdout)


def _wait_for_url(process: subprocess.Popen | ForkedProcess, lines: list[str]) -> str:
    def served() -> str | None:
        # Whether it has ended is asked first: what it printed before may not have been read yet.
        ended = process.poll() is not None
        found = (re.search(r"serves (https?://\S+)", line) for line in list(lines))
        url = next((each[1] for each in found if each), None)
        assert url or not ended, "the server did not start:\n" + "".join(lines)
        return url

    return wait_until(served, lambda: "".join(lines))


class Stream:
    """An open stream, read batch by batch; a read that waits fails as `tests.support.waiting` says."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._lines = response.iter_lines()
        self._received: deque[str] = deque(maxlen=SHOWN)
        # NOTE: an iterator that is dropped closes the connection: it stays as long as the answer.
        response.extensions["reader"] = self

    @property
    def stream_id(self) -> str:
        return self.response.headers["X-Nakadi-StreamId"]

    def line(self) -> str:
        """The next batch as it was sent."""
        deadline = Deadline("another batch")
        if (line := self._next_line(deadline)) is None:
            deadline.fail("the stream has ended before it", self._shown())
        return line

    def batch(self) -> dict:
        """The next batch, which may be a keep-alive."""
        return self._next(Deadline("another batch"))

    def filled_batch(self) -> dict:
        """The next batch that has events; keep-alives may come before it, however long its events take."""
        deadline = Deadline("a batch with events")
        while not (batch := self._next(deadline)).get("events"):
            pass
        return batch

    def events(self, count: int) -> list[dict]:
        """Read until this many events were received."""
        return self.events_until(lambda events: len(events) >= count, f"{count} events")

    def events_until(self, enough: Callable[[list[dict]], object], awaited: str) -> list[dict]:
        """Read until there are enough events, and return them; `enough` gets those that were read by this call."""
        deadline, events = Deadline(awaited), []
        while not enough(events):
            events += self._next(deadline).get("events", [])
        return events

    def batches(self) -> list[dict]:
        """All further batches, up to the end of the stream, which must come."""
        return [*self.batches_as_they_come()]

    def batches_as_they_come(self) -> Iterator[dict]:
        """All further batches, one after the other, up to the end of the stream, which must come after the events."""
        deadline = Deadline("more events, or the end of the stream")
        while (batch := self._next_or_none(deadline)) is not None:
            yield batch
            if batch.get("events"):
                deadline.begin()

    def _next(self, deadline: Deadline) -> dict:
        if (batch := self._next_or_none(deadline)) is None:
            deadline.fail("the stream has ended before it", self._shown())
        return batch

    def _next_or_none(self, deadline: Deadline) -> dict | None:
        """The next batch; None at the end."""
        line = self._next_line(deadline)
        return None if line is None else json.loads(line)

    def _next_line(self, deadline: Deadline) -> str | None:
        deadline.check(self._shown)
        try:
            line = next(self._lines, None)
        except httpx.ReadTimeout:
            deadline.fail("nothing more came", self._shown())
        if line is not None:
            self._received.append(line)
        return line

    def _shown(self) -> str:
        return "\n".join(self._received) or "no batch"


def count_events(client: httpx.Client, event_type: str) -> int:
    """The number of events that were ever stored in the only timeline of an event type."""
    partitions = client.get(f"/event-types/{event_type}/partitions").json()
    # Before the first event the offset is 001-0001--1.
    return sum(int(each["newest_available_offset"].removeprefix("001-0001-")) + 1 for each in partitions)


@contextlib.contextmanager
def open_stream(client: httpx.Client, path: str, method: str = "GET", **options) -> Iterator[Stream]:
    """Open a stream; it is closed with the block."""
    with client.stream(method, path, **options) as response:
        if response.status_code != httpx.codes.OK:
            response.read()
            raise AssertionError(f"{response.status_code}: {response.text}")
        yield Stream(response)
