"""The audit trail, and the log that it is read from."""

from collections.abc import Iterator, Sequence

from rioni.client._sync.resource import PAGE, Resource, flag
from rioni.wire.audit import (
    AcceptedCosignatures,
    AuditEntry,
    ConsistencyProof,
    Denial,
    InclusionProof,
    VerifierKey,
    VerifierKeys,
)


class Audit(Resource):
    """Reads the changes and who made them. Methods raise `ClientError`."""

    def entries(
        self,
        *,
        resource: str | None = None,
        kind: str | None = None,
        actor: str | None = None,
        realm: str | None = None,
        flow_id: str | None = None,
        since: str | None = None,
        until: str | None = None,
        order: str = "desc",
        states: bool = False,
        limit: int | None = None,
    ) -> Iterator[AuditEntry]:
        """Changes to which all that is given applies; asks for a page when it is needed.

        Args:
            resource: such as `event-type:order.created`.
            kind: such as `event-type.created`, or `event-type`.
            actor: who did it.
            realm: of the actor, who must be named, too.
            flow_id: of the request.
            since: first time, RFC 3339.
            until: end, not included.
            order: `desc` for newest first, or `asc`.
            states: whether to have the states before and after.
            limit: how many at most; None for all.
        """
        params = {
            "resource": resource,
            "kind": kind,
            "actor": actor,
            "realm": realm,
            "flow_id": flow_id,
            "since": since,
            "until": until,
            "order": order,
            "states": flag(states),
            "limit": PAGE if limit is None else min(PAGE, limit),
        }
        after: str | None = None
        left = limit
        while True:
            entries, after = self._page(AuditEntry, "/audit", params | {"after": after})
            for entry in entries[:left]:
                yield entry
            left = None if left is None else left - len(entries)
            if after is None or (left is not None and left <= 0):
                return

    def denials(self) -> Iterator[Denial]:
        """Requests that were refused with 401 or 403, newest first; asks for a page when it is needed."""
        after: str | None = None
        while True:
            denials, after = self._page(Denial, "/audit/denials", {"limit": PAGE, "after": after})
            for denial in denials:
                yield denial
            if after is None:
                return


class Log(Resource):
    """Reads what proves that the log was never changed. Methods raise `ClientError`."""

    def checkpoint(self, *, cosigned: bool = False) -> str:
        """A signed note of size and root of the log; or the newest one that a witness has cosigned."""
        return self._text("/log/checkpoint", {"cosigned": flag(cosigned)})

    def cosign(self, note: str) -> int:
        """Add the cosignatures of a checkpoint; returns how many were accepted.

        Raises:
            Conflict: this is not a checkpoint of this log.
            Unprocessable: no known witness has cosigned it.
        """
        body = {"note": note}
        found = self._transport.fetch(AcceptedCosignatures, "POST", "/log/cosignatures", body=body, repeatable=True)
        return found.cosignatures

    def key(self) -> str:
        """The verifier key of checkpoints."""
        return (self._text("/log/key", {})).strip()

    def keys(self) -> Sequence[VerifierKey]:
        """All verifier keys there were, in their order; the last one signs."""
        return (self._transport.fetch(VerifierKeys, "GET", "/log/keys")).keys

    def inclusion(self, position: int, *, size: int | None = None) -> InclusionProof:
        """The proof that the log, when it had `size` entries, has a certain entry at a position, from 1."""
        params = {"position": position, "size": size}
        return self._transport.fetch(InclusionProof, "GET", "/log/proof/inclusion", params=params)

    def consistency(self, first: int, *, second: int | None = None) -> ConsistencyProof:
        """The proof that the log with `second` entries begins with that with `first` entries."""
        params = {"first": first, "second": second}
        return self._transport.fetch(ConsistencyProof, "GET", "/log/proof/consistency", params=params)

    def tile(self, level: str, rest: str) -> bytes:
        """A tile of the Merkle tree, or a bundle of its entries; raises NotFound if the log is not that long.

        Args:
            level: of the tile, or `entries`.
            rest: number and width, such as `x001/x234/067`.
        """
        # The slashes of a number are slashes of the path.
        path = {f"part{n}": part for n, part in enumerate(rest.split("/"))}
        template = "/log/tile/{level}/" + "/".join(f"{{{name}}}" for name in path)
        headers = {"Accept": "*/*"}
        response = self._transport.request("GET", template, path={"level": level, **path}, headers=headers)
        return bytes(response.content)

    def _text(self, template: str, params: dict[str, str | None]) -> str:
        headers = {"Accept": "*/*"}
        return (self._transport.request("GET", template, params=params, headers=headers)).text
