"""Merkle tree over the internal log (RFC 9162, section 2): roots, proofs and their verification, and its tiles."""

import re
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import NamedTuple

from rioni.domain.errors import Invalid, Malformed


# All hashes are SHA-256, 32 bytes. Leaves count from 0; a subtree at level L has 2^L leaves, and its index says which
# of the subtrees of that size it is, from the left.

HASH_BYTES = 32
EMPTY_ROOT: bytes = sha256(b"").digest()
"""The root of a tree without leaves."""

PROOF_HASHES_MAX = 64
"""The maximum number of hashes in a proof: more than any proof in a tree of 2^63 leaves has."""

Node = Callable[[int, int], bytes]
"""Returns the hash of a complete subtree by its level and index."""


class InvalidProof(Invalid):
    """A proof is not valid for its claim."""


def leaf_hash(leaf: bytes) -> bytes:
    """Return the hash of a leaf."""
    return sha256(b"\0" + leaf).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of a node from those of its children."""
    return sha256(b"\1" + left + right).digest()


def subtree_hash(hashes: Sequence[bytes]) -> bytes:
    """Return the root over the hashes of neighbouring subtrees of one size; their number is a power of two."""
    level = list(hashes)
    while len(level) > 1:
        level = [node_hash(*pair) for pair in zip(level[::2], level[1::2], strict=True)]
    return level[0]


class Frontier:
    """A tree that grows leaf by leaf, in constant memory: the complete subtrees at its right edge."""

    def __init__(self) -> None:
        self.size = 0
        self._subtrees: list[bytes] = []
        """The roots of complete subtrees, from the largest to the smallest."""

    def append(self, leaf: bytes) -> None:
        """Add a leaf, given by its hash."""
        complete = self.size
        while complete & 1:
            leaf = node_hash(self._subtrees.pop(), leaf)
            complete >>= 1
        self._subtrees.append(leaf)
        self.size += 1

    def root(self) -> bytes:
        """Return the root."""
        if not self._subtrees:
            return EMPTY_ROOT
        *others, found = self._subtrees
        for subtree in reversed(others):
            found = node_hash(subtree, found)
        return found


def root(size: int, node: Node) -> bytes:
    """Return the root of the tree with the first `size` leaves."""
    return _range_hash(0, size, node) if size else EMPTY_ROOT


def inclusion_proof(index: int, size: int, node: Node) -> list[bytes]:
    """Return the proof that a leaf belongs to the tree with the first `size` leaves, from the leaf up to the root.

    Raises:
        Invalid: the tree has no such leaf.
    """
    if not 0 <= index < size:
        raise Invalid(f"A tree of {size} entries has no leaf {index}.")
    proof: list[bytes] = []
    begin, end = 0, size
    while end - begin > 1:
        middle = begin + _split(end - begin)
        if index < middle:
            proof.append(_range_hash(middle, end, node))
            end = middle
        else:
            proof.append(_range_hash(begin, middle, node))
            begin = middle
    return proof[::-1]


def consistency_proof(first: int, second: int, node: Node) -> list[bytes]:
    """Return the proof that the tree with `second` leaves begins with the one with `first` leaves.

    Raises:
        Invalid: there is no such proof: `first` is 0 or larger than `second`.
    """
    if not 0 < first <= second:
        raise Invalid(f"There is no proof that a tree of {second} entries extends one of {first}.")
    proof: list[bytes] = []
    begin, end, whole = 0, second, True
    while first != end:
        middle = begin + _split(end - begin)
        if first <= middle:
            proof.append(_range_hash(middle, end, node))
            end = middle
        else:
            proof.append(_range_hash(begin, middle, node))
            begin, whole = middle, False
    if not whole:
        proof.append(_range_hash(begin, end, node))
    return proof[::-1]


def verify_inclusion(leaf: bytes, index: int, size: int, proof: Sequence[bytes], expected_root: bytes) -> None:
    """Check that a leaf, given by its hash, belongs to a tree (RFC 9162, section 2.1.3.2).

    Raises:
        InvalidProof: the proof does not show that.
    """
    if not 0 <= index < size:
        raise InvalidProof(f"A tree of {size} entries has no leaf {index}.")
    _check_lengths(proof)
    _, found = _climb(index, size - 1, leaf, proof)
    if found != expected_root:
        raise InvalidProof("The proof of inclusion leads to another root.")


def verify_consistency(first: int, second: int, first_root: bytes, second_root: bytes, proof: Sequence[bytes]) -> None:
    """Check that one tree begins with another one (RFC 9162, section 2.1.4.2).

    Args:
        first: the size of the smaller tree; not 0, since every tree begins with the empty one.
        second: the size of the larger one.
        first_root: the root of the smaller one.
        second_root: the root of the larger one.
        proof: the hashes, as `consistency_proof` returns them.

    Raises:
        InvalidProof: the proof does not show that.
    """
    if not 0 < first <= second:
        raise InvalidProof(f"There is no proof that a tree of {second} entries extends one of {first}.")
    _check_lengths(proof)
    if first == second:
        if proof:
            raise InvalidProof("The proof of consistency of trees of one size has to be empty.")
        if first_root != second_root:
            raise InvalidProof("Two trees of one size have different roots.")
        return
    # The smaller tree is itself a node of the larger one, which the proof leaves out.
    hashes = [first_root, *proof] if first & (first - 1) == 0 else list(proof)
    at, last = first - 1, second - 1
    while at & 1:
        at, last = at >> 1, last >> 1
    old, new = _climb(at, last, hashes[0] if hashes else b"", hashes[1:])
    if (old, new) != (first_root, second_root):
        raise InvalidProof("The proof of consistency leads to other roots: this log does not extend the earlier one.")


def _climb(at: int, last: int, start: bytes, siblings: Sequence[bytes]) -> tuple[bytes, bytes]:
    """Follow a proof from a node up to the root, as the RFC describes it.

    Args:
        at: the index of the node in its level.
        last: the index of the last node of that level.
        start: the hash of the node.
        siblings: the hashes of the proof.

    Returns:
        The hash over everything up to the node, and the one over the whole tree.
    """
    old = new = start
    for sibling in siblings:
        if last == 0:
            raise InvalidProof("The proof is too long.")
        if at & 1 or at == last:
            old, new = node_hash(sibling, old), node_hash(sibling, new)
            while at and not at & 1:
                at, last = at >> 1, last >> 1
        else:
            new = node_hash(new, sibling)
        at, last = at >> 1, last >> 1
    if last:
        raise InvalidProof("The proof is too short.")
    return old, new


def _check_lengths(proof: Sequence[bytes]) -> None:
    if len(proof) > PROOF_HASHES_MAX or any(len(each) != HASH_BYTES for each in proof):
        raise InvalidProof(f"A proof consists of at most {PROOF_HASHES_MAX} hashes of {HASH_BYTES} bytes.")


def _split(count: int) -> int:
    """The largest power of two that is smaller than a number."""
    return 1 << (count - 1).bit_length() - 1


def _range_hash(begin: int, end: int, node: Node) -> bytes:
    """The hash over some leaves, as they are arranged in a tree: `begin` is a multiple of the next power of two."""
    count = end - begin
    if count & (count - 1) == 0:
        level = count.bit_length() - 1
        return node(level, begin >> level)
    middle = begin + _split(count)
    return node_hash(_range_hash(begin, middle, node), _range_hash(middle, end, node))


# --- Tiles of the Merkle tree and their paths (C2SP tlog-tiles) ---
#
# A tile has up to 256 hashes of one level, of which each covers 256 times as many leaves as one of the level below; a
# bundle of entries has the leaves of a tile of level 0, each after its length as two bytes, big-endian.

TILE_LEVELS = 8
"""Levels of the tree that one tile spans."""
TILE_WIDTH = 1 << TILE_LEVELS

_LEVEL = re.compile(r"0|[1-5]?[0-9]|6[0-3]")
_NUMBER = re.compile(r"(?:x[0-9]{3}/)*[0-9]{3}")
_WIDTH = re.compile(r"[1-9][0-9]{0,2}")
_NUMBER_CHARACTERS_MAX = 34
"""Seven groups: more than a log of 2^63 entries needs."""


class Tile(NamedTuple):
    """The coordinates of a tile, or of a bundle of entries."""

    level: int
    number: int
    width: int
    """How many hashes of it: 256 if it is complete."""


def tile_path(tile: Tile, kind: str | None = None) -> str:
    """Return the path of a tile below the prefix of the log.

    Args:
        tile: the tile.
        kind: `entries` for a bundle; None for hashes.
    """
    groups = [f"{tile.number % 1_000:03}"]
    rest = tile.number // 1_000
    while rest:
        groups.append(f"x{rest % 1_000:03}")
        rest //= 1_000
    partial = "" if tile.width == TILE_WIDTH else f".p/{tile.width}"
    return f"tile/{kind or tile.level}/{'/'.join(reversed(groups))}{partial}"


def parse_tile(level: str, rest: str) -> Tile:
    """Read the path of a tile, without its prefix `tile/`.

    Args:
        level: the first part: a level, or `entries`, which means level 0.
        rest: the others: number and width.

    Raises:
        Malformed: this is not a path in the only accepted form.
    """
    path, dot, width = rest.partition(".p/")
    number = path.replace("x", "").replace("/", "")
    if (
        (level != "entries" and not _LEVEL.fullmatch(level))
        or len(path) > _NUMBER_CHARACTERS_MAX
        or not _NUMBER.fullmatch(path)
        or (dot and not (_WIDTH.fullmatch(width) and int(width) < TILE_WIDTH))
    ):
        raise Malformed(f"{level}/{rest} is not the path of a tile; see C2SP tlog-tiles.")
    tile = Tile(0 if level == "entries" else int(level), int(number), int(width) if dot else TILE_WIDTH)
    if tile_path(tile) != f"tile/{tile.level}/{rest}":
        raise Malformed(f"{level}/{rest} is not the shortest path of that tile.")
    return tile


def width_of(level: int, number: int, size: int) -> int:
    """Return how many hashes a tile has in a tree with `size` leaves; 0 if there is no such tile."""
    return max(0, min(TILE_WIDTH, (size >> TILE_LEVELS * level) - number * TILE_WIDTH))


def bundle(leaves: Sequence[bytes]) -> bytes:
    """Return a bundle of entries."""
    return b"".join(part for leaf in leaves for part in (len(leaf).to_bytes(2), leaf))
