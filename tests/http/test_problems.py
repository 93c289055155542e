import inspect
from http import HTTPStatus

import orjson
import pytest

from rioni.domain import errors
from rioni.http.problems import problem, status_of


ERRORS = [
    error
    for error in vars(errors).values()
    if inspect.isclass(error) and issubclass(error, errors.RioniError) and error is not errors.RioniError
]


@pytest.mark.parametrize("error", ERRORS)
def test_every_error_of_the_domain_has_a_status(error):
    assert status_of(error.__new__(error)) >= HTTPStatus.BAD_REQUEST


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.InvalidFields([]), 422),
        (errors.EventTypeNotFound("a"), 404),
        (errors.ReadOnly(), 503),
        (errors.FeatureDisabled("x"), 501),
    ],
)
def test_a_subclass_answers_like_its_base(error, status):
    assert status_of(error) == status


def test_a_problem_has_title_and_status_and_a_detail_only_if_there_is_one():
    """Reference common#problem-body."""
    assert orjson.loads(problem(HTTPStatus.NOT_FOUND)) == {"title": "Not Found", "status": 404}
    assert orjson.loads(problem(HTTPStatus.UNPROCESSABLE_ENTITY, "d", "t")) == {
        "type": "t",
        "title": "Unprocessable Entity",
        "status": 422,
        "detail": "d",
    }


def test_the_tree_in_the_docstring_names_every_error():
    assert errors.__doc__ is not None
    assert [error.__name__ for error in ERRORS if error.__name__ not in errors.__doc__] == []
