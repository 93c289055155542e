import pytest

from tests.support.broker import running_broker


@pytest.fixture
def broker(tmp_path):
    with running_broker(tmp_path / "data") as broker:
        yield broker
