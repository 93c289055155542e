"""Commands for what proves that the log of a broker was never changed, over HTTP."""

import base64
from pathlib import Path
from typing import Annotated

import typer

from rioni.cli.connections.session import Session, connected
from rioni.cli.terminal.output import write_file
from rioni.domain.errors import Invalid
from rioni.files.plain import read_file


app = typer.Typer(
    name="log", no_args_is_help=True, help="Proofs that the log was never changed; `rioni witness` verifies them."
)

Position = Annotated[int, typer.Argument(help="Position of the entry in the log.", min=1)]


@app.command(epilog="Example: rioni log checkpoint > monday.checkpoint")
@connected
def checkpoint(
    session: Session,
    *,
    cosigned: Annotated[bool, typer.Option("--cosigned", help="The newest one that a witness has cosigned.")] = False,
) -> None:
    """Show a signed [checkpoint](reference/transparency-log.md#checkpoints); keep it to verify the log later."""
    note = session.client.log.checkpoint(cosigned=cosigned)
    session.output.line({"note": note}, note.rstrip("\n"))


@app.command(epilog="Example: rioni log cosign cosigned.checkpoint")
@connected
def cosign(
    session: Session, file: Annotated[Path, typer.Argument(help="A checkpoint with cosignatures of witnesses.")]
) -> None:
    """Give cosignatures of a checkpoint to the broker, which keeps the newest one of each witness."""
    try:
        note = read_file(file).decode()
    except (OSError, UnicodeDecodeError) as ex:
        raise Invalid(f"{file} can't be read: {ex.strerror if isinstance(ex, OSError) else ex}.") from ex
    count = session.client.log.cosign(note)
    session.output.line({"cosignatures": count}, f"{count} cosignatures are accepted.")


@app.command(epilog="Example: rioni log key")
@connected
def key(session: Session) -> None:
    """Show the verifier key of checkpoints."""
    found = session.client.log.key()
    session.output.line({"verifier": found}, found)


@app.command(epilog="Example: rioni log keys")
@connected
def keys(session: Session) -> None:
    """Show all verifier keys that there were, in their order.

    Each is [signed by the one before](reference/transparency-log.md#rotation-of-the-key).
    """
    session.output.items(session.client.log.keys(), {"verifier": "verifier", "signature": "signature"})


@app.command(epilog="Example: rioni log inclusion 4711")
@connected
def inclusion(
    session: Session,
    position: Position,
    *,
    size: Annotated[int | None, typer.Option(help="Of the log when it had so many entries.", min=1)] = None,
) -> None:
    """Show the proof that an entry is in the log: hashes in the order of RFC 9162."""
    session.output.item(session.client.log.inclusion(position, size=size))


@app.command(epilog="Example: rioni log consistency 4711")
@connected
def consistency(
    session: Session,
    first: Annotated[int, typer.Argument(help="Entries of the earlier log.", min=1)],
    *,
    second: Annotated[int | None, typer.Option(help="Entries of the later one; by default all.", min=1)] = None,
) -> None:
    """Show the proof that the log begins with an earlier one."""
    session.output.item(session.client.log.consistency(first, second=second))


@app.command(
    epilog="Example: rioni log tile 0 000.p/12 --output tile\n\nExample: rioni log tile entries 000 --output entries"
)
@connected
def tile(
    session: Session,
    level: Annotated[str, typer.Argument(help="Level of the tile, or `entries`.")],
    rest: Annotated[str, typer.Argument(help="Number and width, such as `x001/x234/067` or `000.p/12`.")],
    *,
    output: Annotated[Path | None, typer.Option(help="File for its bytes.", metavar="FILE")] = None,
) -> None:
    """Fetch a tile of the Merkle tree, or a bundle of entries.

    In base64, or as a file: [tiles](reference/transparency-log.md#tiles).
    """
    content = session.client.log.tile(level, rest)
    if output is None:
        encoded = base64.b64encode(content).decode()
        session.output.line({"level": level, "rest": rest, "content": encoded}, encoded)
        return
    write_file(output, content)
    session.output.line({"file": str(output), "bytes": len(content)}, f"{len(content):,} bytes are in {output}.")
