import json
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rioni.domain.texts import ascii_json, visible, visible_json, visible_line


CATEGORIES = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
NAMED = (
    "\x00\x07\x08\x0d\x1b\x7f\x85\x9b\x9c\xad\u061c\u200b\u200e\u200f\u2028\u2029\u202a\u202e\u2066\u2069\ufeff\ud800"
)
INVISIBLE = "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"


@pytest.mark.parametrize("char", [*NAMED, *INVISIBLE, "\U000e0041", "\U000e0001"], ids=ascii)
def test_characters_that_control_or_hide_are_shown_as_escapes(char):
    for escape in (visible, visible_line):
        assert escape(f"a{char}b") == f"a{ascii(char)[1:-1]}b"
    assert json.loads(visible_json(f'"a{char}b"')) == f"a{char}b"


def test_no_character_of_these_categories_is_left():
    every = map(chr, range(sys.maxunicode + 1))
    dangerous = [char for char in every if unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp", "Cs")]
    text = "".join(dangerous)
    assert visible(text).replace("\n", "").replace("\t", "").isprintable()
    assert visible_line(text).isprintable()
    # Two halves of a pair that stand side by side would be one character in JSON.
    shown = visible_json(json.dumps(dangerous, ensure_ascii=False))
    assert shown.isprintable()
    assert json.loads(shown) == dangerous


def test_line_breaks_and_tabs_stay_in_texts_and_are_escaped_in_lines():
    assert visible("a\n\tb\x1b") == "a\n\tb\\x1b"
    assert visible_line("a\n\tb") == "a\\n\\tb"


@pytest.mark.parametrize("text", ["Grüße", "注文", "naïve café", "Заказ", "طلب", "👍", "e\u0301", "'\"\\", ""])
def test_other_texts_stay_as_they_are(text):
    assert visible(text) == visible_line(text) == visible_json(text) == text


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_json_keeps_its_value(text):
    encoded = json.dumps({text: [text]}, ensure_ascii=False)
    assert json.loads(visible_json(encoded)) == {text: [text]}
    assert json.loads(ascii_json(encoded)) == {text: [text]}
    assert ascii_json(encoded).isascii()


@given(st.text(st.characters(exclude_categories=[])))
def test_what_is_visible_has_none_of_the_categories(text):
    assert not [char for char in visible_line(text) if unicodedata.category(char) in CATEGORIES]
    assert visible(visible(text)) == visible(text)
