"""A witness refuses all that a broker with the signing key shows it instead of an extended log."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from rioni.cli.broker.witnessing import ForkedLog, witness
from rioni.client import ClientError
from rioni.domain.errors import Malformed
from rioni.domain.transparency.checkpoint import Note, parse_note, sign, verifier_of
from rioni.domain.transparency.log_keys import sign_successor
from tests.support import rfc9162
from tests.support.forgeries import ZERO, forged_proofs
from tests.support.shown_log import ShownLog, encoded


NAME = "example.com/log"
KEY, OTHER, WITNESS = (Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number in range(3))
LEAVES = [b"%d" % number for number in range(10)]
SIZES = [(1, 2), (2, 3), (3, 8), (4, 8), (4, 9), (5, 9), (7, 8), (8, 9), (9, 10)]


@pytest.fixture
def refused(tmp_path: Path) -> Callable[[int, ShownLog], bool]:
    """Returns whether a witness that has seen the first `seen` leaves refuses a log, and keeps its state then."""

    def refused(seen: int, log: ShownLog) -> bool:
        file = tmp_path / "state"
        state = {"log_key": str(verifier_of(NAME, KEY)), "checkpoint": ShownLog(LEAVES[:seen], NAME, KEY).checkpoint()}
        file.write_text(json.dumps(state))
        before = log.cosigned
        try:
            witness(log.client, file, "example.com/witness", WITNESS, None)
        except (ForkedLog, Malformed, ClientError):
            assert log.cosigned == before
            assert json.loads(file.read_bytes()) == state
            return True
        assert log.cosigned == before + 1
        return False

    return refused


@pytest.mark.parametrize(("first", "second"), SIZES)
def test_forged_proofs_and_forks_are_not_cosigned(refused, first, second):
    log = ShownLog(LEAVES[:second], NAME, KEY)
    assert not refused(first, log)
    proof = rfc9162.proof(first, log.leaves)
    for name, forged in forged_proofs(proof, [log.root, rfc9162.mth(LEAVES[:first])]):
        log.proof = lambda _, forged=forged: {"hashes": encoded(forged)}
        assert refused(first, log), name
    for changed in range(first):
        fork = ShownLog([*LEAVES[:changed], b"forked", *LEAVES[changed + 1 : second]], NAME, KEY)
        assert refused(first, fork)
        fork.proof = lambda _, proof=proof: {"hashes": encoded(proof)}
        assert refused(first, fork)


def test_two_logs_that_are_shown_to_two_auditors_do_not_fit(refused):
    """A fork after the checkpoint that both know: what the one has seen is refused by the other, at every size."""
    common = 5
    one = [*LEAVES[:common], b"one", b"more", b"end"]
    for seen in range(common + 1, len(LEAVES)):
        for shown in range(common + 1, len(one) + 1):
            assert refused(seen, ShownLog(one[:shown], NAME, KEY)), (seen, shown)
    for shown in range(common):
        assert refused(common, ShownLog(one[:shown], NAME, KEY)), "it was cut"
    assert not refused(common, ShownLog(one[:common], NAME, KEY))
    assert not refused(common, ShownLog(one, NAME, KEY))


ANSWERS: list[Any] = [
    {},
    [],
    None,
    "",
    {"hashes": None},
    {"hashes": {}},
    {"hashes": ""},
    {"hashes": [1]},
    {"hashes": ["%"]},
    {"hashes": [None]},
]


@pytest.mark.parametrize("answer", ANSWERS, ids=repr)
def test_an_answer_that_is_no_proof_is_refused(refused, answer):
    log = ShownLog(LEAVES[:8], NAME, KEY)
    log.proof = lambda _: answer
    assert refused(5, log)


def test_a_proof_with_anything_beside_its_hashes_is_refused(refused):
    log = ShownLog(LEAVES[:8], NAME, KEY)
    for more in (None, 1, [], {}):
        log.proof = lambda proof, more=more: {"hashes": [*encoded(proof), more]}
        assert refused(5, log), more


def test_checkpoints_that_the_key_of_the_log_did_not_sign_are_refused(refused):
    log = ShownLog(LEAVES[:8], NAME, KEY)
    note = parse_note(log.checkpoint().encode())
    (right,) = note.signatures
    other = verifier_of(NAME, OTHER)
    log.keys.append({"verifier": str(other), "signature": sign_successor(other, OTHER, other)})
    wrong = sign(note.text, NAME, OTHER)
    forged = {
        "another key of the same name": Note(note.text, (wrong,)),
        "the id of the right key": Note(note.text, (wrong._replace(id=right.id),)),
        "unsigned": Note(note.text, (sign(note.text, "example.com/other", OTHER),)),
        "a wrong signature behind the right one": Note(note.text, (right, wrong._replace(id=right.id))),
        "another name of the same key": Note(note.text, (sign(note.text, "example.com/other", KEY),)),
        "a signature of another size": Note(note.text.replace("\n8\n", "\n9\n"), (right,)),
        "empty": Note(note.text, (right._replace(data=b"\0"),)),
    }
    for bit in range(8 * len(right.data)):
        data = bytearray(right.data)
        data[bit // 8] ^= 1 << bit % 8
        forged[f"bit {bit}"] = Note(note.text, (right._replace(data=bytes(data)),))
    for name, each in forged.items():
        log.note = str(each)
        assert refused(5, log), name
    for at in range(len(log.checkpoint().encode())):
        data = bytearray(log.checkpoint().encode())
        data[at] ^= 1
        log.note = data.decode(errors="replace")
        assert refused(5, log), at
    log.note = None
    for size, root in ((8, ZERO), (5, ZERO), (0, None), (4, None), (9, None), (2**62, None)):
        log.note = log.checkpoint(size=size, root=root)
        if size <= 8:
            assert refused(5, log), size
