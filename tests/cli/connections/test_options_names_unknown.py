"""Whatever names a thing that has to exist is an error if it does not, lists what exists, and changes nothing.

Names that shells complete, and choices, are in `test_advice_suggestions`: what is here is all other text that commands
take. A new argument or option has to be in one of the two tables.
"""

import uuid
from pathlib import Path

import pytest

from rioni.cli.app import CONNECTION, app
from rioni.client import EventType, Schema, Subscription
from tests.support.command_tree import annotation_of, choices_of, info_of, leaves


OTHER = "001-0001-000000000000000099"
STREAM = str(uuid.UUID(int=1))
UNKNOWN = {
    "archive --format": ("archive --to lake --format csv", "csv is none of the formats delta, iceberg."),
    "copy --from-offset": ("copy {n} {n}.t --from-offset bgin", "There is no offset bgin; did you mean begin?"),
    "copy -p": ("copy {n} {n}.t -p 9", "{n} has no partition 9; it has 0."),
    "dead-letters list --from-offset": ("dead-letters list {n}/s --from-offset BEGN", "invalid offset BEGN"),
    "dead-letters list --partition": (
        "dead-letters list {n}/s --partition 9",
        "there is no partition 9; there are 0 to",
    ),
    "dead-letters list --to-offset": ("dead-letters list {n}/s --to-offset BEGN", "invalid offset BEGN"),
    "dead-letters redrive --from-offset": ("dead-letters redrive {n}/s --from-offset BEGN", "invalid offset BEGN"),
    "dead-letters redrive --partition": ("dead-letters redrive {n}/s --partition 9", "there is no partition 9;"),
    "dead-letters redrive --to-offset": ("dead-letters redrive {n}/s --to-offset BEGN", "invalid offset BEGN"),
    "doctor --only": ("doctor --only reachabl", "There is no check reachabl; did you mean reachable?"),
    "doctor --skip": ("doctor --skip reachabl", "There is no check reachabl; did you mean reachable?"),
    "event-types create --audience": (
        "event-types create {n}.c --owning-application a --audience company-internall",
        "did you mean company-internal?",
    ),
    "event-types create --category": (
        "event-types create {n}.c --owning-application a --category businesss",
        "Did you mean business?",
    ),
    "event-types create --compatibility-mode": (
        "event-types create {n}.c --owning-application a --compatibility-mode forwardd",
        "did you mean forward?",
    ),
    "event-types create --partition-key": (
        "event-types create {n}.c --owning-application a --partition-strategy hash --partition-key totl",
        "[totl] absent in schema",
    ),
    "event-types create --partition-strategy": (
        "event-types create {n}.c --owning-application a --partition-strategy hsh",
        "did you mean hash?",
    ),
    "event-types diff --against": ("event-types diff {n} --against {n}x", "There is no event type {n}x on"),
    "event-types diff --against a version": ("event-types diff {n} --against @1.0.9", 'no schema with version "1.0.9"'),
    "event-types diff target@version": ("event-types diff {n}x@1.0.0 --against @1.0.0", "; did you mean {n}?"),
    "events delete -p": ("events delete {n} key -p 9 --yes", "{n} has no partition 9; it has 0."),
    "log consistency first": ("log consistency 999999", "no proof that a tree of"),
    "log inclusion position": ("log inclusion 999999", "has no entry at position 999999"),
    "log tile level": ("log tile entris 000", "entris/000 is not the path of a tile"),
    "log tile rest": ("log tile 0 x9", "0/x9 is not the path of a tile"),
    "man command": ("man tial", "did you mean tail?"),
    "monitoring history --name": (
        "monitoring history --name published_event",
        "unknown series 'published_event'; did you mean published_events?",
    ),
    "partitions distance first": ("partitions distance {n} 0 BEGN END", "invalid offset BEGN for partition 0"),
    "partitions distance last": ("partitions distance {n} 0 BEGIN ENDD", "invalid offset ENDD for partition 0"),
    "partitions distance partition": ("partitions distance {n} 9 BEGIN END", "Partition not found"),
    "partitions lag cursors": ("partitions lag {n} 9:BEGIN", "Partition not found"),
    "partitions list --after": ("partitions list {n} --after 0:BEGN", "invalid offset BEGN for partition 0"),
    "partitions shift cursors": ("partitions shift {n} 0:BEGN --by 1", "invalid offset BEGN for partition 0"),
    "partitions show --after": ("partitions show {n} 0 --after BEGN", "invalid offset BEGN for partition 0"),
    "partitions show partition": ("partitions show {n} 9", "partition not found"),
    "publish --types": ("publish {n} events.csv --types total=integerr", "integerr"),
    "publish -p": ("publish {n} -p 9", "{n} has no partition 9; it has 0."),
    "publish -p of another strategy": ("publish {n}.t -p 0", "--partition is for the strategy user_defined"),
    "rebuilds show rebuild": ("rebuilds show nosuch", "There is no rebuild nosuch"),
    "registry avro-schema version": ("registry avro-schema batch.publishing 99", "version 99"),
    "schemas check --version": ("schemas check {n} schema.json --version 1.0.9", 'no schema with version "1.0.9"'),
    "schemas show version": ("schemas show {n} 1.0.9", 'no schema with version "1.0.9"'),
    "search --columns": ("search {n} --columns totl", "did you mean total?"),
    "search --from-offset": ("search {n} --from-offset " + OTHER, "lies behind the end of partition 0 of {n}"),
    "search --template": ("search {n} --template {{totl}}", "did you mean total?"),
    "search -f": ("search {n} -f event.totl==1", "did you mean total?"),
    "search -p": ("search {n} -p 9", "{n} has no partition 9; it has 0."),
    "settings block name": ("settings block PRODUCER_ET {n}x", "; did you mean {n}?"),
    "settings unblock name": (
        "settings unblock PRODUCER_APP {n}x",
        "{n}x is not blocked (PRODUCER_APP); did you mean {n}?",
    ),
    "subscriptions close-stream stream": ("subscriptions close-stream {n}/s nosuch", "stream id nosuch not found"),
    "subscriptions commit --stream-id": (
        f"subscriptions commit {{n}}/s 0:{OTHER} --stream-id {STREAM}",
        f"stream id {STREAM} not found",
    ),
    "subscriptions commit places": (
        f"subscriptions commit {{n}}/s {{n}}x:0:{OTHER} --stream-id {STREAM}",
        "The subscription does not read {n}x; did you mean {n}?",
    ),
    "subscriptions consume --columns": ("subscriptions consume {n}/s --columns totl", "did you mean total?"),
    "subscriptions consume --template": ("subscriptions consume {n}/s --template {{totl}}", "did you mean total?"),
    "subscriptions consume -p": ("subscriptions consume {n}/s -p 9", "partition='9'"),
    "subscriptions consume -p of another": (
        "subscriptions consume {n}/s -p {n}x:0",
        "The subscription does not read {n}x; did you mean {n}?",
    ),
    "subscriptions create --filter": (
        "subscriptions create --owning-application a --event-type {n} --filter event.totl==1",
        "did you mean total?",
    ),
    "subscriptions create --read-from": (
        "subscriptions create --owning-application a --event-type {n} --read-from bgin",
        "did you mean begin?",
    ),
    "subscriptions create --unprocessable": (
        "subscriptions create --owning-application a --event-type {n} --send-at-most 3 --unprocessable kep",
        "--unprocessable skip|keep",
    ),
    "subscriptions lag --by": ("subscriptions lag --by partitio", "Did you mean partition?"),
    "subscriptions reset --cursor": ("subscriptions reset {n}/s --cursor 9:BEGIN --yes", "Partition not found"),
    "subscriptions reset --cursor of another": (
        "subscriptions reset {n}/s --cursor {n}x:0:BEGIN --yes",
        "The subscription does not read {n}x; did you mean {n}?",
    ),
    "subscriptions reset --partition": (
        "subscriptions reset {n}/s --to begin --partition 9 --yes",
        "The subscription has no such partition; it has 0 of {n}.",
    ),
    "subscriptions reset --to": ("subscriptions reset {n}/s --to begn --yes", "did you mean begin?"),
    "subscriptions try-filter expression": (
        "subscriptions try-filter event.totl==1 --event-type {n}",
        "did you mean total?",
    ),
    "subscriptions watch --by": ("subscriptions watch --by partitio --count 1", "Did you mean partition?"),
    "tail --columns": ("tail {n} --no-follow --columns totl", "did you mean total?"),
    "tail --from-offset": ("tail {n} --no-follow --from-offset bgin", "There is no offset bgin; did you mean begin?"),
    "tail --template": ("tail {n} --no-follow --template {{totl}}", "did you mean total?"),
    "tail -f": ("tail {n} --no-follow -f event.totl==1", "did you mean total?"),
    "tail -p": ("tail {n} --no-follow -p 9", "{n} has no partition 9; it has 0."),
    "copy -f": ("copy {n} {n}.t -f event.totl==1", "did you mean total?"),
    "audit list --kind": ("audit list --kind event-typ", "did you mean event-type?"),
    "audit list --resource of another kind": ("audit list --resource event-typ:{n}", "did you mean event-type?"),
    "tokens create --scope": (
        "tokens create --uid a --scope nakadi.event_stream.writ",
        "did you mean nakadi.event_stream.write?",
    ),
    "witness --log-key": ("witness --state state --log-key nosuch", "'nosuch' is not a verifier key"),
}
"""By the command and its parameter: what is asked, and what the error says."""
ON_THE_HOST = {
    "audit --resource of another kind": (
        "audit log storages:default",
        "no kind of resources storages; did you mean storage?",
    ),
    "audit diff --from": ("audit diff --from 999999", "there is no position 999999"),
    "audit diff --resource": ("audit diff --from 0 --resource storage:defaultx", "; did you mean storage:default?"),
    "audit log resource": ("audit log storage:defaultx", "no entry of storage:defaultx; did you mean storage:default?"),
    "audit prove position": ("audit prove 999999", "has no entry at position 999999"),
    "audit show resource": (
        "audit show storage:defaultx",
        "no entry of storage:defaultx; did you mean storage:default?",
    ),
    "projections drop name": ("projections drop gren", "no read models named gren"),
    "projections promote name": ("projections promote gren", "no read models named gren"),
    "rebuild --only": ("rebuild --only event-typs", "did you mean event-types?"),
    "verify --log-key": ("verify --log-key nosuch", "'nosuch' is not a verifier key"),
}
"""Commands with an unknown name, and their errors, for commands that read the data of a broker."""
OTHERWISE = {
    "may select nothing": """
        audit --actor, audit --realm, audit --resource, audit export --actor, audit export --realm,
        audit export --resource, audit list --actor, audit list --flow-id, audit list --realm,
        dead-letters list --reason, dead-letters redrive --reason, event-types apply --owning-application,
        event-types facets --label,
        event-types facets --name, event-types facets --owning-application, event-types list --admin,
        event-types list --annotation, event-types list --label, event-types list --name,
        event-types list --owning-application, event-types list --reader, event-types list --writer,
        events delete keys, monitoring metrics --name, subscriptions lag --owning-application,
        subscriptions list --owning-application, subscriptions list --reader, subscriptions watch --owning-application
    """,
    "is made, or said of what is made": """
        accept-loss --reason, archive --to, bench publish --event-type, context add name, event-types create --admin,
        event-types create --annotation, event-types create --label, event-types create --owning-application,
        event-types create --reader, event-types create --writer, event-types create event_type,
        partitions set-count count,
        rebuild --into, settings set-admins --admin, settings set-admins --reader, settings set-admins --writer,
        storages create --topic-prefix, storages create storage, subscriptions create --admin,
        subscriptions create --annotation, subscriptions create --consumer-group, subscriptions create --label,
        subscriptions create --owning-application, subscriptions create --reader, tokens create --realm,
        tokens create --uid, witness --name
    """,
    "is a member of the input": "events delete --key, events delete --types, publish --key",
    "is a time or a position": """
        audit --since, audit --until, audit diff --to, audit export --since, audit export --until, audit show --as-of,
        monitoring history --since, rebuild --to
    """,
    "is a file": """
        event-types apply paths, event-types check --against, event-types check paths, event-types create --file,
        events delete --file, publish files, subscriptions create --file, subscriptions try-filter file
    """,
    "is outside of the broker": """
        archive --catalog, archive --metrics-host, convert-archive to, audit consistency --log-key, audit export --conf,
        audit export --master, context add --token, context add --token-command, context add --token-env,
        context add --url, copy --to-url,
        rebuild --conf, rebuild --master, serve --host, storages create --bootstrap-servers
    """,
}
"""The other text parameters, by what their text is or does."""


