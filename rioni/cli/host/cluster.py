"""Commands that run the servers that the nodes of a cluster share, to try and to develop."""

import sys
import time
from contextlib import suppress
from typing import Annotated

import typer

from rioni.cli.terminal.ending import when_asked_to_end
from rioni.cli.terminal.output import say


app = typer.Typer(
    name="cluster",
    no_args_is_help=True,
    help="Real Kafka, ZooKeeper and PostgreSQL on this machine, to try and to develop.",
)


@app.command("up", epilog="Example: rioni cluster up --brokers 3")
def cluster_up(
    *,
    brokers: Annotated[int, typer.Option(min=1, max=9, help="Brokers of Kafka; of three each topic has a copy.")] = 1,
    zookeepers: Annotated[int, typer.Option(min=1, max=5, help="Servers of ZooKeeper; of three one may die.")] = 1,
) -> None:
    """Start what several nodes share until Ctrl-C or SIGTERM, and print how they find it; nothing is kept.

    Starts Kafka, ZooKeeper and a PostgreSQL on this machine's loopback interface, and prints the environment that makes
    `rioni serve` [a node](operating/cluster.md) of this cluster. Needs `rioni[local-cluster]`, Java 17 or newer, and
    Maven, which fetches Kafka and ZooKeeper once.
    """
    from rioni.cli.cluster.cluster import running_cluster

    with running_cluster(
        brokers=brokers, zookeepers=zookeepers, progress=lambda text: say(f"# {text}", err=True)
    ) as running:
        when_asked_to_end(lambda *_: sys.exit(0))
        with suppress(KeyboardInterrupt):
            for variable, value in running.environment.items():
                say(f"export {variable}='{value}'")
            say("# Ctrl-C stops everything.", err=True)
            while True:
                time.sleep(1)
