"""The help of all commands, also as manual pages, and examples by topic."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import typer
from typer.main import get_command

from rioni import __version__
from rioni.cli.app import LINK, PANELS, app
from rioni.cli.options import PANEL


# --- Topics of `rioni cheat`: shell scripts in `cheats`, whose comments are the words; tests run them ---

FOLDER = Path(__file__).parent / "cheats"


class Example(NamedTuple):
    """Commands, and their effects."""

    words: str
    commands: str


class Topic(NamedTuple):
    """A topic.

    Args:
        name: of the file, without its ending.
        title: its first line.
        examples: in the order of the file; the first one may have words only.
    """

    name: str
    title: str
    examples: Sequence[Example]


def topics() -> dict[str, Topic]:
    """All topics by name."""
    return {path.stem: _parsed(path) for path in sorted(FOLDER.glob("*.sh"))}


def _parsed(path: Path) -> Topic:
    """A title, and paragraphs, each of which has comments and then commands."""
    title, *paragraphs = path.read_text(encoding="utf-8").strip().split("\n\n")
    return Topic(path.stem, title.removeprefix("# "), [_example(paragraph) for paragraph in paragraphs])


def _example(paragraph: str) -> Example:
    lines = paragraph.splitlines()
    count = next((number for number, line in enumerate(lines) if not line.startswith("#")), len(lines))
    words = " ".join(line.removeprefix("#").strip() for line in lines[:count])
    return Example(words, "\n".join(lines[count:]))


# --- The help of all commands, and manual pages in roff ---

EXAMPLE = "Example: "
CODE = re.compile(r"`([^`]+)`")


class Parameter(NamedTuple):
    """An argument or option: how it is written, and its help."""

    names: str
    help: str


class CommandHelp(NamedTuple):
    """The help of a command.

    Args:
        name: such as `rioni audit log`.
        usage: name, options and arguments.
        summary: a sentence.
        description: further paragraphs, in Markdown; links are relative to the folder `docs`.
        arguments: all but options.
        options: its own.
        connects: whether it has the options of the connection.
        commands: names and summaries of the commands of a group.
        examples: lines for a shell.
    """

    name: str
    usage: str
    summary: str
    description: Sequence[str]
    arguments: Sequence[Parameter]
    options: Sequence[Parameter]
    connects: bool
    commands: Sequence[Parameter]
    examples: Sequence[str]


def pages() -> dict[str, CommandHelp]:
    """The page of each command and group by name, in the order of the sections; the first one is `rioni`."""
    return {page.name: page for page in _pages(get_command(app), None, "rioni")}


def as_roff(page: CommandHelp) -> str:
    """A page for `man`."""
    lines = [
        f'.TH "{_roff(page.name.replace(" ", "-").upper())}" 1 "" "rioni {__version__}" "Rioni"',
        ".SH NAME",
        _roff(f"{page.name.replace(' ', '-')} - {page.summary}"),
        ".SH SYNOPSIS",
        f".B {_roff(page.usage)}",
    ]
    if page.description:
        lines += [".SH DESCRIPTION", *"\n.PP\n".join(map(_roff, page.description)).splitlines()]
    for heading, parameters in (
        ("COMMANDS", page.commands),
        ("ARGUMENTS", page.arguments),
        ("OPTIONS", page.options),
    ):
        if parameters:
            lines += [f".SH {heading}", *(line for each in parameters for line in _tagged(each))]
    if page.examples:
        lines += [".SH EXAMPLES", ".nf", *map(_roff, page.examples), ".fi"]
    lines += [".SH EXIT STATUS", "0 for success, 1 for findings, 2 if the command could not run."]
    return "\n".join(lines) + "\n"


def _pages(command: Any, parent: Any, name: str) -> Iterator[CommandHelp]:
    context = typer.Context(command, info_name=name.rsplit(maxsplit=1)[-1], parent=parent)
    subcommands = getattr(command, "commands", {})
    if name != "rioni" or parent is None:
        yield _page(command, context, name, subcommands)
    for word in PANELS if parent is None else subcommands:
        yield from _pages(subcommands[word], context, f"{name} {word}")


def _page(command: Any, context: Any, name: str, subcommands: Any) -> CommandHelp:
    summary, *description = re.split(r"\n\s*\n", (command.help or "").strip())
    shown = [each for each in command.get_params(context) if not each.hidden and each.name != "help"]
    records: dict[str, list[Parameter]] = {"argument": [], "option": []}
    for each in shown:
        if each.rich_help_panel != PANEL:
            records[each.param_type_name].append(Parameter(*each.get_help_record(context)))
    return CommandHelp(
        name=name,
        usage=" ".join([name, *command.collect_usage_pieces(context)]),
        summary=_one_line(summary),
        description=[_one_line(each) for each in description],
        arguments=records["argument"],
        options=records["option"],
        connects=any(each.name == "url" and each.rich_help_panel == PANEL for each in shown),
        commands=[
            Parameter(f"{name} {word}", _one_line((each.help or "").split("\n\n")[0]))
            for word, each in subcommands.items()
        ],
        examples=[line.removeprefix(EXAMPLE) for line in (command.epilog or "").splitlines() if line.strip()],
    )


def _one_line(paragraph: str) -> str:
    # Lists keep their lines.
    return paragraph if paragraph.lstrip().startswith(("- ", "```")) else " ".join(paragraph.split())


def _tagged(parameter: Parameter) -> list[str]:
    return [".TP", f".B {_roff(parameter.names)}", _roff(" ".join(parameter.help.split()))]


def _roff(text: str) -> str:
    """A text of Markdown in roff, without characters that a line may not begin with."""
    text = LINK.sub(r"\1", text).replace("\\", "\\e").replace("-", "\\-")
    text = CODE.sub(r"\\fB\1\\fR", text)
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.MULTILINE)