def _texts():
    """Parameters with any text, and arguments that are numbers."""
    for words, command in leaves(app).items():
        connection = CONNECTION if any("--timeout" in each.opts for each in command.params) else ()
        for each in command.params:
            info = info_of(each)
            kinds = (str, list[str]) if each.opts[-1].startswith("-") else (str, list[str], int)
            known = choices_of(each) or info is None or info.autocompletion or info.parser
            if annotation_of(each) in kinds and not known and each.opts[-1] not in connection:
                yield f"{' '.join(words)} {each.opts[-1]}"


def test_each_text_that_a_command_takes_is_in_a_table():
    otherwise = [name.strip() for names in OTHERWISE.values() for name in names.split(",")]
    named = [*UNKNOWN, *ON_THE_HOST, *otherwise]
    texts = {*_texts()}
    assert sorted(texts - {*named}) == []
    assert sorted(each for each in named if each not in texts and each not in FURTHER) == []
    assert len(named) == len({*named})


FURTHER = {
    "audit --resource of another kind",
    "audit list --kind",
    "audit list --resource of another kind",
    "event-types create --category",
    "event-types diff --against a version",
    "event-types diff target@version",
    "publish -p of another strategy",
    "subscriptions consume -p of another",
    "subscriptions reset --cursor of another",
}
"""Rows about a text that has another one already, or is a choice."""


