"""Compares the internal log with checkpoints and its Merkle tree, and knows which keys sign checkpoints."""

import contextlib
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine, Row, select

from rioni.domain.errors import Malformed, Unavailable
from rioni.domain.transparency.checkpoint import (
    Checkpoint,
    Note,
    Verifier,
    parse_checkpoint,
    parse_note,
    verified,
    verifier_of,
)
from rioni.domain.transparency.log_keys import LogKey, check_successor, successors
from rioni.domain.transparency.merkle_tree import TILE_WIDTH, Frontier, leaf_hash, subtree_hash
from rioni.files.plain import file_errors, read_file
from rioni.files.signing_key import load_signing_key
from rioni.projections import log_tree
from rioni.sql.log_tables import LOG_TILES
from rioni.storage.log.segments import map_ranges
from rioni.storage.sql.engines import reading
from rioni.storage.sql.read_only import any_text


# The keys that sign the checkpoints of a log: those that it names, or those that follow a key that an auditor trusts.


def known_keys(connection: Connection, trusted: Sequence[Verifier] = ()) -> list[Verifier]:
    """Return the keys whose signatures count.

    Args:
        connection: to the database.
        trusted: keys from elsewhere: they count, and those that follow them by signatures. Without any, the keys that
            the log names.
    """
    keys = log_tree.keys(connection)
    if not trusted:
        return [each.verifier for each in keys]
    return list(dict.fromkeys(each for key in trusted for each in successors(key, keys)))


def key_findings(connection: Connection) -> Iterator[str]:
    """Yield a sentence for each key that the log names with a wrong signature of the key before."""
    for before, after in pairwise(log_tree.keys(connection)):
        try:
            if after.signature:
                check_successor(before.verifier, after)
        except Malformed as ex:
            yield f"log, signing keys: {ex}"


def key_file_findings(connection: Connection, path: Path) -> Iterator[str]:
    """Yield a sentence if the signing key of this host neither is the last one that the log names nor follows it.

    Args:
        connection: to the database.
        path: of the key; a copy of the data may lack it.
    """
    keys = log_tree.keys(connection)
    if not keys or not path.exists():
        return
    last = keys[-1].verifier
    try:
        key = load_signing_key(path)
    except Unavailable as ex:
        yield f"log, signing keys: {ex}"
        return
    present = verifier_of(last.name, key.private)
    if present == last or key.lost == str(last):
        return
    try:
        check_successor(last, LogKey(present, key.signature))
    except Malformed:
        yield (
            f"log, signing keys: {path.name} holds {present}, which the log does not name, and which does not follow "
            f"its last key, {last}. Put the right file back; for a lost key: `rioni audit rotate-key --lost`"
        )


def missing_key(connection: Connection, path: Path) -> Iterator[str]:
    """Yield a sentence if the log names a signing key, and this host has none: a copy of the data may lack it."""
    if log_tree.keys(connection) and not path.exists():
        yield f"log, signing keys: {path} is missing here, without which a broker signs no checkpoints"


def lost_keys(connection: Connection) -> Iterator[str]:
    """Yield a sentence for each key that the one before it did not sign."""
    for before, after in pairwise(log_tree.keys(connection)):
        if not after.signature:
            yield (
                f"log, signing keys: {after.verifier} replaced {before.verifier}, which was reported as lost. No "
                "signature links them: only checkpoints that auditors kept show that the log was not changed then"
            )


# Compares the internal log with checkpoints that were seen earlier, and with the stored tiles of its Merkle tree.
#
# The tree is computed from the entries themselves. A log that was cut, forked or changed and then made consistent
# again, hash chain and tiles included, has another root at the size of an earlier checkpoint.

ENTRIES_PER_TASK = 32 * TILE_WIDTH
"""Entries whose hashes a process computes at once, 256 kB of them."""


class SeenCheckpoint(NamedTuple):
    """A checkpoint from a file."""

    file: Path
    note: Note
    checkpoint: Checkpoint


def read_checkpoint(file: Path) -> SeenCheckpoint:
    """Read a signed checkpoint.

    Raises:
        Unavailable: the file can't be read.
        Malformed: it is no signed checkpoint.
    """
    with file_errors(f"{file} can't be read"):
        note = parse_note(read_file(file))
    return SeenCheckpoint(file, note, parse_checkpoint(note.text))


def signature_findings(seen: SeenCheckpoint, known: Sequence[Verifier]) -> Iterator[str]:
    """Yield a sentence if no known key has signed a checkpoint, or a signature is wrong."""
    try:
        signed = verified(seen.note, known)
    except Malformed as ex:
        yield f"{seen.file}: {ex}"
        return
    if not signed:
        yield f"{seen.file}: no known key has signed this checkpoint; name the key of the log: --log-key"
    elif not any(each.name == seen.checkpoint.origin for each in signed):
        yield f"{seen.file}: it is a checkpoint of {seen.checkpoint.origin}, and signed by another one"


