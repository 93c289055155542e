import pytest

from rioni.http.timestamps import rfc3339


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
