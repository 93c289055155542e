"""The nearest of known names: one rule for all errors about names that are not known."""

import pytest

from rioni.domain.nearest import nearest, proposal


@pytest.mark.parametrize(
    ("name", "known", "found"),
    [
        ("PROD", ["prod", "test"], "prod"),
        ("prod", ["PROD"], "PROD"),
        ("zzz", ["prod"], None),
        ("", ["prod"], None),
        ("prod", [], None),
        ("prod", (each for each in ["prods"]), "prods"),
    ],
)
def test_the_nearest_name_ignores_case_and_is_like_the_given_one(name, known, found):
    assert nearest(name, known) == found


def test_without_a_name_that_is_like_it_the_sentence_ends_otherwise():
    assert proposal("zzz", ["prod"], "; there are prod.") == "; there are prod."
    assert proposal("zzz", ["prod"]) == "."
    assert proposal("prd", ["prod"], "; there are prod.") == "; did you mean prod?"
