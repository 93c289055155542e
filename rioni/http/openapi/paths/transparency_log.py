"""OpenAPI operations of the transparency log: checkpoints, tiles and proofs."""

from rioni.http.openapi.builders import BOOLEAN, INTEGER, STRING, Json, answer, body, of, operation, path, query
from rioni.wire import audit


LOG = "Transparency log"
TEXT = "text/plain; charset=utf-8"
BINARY = "application/octet-stream"
_ROOT = "bTQ6yYRc9DcGmzYqbM0rWJb4vxkVQZP5Wv1gJbcT0dE="
_NAME = "rioni/0d9a5e1c-33a1-4b6b-8d6f-9e4f4c0f2a11"
_NOTE = f"{_NAME}\n7\n{_ROOT}\n\n— {_NAME} x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZI=\n"
_READERS = "For administrators and readers of the broker, and those whom the setting `audit_readers` names."
_BUILDING = "The tree over the log is not built yet."

PATHS: Json = {
    "/log/checkpoint": {
        "get": operation(
            LOG,
            "Get a checkpoint",
            {200: answer("A signed note (C2SP).", STRING, _NOTE, media=TEXT)},
            description="Size and root of the Merkle tree over the log, signed, with the cosignatures of the witnesses "
            f"that have seen exactly this state. {_READERS}",
            parameters=[
                query(
                    "cosigned",
                    "Whether to get the newest checkpoint that a witness has cosigned.",
                    BOOLEAN,
                    example=True,
                )
            ],
            problems={403: "", 404: "No witness has cosigned a checkpoint yet.", 503: _BUILDING},
        )
    },
    "/log/cosignatures": {
        "post": operation(
            LOG,
            "Cosign a checkpoint",
            {
                200: answer(
                    "How many cosignatures were accepted.",
                    audit.AcceptedCosignatures,
                    {"cosignatures": 1},
                )
            },
            description="Adds cosignatures of witnesses that the setting `log_witnesses` names; of each the newest one "
            f"is kept. {_READERS}",
            body=body(of(audit.SignedNote), {"note": _NOTE}),
            problems={
                403: "",
                409: "This is not a checkpoint of this log.",
                422: "No known witness has cosigned it.",
                503: _BUILDING,
            },
        )
    },
    "/log/key": {
        "get": operation(
            LOG,
            "Get the verifier key",
            {
                200: answer(
                    "A verifier key of signed notes.",
                    STRING,
                    f"{_NAME}+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiB\n",
                    media=TEXT,
                )
            },
            description=f"The public key of checkpoints: name, id and key. The log has all keys there were. {_READERS}",
            problems=[403],
        )
    },
    "/log/keys": {
        "get": operation(
            LOG,
            "List the verifier keys",
            {
                200: answer(
                    "The keys in their order; the last one signs.",
                    audit.VerifierKeys,
                    {"keys": [{"verifier": f"{_NAME}+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiB", "signature": ""}]},
                )
            },
            description="Every key that checkpoints of this log were signed with, and with which the one before has "
            f"signed it. {_READERS}",
            problems=[403],
        )
    },
    "/log/proof/consistency": {
        "get": operation(
            LOG,
            "Prove consistency",
            {
                200: answer(
                    "The proof.",
                    audit.ConsistencyProof,
                    {"first": 3, "second": 7, "hashes": [_ROOT]},
                    headers=("Log-Position",),
                )
            },
            description=f"Proves that the log with `second` entries begins with that with `first` entries. {_READERS}",
            parameters=[
                query("first", "The size of the smaller tree.", INTEGER, 3),
                query("second", "The size of the larger one; by default that of the whole log.", INTEGER, 7),
            ],
            problems={403: "", 422: "The sizes are not those of two trees.", 503: _BUILDING},
        )
    },
    "/log/proof/inclusion": {
        "get": operation(
            LOG,
            "Prove inclusion",
            {
                200: answer(
                    "The proof.",
                    audit.InclusionProof,
                    {"position": 3, "size": 7, "hashes": [_ROOT]},
                    headers=("Log-Position",),
                )
            },
            description=f"Proves that the log with `size` entries has a certain entry at a position. {_READERS}",
            parameters=[
                query("position", "The position of the entry, from 1.", INTEGER, 3),
                query("size", "The size of the tree; by default that of the whole log.", INTEGER, 7),
            ],
            problems={403: "", 422: "There is no such entry.", 503: _BUILDING},
        )
    },
    "/log/tile/{level}/{rest}": {
        "get": operation(
            LOG,
            "Get a tile",
            {
                200: answer(
                    "Hashes of 32 bytes, or entries, each after its length.",
                    STRING | {"format": "binary"},
                    media=BINARY,
                )
            },
            description="A tile of the Merkle tree, or a bundle of its entries, as C2SP tlog-tiles describes it. "
            f"{_READERS}",
            parameters=[
                path("level", "The level of the tile, or `entries`.", "0"),
                path("rest", "Number and width; may have slashes.", "x001/x234/067"),
            ],
            problems={403: "", 404: "The log is not that long.", 503: _BUILDING},
        )
    },
}
