"""Applies definitions to a broker for tests, with the command line, in a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rioni.testing.control import BrokerError


WITHIN_S = 60.0
_OWN_VARIABLES = ("RIONI_URL", "RIONI_TOKEN", "RIONI_CONTEXT")


def apply(
    url: str, paths: Sequence[str | Path], *, token: str | None, ca_certificate: str | Path | None
) -> list[Mapping[str, Any]]:
    """Make event types and subscriptions of a broker what files say; blocks.

    Args:
        url: of the broker.
        paths: of files and folders.
        token: of an administrator, if it asks for one.
        ca_certificate: PEM file with the authority to trust.

    Returns:
        What `rioni event-types apply --json` says of each definition.

    Raises:
        BrokerError: something is wrong with the definitions; says what, and where.
    """
    command = [sys.executable, "-m", "rioni", "event-types", "apply", *map(str, paths), "--yes", "--json", "--url", url]
    if ca_certificate is not None:
        command += ["--ca-certificate", str(ca_certificate)]
    # The environment is that of the code under test, which may speak to another broker.
    environment = {name: value for name, value in os.environ.items() if name not in _OWN_VARIABLES}
    if token is not None:
        environment["RIONI_TOKEN"] = token
    try:
        done = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as ex:
        raise BrokerError(f"The definitions were not applied within {WITHIN_S:g} s.") from ex
    if done.returncode:
        raise BrokerError(f"The definitions can't be applied: {done.stderr.strip()}")
    return [json.loads(line) for line in done.stdout.splitlines()]
