"""`/log/*`: what the log holds can be proved to those who have seen its checkpoints (reference transparency-log)."""

import base64

import pytest

from rioni.domain.transparency.checkpoint import parse_checkpoint, parse_note, parse_verifier, verified
from tests.acceptance.conftest import problem
from tests.support import rfc9162
from tests.support.builders import event_type_body
from tests.support.rfc9162 import split_bundle


def checkpoint(client):
    """The present checkpoint, after its signature was verified."""
    answer = client.get("/log/checkpoint")
    assert answer.status_code == 200, answer.text
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    key = parse_verifier(client.get("/log/key").text)
    note = parse_note(answer.content)
    assert verified(note, [key]) == {key: None}
    found = parse_checkpoint(note.text)
    assert found.origin == key.name
    return found


def leaves(client, size: int) -> list[bytes]:
    """All leaves of the log, by its bundles."""
    found = []
    for number in range(-(-size // 256)):
        width = min(256, size - 256 * number)
        path = f"/log/tile/entries/{number:03}" + ("" if width == 256 else f".p/{width}")
        answer = client.get(path)
        assert answer.status_code == 200, answer.text
        assert answer.headers["Content-Type"] == "application/octet-stream"
        found += split_bundle(answer.content)
    return found


def hashes(answer) -> list[bytes]:
    assert answer.status_code == 200, answer.text
    return [base64.b64decode(each) for each in answer.json()["hashes"]]


@pytest.mark.parametrize(
    ("path", "media"),
    [
        ("/log/checkpoint", "text/plain"),
        ("/log/key", "text/plain"),
        ("/log/tile/entries/000.p/1", "application/octet-stream"),
    ],
)
def test_what_is_not_json_can_be_asked_for(client, path, media):
    """Reference common#content-types."""
    client.get("/log/checkpoint")
    for accepted in (media, "application/json", "*/*"):
        answer = client.get(path, headers={"Accept": accepted})
        assert answer.status_code == 200, answer.text
        assert answer.headers["Content-Type"].partition(";")[0] == media
    assert media in problem(client.get(path, headers={"Accept": "text/html"}), 406)["detail"]


def test_checkpoints_and_proofs_cover_every_change(client, name):
    """Reference transparency-log#checkpoints, transparency-log#proofs."""
    client.post("/event-types", json=event_type_body(name=name))
    before = checkpoint(client)
    client.delete(f"/event-types/{name}")
    after = checkpoint(client)
    assert after.size > before.size
    entries = leaves(client, after.size)
    assert rfc9162.mth(entries[: before.size]) == before.root
    assert rfc9162.mth(entries) == after.root
    proof = hashes(client.get("/log/proof/consistency", params={"first": before.size, "second": after.size}))
    assert proof == rfc9162.proof(before.size, entries)
    for position in (1, before.size, after.size):
        answer = client.get("/log/proof/inclusion", params={"position": position, "size": after.size})
        assert rfc9162.root_from_path(entries[position - 1], position - 1, after.size, hashes(answer)) == after.root


def test_a_leaf_says_who_changed_what(client, name):
    """Reference transparency-log#leaves, transparency-log#tiles."""
    client.post("/event-types", json=event_type_body(name=name), headers={"X-Flow-Id": f"flow-{name}"})
    item = client.get("/audit", params={"resource": f"event-type:{name}"}).json()["items"][0]
    entries = leaves(client, checkpoint(client).size)
    data, fields = entries[item["position"] - 1], []
    while data:
        length = int.from_bytes(data[:4], "big")
        fields.append(data[4 : 4 + length])
        data = data[4 + length :]
    assert len(fields) == 10
    assert (fields[0], fields[3]) == (b"%d" % item["position"], b"event-type.created")
    assert (fields[4], fields[7]) == (item["recorded_at"].encode(), f"flow-{name}".encode())
    assert len(fields[9]) == 32


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/log/tile/0/999", 404),
        ("/log/tile/9/000", 404),
        ("/log/tile/0/0", 400),
        ("/log/tile/64/000", 400),
        ("/log/tile/entries/000.p/256", 400),
        ("/log/proof/inclusion", 422),
        ("/log/proof/inclusion?position=0", 422),
        ("/log/proof/inclusion?position=1&size=999999999", 422),
        ("/log/proof/inclusion?position=x", 400),
        ("/log/proof/consistency", 422),
        ("/log/proof/consistency?first=0", 422),
        ("/log/proof/consistency?first=2&second=1", 422),
        ("/log/proof/consistency?first=999999999", 422),
        ("/log/checkpoint?cosigned=true", 404),
    ],
)
def test_what_the_log_does_not_have_is_refused(client, path, status):
    """Reference transparency-log#errors."""
    problem(client.get(path), status)


def test_cosignatures_of_unknown_witnesses_and_of_other_logs_are_refused(client):
    """Reference transparency-log#witnesses."""
    note = client.get("/log/checkpoint").text
    problem(client.post("/log/cosignatures", json={"note": note}), 422)
    problem(client.post("/log/cosignatures", json={"note": note.replace("rioni/", "other/")}), 409)
    for body in ({"note": "no note"}, {"note": 1}, [], {"note": note, "more": 1}):
        problem(client.post("/log/cosignatures", json=body), 400)
