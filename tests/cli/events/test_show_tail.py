"""`rioni tail` and `rioni search`: which events are shown, and in which form."""

import json
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from rioni.client import EventType, Schema, Statistic
from tests.support.waiting import WAIT_S


@pytest.fixture
def event_type(client, name):
    """Creates event types with two partitions, and events whose numbers are their order in time."""

    def create(numbers=range(6), suffix=""):
        statistic = Statistic(messages_per_minute=1, message_size=1, read_parallelism=2, write_parallelism=2)
        client.event_types.create(
            EventType(
                name=f"{name}{suffix}",
                owning_application="shop",
                schema=Schema.json({"properties": {"number": {"type": "integer"}, "key": {"type": "string"}}}),
                default_statistic=statistic,
                partition_strategy="hash",
                partition_key_fields=["key"],
            )
        )
        for number in numbers:
            client.publish(f"{name}{suffix}", [{"number": number, "key": "ab"[number % 2]}])
        return f"{name}{suffix}"

    return create


def _numbers(out):
    return [json.loads(line)["number"] for line in out.splitlines()]


def test_events_of_all_partitions_come_in_the_order_in_which_they_were_received(rioni, event_type):
    code, out, err = rioni("tail", event_type(), "--no-follow")
    assert (code, err) == (0, "")
    assert _numbers(out) == list(range(6))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--last", "3"], [3, 4, 5]),
        (["-n", "2", "--filter", "event.number < 4"], [2, 3]),
        (["-n", "100"], [0, 1, 2, 3, 4, 5]),
        (["--limit", "2"], [0, 1]),
        (["--partition", "1"], [0, 2, 4]),
        (["-p", "0", "-p", "1", "--since", "1h"], [0, 1, 2, 3, 4, 5]),
        (["--until", "1h"], []),
        (["--from-offset", "begin"], [0, 1, 2, 3, 4, 5]),
        (["--from-offset", "end"], []),
        (["-p", "1", "--from-offset", "001-0001-000000000000000001"], [2, 4]),
        (["--filter", "event.key == 'a' && metadata.partition == '1'"], [0, 2, 4]),
    ],
)
def test_options_select_events(rioni, event_type, options, expected):
    assert _numbers(rioni("tail", event_type(), "--no-follow", *options)[1]) == expected


def test_times_are_those_of_storing(rioni, event_type, client):
    name = event_type(range(3))
    between = datetime.now(UTC) + timedelta(milliseconds=1)
    while datetime.now(UTC) <= between:
        pass
    client.publish(name, [{"number": 3, "key": "a"}])
    assert _numbers(rioni("tail", name, "--since", between.isoformat(), "--no-follow")[1]) == [3]
    assert _numbers(rioni("tail", name, "--until", between.isoformat())[1]) == []
    assert _numbers(rioni("tail", name, "--until", between.isoformat(), "--from-offset", "begin")[1]) == [0, 1, 2]


def test_several_event_types_are_shown_together(rioni, event_type):
    first, second = event_type([0, 1]), event_type([2, 3], "-second")
    assert _numbers(rioni("tail", first, second, "--no-follow")[1]) == [0, 1, 2, 3]
    assert _numbers(rioni("tail", second, first, "-n", "3", "--no-follow")[1]) == [1, 2, 3]
    table = rioni("tail", first, second, "--no-follow", "--table")[1].splitlines()
    assert [line.split()[2] for line in table[1:]] == [first, first, second, second]


def test_forms_of_output(rioni, event_type, snapshot):
    name = event_type(range(2))
    arguments = ("tail", name, "--no-follow")
    snapshot("tail", rioni(*arguments, "--json")[1], orders=name)
    assert rioni(*arguments, "--template", r"{number:03}\t{cursor.partition}\t{key}\t{absent}")[1] == (
        "000\t1\ta\t\n001\t0\tb\t\n"
    )
    assert rioni(*arguments, "--columns", "number,key,partition,event.key")[1] == (
        "number  key  partition  event.key\n0       a    1          a\n1       b    0          b\n"
    )
    heading, row, _ = rioni(*arguments, "--table")[1].splitlines()
    assert heading.split() == ["time", "partition", "offset", "event"]
    assert row.endswith('1          001-0001-000000000000000000  {"number": 0, "key": "a"}')
    assert rioni(*arguments, "--no-metadata")[1] == '{"number":0,"key":"a"}\n{"number":1,"key":"b"}\n'
    assert '"metadata": {"eid"' in rioni(*arguments, "--table", "--metadata")[1]
    assert json.loads(rioni(*arguments, "--json", "--no-metadata", "-n", "1")[1])["event"] == {"number": 1, "key": "b"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--json", "--table"], "choose one of --json, --template and --table"),
        (["--last", "1", "--since", "1h"], "give --last, --since or --from-offset"),
        (["--since", "1h", "--from-offset", "begin"], "--since or --from-offset"),
        (["--since", "1h", "--until", "2h"], "--since has to be before --until"),
        (["--since", "2999-01-01"], "--since is in the future"),
        (["--since", "yesterday"], "10m for ten minutes ago"),
        (["--partition", "7"], "has no partition 7; it has 0, 1"),
        (["--from-offset", "001-0001-000000000000000001"], "name that by --partition"),
        (["-p", "0", "--from-offset", "x"], "'x' is no offset"),
        (["--filter", "event.number >"], "The filter can't be used"),
    ],
)
def test_what_can_not_be_used_is_an_error(rioni, event_type, options, message):
    code, out, err = rioni("tail", event_type(()), *options)
    assert (code, out) == (2, "")
    assert message in " ".join(err.split())


