from rioni.config.settings import Config
from rioni.domain.system.storages import StorageEntry
from rioni.installation.infrastructure import build_infrastructure
from rioni.server.startup import prepare_startup


EMBEDDED = StorageEntry(id="default", storage_type="embedded", default=True)


def test_the_first_process_creates_the_first_storage_and_the_next_one_finds_it(tmp_path):
    config = Config(data=tmp_path / "data")
    with prepare_startup(config) as directory:
        first, second = (build_infrastructure(config, directory) for _ in range(2))
        assert first.registry.storages() == second.registry.storages() == [EMBEDDED]
        assert first.log.head() == second.log.head()
        assert first.log.head().position == 1
        first.close()
        second.close()
