import pytest

from rioni.http.middleware.access_log import slo_bucket
from tests.support.tables import rows


@pytest.mark.parametrize(
    ("size", "bucket"),
    rows(
        ("nothing", 0, "<5K"),
        ("small", 4_999, "<5K"),
        ("medium", 5_000, "5K-50K"),
        ("the largest medium", 50_000, "5K-50K"),
        ("large", 50_001, ">50K"),
    ),
)
def test_publish_requests_are_measured_by_their_size(size, bucket):
    """Reference operations#latency-buckets."""
    assert slo_bucket(size) == bucket
