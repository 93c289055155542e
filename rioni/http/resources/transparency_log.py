"""`/log/*`: checkpoints, tiles and proofs of the internal log (reference transparency-log)."""

import base64

import falcon
import orjson

from rioni.domain.errors import Invalid, NotFound
from rioni.domain.transparency.checkpoint import NOTE_BYTES_MAX
from rioni.domain.transparency.merkle_tree import parse_tile
from rioni.http.bodies.parsing import cosigned_note
from rioni.http.bodies.reading import read_json
from rioni.http.dependencies import Resource
from rioni.http.request_parsing import LOG_POSITION, check_history, integer
from rioni.projections import log_tree


TEXT = "text/plain; charset=utf-8"
BINARY = "application/octet-stream"
IMMUTABLE = "private, max-age=31536000, immutable"
"""The caching header for complete tiles, which never change. Private, since not everybody may read them."""


class CheckpointResource(Resource):
    """The state of the log, signed."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """The present checkpoint; with `cosigned=true` the newest one that a witness has cosigned."""
        check_history(req, self._dependencies)
        signer = self._dependencies.checkpoint_signer
        note = signer.cosigned() if req.get_param_as_bool("cosigned") else signer.checkpoint()
        if note is None:
            raise NotFound("No witness has cosigned a checkpoint yet.")
        resp.content_type, resp.text = TEXT, str(note)
        resp.set_header("Cache-Control", "no-store")


class LogKeyResource(Resource):
    """The public key that verifies checkpoints."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """The verifier key of signed notes."""
        check_history(req, self._dependencies)
        resp.content_type, resp.text = TEXT, f"{self._dependencies.checkpoint_signer.verifier()}\n"


class LogKeysResource(Resource):
    """All public keys that checkpoints were signed with."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """The verifier keys in their order, each with the signature of the one before."""
        check_history(req, self._dependencies)
        keys = self._dependencies.query(log_tree.keys)
        shown = [{"verifier": str(each.verifier), "signature": each.signature} for each in keys]
        resp.data = orjson.dumps({"keys": shown})


class CosignaturesResource(Resource):
    """Signatures of witnesses."""

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Add cosignatures of a checkpoint."""
        check_history(req, self._dependencies)
        note = cosigned_note(read_json(req, 2 * NOTE_BYTES_MAX))
        count = self._dependencies.checkpoint_signer.add(note.encode())
        resp.data = orjson.dumps({"cosignatures": count})


class TileResource(Resource):
    """Hashes of the tree, and bundles of its leaves."""

    def on_get(self, req: falcon.Request, resp: falcon.Response, level: str, rest: str) -> None:
        """A tile: 256 hashes, or fewer at the end."""
        check_history(req, self._dependencies)
        tile = parse_tile(level, rest)
        resp.data = self._dependencies.query(log_tree.entries if level == "entries" else log_tree.hashes, tile)
        resp.content_type = BINARY
        resp.set_header("Cache-Control", IMMUTABLE)


class InclusionResource(Resource):
    """Proofs that entries are in the log."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """The proof for the entry at a position, in the tree of a size; by default the whole one."""
        check_history(req, self._dependencies)
        position = _required(req, "position")
        size, proof = self._dependencies.query(log_tree.inclusion, position, _size(req, "size"))
        _answer(resp, {"position": position, "size": size}, proof)


class ConsistencyResource(Resource):
    """Proofs that the log has only been extended."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """The proof for trees of two sizes; the second one is by default the whole one."""
        check_history(req, self._dependencies)
        first = _required(req, "first")
        second, proof = self._dependencies.query(log_tree.consistency, first, _size(req, "second"))
        _answer(resp, {"first": first, "second": second}, proof)


def _answer(resp: falcon.Response, sizes: dict[str, int], proof: list[bytes]) -> None:
    resp.data = orjson.dumps(sizes | {"hashes": [base64.b64encode(each).decode() for each in proof]})
    resp.set_header(LOG_POSITION, str(sizes.get("size") or sizes["second"]))


def _required(req: falcon.Request, name: str) -> int:
    value = _size(req, name)
    if value is None:
        raise Invalid(f"{name} is required: a position of the log, at least 1")
    return value


def _size(req: falcon.Request, name: str) -> int | None:
    return None if req.get_param(name) is None else integer(req, name, 0)