def tree_findings(
    engine: Engine,
    seen: Sequence[SeenCheckpoint],
    progress: Callable[[int, int], None] = lambda _done, _total: None,
    *,
    processes: int = 1,
) -> Iterator[str]:
    """Yield a sentence for each checkpoint that this log does not extend, and each stored tile that is wrong; blocks.

    Args:
        engine: of the database.
        seen: checkpoints, in any order.
        progress: called with the number of entries that are in the tree, and their total.
        processes: how many to use at most, for a long log.

    Raises:
        Unavailable: the database can't be read.
    """
    with reading(engine) as connection:
        size = log_tree.size(connection)
    left = sorted(seen, key=lambda each: each.checkpoint.size)
    frontier = Frontier()
    left = yield from _compared(left, frontier)
    ranges = [(begin, min(begin + ENTRIES_PER_TASK, size)) for begin in range(0, size, ENTRIES_PER_TASK)]
    for (_, upto), hashes in zip(ranges, map_ranges(_leaf_hashes, engine, ranges, processes), strict=False):
        yield from _tile_findings(engine, frontier.size // TILE_WIDTH, hashes)
        for leaf in hashes:
            frontier.append(leaf)
            if left and left[0].checkpoint.size == frontier.size:
                left = yield from _compared(left, frontier)
        progress(frontier.size, size)
        if frontier.size < upto:
            yield f"log, the entry at position {frontier.size + 1} is missing or can't be read: the tree ends there"
            break
    yield from _upper_tile_findings(engine)
    yield from _early_tile_findings(engine, size // TILE_WIDTH)
    for each in left:
        yield (
            f"{each.file}: the log had {each.checkpoint.size} entries then, and the last one that is there now is "
            f"{frontier.size}: it was cut off, or an older backup was restored"
        )


def _compared(left: list[SeenCheckpoint], frontier: Frontier) -> Generator[str, None, list[SeenCheckpoint]]:
    """Yield the defects of the checkpoints of the present size; return the others."""
    while left and left[0].checkpoint.size == frontier.size:
        each, *left = left
        if each.checkpoint.root != frontier.root():
            yield (
                f"{each.file}: the first {frontier.size} entries of this log are not those that were there then: an "
                "entry was changed, removed or added, or this is another log"
            )
    return left


def _leaf_hashes(engine: Engine, begin: int, end: int) -> list[bytes]:
    """The hashes of some leaves, up to the first one that can't be read."""
    found = []
    with reading(engine) as connection, any_text(connection), contextlib.suppress(Unavailable, UnicodeError):
        for each in log_tree.leaves(connection, begin, end):
            found.append(leaf_hash(each))  # noqa: PERF401 - those before an error count
    return found


def _tile_findings(engine: Engine, first: int, hashes: Sequence[bytes]) -> Iterator[str]:
    """Compare stored tiles of leaf hashes."""
    last = first + len(hashes) // TILE_WIDTH - 1
    query = select(LOG_TILES).where(LOG_TILES.c.level == 0, LOG_TILES.c.number.between(first, last))
    with reading(engine) as connection:
        rows = connection.execute(query).all()
    for row in rows:
        begin = (row.number - first) * TILE_WIDTH
        yield from _tile_finding(row, hashes[begin : begin + TILE_WIDTH])


def _early_tile_findings(engine: Engine, complete: int) -> Iterator[str]:
    """Find tiles of entries that do not exist: they would be taken for those of entries to come."""
    number = LOG_TILES.c.number
    query = select(LOG_TILES).where(
        LOG_TILES.c.level <= 0, (number >= complete) | (number < 0) | (LOG_TILES.c.level < 0)
    )
    with reading(engine) as connection:
        rows = connection.execute(query.limit(TILE_WIDTH)).all()
    for row in rows:
        yield from _tile_finding(row, ())


def _upper_tile_findings(engine: Engine) -> Iterator[str]:
    """Compare stored tiles of the upper levels with the roots of those below, which are few."""
    with reading(engine) as connection:
        levels = connection.scalars(select(LOG_TILES.c.level).where(LOG_TILES.c.level > 0).distinct()).all()
    for level in sorted(levels):
        with reading(engine) as connection:
            tiles = connection.execute(select(LOG_TILES).where(LOG_TILES.c.level == level)).all()
            for row in tiles:
                low = row.number * TILE_WIDTH
                below = select(LOG_TILES.c.root).where(
                    LOG_TILES.c.level == level - 1, LOG_TILES.c.number.between(low, low + TILE_WIDTH - 1)
                )
                yield from _tile_finding(row, connection.scalars(below.order_by(LOG_TILES.c.number)).all())


def _tile_finding(row: Row[Any], hashes: Sequence[bytes]) -> Iterator[str]:
    complete = len(hashes) == TILE_WIDTH
    if not complete or bytes(row.hashes) != b"".join(hashes) or bytes(row.root) != subtree_hash(hashes):
        yield (
            f"log, tile {row.number} of level {row.level} of the Merkle tree is not that of its entries; delete all "
            "rows of log_tiles: the broker makes them anew"
        )
