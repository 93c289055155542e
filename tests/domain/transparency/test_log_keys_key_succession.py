import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from rioni.domain.errors import Malformed
from rioni.domain.transparency.checkpoint import parse_checkpoint, sign, verifier_of
from rioni.domain.transparency.log_keys import LogKey, check_successor, sign_successor, statement, successors


PRIVATE = [Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number in range(6)]
KEYS = [verifier_of("example.com/log", each) for each in PRIVATE]
SIGNATURE = sign_successor(KEYS[0], PRIVATE[0], KEYS[1])


def test_a_key_follows_the_one_that_has_signed_it():
    check_successor(KEYS[0], LogKey(KEYS[1], SIGNATURE))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (KEYS[0], LogKey(KEYS[1])),
        (KEYS[0], LogKey(KEYS[2], SIGNATURE)),
        (KEYS[2], LogKey(KEYS[1], SIGNATURE)),
        (KEYS[0], LogKey(KEYS[1], SIGNATURE[:-8] + "AAAAAAA=")),
        (KEYS[0], LogKey(KEYS[1], "text")),
        (KEYS[0], LogKey(KEYS[1], sign_successor(KEYS[1], PRIVATE[1], KEYS[0]))),
        (KEYS[0], LogKey(KEYS[1], str(sign("1\n2\n3\n", KEYS[0].name, PRIVATE[0])))),
        (KEYS[0], LogKey(KEYS[1]._replace(name="other"), SIGNATURE)),
    ],
    ids=["none", "other-key", "other-signer", "changed", "no-signature", "reverse", "other-text", "other-log"],
)
def test_a_key_that_the_one_before_has_not_signed_is_refused(before, after):
    with pytest.raises(Malformed):
        check_successor(before, after)


@given(st.lists(st.booleans(), max_size=5), st.integers(0, 5))
def test_trust_goes_as_far_as_the_signatures(signed: list[bool], known: int):
    chain = [LogKey(KEYS[0])]
    for number, valid in enumerate(signed, 1):
        signature = sign_successor(KEYS[number - 1], PRIVATE[number - 1], KEYS[number])
        chain.append(LogKey(KEYS[number], signature if valid else ""))
    last = known
    while last < len(signed) and signed[last]:
        last += 1
    assert list(successors(KEYS[known], chain)) == KEYS[known : last + 1]


def test_a_succession_can_not_be_taken_for_a_checkpoint():
    with pytest.raises(Malformed):
        parse_checkpoint(statement(KEYS[0], KEYS[1]))
