"""Wires the Merkle tree over the log: the job that stores its tiles, and the signer of its checkpoints."""

from functools import partial

import structlog
from sqlalchemy import Engine

from rioni.commands.job_runner import LoggedJobRunner
from rioni.commands.system.checkpoint_signer import CheckpointSigner, SignedLog
from rioni.config.settings import Config
from rioni.domain.errors import Unavailable
from rioni.domain.transparency.checkpoint import Verifier, parse_verifier
from rioni.files.signing_key import load_signing_key
from rioni.installation.from_config import key_file
from rioni.installation.infrastructure import Infrastructure
from rioni.projections import log_tree
from rioni.projections.log_tree import next_tile, store_tile
from rioni.storage.sql.access_tables import SqlCosignatures
from rioni.storage.sql.engines import reading, writing
from rioni.storage.sql.store_marks import installation_id


TILES_PER_TICK = 8
"""How many tiles are stored per tick: some 2,000 entries, about 40 ms, twice a second."""

_log = structlog.get_logger("rioni.server")


class TileBuilder:
    """Stores the tiles that have become complete, in the process that is the leader; failures are logged."""

    def __init__(self, base: Infrastructure) -> None:
        self._base, self._runner = base, LoggedJobRunner()
        self._complete_at = -1
        """The position of the log up to which no tile is missing."""

    def tick(self) -> None:
        """Store some tiles, if the log has grown; blocks on the database."""
        if self._base.registry.position != self._complete_at and self._base.adapters.leadership.held():
            self._runner.run("storing the Merkle tree of the log", self.build)

    def build(self, tiles_max: int = TILES_PER_TICK) -> None:
        """Store at most `tiles_max` of the next tiles; raises Unavailable if the database can't be used."""
        position = self._base.registry.position
        for _ in range(tiles_max):
            if not self._base.pools.database(self._build_one):
                self._complete_at = position
                return

    def _build_one(self) -> bool:
        engine = self._base.log.engine
        with reading(engine) as connection:
            tile = next_tile(connection)
        if tile is None:
            return False
        with writing(engine) as connection:
            store_tile(connection, tile)
        return True


class KeyRecorder:
    """Lets the log name the signing key soon after the start, in the process that is the leader; failures are logged.

    So the key does not depend on who asks first, and checkpoints can be signed on the host.
    """

    def __init__(self, base: Infrastructure, signer: CheckpointSigner) -> None:
        self._base, self._signer, self._runner = base, signer, LoggedJobRunner()
        self._done = False

    def tick(self) -> None:
        """Record the key if that is left to do; blocks on the database."""
        if not self._done and self._base.adapters.leadership.held():
            self._runner.run("recording the signing key of the log", self._record)

    def _record(self) -> None:
        # The key of another node of a cluster is as good.
        if not (self._base.config.clustered and self._base.pools.database(self._base.read, log_tree.keys)):
            self._signer.verifier()
        self._done = True


def make_key(config: Config, engine: Engine) -> None:
    """Make the signing key of a new broker; blocks on disk and database. What can't be done is logged."""
    path = key_file(config)
    with reading(engine) as connection:
        named = bool(log_tree.keys(connection))
    try:
        # A missing key that the log names must be put back: no other one could sign for it.
        load_signing_key(path, create=config.clustered or not named)
    except Unavailable as ex:
        _log.error("the log can't be signed", reason=str(ex))


def log_origin(config: Config, base: Infrastructure) -> str:
    """The name of the log, and of its key; blocks on the database."""
    return config.log_origin or f"rioni/{installation_id(base.log.engine)}"


def witnesses(config: Config) -> list[Verifier]:
    """The witnesses that the settings name."""
    return [parse_verifier(each) for each in config.log_witnesses.split(",") if each]


def build_checkpoint_signer(base: Infrastructure) -> CheckpointSigner:
    """Wire the signer of checkpoints."""
    config, pool = base.config, base.pools.database
    log = SignedLog(
        origin=lambda: pool(log_origin, config, base),
        keys=lambda: pool(base.read, log_tree.keys),
        root=lambda size: pool(base.read, log_tree.root, size),
    )
    return CheckpointSigner(
        base.bus,
        base.system_context,
        SqlCosignatures(base.log.engine),
        pool,
        log=log,
        load_key=partial(load_signing_key, key_file(config), create=False),
        witnesses=witnesses(config),
    )
