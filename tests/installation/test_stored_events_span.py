"""The entries of the log that determine what a storage must have."""

import pytest

from rioni.commands.system.storages import AcceptLoss, CreateStorage, MoveStorage, SwitchFeature
from rioni.domain.system.storages import KAFKA, StorageEntry
from rioni.installation.stored_events import span_of
from tests.support.broker import running_broker


@pytest.mark.parametrize(
    ("command", "begins_anew"),
    [
        (AcceptLoss(findings=("x",), reason="y"), {"a", "b"}),
        (MoveStorage(storage_id="a", storage_type=KAFKA), {"a"}),
        (SwitchFeature(feature="kpi_collection", enabled=True), set()),
    ],
    ids=["an accepted loss", "a moved storage", "anything else"],
)
def test_entries_before_a_loss_or_a_move_do_not_hold_any_more(tmp_path, command, begins_anew):
    with running_broker(tmp_path / "data") as broker:
        for name in ("a", "b"):
            broker.do(CreateStorage(storage=StorageEntry(id=name, storage_type="embedded", default=False)))
        broker.do(command)
        last = broker.log.head().position
        broker.do(SwitchFeature(feature="remote_tokeninfo", enabled=True))
        with broker.engine.connect() as connection:
            spans = {name: span_of(connection, name) for name in ("a", "b")}
    assert {name for name, span in spans.items() if span.after == last} == begins_anew
    assert {span.after for span in spans.values()} <= {0, last}
    assert {span.until for span in spans.values()} == {last + 1}
