import json
import logging
import subprocess
import sys

import pytest
import structlog

from rioni.config import logs as logging_setup
from rioni.config.settings import Config
from rioni.storage.sql.database_connections import GeventConnectionPool
from tests.support.waiting import WAIT_S


@pytest.fixture
def configure():
    """Configures logging; the configuration is undone after the test."""
    loggers = [
        logging.getLogger(name)
        for name in ("", "rioni", "rioni.storage.sql.database_connections", "rioni.zookeeper.driver")
    ]
    before, handlers, levels = structlog.get_config(), loggers[0].handlers[:], [each.level for each in loggers]
    yield lambda **settings: logging_setup.configure(Config(**settings))
    structlog.configure(**before)
    loggers[0].handlers[:] = handlers
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


def lines(capfd):
    captured = capfd.readouterr()
    assert captured.out == ""
    return captured.err.splitlines()


def test_the_json_format_has_one_object_per_line(configure, capfd):
    configure(log_format="json")
    structlog.get_logger("rioni.http").warning("slow", event_type="a.b", ids={7})
    logging.getLogger("a.library").error("broken: %s", "yes")
    ours, theirs = map(json.loads, lines(capfd))
    assert ours.pop("timestamp").endswith("Z")
    assert ours == {"message": "slow", "logger": "rioni.http", "level": "warning", "event_type": "a.b", "ids": [7]}
    assert (theirs["message"], theirs["logger"], theirs["level"]) == ("broken: yes", "a.library", "error")


def fail(token):
    raise ValueError(len(token))


def log_failure():
    try:
        fail("secr" + "et")
    except ValueError as ex:
        structlog.get_logger("rioni.http").error("unexpected error", exc_info=ex)


def test_an_exception_is_part_of_its_line(configure, capfd):
    configure(log_format="json")
    log_failure()
    (line,) = map(json.loads, lines(capfd))
    assert (line["exception"][0]["exc_type"], line["exception"][0]["exc_value"]) == ("ValueError", "6")


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_values_of_variables_are_not_logged(configure, capfd, log_format):
    configure(log_format=log_format)
    log_failure()
    text = "".join(lines(capfd))
    assert "ValueError" in text
    assert "secret" not in text


def test_the_text_format_is_for_terminals(configure, capfd):
    configure()
    structlog.get_logger("rioni.http").info("topic deleted", topic="a.b.1")
    (line,) = lines(capfd)
    assert "topic deleted" in line
    assert "topic=a.b.1" in line


@pytest.mark.parametrize(("level", "written"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)])
def test_lines_below_the_level_are_left_out(configure, capfd, level, written):
    configure(log_level=level)
    log = structlog.get_logger("rioni.http")
    for each in ("debug", "info", "warning", "error"):
        getattr(log, each)("something")
    assert len(lines(capfd)) == written


def test_libraries_log_warnings_and_errors_only(configure, capfd):
    configure(log_level="debug")
    pool = f"{GeventConnectionPool.__module__}.{GeventConnectionPool.__qualname__}"
    for name in ("gunicorn.error", pool, "rioni.zookeeper.driver"):
        logging.getLogger(name).info("Checked out")
        logging.getLogger(name).warning("Dropped")
    assert [("Dropped" in line) for line in lines(capfd)] == [True, True, True]


def test_native_threads_of_a_patched_process_meet_no_lock_of_greenlets():
    program = """if True:
        from gevent import monkey
        monkey.patch_all()
        import _thread, logging
        from rioni.config import logs
        from rioni.config.settings import Config
        logs.configure(Config())
        locks = [logging._lock, *[handler.lock for handler in logging.getLogger().handlers]]
        print(len(locks), all(isinstance(lock, type(_thread.RLock())) for lock in locks))
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=WAIT_S)
    assert done.stdout == "2 True\n"
