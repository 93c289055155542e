"""Settings of requests, event types and streams: their limits, deadlines and defaults."""

from typing import Annotated

from msgspec import Meta

from rioni.config.server_settings import ServerSettings


class RequestSettings(ServerSettings, frozen=True, kw_only=True):
    """Limits, deadlines and defaults of requests, event types, subscriptions and streams."""

    # Requests
    header_timeout_s: Annotated[
        int,
        Meta(
            ge=1, le=3_600, description="Timeout for receiving the headers of a request; then the connection is closed."
        ),
    ] = 5
    body_timeout_s: Annotated[
        int,
        Meta(
            ge=1,
            le=3_600,
            description="How long the body of a request may take before it is answered 408; also how long a client may "
            "pause in sending it, or in reading the answer.",
        ),
    ] = 30
    body_bytes_per_s_min: Annotated[
        int, Meta(ge=1, description="Minimum upload rate; each received byte extends the body timeout.")
    ] = 1_000
    keep_alive_s: Annotated[
        int, Meta(ge=1, le=3_600, description="How long an idle connection stays open for a next request.")
    ] = 75
    shutdown_timeout_s: Annotated[
        int, Meta(ge=1, le=3_600, description="Grace period for running requests at shutdown.")
    ] = 10
    bodies_bytes_max: Annotated[
        int,
        Meta(
            ge=1_000_000,
            description="Bytes of bodies, inflated, of all requests that a worker process has not answered yet; more "
            "are answered 503.",
        ),
    ] = 200_000_000
    bodies_bytes_per_client_max: Annotated[
        int,
        Meta(
            ge=1_000_000,
            description="The same of one client, which is a subject, or an address while authentication is off; more "
            "are answered 429.",
        ),
    ] = 100_000_000
    answers_bytes_max: Annotated[
        int,
        Meta(
            ge=1_000_000,
            description="Bytes of large answers of a worker process that clients have not read yet; more are answered "
            "503.",
        ),
    ] = 200_000_000
    answers_bytes_per_client_max: Annotated[
        int,
        Meta(ge=1_000_000, description="The same of one client; more are answered 429."),
    ] = 50_000_000
    body_bytes_max: Annotated[
        int, Meta(ge=1_000, description="Size of the body of a request, inflated; a larger one is answered 413.")
    ] = 50_000_000

    # Quotas
    quota_changes_per_minute: Annotated[
        int,
        Meta(
            ge=0,
            le=1_000_000_000,
            description="Changes of one client at a node: of event types, subscriptions, cursors, timelines, settings "
            "and storages, and redrives; more are answered 429. 0 is no quota.",
        ),
    ] = 6_000
    quota_change_bytes_per_minute: Annotated[
        int, Meta(ge=0, le=1_000_000_000_000, description="Bytes of the bodies of these changes. 0 is no quota.")
    ] = 120_000_000
    quota_events_per_second: Annotated[
        int,
        Meta(
            ge=0,
            le=1_000_000_000,
            description="Events that one client publishes, deletes and redrives at a node; more are answered 429. 0 is "
            "no quota.",
        ),
    ] = 0
    quota_bytes_per_second: Annotated[
        int, Meta(ge=0, le=1_000_000_000_000, description="Bytes of the bodies of these events. 0 is no quota.")
    ] = 0

    # Publishing
    event_bytes_max: Annotated[
        int, Meta(ge=1, le=2_000_000, description="Size of one event with its metadata; a larger one is answered 422.")
    ] = 999_000
    batch_events_max: Annotated[
        int, Meta(ge=1, description="Events in one publish request; more are answered 413.")
    ] = 100_000
    batch_values_max: Annotated[
        int,
        Meta(
            ge=1_000,
            description="Values in one publish request, counted by its commas and opening brackets; more are answered "
            "413.",
        ),
    ] = 2_000_000

    idempotency_window_s: Annotated[
        int,
        Meta(
            ge=60,
            description="Deduplication window: a batch with the same Idempotency-Key, or an event with the same eid "
            "where eids are stored once, is not stored again within this time.",
        ),
    ] = 86_400

    compaction_lag_s: Annotated[
        int,
        Meta(
            ge=0,
            description="Minimum age before compaction removes a superseded event or a deletion; consumers with less "
            "lag see every event.",
        ),
    ] = 10_800

    timeline_switch_timeout_s: Annotated[
        int,
        Meta(
            ge=0,
            le=3_600,
            description="Maximum wait of publishers while their event type switches to a new timeline; then 503.",
        ),
    ] = 40

    # Event types and subscriptions
    partitions_default: Annotated[
        int, Meta(ge=1, description="Partitions of an event type whose definition does not describe its load.")
    ] = 1
    partitions_max: Annotated[int, Meta(ge=1, le=1_000, description="Partitions of an event type.")] = 8
    retention_min_ms: Annotated[int, Meta(ge=0, description="The shortest retention time of an event type.")] = (
        10_800_000
    )
    retention_default_ms: Annotated[
        int, Meta(ge=0, description="Retention time of an event type that does not state its own.")
    ] = 172_800_000
    retention_max_ms: Annotated[int, Meta(ge=0, description="The longest retention time of an event type.")] = (
        345_600_000
    )
    events_anchor_interval_s: Annotated[
        int,
        Meta(
            ge=10,
            le=86_400,
            description="How often the hash chains of published events are recorded in the internal log, for those "
            "partitions that have changed: about 150 bytes each.",
        ),
    ] = 3_600
    retention_interval_s: Annotated[
        int,
        Meta(
            ge=1,
            le=3_600,
            description="Interval of retention and compaction runs in each process.",
        ),
    ] = 60
    owning_applications: Annotated[
        str,
        Meta(
            min_length=1,
            description="Regular expression for the whole names of the applications that there are, such as "
            "`shop|billing`. It is asked while `validate_event_type_owning_application` or "
            "`validate_subscription_owning_application` is on.",
        ),
    ] = ".*"
    compiled_schemas_bytes_max: Annotated[
        int,
        Meta(
            ge=1_000_000,
            description="Memory of each worker for compiled schemas, as estimated; those that were used longest ago "
            "are dropped, and compiled again for the next batch.",
        ),
    ] = 268_435_456
    subscription_partitions_max: Annotated[
        int, Meta(ge=1, description="Partitions that one subscription may span.")
    ] = 100

    # Streams
    commit_timeout_max_s: Annotated[int, Meta(ge=1, le=3_600, description="Maximum and default commit timeout.")] = 60
    stream_timeout_default_s: Annotated[int, Meta(ge=1, description="Default stream timeout.")] = 3_600
    stream_timeout_jitter_s: Annotated[
        int,
        Meta(ge=0, description="Random jitter of the stream timeout, so that streams do not all end at once."),
    ] = 600
    stream_timeout_max_s: Annotated[int, Meta(ge=1, description="Maximum stream timeout.")] = 4_200
    stream_memory_bytes_max: Annotated[
        int, Meta(ge=10_000, description="Events that one stream may hold back until its batch is full.")
    ] = 50_000_000
    worker_stream_memory_bytes_max: Annotated[
        int,
        Meta(
            ge=1_000_000,
            description="The same for all streams of one worker process together; each of them has an equal share.",
        ),
    ] = 500_000_000
    streams_per_client_max: Annotated[
        int, Meta(ge=1, description="Streams of one client, of all kinds; more are answered 429.")
    ] = 10_000
    streams_per_partition_max: Annotated[
        int,
        Meta(
            ge=1,
            description="Low-level streams of one client on one partition of an event type; more are answered 429.",
        ),
    ] = 5
