import base64
from hashlib import sha256

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from rioni.domain.errors import Malformed
from rioni.domain.transparency.checkpoint import (
    COSIGNATURE,
    NOTE_BYTES_MAX,
    SIGNATURES_MAX,
    Note,
    cosign,
    parse_note,
    parse_verifier,
    sign,
    verified,
    verifier_of,
)


KEY, OTHER = (Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number in (1, 2))
NAME = "example.com/log"
TEXT = "example.com/log\n5\n" + base64.b64encode(bytes(32)).decode() + "\n"
LOG, WITNESS = verifier_of(NAME, KEY), verifier_of("example.com/witness", OTHER, COSIGNATURE)
NOTE = Note(TEXT, (sign(TEXT, NAME, KEY), cosign(TEXT, "example.com/witness", OTHER, 1_700_000_000)))

# The example of the C2SP specification of signed notes, whose key is that of Go's module PeterNeumann.
SPECIFIED_KEY = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
SPECIFIED_NOTE = (
    "If you think cryptography is the answer to your problem,\n"
    "then you don't know what your problem is.\n"
    "\n"
    "— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n"
)


def test_the_published_example_is_read_and_verified():
    note = parse_note(SPECIFIED_NOTE.encode())
    assert verified(note, [parse_verifier(SPECIFIED_KEY)]) == {parse_verifier(SPECIFIED_KEY): None}
    assert str(note) == SPECIFIED_NOTE
    changed = parse_note(SPECIFIED_NOTE.replace("answer", "Answer").encode())
    with pytest.raises(Malformed, match="signature of PeterNeumann is not valid"):
        verified(changed, [parse_verifier(SPECIFIED_KEY)])


def test_signatures_of_known_keys_are_verified_and_others_ignored():
    note = parse_note(str(NOTE).encode())
    assert note == NOTE
    assert verified(note, [LOG, WITNESS]) == {LOG: None, WITNESS: 1_700_000_000}
    assert verified(note, [verifier_of(NAME, OTHER)]) == {}


def test_ids_of_keys_and_cosignatures_are_what_the_specifications_say():
    assert LOG.id == sha256(NAME.encode() + b"\n\x01" + KEY.public_key().public_bytes_raw()).digest()[:4]
    assert WITNESS.id == sha256(b"example.com/witness\n\x04" + OTHER.public_key().public_bytes_raw()).digest()[:4]
    blob = NOTE.signatures[1].data
    assert int.from_bytes(blob[:8]) == 1_700_000_000
    OTHER.public_key().verify(blob[8:], b"cosignature/v1\ntime 1700000000\n" + TEXT.encode())


@pytest.mark.parametrize("verifier", [LOG, WITNESS], ids=["log", "witness"])
def test_verifier_keys_are_read_back(verifier):
    assert parse_verifier(f"{verifier}\n") == verifier


@pytest.mark.parametrize("change", [
    lambda text: text.replace("+", "", 1), lambda text: "x" + text, lambda text: text[:-4], lambda text: text + "A",
    lambda text: text.replace("+A", "+B"), lambda _: "", lambda text: text.replace("log", "l g"),
], ids=["name", "id", "short", "long", "kind", "empty", "space"])  # fmt: skip
def test_other_verifier_keys_are_refused(change):
    with pytest.raises(Malformed):
        parse_verifier(change(str(LOG)))


@pytest.mark.parametrize("change", [
    lambda text: text[:-1], lambda text: text.replace("\n\n", "\n"), lambda text: text.replace("5", "5\r"),
    lambda text: text.replace("— ", "- ", 1), lambda text: text.replace("=\n", "\n"), lambda text: f"{text}\n",
    lambda text: text + text.splitlines(keepends=True)[-1] * SIGNATURES_MAX, lambda text: " " * NOTE_BYTES_MAX + text,
    lambda _: "", lambda text: text.replace("— example.com/log ", "— example.com/log+ "),
    lambda text: text.splitlines(keepends=True)[0] + "\n— a AAAA\n",
], ids=[
    "newline", "blank line", "control", "dash", "padding", "rest", "many", "large", "empty", "plus", "no data"
])  # fmt: skip
def test_what_is_no_note_is_refused(change):
    with pytest.raises(Malformed):
        parse_note(change(str(NOTE)).encode())
    with pytest.raises(Malformed):
        parse_note(str(NOTE).encode() + b"\xff")


@pytest.mark.parametrize("place", range(2))
def test_every_changed_byte_of_a_signature_or_of_the_text_is_noticed(place):
    verifier, signature = (LOG, WITNESS)[place], NOTE.signatures[place]
    for at in range(len(signature.data)):
        data = signature.data[:at] + bytes([signature.data[at] ^ 1]) + signature.data[at + 1 :]
        with pytest.raises(Malformed):
            verified(Note(TEXT, (signature._replace(data=data),)), [verifier])
    for data in (b"", signature.data[:-1], signature.data + b"\0"):
        with pytest.raises(Malformed):
            verified(Note(TEXT, (signature._replace(data=data),)), [verifier])
    with pytest.raises(Malformed):
        verified(Note(TEXT.replace("5", "6"), (signature,)), [verifier])
