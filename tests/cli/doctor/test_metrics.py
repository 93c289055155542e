import pytest

from rioni.cli.doctor.metrics import MetricSamples, SampledSeries
from tests.support.doctor_cases import Cases, check_healthy, check_sick, error, healthy, sick, warning


def metrics(*series):
    """Metrics of triples of name, values before and after, and labels."""
    return MetricSamples([SampledSeries(name, labels, after, before) for name, before, after, labels in series], 3.0)


def one(name, before, after, **labels):
    return metrics((name, before, after, labels))


def requests(status, before, after, route="/events"):
    return ("rioni_http_requests_total", before, after, {"method": "POST", "route": route, "status": status})


def slow(name, quick, total, bound):
    return metrics((f"{name}_count", 0, total, {}), (f"{name}_bucket", 0, quick, {"le": bound}))


NOTHING = metrics()
CASES = {
    "server-errors": Cases(
        [
            [NOTHING],
            [metrics(requests("200", 0, 9_000), requests("503", 3, 3))],
            [metrics(requests("503", 0, 7, "/readyz"), requests("503", 0, 1, "/log/checkpoint"))],
        ],
        [
            error(
                "5 requests were answered with 5xx within 3 s, most of them POST /a (503)",
                metrics(requests("503", 1, 5, "/a"), requests("500", 0, 1, "/log/checkpoint")),
            ),
            warning("9.1%", metrics(requests("200", 1000, 1000), requests("500", 100, 100))),
        ],
    ),
    "slow-publishing": Cases(
        [[NOTHING], [slow("rioni_publish_seconds", 999, 1000, "1.0")], [slow("rioni_publish_seconds", 1, 10, "1.0")]],
        [warning("10.0% of 1,000 publish requests", slow("rioni_publish_seconds", 900, 1000, "1.0"))],
    ),
    "slow-requests": Cases(
        [[NOTHING], [slow("rioni_http_request_seconds", 999, 1000, "5.0")]],
        [warning("more than 5 s", slow("rioni_http_request_seconds", 900, 1000, "5.0"))],
    ),
    "event-loop": Cases(
        [[NOTHING], [one("rioni_hub_stall_seconds", 0.2, 0.2)]],
        [warning("7.5 s", one("rioni_hub_stall_seconds", 7, 7.5))],
    ),
    "thread-pools": Cases(
        [
            [NOTHING],
            [one("rioni_pool_rejected_total", 0, 0, pool="x")],
            [one("rioni_pool_oldest_seconds", 0, 40, pool="x")],
        ],
        [
            error("files refused 3 tasks just now", one("rioni_pool_rejected_total", 1, 4, pool="files")),
            warning("files refused 4 tasks since", one("rioni_pool_rejected_total", 4, 4, pool="files")),
            warning("running for 64 s", one("rioni_pool_oldest_seconds", 61, 64, pool="files")),
        ],
    ),
    "connections": Cases(
        [
            [NOTHING],
            [
                metrics(
                    ("rioni_greenlets", 9_500, 9_500, {}), *[("rioni_worker_info", 1, 1, {"worker": n}) for n in "ab"]
                )
            ],
        ],
        [warning("9,500 connections", metrics(("rioni_greenlets", 9_500, 9_500, {}), ("rioni_worker_info", 1, 1, {})))],
    ),
    "system-events": Cases(
        [[NOTHING], [one("rioni_feed_entries_behind", 9, 0)], [one("rioni_feed_entries_behind", 9, 4)]],
        [
            warning(
                "nakadi.audit.log is 9 entries", one("rioni_feed_entries_behind", 9, 9, event_type="nakadi.audit.log")
            )
        ],
    ),
    "lost-measurements": Cases([[NOTHING]], [warning("3 measurements", one("rioni_dropped_measurements_total", 3, 3))]),
    "expired-events": Cases(
        [[NOTHING], [one("rioni_expired_unread_events_total", 0, 0)]],
        [
            error("5 events just now", one("rioni_expired_unread_events_total", 3, 8)),
            warning("8 events since the start", one("rioni_expired_unread_events_total", 8, 8)),
        ],
    ),
    "unprocessable-events": Cases(
        [[NOTHING], [one("rioni_unprocessable_events_total", 0, 0, policy="SKIP_EVENT")]],
        [
            warning(
                "2 events since the start (SKIP_EVENT)",
                one("rioni_unprocessable_events_total", 2, 2, policy="SKIP_EVENT"),
            )
        ],
    ),
    "kafka-failures": Cases(
        [[NOTHING]],
        [
            error("2 batches just now", one("rioni_kafka_failed_batches_total", 3, 5)),
            warning("5 batches since", one("rioni_kafka_failed_batches_total", 5, 5)),
            warning("truncated 1 times", one("rioni_kafka_topic_resyncs_total", 1, 1)),
        ],
    ),
    "kafka-lag": Cases(
        [[NOTHING], [one("rioni_kafka_events_behind", 9, 3)], [one("rioni_kafka_events_behind", 0, 3)]],
        [warning("900 events behind", one("rioni_kafka_events_behind", 300, 900))],
    ),
    "counted-event-types": Cases(
        [[one("rioni_published_events_total", 5, 5, event_type="a")]],
        [warning("more event types", one("rioni_published_events_total", 5, 5, event_type="(others)"))],
    ),
}


@pytest.mark.parametrize(("name", "facts"), healthy(CASES))
def test_nothing_is_found_in_healthy_metrics(name, facts):
    check_healthy(name, facts)


@pytest.mark.parametrize(("name", "case"), sick(CASES))
def test_what_metrics_tell_is_found(name, case):
    check_sick(name, case)
