import base64
from hashlib import sha256

import pytest

from rioni.domain.errors import Malformed
from rioni.domain.transparency.checkpoint import Checkpoint, leaf, parse_checkpoint


ROOT = sha256(b"root").digest()
TEXT = f"example.com/log\n20852163\n{base64.b64encode(ROOT).decode()}\n"


def test_a_checkpoint_is_three_lines_and_its_extensions():
    assert str(Checkpoint("example.com/log", 20_852_163, ROOT)) == TEXT
    for text in (TEXT, TEXT + "extension 1\nextension 2\n", TEXT.replace("20852163", "0")):
        assert str(parse_checkpoint(text)) == text


@pytest.mark.parametrize("text", [
    "", "\n", TEXT[:-1], TEXT.replace("20852163", "020852163"), TEXT.replace("20852163", "-1"), f"{TEXT}\n",
    TEXT.replace("20852163", "9" * 30), TEXT.replace("20852163", "\u0661"), TEXT.replace("=", ""),
    TEXT.replace("=", "A="),
    TEXT.replace("example.com/log", ""), "example.com/log\n5\nAAAA\n", "example.com/log\n5\n",
])  # fmt: skip
def test_other_texts_are_refused(text):
    with pytest.raises(Malformed, match="at least three lines"):
        parse_checkpoint(text)


def test_a_leaf_has_all_fields_and_the_digest_of_the_data():
    fields = (7, "s", 2, "note.noted", "t", "anna", "::1", "f", "c", b"{}" * 100_000)
    expected = b""
    for part in (b"7", b"s", b"2", b"note.noted", b"t", b"anna", b"::1", b"f", b"c", sha256(b"{}" * 100_000).digest()):
        expected += len(part).to_bytes(4, "big") + part
    assert leaf(fields) == expected
