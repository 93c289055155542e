import pytest

from rioni.domain.texts import first_of


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ([], ""),
        (["a", "b"], "a, b"),
        (["a", "b", "c"], "a, b, and 1 more"),
        (["a"] * 1_234, "a, a, and 1,232 more"),
    ],
)
def test_the_first_texts_of_a_list_are_shown_with_the_number_of_the_others(texts, expected):
    assert first_of(texts, 2) == expected
