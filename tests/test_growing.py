"""Each collection that grows with what clients send has a bound, which is listed here: a new one needs a line."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest


ROOT = Path(__file__).parents[1]
GROWING = {
    "Counter",
    "LifoQueue",
    "OrderedDict",
    "Queue",
    "SimpleQueue",
    "WeakKeyDictionary",
    "WeakValueDictionary",
    "defaultdict",
    "deque",
    "dict",
    "list",
    "set",
}
INSTANCES = (
    "rioni/commands/system",
    "rioni/console",
    "rioni/domain",
    "rioni/http",
    "rioni/installation",
    "rioni/operations",
    "rioni/projections",
    "rioni/server",
    "rioni/storage/kafka",
    "rioni/storage/tokens",
    "rioni/storage/zookeeper",
)
"""Packages in which the members of objects are checked as well."""

_FOLLOWED = "rioni/commands/system/followed_subscriptions.py"
_APPENDER = "rioni/storage/kafka/idempotence/idempotent_appender.py"
_COORDINATOR = "rioni/storage/zookeeper/coordination.py"
BOUNDS = {
    # --- caches of functions ---
    "rioni/installation/restored.py store_of": "of a command that ends: one for each storage",
    "rioni/console/rendering.py assets": "no arguments",
    "rioni/console/bounded_transport.py _tls": "no arguments",
    "rioni/console/rendering.py environment": "no arguments; its templates are files of the package",
    "rioni/domain/events.py _current_form": "classes of events",
    "rioni/domain/events.py current_version": "classes of events",
    "rioni/projections/custom.py installed": "no arguments",
    "rioni/projections/custom_tables.py live_tables": "no arguments",
    "rioni/storage/log/segments.py _engine": "databases of the settings",
    "rioni/storage/tokens/token_servers.py _tls": "no arguments",
    # --- of modules ---
    "rioni/domain/publishing/batch.py _WRAPS": "constant",
    "rioni/domain/schemas/counterexample.py _EMPTY": "constant",
    "rioni/domain/subscriptions/event_filter.py _used": "weak: filters of open streams, and those of `_kept`",
    "rioni/http/metrics/shared_tables.py _held": "files of this process",
    # --- of objects ---
    "rioni/console/security.py Forms._of_clients": "clients with large forms in flight: READING_BYTES_MAX",
    "rioni/console/login.py Provider._metadata": "one answer of the provider, of ANSWER_BYTES_MAX",
    "rioni/commands/system/client_activity.py ActivityTracker._pending": "PENDING_MAX",
    "rioni/commands/system/client_activity.py DeniedRequests._of_address": "RECORDS_MAX and one for each status",
    "rioni/commands/system/client_activity.py DeniedRequests._of_subject": "RECORDS_OF_KNOWN_MAX and SUBJECTS_MAX",
    "rioni/commands/system/client_activity.py DeniedRequests._pending": "both, of texts of BYTES_MAX",
    "rioni/commands/system/anchoring.py ChainAnchoring._anchored": "partitions that exist",
    "rioni/commands/system/anchoring.py TopicDigests._failed": "storages that exist",
    "rioni/commands/system/anchoring.py TopicDigests._gone": "topics of timelines that exist or existed",
    "rioni/commands/system/anchoring.py TopicDigests._waiting": "closed timelines without a digest",
    f"{_FOLLOWED} FollowedSubscriptions._dropped": "deletions between two rounds",
    f"{_FOLLOWED} FollowedSubscriptions._event_types": "topics followed",
    f"{_FOLLOWED} FollowedSubscriptions._names": "event types and subscriptions that exist",
    f"{_FOLLOWED} FollowedSubscriptions._subscribers": "event types that exist",
    f"{_FOLLOWED} FollowedSubscriptions._topics": "event types that exist",
    f"{_FOLLOWED} FollowedSubscriptions._unknown": "flags of changes between two rounds",
    f"{_FOLLOWED} FollowedSubscriptions.subscriptions": "subscriptions that exist",
    "rioni/commands/system/lag_monitor.py LagMonitor._appended": "topics that exist, emptied in each round",
    "rioni/commands/system/lag_monitor.py LagMonitor._failed": "subscriptions that exist",
    "rioni/commands/system/lag_monitor.py LagMonitor._outdated": "subscriptions that exist",
    "rioni/commands/system/lag_monitor.py LagMonitor._resting_until_s": "storages that exist",
    "rioni/commands/system/lag_monitor.py LagMonitor._since": "partitions of subscriptions that exist",
    "rioni/commands/system/lag_monitor.py LagMonitor.lagging": "partitions of subscriptions that exist",
    "rioni/commands/system/lag_monitor.py LagMonitor.lags": "subscriptions that exist",
    "rioni/installation/anchoring.py StoreMarks._ends": "partitions that exist, emptied once they are written",
    "rioni/operations/migration.py _Events._adoptions": "of a command that ends: storages that exist",
    "rioni/operations/migration.py _Events._stores": "of a command that ends: storages that exist",
    "rioni/installation/pools.py Pool.idents": "threads of the pool",
    "rioni/installation/pools.py Pool.running": "threads of the pool",
    "rioni/installation/pools.py Pools._storages": "STORAGES_MAX",
    "rioni/installation/turns.py Gate._taken": "clients that have a place",
    "rioni/installation/turns.py Gate._waiting": "callers that wait: what the pool lets queue",
    "rioni/server/watchdog.py Watchdog._hanging": "threads of the pools",
    "rioni/server/watchdog.py Watchdog._logged": "threads of the pools",
    "rioni/server/watchdog.py Watchdog._loads": "kinds of pools",
    "rioni/domain/avro/parsing.py _Parser._measures": "of one schema",
    "rioni/domain/avro/parsing.py _Parser._named": "of one schema",
    "rioni/domain/avro/rendering.py _Compiler._compiled": "of one schema",
    "rioni/domain/compiled_cache.py CompiledCache._kept": "the bytes that it was made for",
    "rioni/domain/publishing/enrichment.py Enrichment._additions": "of one batch",
    "rioni/domain/schemas/counterexample.py _CounterexampleGenerator._equal": "of one comparison",
    "rioni/domain/schemas/diff.py _Comparison.changes": "of one comparison",
    "rioni/domain/schemas/diff.py _Comparison.followed": "of one comparison, REFERENCED_BYTES_MAX",
    "rioni/domain/schemas/field_path.py NameMatcher._matches": "of one definition, what may be looked for",
    "rioni/domain/schemas/field_path.py NameMatcher._patterns": "of one definition",
    "rioni/domain/schemas/path_check.py _Search._found": "of one definition",
    "rioni/domain/streaming/batching.py Buffer._slices": "memory_bytes_max of the stream",
    "rioni/domain/streaming/batching.py Ranges._ranges": "max_uncommitted_events, and the events of the buffer",
    "rioni/domain/streaming/sending.py Sender.round_robin": "partitions of one stream",
    "rioni/domain/streaming/session.py StreamMachine._outputs": "of one step of one stream",
    "rioni/domain/streaming/session.py StreamMachine._partitions": "partitions of one stream",
    "rioni/domain/subscriptions/lag.py EndTimes._topics": "TOPICS_MAX",
    "rioni/domain/subscriptions/filter_reading.py Reading._inner_patterns": "of one filter",
    "rioni/domain/subscriptions/filter_reading.py Reading._patterns": "of one filter",
    "rioni/domain/subscriptions/filter_reading.py Reading._scopes": "of one filter",
    "rioni/domain/subscriptions/filter_reading.py Reading.members": "of one filter",
    "rioni/domain/subscriptions/lag.py FollowedPartitions._followed": "the maximum it was made for",
    "rioni/domain/transparency/merkle_tree.py Frontier._subtrees": "the bits of its size",
    "rioni/projections/bulk/executors.py FileSink._rows": "tables",
    "rioni/projections/bulk/executors.py _Buffer._rows": "ROWS_PER_RUN and CHARACTERS_PER_RUN",
    "rioni/projections/custom_tables.py CustomProjector._broken": "projections that are installed",
    "rioni/projections/registry.py MemoryRegistry._compiling": "callers that compile",
    "rioni/projections/log_rows.py StreamFold._custom_rows": "projections that are installed",
    "rioni/projections/log_rows.py StreamFold._rows": "of one stream of the log",
    "rioni/storage/kafka/backfill_readers.py BackfillReaders._idle": "KEPT",
    "rioni/storage/kafka/backfill_readers.py _Loader.ahead": "partitions of one request",
    "rioni/storage/kafka/backfill_readers.py _Loader.at": "partitions of one request",
    "rioni/storage/kafka/backfill_readers.py _Reading._awaited": "partitions of one request",
    "rioni/storage/kafka/backfill_readers.py _Reading._runs": "partitions of one request",
    "rioni/storage/kafka/backfill_readers.py _Run.records": "bytes_max of one request, and MESSAGES_MAX more",
    "rioni/storage/kafka/delivery.py Delivery._renumbered": "replaced producers with batches under way",
    "rioni/storage/kafka/delivery.py Delivery._replaced": "replaced producers with batches under way",
    "rioni/storage/kafka/delivery.py Delivery._unanswered": "replaced producers with batches under way",
    "rioni/storage/kafka/events.py KafkaEventStore._reached": "partitions that exist, emptied in each round of marks",
    "rioni/storage/kafka/idempotence/idempotent_batch.py _Scan.found": "of one batch",
    "rioni/storage/kafka/idempotence/idempotent_batch.py _Scan.passed": "partitions of one batch",
    f"{_APPENDER} IdempotentAppender._ends": "partitions of ENDS_KEPT_S",
    f"{_APPENDER} IdempotentAppender._handed_over": "KEPT_MAX",
    f"{_APPENDER} IdempotentAppender._kept": "KEPT_MAX",
    f"{_APPENDER} IdempotentAppender._under_way": "batches of one group",
    "rioni/storage/kafka/idempotence/idempotent_batch.py IdempotentBatch.done": "of one batch",
    "rioni/storage/kafka/idempotence/idempotent_batch.py IdempotentBatch.new_keys": "of one batch",
    "rioni/storage/kafka/record_reads.py RecordTimes._idle": "KEPT",
    "rioni/storage/kafka/tail_follower.py TailFollower._asking": "topics that are being asked for",
    "rioni/storage/kafka/tail_follower.py TailFollower._changes": "topics that begin and end between two polls",
    "rioni/storage/kafka/tail_follower.py TailFollower._places": "partitions of topics used within IDLE_S",
    "rioni/storage/kafka/tail_follower.py TailFollower._read": "partitions of topics used within IDLE_S",
    "rioni/storage/kafka/tail_follower.py TailFollower._topics": "topics used within IDLE_S",
    "rioni/storage/zookeeper/assignment.py AssignmentUpdate.created": "of one change of one subscription",
    "rioni/storage/zookeeper/transactions.py _Group._changed": "of one group of commits",
    "rioni/storage/zookeeper/transactions.py _Group.operations": "of one group of commits",
    f"{_COORDINATOR} ZooKeeperCoordinator._leaving": "as `_unfinished`",
    f"{_COORDINATOR} ZooKeeperCoordinator._own": "open streams",
    f"{_COORDINATOR} ZooKeeperCoordinator._unfinished": "streams with a slot, for which ZooKeeper must have answered",
    "rioni/storage/zookeeper/quota.py ZooKeeperConnectionQuota._holders": "open streams",
    "rioni/storage/zookeeper/quota.py ZooKeeperConnectionQuota._mine": "slots of open streams",
    "rioni/storage/zookeeper/quota.py ZooKeeperConnectionQuota._unwritten": "slots of clients since ZooKeeper answered",
    "rioni/storage/zookeeper/driver.py NotAgain._said_at_s": "_TEXTS_MAX",
    "rioni/storage/zookeeper/node_cache.py NodeCache._readings": "nodes_max",
    "rioni/storage/zookeeper/node_cache.py NodeCache._written": "nodes_max",
    "rioni/storage/zookeeper/session.py ZooKeeperSession._listeners": "parts of this process",
    "rioni/storage/zookeeper/signals.py _Watch._followed": "subscriptions of one stream",
    "rioni/storage/zookeeper/subscriptions.py SubscriptionCache._alive": "SUBSCRIPTIONS_MAX",
    "rioni/storage/zookeeper/subscriptions.py SubscriptionCache._cursors": "SUBSCRIPTIONS_MAX",
    "rioni/storage/zookeeper/subscriptions.py SubscriptionCache._followers": "subscriptions of open streams",
    "rioni/storage/zookeeper/subscriptions.py SubscriptionCache._seen": "SUBSCRIPTIONS_MAX",
    "rioni/storage/zookeeper/subscriptions.py SubscriptionCache._told": "subscriptions of open streams",
    "rioni/http/answer_budget.py AnswerBudget._of_clients": "clients with unread bytes: WORKER_BYTES_MAX",
    "rioni/http/answers.py GzipStream._rest": "one piece of a stream",
    "rioni/http/bodies/reading.py BodyBudget._of_clients": "clients with bodies in flight: WORKER_BYTES_MAX",
    "rioni/http/connection/framing.py KnownHead._environ": "headers of one request: HEADERS_MAX",
    "rioni/http/connection/framing.py KnownHeads._heads": "HEADS_MAX, of HEAD_BYTES_MAX",
    "rioni/http/health_checks.py HealthChecker._found": "the checks of this process",
    "rioni/http/openapi/document.py NamedSchemas.found": "constant: titles of the document",
    "rioni/http/metrics/shared_tables.py LagTable._chosen": "the rows of the table",
    "rioni/http/metrics/sampler.py Sampler._before": "series of the tables of metrics, which have rows",
    "rioni/http/metrics/sampler.py Sampler._buckets": "LATENCY_BUCKETS_S",
    "rioni/http/middleware/requests.py RequestMiddleware._counters": "methods of HTTP, routes and statuses",
    "rioni/http/streaming/stream_tickets.py StreamTickets._counts": "clients with tickets used within LIFETIME_S",
    "rioni/http/streaming/stream_tickets.py StreamTickets._used": "OPENED_MAX of each client within LIFETIME_S",
    "rioni/http/streaming/frames.py Frames._fixed": "partitions of one stream",
    "rioni/http/streaming/stream_context.py PartitionTail._kept": "partitions of one topic, SHARED_BYTES_MAX of each",
    "rioni/http/streaming/stream_context.py PartitionTail._loading": "partitions of one topic",
    "rioni/http/streaming/stream_context.py TailCache._tails": "weak: topics that streams read",
    "rioni/http/streaming/stream_runner.py StreamRunner._fetches": "partitions of one stream",
    "rioni/http/streaming/stream_runner.py StreamRunner._outputs": "decisions of one step of one stream",
    "rioni/http/streaming/stream_runner.py StreamRunner._unsent": "memory_bytes_max of the stream",
    "rioni/http/streaming/streams.py SubscriptionStream._unchecked": "partitions of one stream",
    "rioni/http/connection/timeouts.py OpenConnections._of_addresses": "WORKER_CONNECTIONS",
    "rioni/storage/tokens/token_servers.py ByClient._values": "CLIENTS_MAX",
    "rioni/storage/tokens/sources.py CachedTokens._accepted": "ACCEPTED_MAX",
    "rioni/storage/tokens/sources.py CachedTokens._refused": "REFUSED_MAX",
    "rioni/storage/tokens/jwt_tokens.py KeySet._keys": "keys of one answer of the issuer",
    "rioni/storage/tokens/token_servers.py TokenInfoService._known": "KNOWN_MAX",
    "rioni/storage/tokens/tokens_file.py TokensFile._tokens": "entries of the file",
}
"""Each collection, and what bounds it."""


def test_each_collection_that_grows_has_a_bound():
    found = {name for path in _sources() for name in growing(path.read_text(), path.relative_to(ROOT).as_posix())}
    assert found - BOUNDS.keys() == set(), "each needs a bound, and a line in BOUNDS that says which"
    assert BOUNDS.keys() - found == set(), "these are gone"


SAMPLES = {
    "memory = {}": "memory",
    "memory: dict[str, int] = {}": "memory",
    "waiting = deque()": "waiting",
    "waiting = queue.Queue()": "waiting",
    "@cache\ndef answer(name): pass": "answer",
    "@functools.lru_cache(maxsize=None)\ndef answer(name): pass": "answer",
    "@lru_cache(None)\ndef answer(name): pass": "answer",
    "class A:\n def __init__(self):\n  self.seen: set[str] = set()": "A.seen",
    "class A:\n def __init__(self):\n  self.a, self.b = 1, defaultdict(int)": "A.b",
    "class A:\n def __init__(self):\n  self.a = OrderedDict[str, int]()": "A.a",
    "class A:\n @cache\n def answer(self, name): pass": "answer",
    "waiting = deque(maxlen=3)": "",
    "waiting = queue.Queue(3)": "",
    "waiting = queue.Queue(maxsize=3)": "",
    "@lru_cache(3)\ndef answer(name): pass": "",
    "names = {'a': 1}": "",
    "class A:\n def __init__(self):\n  found = []": "",
}


@pytest.mark.parametrize("source", SAMPLES)
def test_collections_that_grow_are_found(source):
    assert [*growing(source, "rioni/http/x.py")] == [f"rioni/http/x.py {each}" for each in (SAMPLES[source],) if each]


def _sources() -> Iterator[Path]:
    serving = (
        "commands",
        "config",
        "console",
        "domain",
        "files",
        "http",
        "installation",
        "operations",
        "projections",
        "server",
        "sql",
        "storage",
    )
    for name in serving:
        yield from sorted((ROOT / "rioni" / name).rglob("*.py"))


def growing(source: str, path: str) -> Iterator[str]:
    """The path and name of each collection that a module makes empty, and that has no bound there."""
    module = ast.parse(source)
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef) and any(map(_is_cache, node.decorator_list)):
            yield f"{path} {node.name}"
    for statement in module.body:
        for target, value in _assigned(statement):
            if isinstance(target, ast.Name) and _is_growing(value):
                yield f"{path} {target.id}"
    if not path.startswith(INSTANCES):
        return
    for of in (node for node in ast.walk(module) if isinstance(node, ast.ClassDef)):
        yield from (f"{path} {of.name}.{name}" for name in _members(of))


def _members(of: ast.ClassDef) -> Iterator[str]:
    # Attributes that are replaced later are made in the beginning, too.
    begins = [each for each in of.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
    for statement in (each for begin in begins for each in ast.walk(begin)):
        for target, value in _assigned(statement):
            if isinstance(target, ast.Attribute) and _is_growing(value):
                yield target.attr


def _assigned(statement: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    if isinstance(statement, ast.AnnAssign) and statement.value is not None:
        yield statement.target, statement.value
    if isinstance(statement, ast.Assign):
        for target in statement.targets:
            if isinstance(target, ast.Tuple) and isinstance(statement.value, ast.Tuple):
                yield from zip(target.elts, statement.value.elts, strict=True)
            else:
                yield target, statement.value


def _name(called: ast.expr) -> str:
    match called:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(value=value):
            return _name(value)
        case _:
            return ""


def _is_growing(value: ast.expr) -> bool:
    match value:
        case ast.Dict(keys=inside) | ast.List(elts=inside):
            return not inside
        case ast.Call(func=called, args=arguments, keywords=keywords):
            if any(each.arg in ("maxlen", "maxsize") for each in keywords):
                return False
            return _name(called) in GROWING and (not arguments or _name(called) == "defaultdict")
        case _:
            return False


def _is_cache(decorator: ast.expr) -> bool:
    match decorator:
        case ast.Call(func=called, args=arguments, keywords=keywords):
            values = [*arguments, *(each.value for each in keywords)]
            endless = any(isinstance(each, ast.Constant) and each.value is None for each in values)
            return _name(called) == "cache" or (_name(called) == "lru_cache" and endless)
        case _:
            return _name(decorator) == "cache"
