from uuid import uuid4

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rioni.domain.audit_events import audit_events
from rioni.domain.errors import Invalid
from rioni.domain.events import Origin
from rioni.domain.ports.event_log import LogEntry, RecordedChange
from rioni.domain.system.storages import StorageDeleted, StorageEntry, check_configuration, kept_configuration
from tests.support.tables import rows


ORIGIN = Origin(actor="a", client="", flow_id="f", command_id=str(uuid4()), recorded_at="2026-11-20T10:00:00.000Z")
KNOWN = (
    {"exhibitor_address": "e", "exhibitor_port": 8181, "zk_address": "z:2181", "zk_path": "/nakadi"},
    {"exhibitor_address": "", "exhibitor_port": "8181", "zk_address": "z-1:2181,z-2:2181/path", "zk_path": ""},
    {"zookeeper_connection": {"type": "zookeeper", "addresses": [{"address": "z", "port": 2181}], "path": "/nakadi"}},
    {"zookeeper_connection": {"type": "exhibitor", "addresses": []}},
    {"bootstrap_servers": "[::1]:9092", "topic_prefix": "p-", "replication_factor": 3, "min_insync_replicas": 2},
    {"bootstrap_servers": "PLAINTEXT://k_1.example.org:9092"},
)


@pytest.mark.parametrize("configuration", KNOWN)
def test_known_members_are_kept_unchanged(configuration):
    check_configuration(configuration)
    assert kept_configuration(configuration) == configuration


@pytest.mark.parametrize(
    ("given", "kept"),
    rows(
        ("unknown members", {"pw": "s", "nested": [{"password": "s"}]}, {}),
        ("null", {"zk_path": None}, {}),
        ("a user", {"zk_address": "u:s@z:1"}, {"zk_address": "z:1"}),
        ("users", {"zk_address": "u:s@y:1,u:s@z:1/p"}, {"zk_address": "y:1,z:1/p"}),
        ("a URL with a user", {"bootstrap_servers": "SASL://u:s@k:9"}, {"bootstrap_servers": "SASL://k:9"}),
        ("an at in a password", {"bootstrap_servers": "SASL://u:s@s@k:9"}, {"bootstrap_servers": "SASL://k:9"}),
        ("a slash in a password", {"exhibitor_address": "http://u:s/s@e"}, {"exhibitor_address": "http://e"}),
        (
            "inside the connection to ZooKeeper",
            {"zookeeper_connection": {"pw": "s", "addresses": [{"address": "u:s@z", "port": 1, "pw": "s"}]}},
            {"zookeeper_connection": {"addresses": [{"address": "z", "port": 1}]}},
        ),
    ),
)
def test_unknown_members_are_left_out(given, kept):
    """Reference settings-and-storages#kafka-configuration."""
    check_configuration(given)
    assert kept_configuration(given) == kept


WRONG = rows(
    ("a comma in a password", {"zk_address": "u:s,t@z:1"}),
    ("a query", {"bootstrap_servers": "k:9092?password=s"}),
    ("no text", {"zk_path": {"pw": "s"}}),
    ("a user in a path", {"zk_path": "/u:s@z"}),
    ("a list", {"bootstrap_servers": ["s"]}),
    ("no port", {"exhibitor_port": "s"}),
    ("no number", {"replication_factor": True}),
    ("a text as number", {"min_insync_replicas": "s"}),
    ("no object", {"zookeeper_connection": "s"}),
    ("no list", {"zookeeper_connection": {"addresses": {"s": "s"}}}),
    ("no addresses", {"zookeeper_connection": {"addresses": ["s"]}}),
    ("no address", {"zookeeper_connection": {"addresses": [{"address": {"pw": "s"}}]}}),
)


@pytest.mark.parametrize("configuration", WRONG)
def test_a_known_member_with_an_invalid_value_is_rejected_by_name_without_showing_it(configuration):
    """Reference settings-and-storages#kafka-configuration."""
    with pytest.raises(Invalid) as caught:
        check_configuration(configuration)
    (name,) = configuration
    assert f"kafka_configuration: {name} can't be read" in str(caught.value)
    assert kept_configuration(configuration) == {}


_ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
_NAMES = st.sampled_from([name for configuration in KNOWN for name in configuration]) | st.text()


@given(st.dictionaries(_NAMES, _ANYTHING))
def test_filtering_a_filtered_configuration_changes_nothing(configuration):
    kept = kept_configuration(configuration)
    check_configuration(kept)
    assert kept_configuration(kept) == kept


def test_an_audit_event_contains_no_credentials_of_older_log_entries():
    old = StorageEntry(id="k", storage_type="kafka", default=False, configuration={"pw": "s", "zk_address": "u:s@z:1"})
    entry = LogEntry(position=1, stream=uuid4(), version=1, event=StorageDeleted(id="k"), origin=ORIGIN)
    change = RecordedChange(entry, msgspec.json.encode(old).decode(), None)
    (event,) = audit_events([change], "salt")
    kept = msgspec.structs.replace(old, configuration={"zk_address": "z:1"})
    assert event.members["data"]["previous_text"] == msgspec.json.encode(kept).decode()
