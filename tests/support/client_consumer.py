"""A consumer by `rioni.client` in a separate process, which can be killed; it records what it does as JSON lines.

`python -m tests.support.client_consumer SUBSCRIPTION URL...`: lines are lists of a kind, the monotonic time, the
partition, and the number of the event or the offset that was committed. The client begins with the
first URL that answers.
"""

import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from rioni.client import Client, ConnectionFailed, Cursor, Event, Unauthorized
from rioni.client._sync.subscriptions import Subscriptions


def note(kind: str, partition: str, value: int | str) -> None:
    # One write for each line, so that a kill leaves no half of one.
    os.write(1, json.dumps([kind, time.monotonic(), partition, value]).encode() + b"\n")


class _Noted(Subscriptions):
    """Notes what the broker has acknowledged."""

    def commit(self, subscription_id: str, stream_id: str, cursors: Sequence[Cursor]) -> Any:
        results = super().commit(subscription_id, stream_id, cursors)
        for cursor in cursors:
            note("committed", cursor.partition, cursor.offset)
        return results


def handle(event: Event[dict[str, Any]]) -> None:
    note("handled", event.partition, event.data["number"])
    time.sleep(0.002)


def main(subscription: str, *urls: str) -> None:
    """Consume until the process is killed; the token is that of a file, which changes."""

    def token() -> str | None:
        path = os.environ.get("TOKEN_FILE")
        if path is None:
            return None
        with open(path) as file:  # noqa: PTH123
            return file.read()

    while True:
        for url in urls:
            try:
                with Client(url, token=token) as client:
                    options = {"batch_limit": 5, "max_uncommitted_events": 40, "commit_timeout": 2}
                    # With several nodes, another one is asked when this one does not answer.
                    consumer = client.subscription(
                        subscription, **options, reconnect_s=1 if len(urls) > 1 else None, stop_timeout_s=5
                    )
                    consumer._committer._subscriptions = _Noted(client._transport)
                    consumer.run(handle, concurrency=2)
            except (ConnectionFailed, Unauthorized):
                # A supervisor would restart the process now.
                time.sleep(0.1)


if __name__ == "__main__":
    main(*sys.argv[1:])
