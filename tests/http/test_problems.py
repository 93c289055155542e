import inspect
import re
from http import HTTPStatus

import falcon
import falcon.testing
import orjson
import pytest
from structlog.testing import capture_logs

from rioni.domain import errors
from rioni.http.problems import on_unexpected, problem, status_of


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
def test_a_subclass_has_the_status_of_its_base(error, status):
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


class Broken:
    def on_get(self, _req, _resp):
        raise ValueError("a secret")


def test_an_unexpected_error_has_an_id_that_is_logged_too():
    """Reference common#internal-errors."""
    app = falcon.App()
    app.add_error_handler(Exception, on_unexpected)
    app.add_route("/broken", Broken())
    with capture_logs() as logged:
        response = falcon.testing.TestClient(app).simulate_get("/broken")
    assert (response.status_code, response.headers["content-type"]) == (500, "application/problem+json")
    text = r"An internal error happened\. Please report it\. \(ETI([A-Za-z0-9]{24})\)"
    number = re.fullmatch(text, response.json["detail"])[1]
    (line,) = logged
    assert (line["error_id"], line["path"], str(line["exc_info"])) == (number, "/broken", "a secret")
    assert "secret" not in response.text
