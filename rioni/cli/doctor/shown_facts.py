"""The facts that `rioni doctor` may show: one table names each of them, with its form."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any


EACH = "*"
"""A member of a rule that stands for all names, if they have the form `NAME`."""

# --- The forms of texts ---

TEXT = "text"
"""A sentence: only those of its words are shown that belong to Rioni's own messages, short numbers, and known names."""
LOG = "log"
"""Lines of a log, in text or JSON: as sentences, with the members of `LOG_FIELDS`."""
PLAIN = re.compile(r"(?!)")
"""No text at all: numbers, times and truth values."""
NAME = re.compile(r"[\w.*()-]{1,255}")
ACTOR = re.compile(r"[\w.*()@+:-]{1,255}")
"""The name of a client, such as `jane@example.org`."""
_NUMBERS = r"v?\d{1,9}(?:\.(?:\d{1,9}|\*))*(?:(?:a|b|rc)\d{1,4})?(?:\.(?:post|dev)\d{1,4})?"
VERSION = re.compile(_NUMBERS)
_BOUND = rf"(?:===?|[<>!~]=|[<>]) ?{_NUMBERS}"
REQUIREMENT = re.compile(rf"[\w.-]{{1,100}}(?:\[[\w,-]{{1,100}}\])? ?(?:{_BOUND}(?:, ?{_BOUND})*)?")
PATH = re.compile(r"[\w./+~-]{1,4096}")
ORIGIN = re.compile(rf"process \d{{1,9}}|command line|{PATH.pattern}")
URL = re.compile(r"https?://(?:[\w.-]+|\[[\da-fA-F:]+\])(?::\d{1,5})?(?:/[\w./-]*)?")
_HOST = r"(?:[\w.-]+|\[?[\da-fA-F:.]+\]?)(?::\d{1,5})?"
HOSTS = re.compile(rf"{_HOST}(?:,{_HOST})*(?:/[\w./-]*)?")
NAMES = re.compile(r"[\w.:*()-]{1,255}(?:,[\w.:*()-]{1,255})*")
SUBJECT = re.compile(r"(?:(?:CN|O|OU|C|L|ST)=[\w. *-]{1,100},?){0,10}")
CHECKPOINT = re.compile(r"[\w./:-]+\n\d+\n[A-Za-z0-9+/=]+\n\n(?:\u2014 [\w./:-]+ [A-Za-z0-9+/=]+\n)+")
NUMBER = re.compile(r"-?\d{1,15}|true|false")
SECRET = re.compile(r"\*\*\*")
"""The text shown instead of a secret setting."""
METRIC = re.compile(r"(?:rioni|nakadi|process|python)_\w{1,200}")
LABEL = re.compile(r"[\w.:/<>{}+()*-]{0,255}")

# --- The facts, by source ---

_ATTRIBUTES = [{"data_type": NAME, "value": NAME}]
_BLOCKED = {"event_types": [NAME], "apps": [NAME]}
_ANSWER = {"seconds": PLAIN, "clock_offset_s": PLAIN}
_CERTIFICATE = {
    "host": HOSTS,
    "subject": SUBJECT,
    "names": [HOSTS],
    "not_before": PLAIN,
    "not_after": PLAIN,
    "error": TEXT,
}
_HEALTH = {
    "status": NAME,
    "worker": NAME,
    "checks": {EACH: {"status": NAME, "reason": TEXT, "detail": TEXT, "warnings": [TEXT]}},
}
_CONFLICTS = [{"package": NAME, "requirement": REQUIREMENT, "installed": VERSION}]
_LOGS = [{"path": PATH, "text": LOG, "error": TEXT}]


def _members(form: Any, names: str) -> dict[str, Any]:
    return dict.fromkeys(names.split(), form)


