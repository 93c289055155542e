"""The plugin for pytest: fixtures with a broker, which begins while tests are still being collected.

pytest loads it in every run, so nothing else is imported until a test uses a broker.
"""

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import pytest


if TYPE_CHECKING:
    from rioni.testing.broker import Broker


LOG_CHARACTERS = 10_000
"""How much of what the broker logged during a failed test is shown."""

_BROKER = pytest.StashKey["Broker"]()
_LOGGED = pytest.StashKey[int]()
"""How much the broker had logged when a test began."""
_FIXTURE = "rioni_broker"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the plugin."""
    group = parser.getgroup("rioni", "a broker for tests")
    group.addoption(
        "--rioni-url",
        metavar="URL",
        help="use a broker that was started elsewhere, without faults and moved time; also the setting rioni_url",
    )
    parser.addini("rioni_url", "as --rioni-url", default="")
    parser.addini("rioni_settings", "settings of the broker, name=value each", type="linelist", default=[])


@pytest.fixture(scope="session")
def rioni_broker(pytestconfig: pytest.Config) -> Iterator["Broker"]:
    """A broker for all tests of this process, of which each sees what the others have left."""
    broker = _broker(pytestconfig)
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture
def rioni(request: pytest.FixtureRequest, rioni_broker: "Broker") -> Iterator["Broker"]:
    """A broker with the same contents at the beginning of each test: what a test has changed is undone at its end."""
    request.node.stash[_LOGGED] = len(rioni_broker.log())
    with rioni_broker.isolated():
        yield rioni_broker


def pytest_itemcollected(item: pytest.Item) -> None:
    """Begin the broker as soon as there is a test that uses it, unless that may be deselected."""
    option = item.config.option
    if not (option.keyword or option.markexpr or getattr(option, "lf", False)):
        _begin(item)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Begin the broker if one of the tests that are left uses it."""
    for item in session.items:
        _begin(item)


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the broker, if it has begun and no test has used it."""
    if _BROKER in config.stash:
        config.stash[_BROKER].stop()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what the broker logged during a test that failed."""
    report = yield
    if report.failed and _LOGGED in item.stash and _BROKER in item.config.stash:
        logged = item.config.stash[_BROKER].log()[item.stash[_LOGGED] :]
        if logged:
            report.sections.append(("Rioni's log", logged[-LOG_CHARACTERS:]))
    return report


def _begin(item: pytest.Item) -> None:
    if _FIXTURE in getattr(item, "fixturenames", ()) and not item.config.option.collectonly:
        _broker(item.config).begin()


def _broker(config: pytest.Config) -> "Broker":
    """The broker of this process, made when it is first asked for."""
    if _BROKER not in config.stash:
        from rioni.testing.broker import Broker  # noqa: PLC0415 - see above

        url = config.option.rioni_url or config.getini("rioni_url")
        config.stash[_BROKER] = Broker.at(url) if url else Broker(_settings(config))
    return config.stash[_BROKER]


def _settings(config: pytest.Config) -> dict[str, str]:
    lines = [line.partition("=") for line in config.getini("rioni_settings")]
    for name, equals, _ in lines:
        if not equals:
            raise pytest.UsageError(f"rioni_settings has {name!r}, which is not name=value.")
    return {name.strip(): value.strip() for name, _, value in lines}
