"""Wires the Merkle tree over the log: the job that stores its tiles, and what signs its checkpoints."""

from functools import partial

from rioni.bootstrap.from_config import key_file
from rioni.bootstrap.infrastructure import Infrastructure
from rioni.commands.job_runner import LoggedJobRunner
from rioni.commands.system.checkpoint_signer import CheckpointSigner, SignedLog
from rioni.config.settings import Config
from rioni.domain.transparency.signed_note import Verifier, parse_verifier
from rioni.projections.log_tree import next_tile, store_tile
from rioni.projections.queries import log_proofs
from rioni.storage.signing_key import load_signing_key
from rioni.storage.sql.cosignatures import SqlCosignatures
from rioni.storage.sql.engines import reading, writing
from rioni.storage.sql.store_marks import installation_id


TILES_PER_TICK = 8
"""Some 2,000 entries: about 40 ms, twice a second."""


class TileBuilder:
    """Stores the tiles that have become complete, in the process that is the leader; failures are logged."""

    def __init__(self, base: Infrastructure) -> None:
        self._base, self._runner = base, LoggedJobRunner()

    def tick(self) -> None:
        """Store some tiles; blocks on the database."""
        if self._base.adapters.leadership.held():
            self._runner.run("storing the Merkle tree of the log", self.build)

    def build(self, tiles_max: int = TILES_PER_TICK) -> None:
        """Store the next tiles, so many at most; raises Unavailable if the database can't be used."""
        for _ in range(tiles_max):
            if not self._base.database_pool(self._build_one):
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


def log_origin(config: Config, base: Infrastructure) -> str:
    """The name of the log, and of its key; blocks on the database."""
    return config.log_origin or f"rioni/{installation_id(base.log.engine)}"


def witnesses(config: Config) -> list[Verifier]:
    """The witnesses that the settings name."""
    return [parse_verifier(each) for each in config.log_witnesses.split(",") if each]


def build_checkpoint_signer(base: Infrastructure) -> CheckpointSigner:
    """Wire what signs checkpoints."""
    config, pool = base.config, base.database_pool
    log = SignedLog(
        origin=lambda: pool(log_origin, config, base),
        keys=lambda: pool(base.read, log_proofs.keys),
        root=lambda size: pool(base.read, log_proofs.root, size),
    )
    return CheckpointSigner(
        base.bus,
        base.system_context,
        SqlCosignatures(base.log.engine),
        pool,
        log=log,
        load_key=partial(load_signing_key, key_file(config)),
        witnesses=witnesses(config),
    )
