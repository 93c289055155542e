"""The command that prints manual pages."""

from pathlib import Path
from typing import Annotated

import typer

from rioni.cli.options import Json
from rioni.cli.terminal.output import Output, write_file
from rioni.cli.terminal.streams import CannotWrite
from rioni.domain.errors import Invalid
from rioni.domain.nearest import proposal


app = typer.Typer()


@app.command(epilog="Example: rioni man audit log | man -l -\n\nExample: rioni man --to ~/.local/share/man/man1")
def man(
    command: Annotated[list[str] | None, typer.Argument(help="Words of a command; by default `rioni` itself.")] = None,
    *,
    to: Annotated[
        Path | None, typer.Option(help="Write the pages of all commands to this folder.", metavar="DIR")
    ] = None,
    json: Json = False,
) -> None:
    """Print the manual page of a command, or write all of them, in the format of `man`.

    The pages say what `--help` says. With `--to` each command gets a file, such as `rioni-audit-log.1`: a folder that
    `manpath` names makes `man rioni-audit-log` work.
    """
    from rioni.cli.documentation import as_roff, pages

    output = Output(json)
    found = pages()
    if to is not None:
        try:
            to.mkdir(parents=True, exist_ok=True)
        except OSError as ex:
            raise CannotWrite(f"{to} can't be written: {ex.strerror}.") from ex
        for page in found.values():
            write_file(to / f"{page.name.replace(' ', '-')}.1", as_roff(page))
        output.line({"folder": str(to), "pages": len(found)}, f"{len(found)} pages are in {to}.")
        return
    name = " ".join(["rioni", *(command or [])])
    if name not in found:
        words = (each.removeprefix("rioni ") for each in found)
        otherwise = "; `rioni --help` lists them."
        raise Invalid(f"There is no command `{name}`{proposal(' '.join(command or ()), words, otherwise)}")
    text = as_roff(found[name])
    output.line({"name": name, "page": text}, text.rstrip("\n"))
