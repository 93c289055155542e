"""The Merkle tree over the internal log as a read model: complete tiles are stored, the rest is computed on reading."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, column, func, insert, select, table

from rioni.domain.errors import Invalid, NotFound, Unavailable
from rioni.domain.transparency import merkle_tree
from rioni.domain.transparency.checkpoint import leaf, parse_verifier
from rioni.domain.transparency.log_keys import LOG_KEYS, LogKey, LogKeys
from rioni.domain.transparency.merkle_tree import (
    HASH_BYTES,
    TILE_LEVELS,
    TILE_WIDTH,
    Tile,
    bundle,
    leaf_hash,
    subtree_hash,
    width_of,
)
from rioni.projections.projector import Projector
from rioni.sql.log_tables import HEAD, LOG, LOG_TILES


# The Merkle tree over the internal log as a read model: complete tiles are stored, the rest is computed on reading.
#
# Appending an entry costs nothing: tiles are stored later, in the background. They hold nothing but hashes of the log
# and can be made again from it at any time.

ENTRIES_PER_READ = 64
"""An entry may hold a schema of 256 kB."""

UNSTORED_TILES_MAX = 16
"""How many complete tiles of entries a request computes; with more the tree counts as not built yet."""

# Untyped columns, so that damaged values are read as they are.
_ROWS = table("log", *(column(each.name) for each in LOG.columns if each.name != "hash"))
_ENTRIES = (
    select(_ROWS)
    .where(_ROWS.c.position > bindparam("after"), _ROWS.c.position <= bindparam("upto"))
    .order_by(_ROWS.c.position)
)
_TYPES = (int, str, int, str, str, str, str, str, str, bytes)
_TILE = select(LOG_TILES.c.hashes).where(LOG_TILES.c.level == bindparam("of"), LOG_TILES.c.number == bindparam("at"))
_ROOTS = (
    select(LOG_TILES.c.number, LOG_TILES.c.root)
    .where(LOG_TILES.c.level == bindparam("of"), LOG_TILES.c.number.between(bindparam("low"), bindparam("high")))
    .order_by(LOG_TILES.c.number)
)
_STORED = select(func.max(LOG_TILES.c.number)).where(LOG_TILES.c.level == bindparam("of"))
_SIZE = select(HEAD.c.position)


def size(connection: Connection) -> int:
    """The number of entries in the log."""
    return connection.scalar(_SIZE) or 0


def leaves(connection: Connection, begin: int, end: int) -> Iterator[bytes]:
    """Yield the leaves of some entries, from index `begin` to `end - 1`; the entry at position 1 has the index 0.

    Raises:
        Unavailable: an entry is missing, or is not of the type that was written, so that the log is damaged.
        UnicodeEncodeError: a field is not valid Unicode.
    """
    for first in range(begin, end, ENTRIES_PER_READ):
        last = min(first + ENTRIES_PER_READ, end)
        rows = connection.execute(_ENTRIES, {"after": first, "upto": last}).all()
        if len(rows) != last - first:
            raise Unavailable("The log is damaged: entries are missing. Run `rioni verify`.")
        for row in rows:
            if tuple(map(type, row)) != _TYPES:
                raise Unavailable(
                    "The log is damaged: a field is of another type than was written. Run `rioni verify`."
                )
            yield leaf(tuple(row))


class LogTree:
    """The tree over the first entries, in one transaction. Blocks on the database.

    Args:
        connection: to the database of the log.
        size: how many entries the tree has; no more than there are.
    """

    def __init__(self, connection: Connection, size: int) -> None:
        self._connection, self.size = connection, size

    def node(self, level: int, index: int) -> bytes:
        """Return the hash of a complete subtree, as `rioni.domain.transparency.merkle_tree` asks for it."""
        tile_level, depth = divmod(level, TILE_LEVELS)
        number, offset = divmod(index << depth, TILE_WIDTH)
        hashes = self.tile(tile_level, number)[offset * HASH_BYTES : (offset + (1 << depth)) * HASH_BYTES]
        return subtree_hash(split_hashes(hashes))

    def tile(self, level: int, number: int) -> bytes:
        """Return the hashes of a tile that the tree has so far; empty if there is no such tile."""
        width = width_of(level, number, self.size)
        if width == TILE_WIDTH:
            found = self._connection.scalar(_TILE, {"of": level, "at": number})
            if found is not None:
                return bytes(found)
        begin = number * TILE_WIDTH
        if level:
            return b"".join(self._roots(level - 1, begin, begin + width))
        return b"".join(map(leaf_hash, leaves(self._connection, begin, begin + width)))

    def _roots(self, level: int, begin: int, end: int) -> list[bytes]:
        """The roots of complete tiles."""
        rows = self._connection.execute(_ROOTS, {"of": level, "low": begin, "high": end - 1})
        found = {row.number: bytes(row.root) for row in rows}
        return [found.get(number) or self._root(level, number) for number in range(begin, end)]

    def _root(self, level: int, number: int) -> bytes:
        return subtree_hash(split_hashes(self.tile(level, number)))


def built_tree(connection: Connection) -> LogTree:
    """Return the tree over all entries.

    Raises:
        Unavailable: too many of its tiles are not stored yet.
    """
    tree = LogTree(connection, size(connection))
    complete, present = tree.size >> TILE_LEVELS, stored(connection)
    if complete - present > UNSTORED_TILES_MAX:
        raise Unavailable(
            f"The Merkle tree over the log is being built: it has {present * TILE_WIDTH:,} of {tree.size:,} entries. "
            "Try again later."
        )
    return tree


def split_hashes(data: bytes) -> Sequence[bytes]:
    """Return the hashes of a tile."""
    return [data[at : at + HASH_BYTES] for at in range(0, len(data), HASH_BYTES)]


def stored(connection: Connection, level: int = 0) -> int:
    """The number of stored tiles of a level; they are stored in their order."""
    last = connection.scalar(_STORED, {"of": level})
    return 0 if last is None else last + 1


class StoredTile(NamedTuple):
    """A row of `log_tiles`."""

    level: int
    number: int
    hashes: bytes
    root: bytes


def next_tile(connection: Connection) -> StoredTile | None:
    """Compute the next tile to be stored, None if all complete ones are; blocks on the database."""
    log_size, level, below = size(connection), 0, 0
    while (complete := log_size >> TILE_LEVELS * (level + 1)) > 0:
        number = stored(connection, level)
        # On higher levels only tiles whose parts are stored: reading them is quick.
        if number < complete and (level == 0 or below >= (number + 1) * TILE_WIDTH):
            hashes = LogTree(connection, log_size).tile(level, number)
            return StoredTile(level, number, hashes, subtree_hash(split_hashes(hashes)))
        level, below = level + 1, number
    return None


def store_tile(connection: Connection, tile: StoredTile) -> None:
    """Store a tile in the caller's transaction, unless another process has done so."""
    if stored(connection, tile.level) == tile.number:
        connection.execute(insert(LOG_TILES), tile._asdict())


