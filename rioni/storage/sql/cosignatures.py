"""Stores the newest cosignature of each witness in a table of the registry database."""

from collections.abc import Sequence

from sqlalchemy import Engine, delete, insert, select

from rioni.domain.transparency.checkpoint import Cosignature
from rioni.sql.log_tables import COSIGNATURES
from rioni.storage.sql.engines import reading, writing


class SqlCosignatures:
    """The port `Cosignatures`.

    Args:
        engine: the engine of a migrated database; closed by its owner.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def add(self, cosignature: Cosignature) -> None:
        """Keep a cosignature; see the port."""
        of_witness = COSIGNATURES.c.witness == cosignature.witness
        with writing(self._engine) as connection:
            known = connection.scalar(select(COSIGNATURES.c.size).where(of_witness).with_for_update())
            if known is None or known <= cosignature.size:
                connection.execute(delete(COSIGNATURES).where(of_witness))
                connection.execute(insert(COSIGNATURES), cosignature._asdict())

    def all(self) -> Sequence[Cosignature]:
        """Return the newest one of each witness; see the port."""
        with reading(self._engine) as connection:
            rows = connection.execute(select(COSIGNATURES).order_by(COSIGNATURES.c.witness)).all()
        return [Cosignature(*row) for row in rows]
