"""A consumer in a separate process, which can be killed and stopped; it records what it observes as JSON lines.

`python consumer.py <subscription> <host:port>...`: it streams, commits what it gets, and comes back whenever its stream
ends, to the next node. Every other commit goes to another node than the one that streams. Lines are lists: a kind, the
monotonic time, the stream, and what belongs to the kind.
"""

import contextlib
import http.client
import itertools
import json
import sys
import time
import uuid


QUERY = "batch_limit=5&max_uncommitted_events=20&commit_timeout=2&batch_flush_timeout=1"
TIMEOUT_S = 20
COMMIT_TIMEOUT_S = 10
PAUSE_S = 0.05


def note(kind: str, stream: str, *more: object) -> None:
    sys.stdout.write(json.dumps([kind, time.monotonic(), stream, *more]) + "\n")
    sys.stdout.flush()


def commit(address: str, path: str, stream: str, cursor: dict) -> None:
    """Commit, and record the status code of the answer; 0 if the outcome is unknown."""
    begun, status = time.monotonic(), 0
    note("commits", stream, cursor["partition"], cursor["offset"])
    with contextlib.suppress(OSError, http.client.HTTPException):
        connection = http.client.HTTPConnection(address, timeout=COMMIT_TIMEOUT_S)
        headers = {"X-Nakadi-StreamId": stream, "Content-Type": "application/json"}
        connection.request("POST", f"{path}/cursors", json.dumps({"items": [cursor]}), headers)
        status = connection.getresponse().status
        connection.close()
    note("committed", stream, cursor["partition"], cursor["offset"], begun, status)


def consume(address: str, other: str, path: str) -> None:
    """Run one stream, from its beginning to its end."""
    connection, begun = http.client.HTTPConnection(address, timeout=TIMEOUT_S), time.monotonic()
    connection.request("GET", f"{path}/events?{QUERY}")
    response = connection.getresponse()
    if response.status != http.client.OK:
        return
    stream = response.headers["X-Nakadi-StreamId"]
    uuid.UUID(stream)
    note("opened", stream, begun)
    said, last, committers = "", None, itertools.cycle([address, other])
    with contextlib.suppress(OSError, http.client.HTTPException):
        while line := response.readline():
            batch = json.loads(line)
            said = batch.get("info", {}).get("debug", "")
            if "events" in batch:
                last = batch["cursor"]
                note("got", stream, last["partition"], last["offset"], [each["number"] for each in batch["events"]])
                commit(next(committers), path, stream, last)
    connection.close()
    note("ended", stream, "" if said.startswith("Stream started") else said)
    if last:
        # Another session owns the partition now.
        commit(address, path, stream, last)


def main(subscription: str, *addresses: str) -> None:
    """Consume until the process is killed."""
    for address, other in itertools.pairwise(itertools.cycle(addresses)):
        with contextlib.suppress(OSError, http.client.HTTPException):
            consume(address, other, f"/subscriptions/{subscription}")
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
