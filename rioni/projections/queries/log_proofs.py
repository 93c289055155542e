"""Queries over the Merkle tree of the log: tiles, bundles of entries, and proofs.

Raises everywhere:
    Unavailable: the tree is not built yet.
"""

from sqlalchemy import Connection

from rioni.domain.errors import Invalid, NotFound
from rioni.domain.system.log_keys import LOG_KEYS, LogKeys
from rioni.domain.transparency import merkle_tree
from rioni.domain.transparency.key_succession import LogKey
from rioni.domain.transparency.signed_note import parse_verifier
from rioni.domain.transparency.tiles import TILE_LEVELS, TILE_WIDTH, Tile, bundle, width_of
from rioni.projections.log_tree import LogTree, built_tree, leaves
from rioni.projections.projector import Projector


def root(connection: Connection, size: int | None = None) -> tuple[int, bytes]:
    """The size and the root of the tree over the first entries; by default over all."""
    tree = _tree(connection, size)
    return tree.size, merkle_tree.root(tree.size, tree.node)


def keys(connection: Connection) -> list[LogKey]:
    """The keys that the log says its checkpoints are signed with, in their order; the last one signs now."""
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
    """The smallest tree that has so much of a tile."""
    size = built_tree(connection).size
    if width_of(tile.level, tile.number, size) < tile.width:
        raise NotFound(f"The log has {size} entries, too few for this tile")
    return LogTree(connection, (tile.number * TILE_WIDTH + tile.width) << TILE_LEVELS * tile.level)
