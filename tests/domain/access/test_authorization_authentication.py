import pytest

from rioni.domain.access.authorization import is_uid


@pytest.mark.parametrize(
    ("uid", "accepted"),
    [
        ("a", True),
        ("x" * 255, True),
        ("é ü", True),
        ("", False),
        ("x" * 256, False),
        ("a\nb", False),
        ("a\u200b", False),
        (1, False),
        (None, False),
    ],
)
def test_a_uid_has_1_to_255_printable_characters(uid, accepted):
    """Reference common#token-sources."""
    assert is_uid(uid) is accepted
