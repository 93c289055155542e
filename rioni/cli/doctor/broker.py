"""Reports of the broker on itself: health, settings, storages, log and checkpoints, rebuilds, refused requests."""

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import msgspec

from rioni.cli.doctor.diagnosis import ERROR, DoctorFinding, NotLookedAt, Site, Source, check, error, source, warning
from rioni.client import Client, errors
from rioni.domain.access.addresses import host_and_port
from rioni.domain.errors import Malformed
from rioni.domain.transparency.checkpoint import Note, parse_checkpoint, parse_note
from rioni.wire.access import Admins
from rioni.wire.administration import Blacklist, Feature, Health, Node, Rebuild, Storage
from rioni.wire.audit import Denial


# --- Facts that the broker reports about itself ---

DENIALS_MAX = 1_000
_COSIGNATURE_BYTES = 72
"""Time and signature; the signature of the log itself has no time."""


class LogState(msgspec.Struct, frozen=True):
    """The internal log, and what proves that it was only extended."""

    head: int
    """The last position of the log."""
    recorded_at: datetime | None = None
    """When the last entry was recorded; None if the log is empty."""
    size: int = 0
    """Entries that the newest checkpoint covers."""
    checkpoint_error: str = ""
    """Why there is no checkpoint."""
    cosigned_size: int | None = None
    """Entries covered by the newest checkpoint that a witness has cosigned; None if no checkpoint was cosigned."""
    cosigned_at: datetime | None = None
    """When the last witness cosigned."""
    checkpoint: str = ""
    """The newest checkpoint itself."""


def _asked(name: str, gives: Any, ask: Callable[[Client], Any]) -> Source:
    return Source(name, (), lambda site: ask(site.client), gives)


SOURCES = tuple(
    _asked(*each)
    for each in (
        ("live", Health, lambda client: client.monitoring.live()),
        ("ready", Health, lambda client: client.monitoring.ready()),
        ("nodes", list[Node], lambda client: list(client.monitoring.nodes())),
        ("features", list[Feature], lambda client: list(client.settings.features())),
        ("blacklist", Blacklist, lambda client: client.settings.blacklist()),
        ("admins", Admins, lambda client: client.settings.admins()),
        ("storages", list[Storage], lambda client: list(client.storages.list())),
        ("rebuilds", list[Rebuild], lambda client: list(client.rebuilds.list())),
        ("denials", list[Denial], lambda client: list(islice(client.audit.denials(), DENIALS_MAX))),
    )
)
"""Facts that are one answer of the broker, and what is asked for them."""


@source
def log(site: Site) -> LogState:
    """Ask for the end of the log first, and for checkpoints then: these have to cover it."""
    # The first request for a checkpoint makes the key, which the log records; diagnosis must not cause that.
    if not site.client.log.keys():
        raise NotLookedAt("no checkpoint of the log was ever asked for, so it has no key", wanted=False)
    response = site.client.request("GET", "/audit", params={"limit": 1})
    newest = msgspec.json.decode(response.content, type=dict[str, Any])["items"]
    recorded_at = msgspec.convert(newest[0]["recorded_at"], datetime) if newest else None
    state = LogState(int(response.headers["Log-Position"]), recorded_at)
    try:
        text = site.client.log.checkpoint()
        note, size = _parsed(text)
    except (errors.Problem, Malformed) as ex:
        return msgspec.structs.replace(state, checkpoint_error=str(ex))
    state = msgspec.structs.replace(state, size=size, checkpoint=text)
    try:
        note, size = _parsed(site.client.log.checkpoint(cosigned=True))
    except errors.NotFound:
        return state
    return msgspec.structs.replace(state, cosigned_size=size, cosigned_at=_cosigned_at(note))


def _parsed(text: str) -> tuple[Note, int]:
    """The checkpoint of a signed note, and its size; raises Malformed."""
    note = parse_note(text.encode())
    return note, parse_checkpoint(note.text).size


def _cosigned_at(note: Note) -> datetime | None:
    times = [int.from_bytes(each.data[:8]) for each in note.signatures if len(each.data) == _COSIGNATURE_BYTES]
    return datetime.fromtimestamp(max(times), UTC) if times else None


# --- Checks of the broker's reports about itself: health, log and checkpoints, rebuilds, refused requests ---

GROUP = "Broker"
COSIGNED_WITHIN = timedelta(days=1)
REBUILD_SILENT = timedelta(minutes=10)
"""The time without a report after which a rebuild is suspect: one that runs reports progress every few seconds."""
DENIED_WITHIN = timedelta(hours=1)
DENIED_MAX = 100
"""Refusals of one client within that time that look like a wrong configuration or an attack."""
_ADVICE = {
    "access": "docs/operating/security.md",
    "clock": "Correct the clock of the machine, let it follow a time server, and restart the broker.",
    "coordination": "Look at the disk and the owner of coordination.db and slots.db: docs/operating/backup.md",
    "database": "Look at the database and the log of the broker: docs/operating/postgresql.md",
    "disk": "Free space for the data directory, or move it to a larger disk.",
    "events": "Look at the disk and the owner of the event store: docs/operating/backup.md",
    "housekeeping": "Look at the log of the broker for jobs that fail, then restart it.",
    "kafka": "Look at the brokers of Kafka and the log of this one: docs/operating/kafka.md",
    "log": "Look at the database and the log of the broker; `rioni verify` checks the internal log.",
    "signing_key": "Put the right key file back: docs/reference/transparency-log.md#checkpoints",
    "threads": "Look at the disk or server that the stack names: docs/operating/monitoring.md#threads-that-hang",
    "zookeeper": "Look at the servers of ZooKeeper: docs/operating/zookeeper.md",
}
_PROBES = "docs/operating/monitoring.md#probes"


