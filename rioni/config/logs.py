"""Logging: one line for each event, as text or as JSON; of what fails again and again a few lines, not thousands."""

import _thread  # threads: a native lock, held while a line is written
import io
import logging
import mmap
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TextIO
from weakref import WeakSet

import msgspec
import structlog
from structlog.stdlib import ProcessorFormatter
from structlog.typing import EventDict, ExcInfo, Processor

from rioni.config.settings import JSON_LINES, Config
from rioni.domain.errors import RioniError, Unavailable
from rioni.domain.texts import visible, visible_json, visible_line
from rioni.patches.standard_library import share_logging_with_threads


# --- Configures logging: one line for each event, on standard error, as text or as JSON ---
#
# Everything goes through the standard library's `logging`, so that the lines of libraries look like our own.

_LIBRARIES = ("", "rioni.storage.sql.database_connections", "rioni.zookeeper.driver")
"""Loggers whose messages below a warning are dropped. SQLAlchemy's pools log in the name of our class."""
_SHARED: list[Processor] = [
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]
# Local variables hold tokens and events; neither belongs in a log.
_TRACEBACKS = structlog.processors.ExceptionRenderer(structlog.tracebacks.ExceptionDictTransformer(show_locals=False))


def configure(config: Config) -> None:
    """Send everything that is logged in this process, and in those that it forks, to standard error."""
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *_SHARED, ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    # The original standard error of the process, even if `sys.stderr` is replaced.
    handler = logging.StreamHandler(sys.__stderr__)
    # Native threads log too, and may wait for ever for a lock that is made for greenlets.
    handler.lock = _thread.RLock()
    share_logging_with_threads()
    handler.setFormatter(ProcessorFormatter(foreign_pre_chain=_SHARED, processors=_last(config.log_format)))
    logging.basicConfig(handlers=[handler], force=True)
    # PERF: nothing shows them, and asking for the thread leaves 0.7 kB in each greenlet.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    level = logging.getLevelNamesMapping()[config.log_level.upper()]
    logging.getLogger("rioni").setLevel(level)
    for name in _LIBRARIES:
        logging.getLogger(name).setLevel(max(logging.WARNING, level))


def _last(log_format: str) -> list[Processor]:
    if log_format == JSON_LINES:
        return [
            ProcessorFormatter.remove_processors_meta,
            structlog.processors.EventRenamer("message"),
            _TRACEBACKS,
            structlog.processors.JSONRenderer(serializer=_json),
        ]
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    console = structlog.dev.ConsoleRenderer(colors=is_terminal, exception_formatter=_write_traceback)
    return [ProcessorFormatter.remove_processors_meta, _visible, console]


def _visible(_logger: Any, _method: str, line: EventDict) -> EventDict:
    """Escape characters from requests and other systems in a line; values that are no text are shown by `repr`."""
    return {
        visible_line(name): visible_line(value) if isinstance(value, str) else value for name, value in line.items()
    }


def _write_traceback(file: TextIO, exc_info: ExcInfo) -> None:
    text = io.StringIO()
    structlog.dev.plain_traceback(text, exc_info)
    file.write(visible(text.getvalue()))


def _json(line: Any, **_options: Any) -> str:
    return visible_json(msgspec.json.encode(line, enc_hook=repr).decode())


# --- Logs failures of repeated attempts: the outage of a store is a few lines, not thousands ---

EVERY_S = 60.0
"""Seconds after which the same failure is logged again, with the number of failures left out."""

LINES_MAX = 5
"""Lines of one message in that time, should the text of its failure change; of one reason, should it come and go."""

OUTAGES_MAX = 100
"""Messages, and reasons why stores are unavailable, that are remembered; each of further ones is taken for new."""

_TIME = struct.Struct("d")


class _Failing:
    """The logged failures of one message, or of one reason, since it last worked."""

    def __init__(self) -> None:
        self.text = ""
        self.logged_at_s = self.begun_at_s = -EVERY_S
        self.lines = self.left_out = self.failures = 0

    def is_due(self, text: str, now_s: float) -> bool:
        """Count a failure; return whether it is logged."""
        self.failures += 1
        if now_s >= self.begun_at_s + EVERY_S:
            self.begun_at_s, self.lines = now_s, 0
        again = text == self.text and now_s < self.logged_at_s + EVERY_S
        if again or self.lines >= LINES_MAX:
            self.left_out += 1
            return False
        self.text, self.logged_at_s = text, now_s
        self.lines += 1
        return True

    def is_over(self) -> bool:
        """Note that it works again; whether that is news. How many lines there were counts on: it may come and go."""
        news, self.text, self.failures = self.text != "", "", 0
        return news


