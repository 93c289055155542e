"""The broker that a command connects to, and the token that it sends there."""

from pathlib import Path

import pytest

from rioni.cli.connections.connection import SavedContext, changed_contexts, resolve
from rioni.domain.errors import Invalid


@pytest.fixture(autouse=True)
def contexts(tmp_path, monkeypatch):
    """Two contexts, with the tokens `of-prod` and `of-test`; the first one is in use."""
    for variable in ("RIONI_URL", "RIONI_TOKEN", "RIONI_CONTEXT"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("RIONI_CONTEXTS", str(tmp_path / "contexts.toml"))
    with changed_contexts() as changed:
        for name in ("prod", "test"):
            monkeypatch.setenv(f"{name.upper()}_TOKEN", f"of-{name}")
            changed.contexts[name] = SavedContext(
                f"https://{name}", token_env=f"{name.upper()}_TOKEN", ca_certificate=name
            )
        changed.contexts["open"] = SavedContext("http://open")
        changed.current = "prod"


@pytest.mark.parametrize(
    ("options", "environment", "url", "token"),
    [
        ({}, {}, "https://prod", "of-prod"),
        ({}, {"RIONI_CONTEXT": "test"}, "https://test", "of-test"),
        ({}, {"RIONI_CONTEXT": "test", "RIONI_TOKEN": "env"}, "https://test", "env"),
        ({}, {"RIONI_TOKEN": "env"}, "https://prod", "env"),
        ({}, {"RIONI_URL": "http://env"}, "http://env", None),
        ({}, {"RIONI_URL": "http://env", "RIONI_TOKEN": "env"}, "http://env", "env"),
        ({}, {"RIONI_URL": "http://env", "RIONI_CONTEXT": "test"}, "http://env", None),
        ({"url": "http://opt"}, {}, "http://opt", None),
        ({"url": "http://opt"}, {"RIONI_URL": "http://env", "RIONI_TOKEN": "env"}, "http://opt", "env"),
        ({"token": "opt"}, {"RIONI_TOKEN": "env"}, "https://prod", "opt"),
        ({"context": "test"}, {"RIONI_URL": "http://env", "RIONI_TOKEN": "env"}, "https://test", "of-test"),
        ({"context": "test", "token": "opt"}, {}, "https://test", "opt"),
        ({"context": "test", "url": "http://opt"}, {}, "http://opt", "of-test"),
        ({"context": "open"}, {}, "http://open", None),
    ],
)
def test_options_are_stronger_than_the_environment_and_that_than_the_context_in_use(
    options, environment, url, token, monkeypatch
):
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    connection = resolve(**options)
    assert (connection.url, connection.bearer()) == (url, token)


def test_without_anything_it_is_the_broker_of_this_machine(monkeypatch, tmp_path):
    monkeypatch.setenv("RIONI_CONTEXTS", str(tmp_path / "absent.toml"))
    connection = resolve()
    assert (connection.url, connection.bearer(), connection.origin) == ("http://localhost:8080", None, "default")


def test_the_authorities_are_those_of_the_context_if_its_url_is_used():
    assert resolve().ca_certificate == Path("prod")
    assert resolve(ca_certificate=Path("mine")).ca_certificate == Path("mine")
    assert resolve(url="https://opt").ca_certificate is None


def test_a_token_that_is_none_is_an_error_that_does_not_show_it():
    with pytest.raises(Invalid, match="--token holds no token") as raised:
        resolve(token="se same").bearer()
    assert "same" not in str(raised.value)
