import pytest

from rioni.domain.timestamps import milliseconds, parsed_ms, rfc3339


@pytest.mark.parametrize(
    ("timestamp_ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_474_644_913_273, "2016-09-23T15:35:13.273Z"),
        (999, "1970-01-01T00:00:00.999Z"),
    ],
)
def test_times_are_written_in_utc_with_milliseconds(timestamp_ms, text):
    assert rfc3339(timestamp_ms) == text
    assert milliseconds(text) == timestamp_ms


@pytest.mark.parametrize(
    ("text", "timestamp_ms"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01t01:00:00.0019999z", 3_600_001),
        ("1970-01-01T01:00:00.123456789+01:00", 123),
        ("1969-12-31T23:59:59.9999Z", -1),
        ("0001-01-01T00:00:00+23:59", -62_135_683_140_000),
        ("9999-12-31T23:59:59-23:59", 253_402_387_139_000),
        ("1970-01-01T23:59:60Z", 86_400_000),
        ("1970-01-01t23:59:60.5z", 86_400_500),
        ("1970-01-01T15:59:60-08:00", 86_400_000),
        ("1970-01-02T05:29:60+05:30", 86_400_000),
        ("1970-01-01T00:00:00-00:00", 0),
    ],
)
def test_times_of_clients_are_rounded_down_to_milliseconds(text, timestamp_ms):
    assert parsed_ms(text) == timestamp_ms


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1970-01-01",
        "1970-01-01T00:00:00",
        "1970-01-01T00:00:60Z",
        "9999-12-31T23:59:60Z",
        "1970-02-29T00:00:00Z",
        "0000-01-01T00:00:00Z",
    ],
)
def test_an_invalid_time_is_none(text):
    assert parsed_ms(text) is None
