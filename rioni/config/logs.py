"""Configures logging: one line for each event, on standard error, as text or as JSON.

Everything goes through the standard library's `logging`, so that the lines of libraries look like our own.
"""

import _thread
import io
import logging
import sys
from typing import Any, TextIO

import msgspec
import structlog
from structlog.stdlib import ProcessorFormatter
from structlog.typing import EventDict, ExcInfo, Processor

from rioni.config.settings import JSON_LINES, Config
from rioni.domain.terminal_text import visible, visible_json, visible_line


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
    logging._lock = _thread.RLock()  # type: ignore[attr-defined]  # noqa: SLF001 - taken when a logger is first used
    handler.setFormatter(ProcessorFormatter(foreign_pre_chain=_SHARED, processors=_last(config.log_format)))
    logging.basicConfig(handlers=[handler], force=True)
    # PERF: nothing shows them, and what asks for the thread leaves 0.7 kB behind in each greenlet.
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
    """Escape what requests and other systems may have put into a line; what is no text is shown by `repr`."""
    return {
        visible_line(name): visible_line(value) if isinstance(value, str) else value for name, value in line.items()
    }


def _write_traceback(file: TextIO, exc_info: ExcInfo) -> None:
    text = io.StringIO()
    structlog.dev.plain_traceback(text, exc_info)
    file.write(visible(text.getvalue()))


def _json(line: Any, **_options: Any) -> str:
    return visible_json(msgspec.json.encode(line, enc_hook=repr).decode())
