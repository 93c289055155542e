import hashlib

from hypothesis import given
from hypothesis import strategies as st

from rioni.domain.hash_chain import GENESIS, Fields, link


ENTRY: Fields = (
    7,
    "3a2f8f0e-9d0c-5c6b-8a54-1c3c0b6f7d21",
    2,
    "event-type.changed",
    "2026-11-20T10:00:00.000Z",
    "jürgen",
    "127.0.0.1",
    "flow",
    "0d1b6f0e-3c52-4d8c-9b50-0f2b7f6d2a11",
    b'{"class_version":1}',
)

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=6)
ENTRIES = st.tuples(
    st.integers(1, 2**63 - 1),
    TEXTS,
    st.integers(1, 2**31 - 1),
    *[TEXTS] * 6,
    st.binary(max_size=6),
)
HASHES = st.binary(min_size=32, max_size=32)


def test_the_hash_is_computed_as_documented():
    """Every byte is spelled out: readers of the log in other languages have to compute the same hash."""
    written = (
        b"\x00" * 32
        + b"\x00\x00\x00\x017"
        + b"\x00\x00\x00\x243a2f8f0e-9d0c-5c6b-8a54-1c3c0b6f7d21"
        + b"\x00\x00\x00\x012"
        + b"\x00\x00\x00\x12event-type.changed"
        + b"\x00\x00\x00\x182026-11-20T10:00:00.000Z"
        + b"\x00\x00\x00\x07j\xc3\xbcrgen"
        + b"\x00\x00\x00\x09127.0.0.1"
        + b"\x00\x00\x00\x04flow"
        + b"\x00\x00\x00\x240d1b6f0e-3c52-4d8c-9b50-0f2b7f6d2a11"
        + b'\x00\x00\x00\x13{"class_version":1}'
    )
    assert link(GENESIS, ENTRY) == hashlib.sha256(written).digest()
    assert link(GENESIS, ENTRY).hex() == "53659638bd5035bd3ada428bbade6aa10cd866848a264ada0626159b7e6d5d65"


@given(HASHES, ENTRIES, st.integers(0, 8), st.integers(1, 6))
def test_moving_the_end_of_a_field_to_the_next_changes_the_hash(previous, entry, index, length):
    left, right = _bytes(entry[index]), _bytes(entry[index + 1])
    moved = list(entry)
    moved[index], moved[index + 1] = left[:-length], left[-length:] + right
    if left:
        assert link(previous, tuple(moved)) != link(previous, entry)


@given(HASHES, ENTRIES, st.integers(0, 9), st.data())
def test_changing_any_one_field_changes_the_hash(previous, entry, index, data):
    value = data.draw(_like(entry[index]).filter(lambda new: new != entry[index]))
    changed = (*entry[:index], value, *entry[index + 1 :])
    assert link(previous, changed) != link(previous, entry)


def _like(value):
    if isinstance(value, int):
        return st.integers(1, 2**31 - 1)
    return st.binary(max_size=6) if isinstance(value, bytes) else TEXTS


def _bytes(field) -> bytes:
    return field if isinstance(field, bytes) else str(field).encode()