def test_an_event_type_that_does_not_exist_is_an_error(rioni):
    code, _, err = rioni("tail", "cli.absent")
    assert code == 2
    assert "cli.absent" in err


@pytest.fixture
def started(broker):
    """Starts a command in a separate process."""
    processes = []

    def start(*arguments):
        command = [sys.executable, "-m", "rioni", *arguments, "--url", broker.url]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def test_events_are_shown_when_they_are_published_until_ctrl_c(started, event_type, client):
    first, second = event_type([0]), event_type([1], "-second")
    tailing = started("tail", first, second, "--last", "1")
    assert _numbers(tailing.stdout.readline()) == [1]
    for number, name in enumerate([first, second, first], 2):
        client.publish(name, [{"number": number, "key": "a"}])
        assert _numbers(tailing.stdout.readline()) == [number]
    tailing.send_signal(signal.SIGINT)
    out, err = tailing.communicate(timeout=WAIT_S)
    assert (tailing.returncode, out, err.strip()) in [(130, "", ""), (130, "", "Aborted.")]


def test_following_ends_at_a_time(started, event_type, client):
    until = datetime.now(UTC) + timedelta(seconds=3)
    tailing = started("tail", name := event_type([0]), "--from-offset", "begin", "--until", until.isoformat())
    assert _numbers(tailing.stdout.readline()) == [0]
    out, err = tailing.communicate(timeout=WAIT_S)
    assert (tailing.returncode, out, err) == (0, "", "")
    assert datetime.now(UTC) >= until
    assert name in [each.name for each in client.event_types.list()]


def test_a_program_that_has_read_enough_ends_the_command_silently(started, event_type):
    tailing = started("tail", event_type(range(2)), "--from-offset", "begin", "--no-follow")
    tailing.stdout.close()
    tailing.stdout = None
    assert tailing.communicate(timeout=WAIT_S) == (None, "")
    assert tailing.returncode == 141


# --- search ---


def test_a_search_finds_events_in_all_partitions(rioni, event_type, snapshot):
    name = event_type(range(20))
    code, out, err = rioni("search", name, "--filter", "event.number >= 15")
    assert (code, sorted(_numbers(out)), err) == (0, [15, 16, 17, 18, 19], "")
    assert _numbers(rioni("search", name, "--sort")[1]) == list(range(20))
    assert _numbers(rioni("search", name, "--sort", "--limit", "3", "--filter", "event.key == 'b'")[1]) == [1, 3, 5]
    assert len(rioni("search", name, "--limit", "7")[1].splitlines()) == 7
    snapshot("search", rioni("search", name, "--json", "--filter", "event.number == 7")[1], orders=name)


def test_a_search_without_result_has_exit_code_1(rioni, event_type):
    name = event_type(range(3))
    assert rioni("search", name, "--filter", "event.number == 7") == (1, "", "")
    assert rioni("search", name, "--until", "1d") == (1, "", "")
    assert rioni("search", name, "--since", "1d", "--partition", "0", "--limit", "1")[0] == 0


@pytest.mark.parametrize("command", ["tail", "search"])
@pytest.mark.parametrize(("option", "form"), [("--columns", "{}"), ("--template", "{{{}}}")])
def test_paths_are_checked_against_the_schema(rioni, event_type, command, option, form):
    orders = event_type([1])
    options = ("--no-follow",) if command == "tail" else ()
    code, out, err = rioni(command, orders, *options, option, form.format("numberx"))
    assert (code, err) == (0, f"Warning: No schema of {orders} declares numberx; did you mean number?\n")
    code, out, err = rioni(command, orders, *options, option, form.format("number.digits"))
    assert (code, out) == (2, "")
    assert err.startswith(f"Error: No event of {orders} has number.digits: the schema excludes it")
    for right in ("number", "metadata.received_at", "cursor.offset"):
        assert rioni(command, orders, *options, option, form.format(right))[::2] == (0, "")
    code, _, err = rioni(command, orders, *options, option, form.format("cursor.offsetx"))
    assert code == 2
    assert "cursor has event_type, partition, offset" in err


