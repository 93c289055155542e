"""Merkle trees as RFC 9162 defines them, and bundles of leaves (C2SP tlog-tiles); shares nothing with the product."""

import hashlib


def _hash(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _largest_power_of_two_below(n: int) -> int:
    k = 1
    while 2 * k < n:
        k *= 2
    return k


def mth(d: list[bytes]) -> bytes:
    """MTH(D[n]), section 2.1.1."""
    if not d:
        return _hash(b"")
    if len(d) == 1:
        return _hash(b"\x00" + d[0])
    k = _largest_power_of_two_below(len(d))
    return _hash(b"\x01" + mth(d[:k]) + mth(d[k:]))


def path(m: int, d: list[bytes]) -> list[bytes]:
    """PATH(m, D[n]), section 2.1.3.1."""
    if len(d) == 1:
        return []
    k = _largest_power_of_two_below(len(d))
    if m < k:
        return [*path(m, d[:k]), mth(d[k:])]
    return [*path(m - k, d[k:]), mth(d[:k])]


def proof(m: int, d: list[bytes]) -> list[bytes]:
    """PROOF(m, D[n]), section 2.1.4.1."""
    return _subproof(m, d, complete=True)


def _subproof(m: int, d: list[bytes], *, complete: bool) -> list[bytes]:
    if m == len(d):
        return [] if complete else [mth(d)]
    k = _largest_power_of_two_below(len(d))
    if m <= k:
        return [*_subproof(m, d[:k], complete=complete), mth(d[k:])]
    return [*_subproof(m - k, d[k:], complete=False), mth(d[:k])]


def root_from_path(leaf: bytes, m: int, n: int, hashes: list[bytes]) -> bytes:
    """The root that a proof of inclusion leads to, by the structure of the tree; IndexError if it is too short."""
    if n == 1:
        assert not hashes
        return _hash(b"\x00" + leaf)
    k = _largest_power_of_two_below(n)
    if m < k:
        return _hash(b"\x01" + root_from_path(leaf, m, k, hashes[:-1]) + hashes[-1])
    return _hash(b"\x01" + hashes[-1] + root_from_path(leaf, m - k, n - k, hashes[:-1]))


def shows_inclusion(leaf: bytes, m: int, n: int, hashes: list[bytes], root: bytes) -> bool:
    """Whether hashes are the proof that the tree of size `n` with this root has a leaf at `m`."""
    if not 0 <= m < n or any(len(each) != 32 for each in hashes):
        return False
    try:
        return root_from_path(leaf, m, n, hashes) == root
    except (AssertionError, IndexError):
        return False


def shows_consistency(m: int, n: int, first: bytes, second: bytes, hashes: list[bytes]) -> bool:
    """Whether hashes are the proof that the tree of size `n` and one root begins with that of size `m` and the other.

    The converse of SUBPROOF, section 2.1.4.1: each step of it takes one hash from the end.
    """
    if not 0 < m <= n or any(len(each) != 32 for each in hashes):
        return False
    try:
        return _roots_from_subproof(m, n, first, hashes, complete=True) == (first, second)
    except (AssertionError, IndexError):
        return False


def _roots_from_subproof(m: int, n: int, first: bytes, hashes: list[bytes], *, complete: bool) -> tuple[bytes, bytes]:
    if m == n:
        assert len(hashes) == (not complete)
        return (first, first) if complete else (hashes[0], hashes[0])
    k = _largest_power_of_two_below(n)
    if m <= k:
        old, new = _roots_from_subproof(m, k, first, hashes[:-1], complete=complete)
        return old, _hash(b"\x01" + new + hashes[-1])
    old, new = _roots_from_subproof(m - k, n - k, first, hashes[:-1], complete=False)
    return _hash(b"\x01" + hashes[-1] + old), _hash(b"\x01" + hashes[-1] + new)


def split_bundle(data: bytes) -> list[bytes]:
    """The leaves of a bundle, each after its length as two bytes, big-endian; AssertionError if it ends within one."""
    leaves = []
    while data:
        end = 2 + int.from_bytes(data[:2])
        assert len(data) >= max(2, end)
        leaves.append(data[2:end])
        data = data[end:]
    return leaves
