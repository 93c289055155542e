"""Answers of a broker in which every check over HTTP finds something, by path; for a scripted server."""

from datetime import timedelta
from email.utils import format_datetime
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from rioni.domain.transparency.checkpoint import Checkpoint, Note, cosign, sign
from tests.support.doctor_cases import NOW, ago
from tests.support.scripted_server import Answer


SUBSCRIPTION = "4d9c8d2c-0000-0000-0000-000000000001"
OTHER_SUBSCRIPTION = "4d9c8d2c-0000-0000-0000-000000000002"
EVENT = "an event of a customer"
METRICS = """\
rioni_worker_info{node="a",worker="w"} 1
rioni_http_requests_total{method="GET",route="/event-types",status="500"} %s
rioni_http_requests_total{method="GET",route="/event-types",status="200"} 50
rioni_publish_seconds_bucket{slo_bucket="<5K",le="1.0"} 10
rioni_publish_seconds_bucket{slo_bucket="<5K",le="+Inf"} 1000
rioni_publish_seconds_count{slo_bucket="<5K"} 1000
rioni_http_request_seconds_bucket{method="GET",route="/x",le="5.0"} 10
rioni_http_request_seconds_bucket{method="GET",route="/x",le="+Inf"} 1000
rioni_http_request_seconds_count{method="GET",route="/x"} 1000
rioni_hub_stall_seconds 12
rioni_pool_rejected_total{pool="files"} %s
rioni_greenlets 9999
rioni_feed_entries_behind{event_type="nakadi.audit.log"} 5
rioni_dropped_measurements_total 5
rioni_expired_unread_events_total{api="hila"} 5
rioni_unprocessable_events_total{policy="SKIP_EVENT"} 5
rioni_kafka_failed_batches_total 5
rioni_kafka_events_behind %s
rioni_published_events_total{event_type="(others)"} 5
"""


def time(**before: float) -> str:
    """A time in the past, as the API writes it."""
    return ago(**before).isoformat()


def _event_type(name: str, **members: Any) -> dict[str, Any]:
    schema = {"schema": "{}", "type": "json_schema"}
    return {
        "name": name,
        "owning_application": "",
        "category": "business",
        "schema": schema,
        "options": {"retention_time": 86_400_000},
        "created_at": time(days=90),
        **members,
    }


def facets(*, unused: int) -> Answer:
    """The answer of a broker with `unused` event types that nobody uses."""
    facet = {"values": [], "distinct": 0}
    members = dict.fromkeys(("owning_application", "category", "cleanup_policy", "label"), facet)
    return Answer(200, {"total": 2, "unused": {"days": 30, "count": unused}, **members})


def _timeline(order: int, **members: Any) -> dict[str, Any]:
    return {
        "id": str(order),
        "event_type": "order",
        "order": order,
        "storage_id": "default",
        "topic": f"t{order}",
        "created_at": time(days=9),
        **members,
    }


def _subscription(subscription_id: str) -> dict[str, Any]:
    policy = "nakadi.zalando.org/subscription-unprocessable-event-policy"
    count = "nakadi.zalando.org/subscription-max-event-send-count"
    return {
        "id": subscription_id,
        "owning_application": "shop",
        "event_types": ["order"],
        "consumer_group": "default",
        "created_at": time(days=30),
        "annotations": {policy: "DEAD_LETTER_QUEUE", count: "3"},
    }


def _statistics(*partitions: dict[str, Any]) -> Answer:
    items = [{"state": "assigned"} | each for each in partitions]
    return Answer(200, {"items": [{"event_type": "order", "partitions": items}]})


def _checkpoints() -> tuple[str, str]:
    """One that does not cover the whole log, and one that was cosigned long ago."""
    key, witness = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    texts = [str(Checkpoint("rioni/test", size, bytes(32))) for size in (8, 5)]
    cosignature = cosign(texts[1], "witness", witness, int(ago(days=9).timestamp()))
    return (
        str(Note(texts[0], [sign(texts[0], "rioni/test", key)])),
        str(Note(texts[1], [sign(texts[1], "rioni/test", key), cosignature])),
    )


def _health(**checks: Any) -> Answer:
    return Answer(503, {"status": "failed", "worker": "w", "checks": checks})


