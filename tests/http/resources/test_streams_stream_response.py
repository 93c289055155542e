from types import SimpleNamespace

from rioni.config.settings import Config
from rioni.http.resources.streams import stream_limits


def test_a_stream_without_a_timeout_gets_one_between_50_and_70_minutes():
    """Reference low-level-streams#parameters, streams#parameters: so that not all streams end at the same time.

    Source: reference low-level-streams#stream-timeout.
    """
    timeouts_s = {stream_limits(SimpleNamespace(config=Config())).stream_timeout_default_s for _ in range(100)}
    assert len(timeouts_s) > 90
    assert all(3_000 <= timeout_s <= 4_200 for timeout_s in timeouts_s)


def test_the_limits_are_set_by_the_settings():
    config = Config(stream_timeout_max_s=5_000, commit_timeout_max_s=5, stream_memory_bytes_max=7)
    limits = stream_limits(SimpleNamespace(config=config))
    assert (limits.stream_timeout_max_s, limits.commit_timeout_max_s, limits.memory_bytes_max) == (5_000, 5, 7)
