"""The brokers that tests of a whole broker run against: one server, or the nodes of a cluster."""

from typing import Any

import pytest


SETTINGS = {"RIONI_OWNING_APPLICATIONS": "(?!nobody).*"}
"""Settings of the servers that many tests share."""
CLUSTER = "cluster"
_NEEDS = {CLUSTER: [pytest.mark.kafka, pytest.mark.zookeeper, pytest.mark.postgres]}


def modes_of(metafunc: pytest.Metafunc) -> list[Any]:
    """The modes in which a test runs, by its marks and the option `--mode`: `embedded`, `cluster`, or both."""
    mode = metafunc.config.getoption("mode")
    marks = {mark.name for mark in metafunc.definition.iter_markers()}
    if "one_server" in marks:
        modes = ["embedded"]
    elif mode == "chosen":
        modes = ["embedded", CLUSTER] if "both_modes" in marks else ["embedded"]
    else:
        modes = [mode]
    return [pytest.param(each, marks=_NEEDS.get(each, [])) for each in modes]
