"""The report of a worker about itself to the others, so that each can show all of them (reference operations#nodes)."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress

import msgspec


EVERY_S = 10
EXPIRED_S = 30
"""A worker without a report for this long is not shown: it hangs, or can't reach the others."""


class WorkerReport(msgspec.Struct, frozen=True):
    """The state of a worker process at a time."""

    node: str
    """The id of the run of the node that it belongs to."""
    host: str
    port: int
    version: str
    workers: int
    """How many workers the node is to have."""
    number: int
    """Among the workers of the node."""
    pid: int
    started_ms: int
    reported_ms: int
    log_position: int
    """The last entry of the internal log that it knows."""
    connections: int
    streams: int
    requests_per_s: float


def encoded(report: WorkerReport) -> bytes:
    """Encode a report for the other workers."""
    return msgspec.json.encode(report)


def current(told: Mapping[str, bytes], now_ms: int) -> Sequence[Sequence[WorkerReport]]:
    """The workers of each node by number, the nodes by host name and port.

    Args:
        told: the last report of each living worker. Reports of other versions of the broker that this one does not
            understand are left out.
        now_ms: the time; expired reports are left out.
    """
    nodes: defaultdict[str, list[WorkerReport]] = defaultdict(list)
    for each in told.values():
        with suppress(msgspec.DecodeError):
            report = msgspec.json.decode(each, type=WorkerReport)
            if report.reported_ms >= now_ms - 1_000 * EXPIRED_S:
                nodes[report.node].append(report)
    for workers in nodes.values():
        workers.sort(key=lambda each: (each.number, each.started_ms))
    return sorted(nodes.values(), key=lambda workers: (workers[0].host, workers[0].port, workers[0].node))