def sick_broker() -> dict[str, list[Answer]]:
    """The answers by path, in turn."""
    attribute = {"data_type": "*", "value": "*"}
    everybody = {role: [attribute] for role in ("admins", "readers", "writers")}
    denial = {"method": "GET", "path": "/x", "actor": "", "address": "192.0.2.7", "user_agent": "", "flow_id": ""}
    denied = denial | {"first_at": time(hours=1), "last_at": time(minutes=1), "status": 401, "count": 500}
    rebuild = {"started_at": time(hours=3), "updated_at": time(hours=2), "phase": "fold", "done": 1, "total": 2}
    late = {"Date": format_datetime(NOW - timedelta(hours=1))}
    kafka = {"bootstrap_servers": "user:known@k:9092", "replication_factor": 1}
    entry = {"recorded_at": time(minutes=5)}
    checkpoint, cosigned = _checkpoints()
    answers = {
        "/health": Answer(200, b"OK", late),
        "/version": Answer(200, {"version": "9.9.9"}),
        "/livez": _health(threads={"status": "failed", "reason": "The pool files makes no progress."}),
        "/readyz": _health(
            access={"status": "warning", "detail": "auth_mode basic", "warnings": ["everybody reads nakadi.audit.log"]},
            disk={"status": "failed", "reason": "The disk of the data directory is full."},
        ),
        "/settings/features": Answer(200, {"items": [{"feature": "disable_db_write_operations", "enabled": True}]}),
        "/settings/blacklist": Answer(
            200, {"producers": {"event_types": [], "apps": ["a"]}, "consumers": {"event_types": [], "apps": []}}
        ),
        "/settings/admins": Answer(200, everybody),
        "/storages": Answer(200, [{"id": "k", "storage_type": "kafka", "kafka_configuration": kafka}]),
        "/nodes": Answer(200, {"items": [{"id": "1", "host": "h", "port": 1, "configured_workers": 2, "workers": []}]}),
        "/rebuilds": Answer(200, {"items": [{"id": "1", "state": "interrupted", **rebuild}]}),
        "/audit": Answer(200, {"items": [entry], "_links": {}}, {"Log-Position": "9"}),
        "/audit/denials": Answer(200, {"items": [denied], "_links": {}}),
        "/log/keys": Answer(200, {"keys": [{"verifier": "v", "signature": ""}]}),
        "/log/checkpoint": Answer(200, checkpoint.encode()),
        "/log/checkpoint?cosigned=true": Answer(200, cosigned.encode()),
        "/event-types": Answer(200, [_event_type("order", authorization=everybody), _event_type("open")]),
        "/event-types?unused_days=30": Answer(200, [_event_type("open")]),
        "/event-type-facets": facets(unused=1),
        "/event-types/order/timelines": Answer(
            200, [_timeline(1, cleaned_up_at=time(days=1)), _timeline(2, cleaned_up_at=time(hours=3)), _timeline(3)]
        ),
        "/event-types/order/partitions": Answer(
            200,
            [{"partition": "0", "oldest_available_offset": "001-0002-0", "newest_available_offset": "001-0003--1"}],
        ),
        "/subscriptions": Answer(200, {"items": [_subscription(SUBSCRIPTION), _subscription(OTHER_SUBSCRIPTION)]}),
        f"/subscriptions/{SUBSCRIPTION}/stats": _statistics(
            {"partition": "0", "unconsumed_events": 5},
            {"partition": "1", "stream_id": "s", "unconsumed_events": 5},
            {"partition": "2", "cursor_error": "The cursor is beyond the end."},
        ),
        f"/subscriptions/{SUBSCRIPTION}/stats?show_time_lag=true&show_initial_lag=true": _statistics(
            {"partition": "0", "unconsumed_events": 5, "consumer_lag_seconds": 80_000},
            {"partition": "1", "stream_id": "s", "unconsumed_events": 8, "consumer_lag_seconds": 80_000},
            {"partition": "2", "cursor_error": "The cursor is beyond the end."},
        ),
        f"/subscriptions/{OTHER_SUBSCRIPTION}/stats": _statistics({"partition": "0"}),
        f"/subscriptions/{OTHER_SUBSCRIPTION}/stats?show_time_lag=true&show_initial_lag=true": _statistics(
            {"partition": "0", "unconsumed_events": 5, "consumer_lag_seconds": 80_000}
        ),
        f"/subscriptions/{SUBSCRIPTION}/dead-letters": Answer(
            200,
            {
                "items": [
                    {
                        "event_type": "order",
                        "partition": "0",
                        "offset": "001-0001-0",
                        "event": {"secret": EVENT},
                        "error": {"message": EVENT},
                        "kept_at": time(days=1),
                    }
                ]
            },
        ),
        f"/subscriptions/{OTHER_SUBSCRIPTION}/dead-letters": Answer(403, {"title": "Forbidden", "status": 403}),
    }
    metrics = [Answer(200, (METRICS % (number, number, number)).encode()) for number in (50, 60)]
    return {path: [answer] for path, answer in answers.items()} | {"/metrics": metrics}