# --- Queries over the Merkle tree of the log: tiles, bundles of entries, and proofs ---
#
# Raises everywhere:
#     Unavailable: the tree is not built yet.


def root(connection: Connection, size: int | None = None) -> tuple[int, bytes]:
    """The size and the root of the tree over the first entries; by default over all."""
    tree = _tree(connection, size)
    return tree.size, merkle_tree.root(tree.size, tree.node)


def keys(connection: Connection) -> list[LogKey]:
    """The signing keys of checkpoints recorded in the log, in their order; the last one signs now."""
    found: LogKeys | None = Projector().state(connection, "log-keys", LOG_KEYS)[0]
    return [LogKey(parse_verifier(each.verifier), each.signature) for each in found.keys] if found else []


def hashes(connection: Connection, tile: Tile) -> bytes:
    """The hashes of a tile; raises NotFound if the log is not that long."""
    return _with_tile(connection, tile).tile(tile.level, tile.number)


def entries(connection: Connection, tile: Tile) -> bytes:
    """The bundle of the leaves of a tile; raises NotFound if the log is not that long."""
    _with_tile(connection, tile)
    begin = tile.number * TILE_WIDTH
    return bundle(list(leaves(connection, begin, begin + tile.width)))


def inclusion(connection: Connection, position: int, size: int | None = None) -> tuple[int, list[bytes]]:
    """The size of a tree, and the proof that it has the entry at a position; raises Invalid if it does not."""
    tree = _tree(connection, size)
    if not 0 < position <= tree.size:
        raise Invalid(f"A log of {tree.size} entries has no entry at position {position}; it begins with 1")
    return tree.size, merkle_tree.inclusion_proof(position - 1, tree.size, tree.node)


def consistency(connection: Connection, first: int, second: int | None = None) -> tuple[int, list[bytes]]:
    """The size of the larger tree, and the proof that it begins with the smaller one; raises Invalid if it can't."""
    tree = _tree(connection, second)
    return tree.size, merkle_tree.consistency_proof(first, tree.size, tree.node)


def _tree(connection: Connection, size: int | None) -> LogTree:
    tree = built_tree(connection)
    if size is None:
        return tree
    if not 0 <= size <= tree.size:
        raise Invalid(f"The log has {tree.size} entries, not {size}")
    return LogTree(connection, size)


def _with_tile(connection: Connection, tile: Tile) -> LogTree:
    """The smallest tree that contains a tile in its width."""
    size = built_tree(connection).size
    if width_of(tile.level, tile.number, size) < tile.width:
        raise NotFound(f"The log has {size} entries, too few for this tile")
    return LogTree(connection, (tile.number * TILE_WIDTH + tile.width) << TILE_LEVELS * tile.level)
