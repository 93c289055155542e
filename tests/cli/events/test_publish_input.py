"""Input that `rioni publish` accepts: the table in docs/reference/values-csv.md, and input that is not UTF-8.

Reference values-csv#format values-csv#invalid-input
"""

import gzip
import json
import os
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from rioni.client import EventType, Schema
from tests.support.value_tables import rows_of, unescaped
from tests.support.waiting import WAIT_S


SCHEMA = {"properties": {"id": {"type": "string"}, "total": {"type": "number"}}}
EVENT = b'{"id": "A"}\n'
PIPED = "standard input"


@pytest.fixture
def orders(client, name):
    client.event_types.create(EventType(name=name, owning_application="shop", schema=Schema.json(SCHEMA)))
    return name


@pytest.fixture
def publish(rioni, orders):
    """Publish a file or a text of standard input; return exit code, stderr, and how many are stored."""

    def run(file, content, *options):
        if file == PIPED:
            code, _, err = rioni("publish", orders, *options, stdin=content)
        else:
            Path(file).write_bytes(content)
            code, _, err = rioni("publish", orders, file, *options)
        stored = rioni("tail", orders, "--no-follow")[1].splitlines()
        return code, err, len(stored)

    return run


@pytest.mark.parametrize(("file", "content", "outcome"), rows_of("values-csv", "Invalid input"))
def test_the_table_holds(publish, file, content, outcome):
    code, err, stored = publish(file, unescaped(content).encode())
    if outcome.startswith("error: "):
        assert (code, stored) == (2, 0)
        assert err.splitlines()[-1].startswith(f"Error: {'stdin' if file == PIPED else file}")
        assert outcome.removeprefix("error: ") in err
    else:
        assert (code, err, stored) == (0, "", int(outcome.split()[0]))


@pytest.mark.parametrize("file", ["orders.csv", "orders.json", "orders.jsonl", "orders", PIPED])
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (EVENT.decode().encode("utf-16"), "UTF-16"),
        (EVENT.decode().encode("utf-16-le"), "NUL"),
        (EVENT.decode().encode("utf-16-be"), "NUL"),
        (gzip.compress(EVENT), "gunzip"),
        (b"\x7fELF\0\0", "NUL"),
    ],
    ids=["utf-16", "utf-16-le", "utf-16-be", "gzip", "binary"],
)
@pytest.mark.parametrize("said", [(), ("--format", "jsonl"), ("--format", "csv")], ids=["", "jsonl", "csv"])
def test_what_is_no_text_is_an_error_that_says_what_it_is(publish, file, content, reason, said):
    code, err, stored = publish(file, content, *said)
    assert (code, stored) == (2, 0)
    assert reason in err.splitlines()[-1]


@pytest.mark.parametrize(
    ("file", "content", "line"),
    [
        ("orders.csv", "id\nA\nGrüße\n", 3),
        ("orders.jsonl", '{"id": "A"}\n{"id": "Grüße"}\n', 2),
        ("orders.json", '[{"id": "A"},\n{"id": "Grüße"}]', 2),
        (PIPED, '{"id": "A"}\n{"id": "Grüße"}\n', 2),
    ],
)
def test_what_is_not_utf_8_is_an_error_with_its_line(publish, file, content, line):
    code, err, stored = publish(file, content.encode("latin-1"))
    assert (code, stored) == (2, 0)
    assert f"{'stdin' if file == PIPED else file}:{line}: " in err
    assert "UTF-8" in err


@pytest.mark.parametrize("cut", [1, 9, 40])
def test_nothing_is_published_from_a_compressed_file_that_is_not_complete(publish, cut):
    content = gzip.compress(b"".join(b'{"id": "%d"}\n' % number for number in range(2_000)))
    code, err, stored = publish("orders.jsonl.gz", content[:-cut])
    assert (code, stored) == (2, 0)
    assert "orders.jsonl.gz can't be read" in err


@pytest.mark.parametrize("content", [EVENT, zlib.compress(EVENT), b""])
def test_a_file_that_is_named_as_compressed_and_is_not_is_an_error(publish, content):
    code, err, stored = publish("orders.jsonl.gz", content)
    assert (code, stored) == (2, 0)
    assert "orders.jsonl.gz can't be read" in err


@pytest.mark.parametrize("last", [b"word\n", b'{"id": "B", "id": "C"}\n', b"\xff\n", b'{"id":', b"\0"])
def test_nothing_is_published_of_a_file_whose_end_can_not_be_read(publish, last):
    code, err, stored = publish("orders.jsonl", EVENT * 1_200 + last)
    assert (code, stored) == (2, 0)
    assert "orders.jsonl:1201: " in err


def test_nothing_is_published_of_several_files_if_one_can_not_be_read(rioni, orders):
    Path("a.jsonl").write_bytes(EVENT)
    Path("b.csv").write_bytes(b"id,id\n")
    code, _, err = rioni("publish", orders, "a.jsonl", "b.csv")
    assert code == 2
    assert err.startswith("Error: b.csv can't be read: ")
    assert rioni("tail", orders, "--no-follow")[1] == ""


@pytest.mark.parametrize("redirected", [True, False], ids=["file", "pipe"])
def test_batches_before_a_line_that_can_not_be_read_are_stored_only_of_a_pipe(broker, rioni, orders, redirected):
    content = EVENT * 4 + b"word\n" + EVENT
    command = [sys.executable, "-m", "rioni", "publish", orders, "--batch", "3", "--url", broker.url]
    Path("orders").write_bytes(content)
    with Path("orders").open("rb") as file:
        done = subprocess.run(
            command,
            **({"stdin": file} if redirected else {"input": content}),
            capture_output=True,
            check=False,
            timeout=WAIT_S,
        )
    assert done.returncode == 2
    assert b"Error: stdin:5: " in done.stderr
    assert len(rioni("tail", orders, "--no-follow")[1].splitlines()) == (0 if redirected else 3)


def test_a_file_of_standard_input_is_published_from_where_it_is(broker, rioni, orders):
    Path("orders").write_bytes(b"this is no event\n" + EVENT * 2)
    fd = os.open("orders", os.O_RDONLY)
    os.lseek(fd, len("this is no event\n"), os.SEEK_SET)
    command = [sys.executable, "-m", "rioni", "publish", orders, "--url", broker.url]
    done = subprocess.run(command, stdin=fd, capture_output=True, check=False, timeout=WAIT_S)
    os.close(fd)
    assert done.returncode == 0
    assert len(rioni("tail", orders, "--no-follow")[1].splitlines()) == 2


def test_with_continue_all_but_what_can_not_be_read_is_published(publish):
    code, err, stored = publish(PIPED, EVENT + b"word\n" + EVENT, "--continue", "--json")
    assert (code, stored) == (2, 2)
    assert err.startswith("stdin:2: reading: an event has to be a JSON object")


def test_types_make_any_line_a_header(publish):
    code, _, stored = publish("orders.csv", b"other\n7\n", "--types", "other=integer")
    assert (code, stored) == (0, 1)


def test_events_with_a_member_twice_are_never_published_with_one_of_them(publish):
    code, err, stored = publish(PIPED, json.dumps({"metadata": {}}).encode()[:-1] + b',"id":"A","id":"B"}\n')
    assert (code, stored) == (2, 0)
    assert 'Duplicate key "id"' in err