class Outages:
    """The logged failures of each message, or each reason why stores are unavailable, up to a limit."""

    def __init__(self) -> None:
        self._known: dict[str, _Failing] = {}

    def of(self, text: str) -> _Failing:
        """Return the failures of a message or reason; begins with none."""
        while len(self._known) >= OUTAGES_MAX and text not in self._known:
            self._known.pop(next(iter(self._known)), None)
        return self._known.setdefault(text, _Failing())

    def known(self, text: str) -> _Failing | None:
        """Return the failures of a message or reason; None if it has none."""
        return self._known.get(text)

    def clear(self) -> None:
        """Forget all."""
        self._known.clear()


outages = Outages()
"""The reasons why stores are unavailable, in this process: everything that needs a store logs one line together."""

_logs: WeakSet["FailureLog"] = WeakSet()


def forget_failures() -> None:
    """Forget all failures of this process: the next failure is new, and no recovery is logged."""
    outages.clear()
    for log in [*_logs]:
        log.forget()


class FailureLog:
    """Failures by message; each line names the error, and only errors of our own have a traceback.

    An unavailable store is logged once for everything that needs it in this process, with the message of the first
    failure; its recovery is logged once, too.

    May be used by all threads and greenlets, and never blocks except to write a line.
    """

    def __init__(self, log: Any, *unavailable: type[Exception]) -> None:
        """Start without failures.

        Args:
            log: the logger.
            unavailable: the errors that mean an unavailable store, besides `Unavailable`.
        """
        self._log = log
        self._unavailable: tuple[type[Exception], ...] = (Unavailable, *unavailable)
        self._failing = Outages()
        self._away: dict[str, str] = {}
        """Why stores were unavailable that the messages need."""
        _logs.add(self)

    def forget(self) -> None:
        """Forget all."""
        self._failing.clear()
        self._away.clear()

    def failed(self, message: str, ex: BaseException, *, of: str = "", **where: object) -> None:
        """Log a failure, unless the same one was logged within `EVERY_S`.

        Args:
            message: the message, one of few texts, as each is remembered until it works again.
            ex: why.
            of: the one of several objects of that message that failed; one of few as well.
            where: further members of the line.
        """
        failing, reason, now_s = self._failing.of(message + of), repr(ex), time.monotonic()
        if not failing.is_due(reason, now_s):
            return
        if (former := self._away.pop(message + of, reason)) != reason:
            outages.of(former).is_over()
        away = isinstance(ex, self._unavailable)
        if away:
            self._away[message + of] = reason
            if not outages.of(reason).is_due(reason, now_s):
                failing.left_out += 1
                return
            if notes := getattr(ex, "__notes__", ()):
                # Details that only the operator may know, such as the hosts.
                where["cause"] = _in_one_line(" ".join(notes))
        if left_out := failing.left_out:
            where["left_out"], failing.left_out = left_out, 0
        self._log.error(message, reason=_in_one_line(str(ex)), exc_info=False if away else ex, **where)

    def succeeded(self, message: str, *, of: str = "", **where: object) -> None:
        """Log that what had failed works again."""
        if (failing := self._failing.known(message + of)) is None or not (failures := failing.failures):
            return
        news, reason = failing.is_over(), self._away.pop(message + of, None)
        if reason is not None:
            news = outages.of(reason).is_over()
        if news:
            self._log.info("works again", after=message, failures=failures, **where)

    @contextmanager
    def round(self, message: str) -> Iterator[Callable[..., AbstractContextManager[None]]]:
        """Log errors of one round over many objects, and a recovery when the round ends without any.

        Args:
            message: as for `failed`.

        Yields:
            A context for each thing, to which the further members of its line are passed: it logs a `RioniError` and
            does not raise it, so that the others have their turn.
        """
        failures = 0

        @contextmanager
        def attempt(*, of: str = "", **where: object) -> Iterator[None]:
            nonlocal failures
            try:
                yield
            except RioniError as ex:
                failures += 1
                self.failed(message, ex, of=of, **where)

        yield attempt
        if not failures:
            self.succeeded(message)


class SharedFailure:
    """A failure that several processes may meet in turn: processes forked later share the record of its logging."""

    def __init__(self, log: Any, message: str) -> None:
        """Start without a failure."""
        self._log, self._message = log, message
        self._logged_s = mmap.mmap(-1, _TIME.size)
        """When it was logged last, on the monotonic clock, which all processes share; 0 once it has worked again."""

    def failed(self, ex: BaseException) -> None:
        """Log the failure, unless that was done within `EVERY_S`."""
        (logged_s,), now_s = _TIME.unpack(self._logged_s), time.monotonic()
        if not logged_s or now_s >= logged_s + EVERY_S:
            self._logged_s[:] = _TIME.pack(now_s)
            self._log.error(self._message, reason=_in_one_line(str(ex)))

    def succeeded(self) -> None:
        """Log that what had failed works again."""
        if _TIME.unpack(self._logged_s)[0]:
            self._logged_s[:] = _TIME.pack(0)
            self._log.info("works again", after=self._message)


def _in_one_line(text: str) -> str:
    """Drivers break their lines."""
    return " ".join(text.split())
