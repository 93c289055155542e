"""The metadata of events as a consumer gets them."""

from datetime import UTC, datetime

import msgspec
import pytest

from rioni.client.consumption.event_values import _METADATA, _unusual_metadata


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2016-12-31T23:59:60Z", datetime(2017, 1, 1, tzinfo=UTC)),
        ("2016-12-31t23:59:60.5z", datetime(2017, 1, 1, 0, 0, 0, 500_000, tzinfo=UTC)),
        ("2016-12-31T15:59:60-08:00", datetime(2017, 1, 1, tzinfo=UTC)),
        ("0000-01-01T00:00:00Z", None),
        ("0000-12-31T23:59:60Z", None),
        ("9999-12-31T23:59:60Z", None),
        ("9999-12-31t23:59:60.5+00:00", None),
    ],
)
def test_times_that_python_has_not_are_the_second_after_them_or_none(text, expected):
    event = msgspec.json.encode({"metadata": {"eid": "a", "occurred_at": text}, "a": 1})
    with pytest.raises(msgspec.ValidationError):
        _METADATA.decode(event)
    found = _unusual_metadata(event)
    assert (found.eid, found.occurred_at) == ("a", expected)


@pytest.mark.parametrize("metadata", [1, {"eid": 1}, {"occurred_at": "yesterday"}])
def test_metadata_that_is_none_is_an_error(metadata):
    with pytest.raises(msgspec.ValidationError):
        _unusual_metadata(msgspec.json.encode({"metadata": metadata}))
