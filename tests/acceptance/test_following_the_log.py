"""The program of docs/concepts/following-the-log.md follows the log of a running broker."""

import re
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

from tests.support.builders import event_type_body
from tests.support.server import running_server
from tests.support.waiting import WAIT_S, wait_until


PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "following-the-log.md"
DOZEN = 24
"""Statements and their continuations, without imports and blank lines."""


@contextmanager
def following(folder: Path, code: str):
    """Runs the program; gives the lines that it has printed."""
    lines: list[str] = []
    with subprocess.Popen([sys.executable, "-c", code], cwd=folder, stdout=subprocess.PIPE, text=True) as program:
        drain = threading.Thread(target=lambda: lines.extend(program.stdout))
        drain.start()
        try:
            yield lines
        finally:
            program.kill()
            drain.join(WAIT_S)


def test_the_program_prints_each_change_and_goes_on_after_a_restart(tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len([line for line in code.splitlines() if line and not re.match("from|import|#", line)]) <= DOZEN
    seen = []
    with running_server(tmp_path / "rioni-data") as server, server.client() as client:
        for name in ("order.created", "order.paid"):
            with following(tmp_path, code) as lines:
                assert client.post("/event-types", json=event_type_body(name=name)).status_code == 201
                created = re.compile(rf"\d+ event-type\.created {name} unauthenticated\n").fullmatch
                wait_until(lambda lines=lines, created=created: any(map(created, lines)))
            seen.append([int(line.partition(" ")[0]) for line in lines])
    first, second = seen
    # It may have ended before it saved the position of its last line.
    assert second[0] in (first[-1], first[-1] + 1)
    assert first + second[first[-1] + 1 - second[0] :] == list(range(1, second[-1] + 1))