def _filtering(command, orders, expression):
    """The arguments of a command with a filter."""
    words = {"tail": ("tail", orders, "--no-follow"), "search": ("search", orders)}
    words["copy"] = ("copy", orders, f"{orders}-copy", "--create")
    return (*words[command], "--filter", expression)


@pytest.mark.parametrize("command", ["tail", "search", "copy"])
def test_filters_are_checked_against_the_schema_as_those_of_subscriptions(rioni, client, event_type, command):
    orders = event_type([1])
    code, out, err = rioni(*_filtering(command, orders, "event.number.digits > 1"))
    assert (code, out) == (2, "")
    assert f"event.number.digits: the schema of {orders} excludes it" in " ".join(err.split())
    code, out, err = rioni(*_filtering(command, orders, "event.number == 'a'"))
    assert (code, out) == (2, "")
    assert "is compared with string" in " ".join(err.split())
    assert orders in [each.name for each in client.event_types.list()]
    assert f"{orders}-copy" not in [each.name for each in client.event_types.list()]
    _, _, err = rioni(*_filtering(command, orders, "event.numberx == 1"))
    assert f"Warning: event.numberx: the schema of {orders} does not declare it; did you mean number?\n" in err
    assert "Warning" not in rioni(*_filtering(command, orders, "event.number == 1"))[2]


@pytest.mark.parametrize("command", ["tail", "search"])
def test_filters_over_several_event_types_need_one_that_has_the_path(rioni, event_type, command):
    one, two = event_type([1]), event_type([2], suffix="-two")
    code, _, err = rioni(*_filtering(command, one, "event.number.digits > 1"), two)
    assert code == 2
    assert one in err


@pytest.mark.parametrize("command", ["tail", "search", "copy"])
@pytest.mark.parametrize(("ahead", "refused"), [(0, False), (1, True), (1_000_000, True)])
def test_an_offset_behind_the_end_is_an_error(rioni, client, event_type, command, ahead, refused):
    orders = event_type([0, 2, 4])  # all in partition 1
    (partition,) = (each for each in client.partitions.list(orders) if each.partition == "1")
    next_ = int(partition.newest_available_offset[-18:]) + 1
    offset = f"001-0001-{next_ + ahead:018}"
    words = _filtering(command, orders, "true")
    code, out, err = rioni(*words, "-p", "1", "--from-offset", offset)
    assert out == "" or not refused
    assert (code == 2) == refused
    said = f"{offset} lies behind the end of partition 1 of {orders}, which is {partition.newest_available_offset}"
    assert (said in " ".join(err.split())) == refused


@pytest.mark.parametrize("command", ["tail", "search", "copy"])
@pytest.mark.parametrize("offset", ["abc", "1x", "-5", "001-0001", "٣"])
def test_what_is_no_offset_is_named(rioni, event_type, command, offset):
    words = _filtering(command, event_type([1]), "true")
    code, out, err = rioni(*words, "-p", "1", f"--from-offset={offset}")
    assert (code, out) == (2, "")
    assert f"{offset!r} is no offset: write one that the broker shows, or begin or end." in " ".join(err.split())


@pytest.mark.parametrize("template", ["{}", "{a..b}", "{a!r}", "{a", "{.a}"])
def test_a_template_whose_braces_hold_no_path_is_refused(rioni, event_type, template):
    code, out, err = rioni("tail", event_type([1]), "--no-follow", "--template", template)
    assert (code, out) == (2, "")
    assert "is no template" in " ".join(err.split())


HOSTILE = "a\x1b]0;x\x07\x9b31m\u202eb\u2028c\u200ed\r\ne"


@pytest.mark.parametrize("options", [("--template", "{key}"), ("--columns", "key"), ("--table",)])
def test_values_never_control_the_terminal_nor_begin_lines(rioni, client, event_type, options):
    orders = event_type([])
    client.publish(orders, [{"key": HOSTILE}])
    code, out, _ = rioni("tail", orders, "--no-follow", *options)
    assert code == 0
    assert out.replace("\n", "").isprintable()
    assert len(out.splitlines()) == (1 if options[0] == "--template" else 2)
    assert "\\u202eb" in out
