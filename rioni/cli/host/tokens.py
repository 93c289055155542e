"""Commands for the file of tokens of a broker."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from rioni.cli.options import DAYS_MAX, Json
from rioni.cli.terminal.output import Output
from rioni.domain.errors import Invalid
from rioni.domain.texts import proposal


app = typer.Typer(name="tokens", no_args_is_help=True, help="Tokens in the file that the setting `auth_tokens` names.")

SCOPES = (
    "uid",
    "nakadi.event_type.write",
    "nakadi.config.write",
    "nakadi.event_stream.write",
    "nakadi.event_stream.read",
)


@app.command(
    epilog="Example: rioni tokens create --uid shop --scope nakadi.event_stream.write --days 90 --file tokens.toml"
)
def create(
    *,
    uid: Annotated[str, typer.Option(help="User of the token; in the realm `services` the name of a service.")],
    scope: Annotated[
        list[str], typer.Option(help="Scope in addition to `uid`; may be repeated. Only mode `full` requires more.")
    ] = [],  # noqa: B006 - never changed
    realm: Annotated[str, typer.Option(help="Realm in which the uid is unique.")] = "services",
    days: Annotated[
        int | None, typer.Option(help="Days until the token expires; by default it never does.", min=1, max=DAYS_MAX)
    ] = None,
    file: Annotated[
        Path | None, typer.Option(help="Add its entry to this file, made if missing; otherwise it is printed.")
    ] = None,
    json: Json = False,
) -> None:
    """Create a random token, and print it this once; the [file of tokens](operating/security.md#a-file) has its hash.

    With `--file` the token is all that is printed, and a running broker accepts it within a second. Without it the
    entry for the file is printed as well.
    """
    if unknown := set(scope) - set(SCOPES):
        name, listed = min(unknown), f"; there are {', '.join(SCOPES)}."
        raise Invalid(f"There is no scope {name}{proposal(name, SCOPES, listed)}")
    from rioni.operations.tokens import add_entry, new_token

    scopes = [each for each in SCOPES if each == "uid" or each in scope]
    expires = None if days is None else datetime.now(UTC).replace(microsecond=0) + timedelta(days=days)
    made = new_token(uid, scopes, realm, expires)
    if file is not None:
        add_entry(file, made.entry)
    shown: dict[str, Any] = {"token": made.token, "sha256": made.sha256, "uid": uid, "scopes": scopes, "realm": realm}
    shown |= {"expires": expires, "file": None if file is None else str(file), "entry": made.entry}
    Output(json).line(shown, made.token if file is not None else f"{made.token}\n\n{made.entry}".rstrip("\n"))
