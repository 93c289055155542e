import pytest
from sqlalchemy import insert, select, update

from rioni.domain.errors import Invalid, NotFound, Unavailable
from rioni.domain.hash_chain import GENESIS, link
from rioni.domain.transparency.checkpoint import leaf
from rioni.domain.transparency.merkle_tree import Tile, leaf_hash
from rioni.projections import log_tree
from rioni.sql.log_tables import HEAD, LOG, LOG_TILES
from rioni.storage.sql.engines import create_engine
from rioni.storage.sql.migration import upgrade
from tests.support import rfc9162
from tests.support.rfc9162 import split_bundle


SIZE = 70_000


def fields(position: int) -> tuple:
    return (
        position,
        f"stream-{position % 7}",
        1 + position // 7,
        "note.noted",
        "t",
        "anna",
        "",
        "f",
        "c",
        b"%d" % position,
    )


@pytest.fixture(scope="module")
def leaves():
    return [leaf(fields(position)) for position in range(1, SIZE + 1)]


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """A log that is long enough for tiles of three levels."""
    engine = create_engine(f"sqlite:///{tmp_path_factory.mktemp('log') / 'registry.db'}")
    upgrade(engine)
    names, last, rows = LOG.columns.keys(), GENESIS, []
    for position in range(1, SIZE + 1):
        last = link(last, fields(position))
        rows.append(dict(zip(names, (*fields(position), last), strict=True)))
    with engine.begin() as connection:
        connection.execute(insert(LOG), rows)
        connection.execute(update(HEAD).values(position=SIZE, hash=last))
    yield engine
    engine.dispose()


@pytest.fixture
def connection(log):
    with log.connect() as connection, connection.begin() as transaction:
        yield connection
        transaction.rollback()


def build(connection, tiles_max: int = 1_000) -> int:
    for count in range(tiles_max):
        tile = log_tree.next_tile(connection)
        if tile is None:
            return count
        log_tree.store_tile(connection, tile)
    return tiles_max


def test_a_tree_that_is_far_behind_is_not_served_until_it_is_built(connection, leaves):
    with pytest.raises(Unavailable, match="it has 0 of 70,000 entries"):
        log_tree.root(connection)
    assert build(connection, 250) == 250
    with pytest.raises(Unavailable, match="it has 64,000 of 70,000 entries"):
        log_tree.root(connection)
    assert build(connection) == 273 + 1 - 250
    assert log_tree.root(connection) == (SIZE, rfc9162.mth(leaves))
    assert connection.execute(
        select(LOG_TILES.c.level, LOG_TILES.c.number).order_by(LOG_TILES.c.level.desc())
    ).first() == (1, 0)


@pytest.mark.parametrize("stored", [257, 274], ids=["some", "all"])
def test_stored_and_computed_tiles_give_the_same_tree(connection, stored, leaves):
    build(connection, stored)
    for size in (0, 1, 255, 256, 257, 65_535, 65_536, 65_537, SIZE):
        assert log_tree.root(connection, size) == (size, rfc9162.mth(leaves[:size]))
    for position, size in ((1, 1), (300, 65_536), (65_537, SIZE), (SIZE, SIZE)):
        assert log_tree.inclusion(connection, position, size) == (size, rfc9162.path(position - 1, leaves[:size]))
    for first, second in ((1, 256), (256, SIZE), (65_536, SIZE), (65_537, 65_538), (SIZE, SIZE)):
        assert log_tree.consistency(connection, first, second) == (second, rfc9162.proof(first, leaves[:second]))


def test_tiles_and_bundles_are_what_their_paths_say(connection, leaves):
    build(connection)
    assert log_tree.hashes(connection, Tile(0, 1, 256)) == b"".join(map(leaf_hash, leaves[256:512]))
    assert log_tree.hashes(connection, Tile(0, 273, 7)) == b"".join(map(leaf_hash, leaves[273 * 256 : 273 * 256 + 7]))
    assert log_tree.hashes(connection, Tile(1, 0, 2)) == rfc9162.mth(leaves[:256]) + rfc9162.mth(leaves[256:512])
    assert log_tree.hashes(connection, Tile(2, 0, 1)) == rfc9162.mth(leaves[:65_536])
    assert split_bundle(log_tree.entries(connection, Tile(0, 2, 3))) == leaves[512:515]
    for tile in (Tile(0, 273, 256), Tile(0, 274, 1), Tile(2, 0, 2), Tile(3, 0, 1), Tile(63, 0, 1)):
        with pytest.raises(NotFound, match="70000 entries, too few"):
            log_tree.hashes(connection, tile)
    with pytest.raises(Invalid):
        log_tree.root(connection, SIZE + 1)
    with pytest.raises(Invalid):
        log_tree.inclusion(connection, 0)


def test_two_processes_store_each_tile_once(connection):
    first, again = log_tree.next_tile(connection), log_tree.next_tile(connection)
    log_tree.store_tile(connection, first)
    log_tree.store_tile(connection, again)
    assert log_tree.stored(connection) == 1
    assert log_tree.next_tile(connection).number == 1


def test_a_missing_entry_stops_the_tree(connection):
    connection.execute(LOG.delete().where(LOG.c.position == 300))
    with pytest.raises(Unavailable, match="entries are missing"):
        build(connection)
