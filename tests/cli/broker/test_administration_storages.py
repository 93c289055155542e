"""`rioni storages`: the configuration of Kafka."""

import json


def test_a_storage_of_kafka_has_the_configuration_that_was_given(rioni, name):
    options = ["--bootstrap-servers", "kafka:9092", "--replication-factor", "3"]
    code, out, _ = rioni("storages", "create", name, "--type", "kafka", *options, "--json")
    assert code == 0
    configuration = json.loads(out)["kafka_configuration"]
    assert {each: configuration[each] for each in ("bootstrap_servers", "replication_factor")} == {
        "bootstrap_servers": "kafka:9092",
        "replication_factor": 3,
    }
    assert "kafka:9092" in rioni("storages", "list")[1]
    assert rioni("storages", "delete", name, "--yes")[0] == 0


def test_other_storages_have_none(rioni, name):
    code, _, err = rioni("storages", "create", name, "--bootstrap-servers", "kafka:9092")
    assert code == 2
    assert "say --type kafka" in err
