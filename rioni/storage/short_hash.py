"""Hashes client-supplied names to short, fixed-size lookup keys."""

from hashlib import blake2b


HASH_BYTES = 16
"""Two names with the same hash would be treated as one: with 10^12 names the odds are one to 10^14."""


def short_hash(name: str) -> bytes:
    """Return the stored hash of a name."""
    return blake2b(name.encode(), digest_size=HASH_BYTES).digest()
