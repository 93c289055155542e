"""Brings users' projections up to date that are behind the log: new ones, and those of nodes that lacked them."""

from itertools import islice

from rioni.commands.job_runner import LoggedJobRunner
from rioni.installation.infrastructure import Infrastructure
from rioni.projections.custom import installed
from rioni.projections.custom_tables import CustomProjector
from rioni.storage.sql.engines import reading


ENTRIES_PER_TRANSACTION = 200
"""The log is locked meanwhile: some hundredths of a second."""
TRANSACTIONS_PER_TICK = 5


class CustomProjections:
    """Does so in the process that is the leader, a little at a time; failures are logged."""

    def __init__(self, base: Infrastructure) -> None:
        self._base, self._runner = base, LoggedJobRunner()
        self._projector = CustomProjector(installed())

    def tick(self) -> None:
        """Fold some entries; blocks on the database."""
        if installed() and self._base.adapters.leadership.held():
            self._runner.run("bringing custom projections up to date", self.catch_up)

    def catch_up(self, transactions_max: int = TRANSACTIONS_PER_TICK) -> None:
        """Fold some entries into each projection that is behind.

        Raises:
            Unavailable: the database can't be used.
        """
        for _ in range(transactions_max):
            if not self._base.database_pool(self._fold_some):
                return

    def _fold_some(self) -> bool:
        with reading(self._base.log.engine) as connection:
            behind = self._projector.behind(connection, self._base.log.head().position)
        for shown in behind:
            self._fold(shown)
        return bool(behind)

    def _fold(self, shown: int) -> None:
        with self._base.log.transaction() as transaction:
            entries = list(islice(transaction.entries(shown), ENTRIES_PER_TRANSACTION))
            self._projector.apply(transaction.connection, entries)
