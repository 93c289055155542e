from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest
from sqlalchemy import Engine

from rioni.domain.system.client_activity import ActivityKey, LastActivity
from rioni.storage.sql.engines import create_engine
from rioni.storage.sql.expendable_tables import SqlActivity
from tests.contracts.activity import ActivityContract, by_client


pytestmark = pytest.mark.postgres


class TestSqlActivity(ActivityContract):
    @pytest.fixture
    def activity(self, postgres_engine: Engine):
        return SqlActivity(postgres_engine)

    @pytest.fixture
    def other(self, postgres_engine: Engine):
        engine = create_engine(postgres_engine.url.render_as_string(hide_password=False))
        yield SqlActivity(engine)
        engine.dispose()

    def test_activity_outlives_the_process_that_wrote_it(self, postgres_engine: Engine, activity: SqlActivity):
        activity.add({ActivityKey("publish", "order", "alice"): LastActivity(1, 2, 3)})
        postgres_engine.dispose()
        assert by_client(activity, "publish", "order") == {"alice": LastActivity(1, 2, 3)}

    def test_nodes_that_record_the_same_clients_concurrently_lose_nothing_and_never_deadlock(self, activity):
        clients = [f"client {number}" for number in range(50)]

        def see(node: int) -> None:
            random = Random(node)
            for _ in range(10):
                random.shuffle(clients_of[node])
                activity.add(
                    {ActivityKey("read", "order", client): LastActivity(1, 9, 1) for client in clients_of[node]}
                )
                activity.delete_before(5)

        clients_of = [clients.copy() for _ in range(4)]
        with ThreadPoolExecutor(4) as executor:
            list(executor.map(see, range(4)))
        assert by_client(activity, "read", "order") == {client: LastActivity(1, 9, 40) for client in sorted(clients)}
