"""The command that shows examples by topic."""

from typing import Annotated

import typer

from rioni.cli.options import Json
from rioni.cli.terminal.output import Output, say
from rioni.domain.errors import Invalid
from rioni.domain.nearest import proposal


app = typer.Typer()


def _topics() -> list[str]:
    from rioni.cli.cheat_topics import topics

    return list(topics())


@app.command(epilog="Example: rioni cheat contexts")
def cheat(
    topic: Annotated[
        str | None, typer.Argument(help="The topic; by default all are listed.", autocompletion=_topics)
    ] = None,
    *,
    json: Json = False,
) -> None:
    """Show examples for a topic, which can be copied: each of them is run in the tests of this release."""
    from rioni.cli.cheat_topics import topics

    output = Output(json)
    found = topics()
    if topic is None:
        output.items(
            [{"topic": each.name, "title": each.title} for each in found.values()], {"topic": "topic", "title": "title"}
        )
        return
    if topic not in found:
        listed = f"; there are: {', '.join(found)}."
        raise Invalid(f"There is no topic {topic}{proposal(topic, found, listed)}")
    wanted = found[topic]
    if json:
        output.item({"topic": topic, "title": wanted.title, "examples": [each._asdict() for each in wanted.examples]})
        return
    typer.secho(wanted.title, bold=True)
    for example in wanted.examples:
        say("")
        if example.words:
            typer.secho(f"# {example.words}", dim=True)
        if example.commands:
            say(example.commands)
