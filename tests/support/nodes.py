"""Several nodes of one cluster, usable instead of a single server."""

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx

from tests.support.conformance import check
from tests.support.server import RunningServer, running_server
from tests.support.waiting import WAIT_S


NODES = "nodes"
"""The host name of all nodes together."""


class RunningNodes:
    """Servers that share their state; usable like one of them, with requests sent to each in turn."""

    def __init__(self, nodes: list[RunningServer]) -> None:
        self.nodes = nodes
        self._turns = itertools.cycle(nodes)

    @property
    def url(self) -> str:
        """The URL of the next node in turn."""
        return next(self._turns).url

    @property
    def lines(self) -> list[str]:
        """The output of all nodes."""
        return [line for node in self.nodes for line in node.lines]

    def metric(self, name: str) -> float:
        """The value of a metric, summed over the nodes."""
        return sum(node.metric(name) for node in self.nodes)

    def workers(self) -> list[int]:
        """The process ids of the workers of all nodes."""
        return [pid for node in self.nodes for pid in node.workers()]

    def client(self, **options) -> httpx.Client:
        """A client whose requests go to each node in turn."""
        return httpx.Client(
            base_url=f"http://{NODES}",
            timeout=WAIT_S,
            event_hooks={"response": [check]},
            verify=False,
            transport=_RoundRobinTransport([httpx.URL(node.url) for node in self.nodes]),
            **options,
        )


class _RoundRobinTransport(httpx.HTTPTransport):
    def __init__(self, urls: list[httpx.URL]) -> None:
        super().__init__(verify=False)  # PERF: see `RunningServer.client`
        self._urls = itertools.cycle(urls)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        url = next(self._urls)
        request.url = request.url.copy_with(scheme=url.scheme, host=url.host, port=url.port)
        if request.headers["Host"] == NODES:
            request.headers["Host"] = url.netloc.decode()
        return super().handle_request(request)


@contextlib.contextmanager
def running_nodes(
    folder: Path, *options: str, count: int = 2, environment: Mapping[str, str]
) -> Iterator[RunningNodes]:
    """Start nodes with one worker each; they end with the block.

    Args:
        folder: where each has a data directory.
        options: of the command line, for all of them.
        count: how many.
        environment: what makes them nodes, and other settings.
    """
    with contextlib.ExitStack() as stack:
        yield RunningNodes(
            [
                stack.enter_context(
                    running_server(folder / f"node-{n}", "--workers", "1", *options, environment=dict(environment))
                )
                for n in range(1, count + 1)
            ]
        )