SETTINGS: Mapping[str, re.Pattern[str]] = MappingProxyType(
    _members(
        NUMBER,
        "allow_unauthenticated answers_bytes_max answers_bytes_per_client_max append_timeout_s batch_events_max "
        "batch_values_max bodies_bytes_max bodies_bytes_per_client_max body_bytes_max body_bytes_per_s_min "
        "body_timeout_s cache_bytes_max commit_timeout_max_s compaction_lag_s compiled_schemas_bytes_max console "
        "database_connections_max database_lock_timeout_s event_bytes_max events_anchor_interval_s header_timeout_s "
        "idempotency_window_s kafka_request_timeout_s keep_alive_s kpi_streams_interval_s metrics_event_types_max "
        "metrics_history_series_max metrics_subscriptions_max partitions_default partitions_max port "
        "quota_bytes_per_second quota_change_bytes_per_minute quota_changes_per_minute quota_events_per_second "
        "retention_default_ms retention_interval_s retention_max_ms retention_min_ms shutdown_timeout_s "
        "stream_memory_bytes_max stream_timeout_default_s stream_timeout_jitter_s stream_timeout_max_s "
        "streams_per_client_max streams_per_partition_max subscription_partitions_max timeline_switch_timeout_s "
        "worker_stream_memory_bytes_max workers zookeeper_session_timeout_s",
    )
    | _members(
        PATH,
        "auth_issuers auth_tokens base_path data kafka_options log_signing_key tls_certificate tls_key "
        "zookeeper_options",
    )
    | _members(HOSTS, "allowed_hosts host kafka log_origin trusted_proxies zookeeper")
    | _members(URL, "allowed_origins auth_tokeninfo_local auth_tokeninfo_remote console_oidc_issuer")
    | _members(
        NAMES,
        "all_data_access audit_owning_application audit_readers auth_mode auth_realms auth_service_realms "
        "console_oidc_client_id console_oidc_scope console_oidc_token default_admin kpi_owning_application log_format "
        "log_level owning_applications system_events_authorization",
    )
    | _members(SECRET, "console_oidc_client_secret database pseudonym_salt")
)
"""The settings that are shown, by name."""
LABELS: Mapping[str, re.Pattern[str]] = MappingProxyType(
    _members(
        LABEL,
        "api application client code event_type le method node policy pool quantile reason route slo_bucket status "
        "storage subscription worker",
    )
)
"""The labels of metrics that are shown."""
LOG_FIELDS: Mapping[str, Any] = MappingProxyType(
    _members(
        NAME,
        "attempt attempts authenticated connections count delay_s error_id event_type event_types events host kafka "
        "method node outcome partition partitions pid port position request_length response_length response_time_ms "
        "seconds status status_code stream streams subscription timeline topic version worker workers",
    )
    | _members(PATH, "file")
    | _members(TEXT, "after before error exception reason")
)
"""The members of a line of the log that are shown."""
FACTS: Mapping[str, Any] = MappingProxyType(
    {
        "reach": {"url": URL, "error": TEXT, "answer": _ANSWER, "token": PLAIN},
        "answer": _ANSWER,
        "access": {"client": VERSION, "broker": VERSION, "status": PLAIN, "detail": TEXT, "token_error": TEXT},
        "certificate": _CERTIFICATE,
        "certificate_file": _CERTIFICATE,
        "live": _HEALTH,
        "ready": _HEALTH,
        "nodes": [
            {
                **_members(PLAIN, "port configured_workers"),
                "id": NAME,
                "host": HOSTS,
                "version": VERSION,
                "workers": [
                    _members(
                        PLAIN,
                        "number pid started_at reported_at log_position connections streams requests_per_second",
                    )
                ],
            }
        ],
        "features": [{"feature": NAME, "enabled": PLAIN}],
        "blacklist": {"producers": _BLOCKED, "consumers": _BLOCKED},
        "admins": {"admins": _ATTRIBUTES, "readers": _ATTRIBUTES, "writers": _ATTRIBUTES},
        "storages": [
            {
                **_members(NAME, "id storage_type"),
                "default": PLAIN,
                "kafka_configuration": {
                    "bootstrap_servers": HOSTS,
                    **_members(PLAIN, "replication_factor min_insync_replicas"),
                },
            }
        ],
        "rebuilds": [
            {
                **_members(NAME, "id state phase into"),
                **_members(PLAIN, "started_at updated_at done total position fold"),
                "detail": TEXT,
                "tables": [NAME],
            }
        ],
        "log": {
            **_members(PLAIN, "head recorded_at size cosigned_size cosigned_at"),
            "checkpoint_error": TEXT,
            "checkpoint": CHECKPOINT,
        },
        "denials": [
            {
                **_members(PLAIN, "first_at last_at status count"),
                **_members(NAME, "method realm"),
                "actor": ACTOR,
                "address": HOSTS,
            }
        ],
        "metrics": {
            "series": [{"name": METRIC, "labels": LABELS, **_members(PLAIN, "value before")}],
            "seconds": PLAIN,
        },
        "event_types": [
            {
                **_members(NAME, "name owner"),
                **_members(PLAIN, "created_at authorization retention_ms"),
                "open_to": [NAME],
            }
        ],
        "unused": [NAME],
        "overdue_timelines": {
            "timelines": [{"event_type": NAME, **_members(PLAIN, "order due_at")}],
            "partial": TEXT,
        },
        "subscriptions": {
            "items": [
                {
                    **_members(NAME, "id owner group"),
                    **_members(PLAIN, "created_at dead_letter_at never_streamed"),
                    "lags": [
                        {
                            **_members(NAME, "event_type partition"),
                            **_members(PLAIN, "streamed unconsumed growth lag_s"),
                            "error": TEXT,
                        }
                    ],
                }
            ],
            "seconds": PLAIN,
            "partial": TEXT,
        },
        "settings": {
            "origin": ORIGIN,
            "error": TEXT,
            "values": {name: [form, ORIGIN] for name, form in SETTINGS.items()},
        },
        "secret_files": [{"setting": NAME, "path": PATH, "mode": PLAIN, "error": TEXT}],
        "servers": [{"setting": NAME, "address": HOSTS, "error": TEXT}],
        "installation": {
            **_members(VERSION, "rioni python sqlite"),
            "packages": {EACH: VERSION},
            "conflicts": _CONFLICTS,
            "drivers": [NAME],
        },
        "pins": {"file": PATH, "wanted": PLAIN, "different": _CONFLICTS},
        "processes": {
            "data": PATH,
            "items": [_members(PLAIN, "pid open_files open_files_max resident_bytes swapped_bytes suspended")],
        },
        "port": {**_members(PLAIN, "port listening pid broker"), "command": NAME},
        "memory": _members(
            PLAIN, "total_bytes available_bytes swap_total_bytes swap_free_bytes limit_bytes used_bytes killed"
        ),
        "clock_sync": {"synchronised": PLAIN},
        "data_directory": {
            **_members(PLAIN, "mode owner restoring"),
            "path": PATH,
            "error": TEXT,
            "layout": TEXT,
            "stores": [NAME],
            "unknown": [NAME],
            "foreign": [NAME],
            "wal_bytes": {EACH: PLAIN},
        },
        "disk": _members(PLAIN, "free_bytes total_bytes free_inodes total_inodes"),
        "file_system": {"kind": NAME, "mount_point": PATH, "options": [NAME]},
        "fsyncs": [PLAIN],
        "logs": _LOGS,
        "last_lines": _LOGS,
    }
)
"""The facts that are shown, by the name of their source, and the form of each."""
INTERNAL = frozenset({"config"})
"""Sources of facts for decisions only: no finding contains them, and no bundle."""
