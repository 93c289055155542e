import pytest

from rioni.client.consumption.options import COMMIT_TIMEOUT_S, ConsumerOptions, Options


def test_every_option_has_a_type_for_callers():
    assert ConsumerOptions.__annotations__.keys() == set(Options.__struct_fields__)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"commit": "never"}, "'never' is no commit policy; there are batch, interval, manual"),
        ({"batch_limit": 0}, "batch_limit must be at least 1, and is 0"),
        ({"max_uncommitted_events": 0}, "max_uncommitted_events must be at least 1"),
        ({"batch_flush_timeout": 0}, "batch_flush_timeout must be at least 1"),
        ({"commit_interval_s": 0}, "commit_interval_s must be more than 0"),
        ({"stop_timeout_s": -1}, "stop_timeout_s must be more than 0, and is -1"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, text):
    with pytest.raises(ValueError, match=text):
        Options(**options)


def test_partitions_are_kept_alive_in_time():
    assert Options().heartbeat_s == COMMIT_TIMEOUT_S / 3
    assert Options(commit_timeout=9).heartbeat_s == 3
