"""The plugin for pytest: fixtures with a broker, which begins while tests are still being collected.

pytest loads it in every run, so nothing else is imported until a test uses a broker.
"""

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import pytest


if TYPE_CHECKING:
    from rioni.testing.broker import Broker


LOG_CHARACTERS = 10_000
"""The most characters of the broker's log during a failed test that are shown."""

_BROKER = pytest.StashKey["Broker"]()
_LOGGED = pytest.StashKey[int]()
"""The length of the broker's log when a test began."""
_FIXTURE = "rioni_broker"
_CACHED = "rioni/used"
"""The name under which pytest's cache stores whether tests used the broker in the last run."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the plugin."""
    group = parser.getgroup("rioni", "a broker for tests")
    group.addoption(
        "--rioni-url",
        metavar="URL",
        help="use a broker that was started elsewhere, without faults and moved time; also the setting rioni_url",
    )
    parser.addini("rioni_url", "as --rioni-url", default="")
    parser.addini("rioni_definitions", "files and folders with the event types of all tests", type="paths", default=[])
    parser.addini("rioni_settings", "settings of the broker, name=value each", type="linelist", default=[])


def pytest_configure(config: pytest.Config) -> None:
    """Begin the broker before any test is imported, if tests used it in the last run of this project."""
    cache = _cache(config)
    if cache is not None and cache.get(_CACHED, default=False) and not _is_controller(config):
        _begin(config)


@pytest.fixture(scope="session")
def rioni_broker(pytestconfig: pytest.Config) -> Iterator["Broker"]:
    """A broker for all tests of this process; each test sees what earlier ones have left."""
    broker = _broker(pytestconfig)
    broker.start()
    if definitions := pytestconfig.getini("rioni_definitions"):
        broker.apply(*definitions)
    yield broker
    broker.stop()


@pytest.fixture
def rioni(request: pytest.FixtureRequest, rioni_broker: "Broker") -> Iterator["Broker"]:
    """A broker with the same contents at the beginning of each test: the changes of a test are undone at its end."""
    request.node.stash[_LOGGED] = len(rioni_broker.log())
    with rioni_broker.isolated():
        yield rioni_broker


def pytest_itemcollected(item: pytest.Item) -> None:
    """Begin the broker as soon as there is a test that uses it, unless that may be deselected."""
    option = item.config.option
    if not (option.keyword or option.markexpr or getattr(option, "lf", False)):
        _begin_for(item)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Begin the broker if one of the tests that are left uses it."""
    for item in session.items:
        _begin_for(item)
    config, cache = session.config, _cache(session.config)
    if cache is not None and not (config.option.collectonly or _is_controller(config)):
        cache.set(_CACHED, any(map(_uses_broker, session.items)))


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the broker, if it has begun and no test has used it."""
    if _BROKER in config.stash:
        config.stash[_BROKER].stop()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the broker's log during a test that failed."""
    report = yield
    if report.failed and _LOGGED in item.stash and _BROKER in item.config.stash:
        logged = item.config.stash[_BROKER].log()[item.stash[_LOGGED] :]
        if logged:
            report.sections.append(("Rioni's log", logged[-LOG_CHARACTERS:]))
    return report


def _cache(config: pytest.Config) -> pytest.Cache | None:
    """The cache of pytest, which is kept between runs; None if it is switched off."""
    return getattr(config, "cache", None)


def _is_controller(config: pytest.Config) -> bool:
    """Whether this process of pytest-xdist runs no tests itself."""
    return getattr(config.option, "dist", "no") != "no" and not hasattr(config, "workerinput")


def _uses_broker(item: pytest.Item) -> bool:
    return _FIXTURE in getattr(item, "fixturenames", ())


def _begin_for(item: pytest.Item) -> None:
    if _uses_broker(item):
        _begin(item.config)


def _begin(config: pytest.Config) -> None:
    if not config.option.collectonly:
        _broker(config).begin()


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