@pytest.fixture(scope="module")
def world(client):
    """A name of event types, an application with a subscription, and a blocked application."""
    name = f"unknown-{uuid.uuid4().hex[:8]}"
    schema = Schema.json({"properties": {"total": {"type": "integer"}}, "additionalProperties": False})
    for each, strategy in ((name, "user_defined"), (f"{name}.t", "random")):
        client.event_types.create(
            EventType(name=each, owning_application="shop", schema=schema, partition_strategy=strategy)
        )
    client.subscriptions.create(Subscription(owning_application=name, consumer_group="s", event_types=[name]))
    client.settings.block("PRODUCER_APP", name)
    yield name
    client.settings.unblock("PRODUCER_APP", name)


def _error(ended):
    """The only error, which is the last line."""
    code, out, err = ended
    assert (code, out) == (2, ""), err
    assert [each.startswith("Error: ") for each in err.splitlines()].count(True) == 1
    return err.splitlines()[-1]


@pytest.mark.parametrize(("command", "said"), UNKNOWN.values(), ids=list(UNKNOWN))
def test_what_does_not_exist_is_an_error_that_changes_nothing(rioni, client, state, world, command, said):
    Path("schema.json").write_text("{}")
    Path("events.csv").write_text("total\n1\n")
    names = (world, f"{world}.t")
    before = state(), [client.partitions.list(each) for each in names]
    error = _error(rioni(*command.format(n=world).split(), stdin='{"total": 1}\n'))
    assert said.format(n=world) in error
    assert not error.endswith("?.")
    assert (state(), [client.partitions.list(each) for each in names]) == before


@pytest.mark.parametrize(("command", "said"), ON_THE_HOST.values(), ids=list(ON_THE_HOST))
def test_what_does_not_exist_on_the_host_is_an_error(run, data, command, said):
    assert said in _error(run(*command.split(), "--data", data))


def test_a_resource_without_entries_proposes_the_nearest(run, data):
    code, _, err = run("audit", "--resource", "storage:defaultx", "--data", data)
    assert (code, err.splitlines()[0]) == (0, "Did you mean storage:default?")
    assert "Did you mean" not in run("audit", "--resource", "default", "--data", data)[2]
