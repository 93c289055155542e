"""The settings of the broker: what each one is for, its default and its bounds; secrets are never shown."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, get_args, get_type_hints

import msgspec
from msgspec import Meta

from rioni.config.setting import Setting
from rioni.domain.access.authentication import Mode
from rioni.domain.access.loopback import is_loopback


LOG_LEVELS = ("debug", "info", "warning", "error")
TEXT_LINES, JSON_LINES = "text", "json"
WELL_KNOWN_ADMIN = "service:stups_nakadi"
"""The administrator of the original API without authentication."""
DEFAULT_ADMIN = "default_admin"
"""As a value of another setting: whom the setting of this name names."""
_SECRET = {"secret": True}
_MODES = {"expected": "one of " + ", ".join(Mode)}


def _list_of(item: str) -> str:
    """The pattern of a text that holds such items, separated by commas, or is empty."""
    return f"^(({item})(,({item}))*)?$"


def _one_per_core() -> int:
    return len(os.sched_getaffinity(0))


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Every setting; the description of each one is its documentation."""

    # Where it listens and keeps its data
    host: Annotated[
        str,
        Meta(
            min_length=1,
            description="Address to listen on. The default is reachable from this machine only, because "
            "authentication is off; `0.0.0.0` or `::` opens the broker to the network, which needs an `auth_mode` "
            "or "
            "`allow_unauthenticated`.",
        ),
    ] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65_535, description="TCP port; 0 lets the system choose a free one.")] = 8_080
    tls_certificate: Annotated[
        Path | None,
        Meta(
            description="PEM file with the broker's certificate and those of intermediate authorities; with it and "
            "`tls_key` the broker speaks HTTPS. Both files are read again when they change."
        ),
    ] = None
    tls_key: Annotated[
        Path | None, Meta(description="PEM file with the private key of `tls_certificate`, without a passphrase.")
    ] = None
    data: Annotated[
        Path, Meta(description="Data directory, created if missing; relative to the working directory.")
    ] = Path("rioni-data")
    workers: Annotated[
        int, Meta(ge=1, le=256, description="Worker processes; the default is one for each core it may use.")
    ] = msgspec.field(default_factory=_one_per_core)
    database: Annotated[
        str | None,
        Meta(
            description="URL of a PostgreSQL database for the registry; without it SQLite in the data directory.",
            extra=_SECRET,
        ),
    ] = None
    database_connections_max: Annotated[
        int, Meta(ge=2, le=1_000, description="Connections of each worker to PostgreSQL, and two more.")
    ] = 10
    database_lock_timeout_s: Annotated[
        int,
        Meta(
            ge=1,
            le=3_600,
            description="Maximum wait for a connection or a lock; then 503. At start-up, maximum wait for other "
            "brokers to release the database.",
        ),
    ] = 30
    kafka: Annotated[
        str | None,
        Meta(
            description="Brokers of Kafka, `host:port`, separated by commas, for the storages of type kafka that name "
            "none themselves.",
        ),
    ] = None
    kafka_options: Annotated[
        Path | None,
        Meta(
            description="A TOML file with options of librdkafka, such as credentials and certificates: a table "
            '`["host:port,host:port"]` for each cluster.',
        ),
    ] = None
    kafka_request_timeout_s: Annotated[
        int,
        Meta(
            ge=1,
            le=600,
            description="Timeout of Kafka requests other than publishing; then 503.",
        ),
    ] = 10

    zookeeper: Annotated[
        str | None,
        Meta(
            description="Servers of ZooKeeper, `host:port`, separated by commas, and behind them, where others use "
            "them, a path such as `/rioni`. With it this broker is one of several nodes; all have the same `database`, "
            "`kafka` and `zookeeper`.",
        ),
    ] = None
    zookeeper_options: Annotated[
        Path | None, Meta(description="A TOML file with credentials and certificates for ZooKeeper.")
    ] = None
    zookeeper_session_timeout_s: Annotated[
        int,
        Meta(
            ge=2,
            le=40,
            description="ZooKeeper session timeout: partitions are reassigned after it. The worker stops its streams "
            "earlier.",
        ),
    ] = 10

    # Authentication and authorization
    allow_unauthenticated: Annotated[
        bool,
        Meta(
            description="Whether the broker may listen on an address that other machines can reach while `auth_mode` "
            "is `off`, which gives all of them all permissions; the log and `/readyz` warn about it.",
        ),
    ] = False
    allowed_hosts: Annotated[
        str,
        Meta(
            pattern=_list_of(r"(\[[0-9A-Fa-f:.]+\]|[^][:/,\s]+)"),
            description="Names that requests may have in their header `Host`, without a port, separated by commas, "
            "beside those of this machine (`localhost`, `127.0.0.1`, `[::1]`). If it is empty all names are accepted, "
            "unless `auth_mode` is `off` and `host` is an address of this machine: then none.",
            extra={"expected": "names of hosts without ports, separated by commas"},
        ),
    ] = ""
    allowed_origins: Annotated[
        str,
        Meta(
            pattern=_list_of(r"https?://[^][/,\s@]+|https?://\[[0-9A-Fa-f:.]+\](:[0-9]+)?"),
            description="Origins of other sites, such as `https://app.example.org`, separated by commas, whose web "
            "pages may use the API (CORS).",
            extra={"expected": "origins like https://app.example.org, separated by commas"},
        ),
    ] = ""
    auth_mode: Annotated[
        str,
        Meta(
            pattern=f"^({'|'.join(Mode)})$",
            description="How strictly tokens are checked: `off` gives every client all permissions, `basic` asks for "
            "a token "
            "with the scope `uid`, `realm` for one of `auth_realms` besides, `full` for the scope of each operation.",
            extra=_MODES,
        ),
    ] = Mode.OFF.value
    auth_tokens: Annotated[
        Path | None, Meta(description="TOML file with the SHA-256 of each token and its principal.")
    ] = None
    auth_issuers: Annotated[
        Path | None, Meta(description="TOML file with the OpenID Connect issuers whose JSON Web Tokens are accepted.")
    ] = None
    auth_tokeninfo_local: Annotated[
        str | None,
        Meta(
            description="URL of a token info service nearby; asked first, unless the feature `remote_tokeninfo` is on."
        ),
    ] = None
    auth_tokeninfo_remote: Annotated[
        str | None, Meta(description="URL of a token info service; asked where the local one can't be.")
    ] = None
    auth_realms: Annotated[str, Meta(description="Realms accepted in the mode `realm`, separated by commas.")] = (
        "services,employees"
    )
    auth_service_realms: Annotated[
        str,
        Meta(
            description="The realms, separated by commas, whose uids are services: their attribute is `service:<uid>`, "
            "that of all others `user:<uid>`."
        ),
    ] = "services"
    default_admin: Annotated[
        str,
        Meta(
            pattern="^([^:]+:[^:]+)?$",
            description="The administrator that always is one and can't be removed, as `data_type:value`. It must be "
            f"chosen unless `auth_mode` is `off`; where it is not, it is `{WELL_KNOWN_ADMIN}`.",
        ),
    ] = ""
    all_data_access: Annotated[
        str,
        Meta(
            pattern="^([^:,]+:[^:,]+(,[^:,]+:[^:,]+)*)?$",
            description="Who may read every event type, as `data_type:value`, separated by commas.",
        ),
    ] = ""

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
    body_bytes_max: Annotated[
        int, Meta(ge=1_000, description="Size of the body of a request, inflated; a larger one is answered 413.")
    ] = 50_000_000

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
        int, Meta(ge=1, description="Partitions of an event type whose definition says nothing about its load.")
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

    # The broker's own event types
    audit_owning_application: Annotated[
        str, Meta(min_length=1, description="Owning application of `nakadi.audit.log`.")
    ] = "stups_nakadi"
    kpi_owning_application: Annotated[
        str, Meta(min_length=1, description="Owning application of the KPI event types.")
    ] = "stups_nakadi"
    kpi_streams_interval_s: Annotated[
        int, Meta(ge=1, le=3_600, description="How often `nakadi.data.streamed` reports on an open stream.")
    ] = 30
    system_events_authorization: Annotated[
        str,
        Meta(
            pattern=f"^({DEFAULT_ADMIN}|[^:]+:[^:]+)$",
            description="Initial readers of system event types, as "
            f"`data_type:value`; `{DEFAULT_ADMIN}` is whom that setting names, `*:*` everybody. They are changed, "
            "deleted and written by the former alone.",
        ),
    ] = DEFAULT_ADMIN
    pseudonym_salt: Annotated[
        str,
        Meta(description="Salt of the pseudonyms of clients.", extra=_SECRET),
    ] = "salt"

    # Metrics and the log of the server
    metrics_event_types_max: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            description="Event types that each worker process counts by name in `/metrics`; it counts further ones "
            "together, as `(others)`.",
        ),
    ] = 1_000
    log_level: Annotated[
        str,
        Meta(
            pattern=f"^({'|'.join(LOG_LEVELS)})$",
            description="Minimum level of log lines, which go to standard error.",
            extra={"expected": "one of " + ", ".join(LOG_LEVELS)},
        ),
    ] = "info"
    log_format: Annotated[
        str,
        Meta(
            pattern=f"^({TEXT_LINES}|{JSON_LINES})$",
            description=f"How it is written: `{TEXT_LINES}` for people, `{JSON_LINES}` for programs: an object a line.",
            extra={"expected": f"one of {TEXT_LINES}, {JSON_LINES}"},
        ),
    ] = TEXT_LINES

    # The event stores
    append_timeout_s: Annotated[
        int,
        Meta(
            ge=1,
            le=3_600,
            description="How long a publish request waits for the disk, or for Kafka; then the answer is 503 if "
            "nothing was written, and 207 if the outcome is unknown.",
        ),
    ] = 30
    cache_bytes_max: Annotated[
        int,
        Meta(ge=0, description="Memory of each worker for the events published last, from which consumers are served."),
    ] = 67_108_864

    @property
    def clustered(self) -> bool:
        """Whether this broker is one node of several."""
        return self.zookeeper is not None

    @property
    def local_only(self) -> bool:
        """Whether `host` is known to be an address that only this machine can reach."""
        return is_loopback(self.host)

    @property
    def unprotected(self) -> bool:
        """Whether the broker listens on a non-loopback address with authentication off."""
        return self.auth_mode == Mode.OFF and not self.local_only

    def __repr__(self) -> str:
        shown = (f"{setting.name}={setting.show(getattr(self, setting.name))!r}" for setting in SETTINGS.values())
        return f"Config({', '.join(shown)})"


def _settings() -> Iterator[tuple[str, Setting]]:
    for name, hint in get_type_hints(Config, include_extras=True).items():
        annotated, meta = get_args(hint)
        kind = next(iter(get_args(annotated)), annotated)
        yield name, Setting(name, kind, hint, meta)


SETTINGS: Mapping[str, Setting] = MappingProxyType(dict(_settings()))