@check(GROUP, ERROR)
def liveness(live: Health) -> Iterator[DoctorFinding]:
    """The checks of `GET /livez`: background jobs, native threads that hang."""
    yield from _checked(live, "/livez")


@check(GROUP, ERROR)
def readiness(ready: Health) -> Iterator[DoctorFinding]:
    """The checks of `GET /readyz` and their warnings: writes to all stores, the key, log, disk, clock, servers."""
    yield from _checked(ready, "/readyz")


def _checked(health: Health, path: str) -> Iterator[DoctorFinding]:
    if health.status == "stopping":
        yield error(f"{path}: the broker is about to end.", "Ask another node, or wait until it was started again.")
    for name, each in sorted(health.checks.items()):
        advice = _ADVICE.get(name, _PROBES)
        if each.status == "failed":
            yield error(f"{path}: {name}: {each.reason or 'failed'}", advice)
        for text in each.warnings:
            yield warning(f"{path}: {name}: {text}", advice)


@check(GROUP, ERROR)
def workers(nodes: list[Node]) -> Iterator[DoctorFinding]:
    """Whether all workers of all nodes work, with the same version: `GET /nodes`."""
    for node in nodes:
        if len(node.workers) < node.configured_workers:
            where = host_and_port(node.host, node.port)
            yield error(
                f"{len(node.workers)} of {node.configured_workers} workers of the node {where} work.",
                "The log of that node contains the reason why a worker ended, hangs or could not start.",
            )
    versions = sorted({node.version for node in nodes})
    if len(versions) > 1:
        yield warning(
            f"The nodes have different versions: {', '.join(versions)}.",
            "Finish the upgrade: docs/operating/cluster.md#upgrade",
        )


@check(GROUP, ERROR)
def checkpoints(log: LogState) -> Iterator[DoctorFinding]:
    """Whether the log is signed up to its end: `GET /log/checkpoint`."""
    if log.checkpoint_error:
        yield error(
            f"There is no checkpoint of the log: {log.checkpoint_error}",
            "Wait until the tree is built, or put the key right: docs/reference/transparency-log.md#checkpoints",
        )
    elif log.size < log.head:
        yield error(
            f"The newest checkpoint covers {log.size:,} entries of the log, which has {log.head:,}.",
            "Look at the log of the broker; `rioni verify` compares log and tree.",
        )


@check(GROUP)
def witnesses(log: LogState) -> Iterator[DoctorFinding]:
    """Whether a witness has cosigned the log within a day, if one ever did."""
    if log.cosigned_size is None or log.cosigned_at is None or log.cosigned_size >= log.head:
        return
    age = datetime.now(UTC) - log.cosigned_at
    if age > COSIGNED_WITHIN:
        yield warning(
            f"A witness has cosigned the log last on {log.cosigned_at:%Y-%m-%d %H:%M} UTC; "
            f"{log.head - log.cosigned_size:,} entries came since.",
            "See whether `rioni witness --every 600` still runs, and read its output.",
        )


@check(GROUP)
def rebuild(rebuilds: list[Rebuild]) -> Iterator[DoctorFinding]:
    """Whether the last rebuild of the read models has failed, was interrupted, or makes no progress."""
    if not rebuilds:
        return
    last = rebuilds[0]
    where = f"The rebuild of {last.started_at:%Y-%m-%d %H:%M} UTC"
    if last.state in {"failed", "interrupted"}:
        detail = f": {last.detail}" if last.detail else ""
        yield warning(
            f"{where} was not completed ({last.state} in the phase {last.phase}){detail}.",
            "The same `rioni rebuild` resumes it: docs/operating/spark.md",
        )
    elif last.state == "running" and datetime.now(UTC) - last.updated_at > REBUILD_SILENT:
        yield warning(
            f"{where} has made no progress in the phase {last.phase} since {last.updated_at:%Y-%m-%d %H:%M} UTC.",
            "See whether its process still runs; the same `rioni rebuild` resumes it: docs/operating/spark.md",
        )


@check(GROUP)
def refused_requests(denials: list[Denial]) -> Iterator[DoctorFinding]:
    """Whether a client was refused (401, 403) unusually often within the last hour."""
    since = datetime.now(UTC) - DENIED_WITHIN
    counts: Counter[tuple[str, str, str, int]] = Counter()
    for each in denials:
        if each.last_at >= since:
            counts[each.actor, each.realm, each.address, each.status] += each.count
    for (actor, realm, address, status), count in counts.most_common(3):
        if count < DENIED_MAX:
            return
        name = f"{actor} of {realm}" if realm else actor
        who = f"{name or 'A client without a valid token'}{f' at {address}' if address else ''}"
        yield warning(
            f"{who} was refused {count:,} times with {status} within an hour.",
            "`rioni audit denials` names the paths: give the client its right or a new token, or block its address.",
        )
