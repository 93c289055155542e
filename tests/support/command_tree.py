"""All commands of the command line, by their words."""

from enum import Enum
from typing import Any, Literal, get_args, get_origin

import typer
from typer.main import get_command


def leaves(app: typer.Typer) -> dict[tuple[str, ...], Any]:
    """Commands that do something, groups that do something without a command among them, by their words."""
    found: dict[tuple[str, ...], Any] = {}
    waiting: list[tuple[tuple[str, ...], Any]] = [((), get_command(app))]
    while waiting:
        words, command = waiting.pop()
        commands = getattr(command, "commands", None)
        if words and (commands is None or command.invoke_without_command):
            found[words] = command
        waiting += [((*words, name), each) for name, each in (commands or {}).items()]
    return dict(sorted(found.items()))


def info_of(param: Any) -> Any:
    """The declaration of an argument or option; None for those of typer itself."""
    return getattr(getattr(param, "type_descriptor", None), "parameter_info", None)


def annotation_of(param: Any) -> Any:
    """The type of its values."""
    return getattr(getattr(param, "type_descriptor", None), "annotation", None)


def choices_of(param: Any) -> list[str]:
    """The permitted values, if the declaration names them."""
    annotation = annotation_of(param)
    for each in (annotation, *get_args(annotation)):
        if isinstance(each, type) and issubclass(each, Enum):
            return [str(one.value) for one in each]
        if get_origin(each) is Literal:
            return list(get_args(each))
    return []
