"""Verifies an export of a log offline: `python verify_export.py FOLDER [--key VERIFIER_KEY] [--seen CHECKPOINT]`.

Needs Python 3.11 or newer, for audit tables `pyarrow`, and for signatures, which are else not verified, `cryptography`.
Each export contains a copy of this file; take it from a place that you trust. An export has these files:

- `manifest.json`: `format` (1), `origin`, `size` and `root` (hexadecimal) of the log's Merkle tree, whether it is
  `complete`, the number of `entries`, and `files`: the SHA-256 of each file;
- `checkpoint`: size and root as a signed note (C2SP tlog-checkpoint);
- `entries.jsonl`: a line of JSON for each entry, in the order of their positions, with its `hash` in the hash chain; in
  an export that is not complete also the hash of the entry before (`previous`) and a `proof` of inclusion;
- `log.vkey`: the verifier keys that the log names, in their order, a line each; after a key that follows another one
  stands the signature of the one before, unless that was lost.

An audit table is a Delta table whose log has a commit for each export and no others. `commitInfo` has a signed text,
`rioni.manifest`: the `number` of the export, from 1 on, its `first` and `last` entry, the `hash` of this one in the
hash chain, a `checkpoint` of that moment, `keys` as in `log.vkey`, the `files` that the commit adds with their SHA-256,
and the SHA-256 of the text before (`previous`). The hash chain proves the fields of the log. The other columns follow
from them; the signature asserts that the broker's software has written them so.

Exit code 0: the export agrees with the checkpoint. 1: it does not. 2: it can't be read.
"""

import argparse
import base64
import hashlib
import json
import re
import sys
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from heapq import merge
from itertools import chain, pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote


FIELDS = ("position", "stream", "version", "topic", "recorded_at", "actor", "client", "flow_id", "command_id", "data")
NUMBERS = ("position", "version")
MEMBERS = {*FIELDS, "hash", "previous", "proof"}
HASH_BYTES = 32
ROWS_PER_READ = 1_000
HASHED_FILES = ("checkpoint", "entries.jsonl", "log.vkey")
LOG = "_delta_log"
MANIFEST = "rioni.manifest"
UNREADABLE = (OSError, ValueError, TypeError, AttributeError, LookupError, ImportError, RecursionError)
Root = tuple[int, bytes, str]
"""A size of the log, its root, and what is wrong if it has another one."""


class Finding(Exception):
    """The export is not what it claims to be."""


def check(holds: object, text: str) -> None:
    """Raise a finding unless something holds."""
    if not holds:
        raise Finding(text)


def sha256(*parts: bytes) -> bytes:
    """The SHA-256 of some bytes."""
    return hashlib.sha256(b"".join(parts)).digest()


def encoded(entry: dict[str, Any]) -> list[bytes]:
    """The fields of an entry as bytes, in their order."""
    usual = all(type(entry.get(name)) is (int if name in NUMBERS else str) for name in FIELDS)
    check(usual, "an entry lacks a field, or one has another type")
    return [str(entry[name]).encode() for name in FIELDS]


def prefixed(parts: Sequence[bytes]) -> bytes:
    """Each part after its length."""
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def leaf_hash(parts: Sequence[bytes]) -> bytes:
    """The hash of an entry in the Merkle tree, which has the digest of its data."""
    return sha256(b"\0", prefixed([*parts[:-1], sha256(parts[-1])]))


def root_from_proof(leaf: bytes, index: int, size: int, proof: Sequence[bytes]) -> bytes:
    """The root that a proof of inclusion leads to (RFC 9162, section 2.1.3.2)."""
    check(0 <= index < size, "a proof is for an entry that the log does not have")
    last, node = size - 1, leaf
    for sibling in proof:
        check(len(sibling) == HASH_BYTES, "a proof has a hash of another length")
        check(last > 0, "a proof is too long")
        if index & 1 or index == last:
            node = sha256(b"\1", sibling, node)
            while index and not index & 1:
                index, last = index >> 1, last >> 1
        else:
            node = sha256(b"\1", node, sibling)
        index, last = index >> 1, last >> 1
    check(last == 0, "a proof is too short")
    return node


def read_signature(line: str) -> tuple[str, bytes]:
    """The name of a key, and its id with the signature, from a line of a signed note."""
    dash, name, blob = [*line.split(" "), "", ""][:3]
    check(dash == "\u2014", "a line is no signature")
    return name, base64.b64decode(blob, validate=True)


def read_checkpoint(data: bytes) -> tuple[str, str, int, bytes, list[tuple[str, bytes]]]:
    """Text, origin, size, root and signatures of a signed checkpoint."""
    text, separator, signatures = data.decode().rpartition("\n\n")
    lines = text.split("\n")
    check(separator and lines[2:] and lines[1].isdigit(), "the checkpoint can't be read")
    found = [read_signature(line) for line in signatures.splitlines()]
    return f"{text}\n", lines[0], int(lines[1]), base64.b64decode(lines[2], validate=True), found


def ed25519(key: bytes, signature: bytes, text: str) -> bool | None:
    """Whether a signature is valid; None if the package `cryptography` is missing."""
    try:
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - may be missing
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415

        Ed25519PublicKey.from_public_bytes(key).verify(signature, text.encode())
    except ImportError:
        return None
    except InvalidSignature:
        return False
    return True


def read_key(key: str) -> tuple[str, bytes, bytes]:
    """Name, id and public key of a verifier key."""
    name, _, rest = key.partition("+")
    key_id, _, encoded_key = rest.partition("+")
    blob = base64.b64decode(encoded_key, validate=True)
    check(len(blob) == 1 + HASH_BYTES and blob[0] == 1, "the verifier key is not one of Ed25519")
    check(sha256(name.encode(), b"\n", blob)[:4].hex() == key_id, "the verifier key does not fit its id")
    return name, bytes.fromhex(key_id), blob[1:]


def verify_signature(what: str, text: str, signatures: Sequence[tuple[str, bytes]], key: str) -> bool:
    """Check the signature of one verifier key; return whether that could be done."""
    name, key_id, public = read_key(key)
    found = [each[4:] for signer, each in signatures if signer == name and each[:4] == key_id]
    check(found, f"the {what} is not signed by {key}")
    valid = ed25519(public, found[0], text)
    check(valid is not False, f"the signature of the {what} is not valid")
    return bool(valid)


def signing_key(trusted: str | None, lines: Sequence[Sequence[str]]) -> str:
    """The key that has signed: the last one of the log, or the last one that follows a trusted key by signatures."""
    keys = [line[0] for line in lines]
    if trusted not in keys:
        check(trusted or keys, "there is no verifier key")
        return trusted or keys[-1]
    for (before, *_), (key, *signed) in pairwise(lines[keys.index(trusted) :]):
        name, key_id, public = read_key(before)
        signature = base64.b64decode([*signed, ""][0], validate=True)
        same_log = signature[:4] == key_id and read_key(key)[0] == name
        if not same_log or ed25519(public, signature[4:], f"rioni/key-succession/v1\n{before}\n{key}\n") is False:
            return before
    return keys[-1]


def unambiguous(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, whose members have different names: of two, programs read the one or the other."""
    check(len(dict(pairs)) == len(pairs), "an entry has a member twice")
    return dict(pairs)


def json_rows(path: Path) -> Iterator[Any]:
    """The values in a file of JSON lines."""
    with path.open("rb") as file:
        for line in file:
            yield json.loads(line, object_pairs_hook=unambiguous)


def entries_of(folder: Path) -> Iterator[dict[str, Any]]:
    """The entries of an export."""
    for entry in json_rows(folder / "entries.jsonl"):
        check(isinstance(entry, dict) and isinstance(entry.get("position"), int), "a line is not an entry")
        check({"hash"} <= entry.keys() <= MEMBERS, "an entry lacks its hash, or has a member that nothing proves")
        yield entry


def check_all(entries: Iterable[dict[str, Any]], roots: Iterable[Root]) -> tuple[int, bytes]:
    """Check positions, hash chain and roots (RFC 9162, section 2.1.1); return the count and the last hash."""
    subtrees, previous, number = list[bytes](), bytes(HASH_BYTES), 0
    due = sorted(roots, reverse=True)
    for number, entry in enumerate(chain([{}], entries)):
        if number:
            check(entry["position"] == number, f"the entry at position {number} is missing")
            parts = encoded(entry)
            previous = sha256(previous, prefixed(parts))
            fits = entry.get("hash", previous.hex()) == previous.hex()
            check(fits, f"the entry at position {number} does not fit the hash chain")
            size, node = number - 1, leaf_hash(parts)
            while size & 1:
                size, node = size >> 1, sha256(b"\1", subtrees.pop(), node)
            subtrees.append(node)
        while due and due[-1][0] == number:
            _, root, text = due.pop()
            found = reduce(lambda node, left: sha256(b"\1", left, node), subtrees[::-1] or [sha256()])
            check(found == root, text)
    for *_, text in due[-1:]:
        raise Finding(f"{text}: there are {number} entries")
    return number, previous


def check_selected(folder: Path, size: int, root: bytes) -> int:
    """Check an export of some entries: each one's proof and place in the hash chain. Returns how many there are."""
    count, last = 0, 0
    for entry in entries_of(folder):
        position, parts = entry["position"], encoded(entry)
        check(position > last, "the entries are not in the order of their positions")
        proof = [base64.b64decode(each, validate=True) for each in entry.get("proof", [])]
        # There is only one text for each hash.
        usual = [base64.b64encode(each).decode() for each in proof] == entry.get("proof", [])
        check(usual, "a hash is not in the only accepted form of base64")
        found = root_from_proof(leaf_hash(parts), position - 1, size, proof)
        check(found == root, f"the entry at position {position} is not in the log of the checkpoint")
        previous = bytes.fromhex(entry.get("previous", ""))
        fits = sha256(previous, prefixed(parts)).hex() == entry.get("hash") and previous.hex() == entry["previous"]
        check(fits, f"the entry at position {position} does not fit the hash chain")
        count, last = count + 1, position
    return count


def verify(folder: Path, key: str | None = None, seen: Sequence[Path] = ()) -> Iterator[str]:
    """Check an export; yields sentences on what was found to be right."""
    if (folder / "_manifest").is_dir():
        raise OSError("this is a table of an earlier release; `rioni convert-archive` converts it")
    kind = verify_table if (folder / LOG).is_dir() else verify_files
    earlier = [
        (*read_checkpoint(path.read_bytes())[2:4], f"the log does not extend the checkpoint {path}") for path in seen
    ]
    signed = yield from kind(folder, key and key.strip(), earlier)
    if seen:
        yield "The log extends the checkpoints that you gave."
    given = "that you gave, or by one that follows it by signatures"
    signer = given if key else "in the export; give the one that you trust with --key"
    unchecked = "The signature was NOT checked: install the package cryptography for that."
    yield f"The checkpoint is signed by the key {signer}." if signed else unchecked


def verify_files(folder: Path, key: str | None, seen: Sequence[Root]) -> Generator[str, None, bool]:
    """Check an export of entries as JSON lines; returns whether the signature was checked."""
    manifest = json.loads((folder / "manifest.json").read_bytes())
    check(manifest.get("format") == 1, "the manifest is not of format 1")
    for name in HASHED_FILES:
        found = sha256((folder / name).read_bytes()).hex()
        check(manifest.get("files", {}).get(name) == found, f"{name} is not the file that the manifest names")
    text, origin, size, root, signatures = read_checkpoint((folder / "checkpoint").read_bytes())
    named = tuple(manifest.get(name) for name in ("origin", "size", "root"))
    check((origin, size, root.hex()) == named, "manifest and checkpoint differ")
    complete = manifest.get("complete")
    check(isinstance(complete, bool), "the manifest does not say whether the export is complete")
    lines = [line.split() for line in (folder / "log.vkey").read_text().splitlines() if line.strip()]
    used = signing_key(key, lines)
    signed = verify_signature("checkpoint", text, signatures, used)
    # One key may sign for several logs: each of them has its own name.
    check(used.partition("+")[0] == origin, f"the checkpoint is one of {origin}, and the key is another log's")
    check(complete or not seen, "only an export of the whole log can be compared with an earlier checkpoint")
    if complete:
        expected = (size, root, "the entries are not those of the checkpoint")
        count, _ = check_all(entries_of(folder), [expected, *seen])
        check(count == size, f"there are {count} entries, and the checkpoint is of {size}")
    else:
        count = check_selected(folder, size, root)
    check(count == manifest.get("entries"), "the manifest names another number of entries")
    yield f"{count} entries are in the log {origin} of {size} entries, as its checkpoint says."
    return signed


def statement(manifest: Mapping[str, Any]) -> str:
    """The text that the signature of a manifest is over."""
    signed = {name: value for name, value in manifest.items() if name != "signature"}
    digest = sha256(json.dumps(signed, sort_keys=True, separators=(",", ":")).encode())
    return f"rioni/audit-table/v1\n{manifest['origin']}\n{digest.hex()}\n"


def verify_manifest(manifest: Mapping[str, Any], key: str) -> bool:
    """Check the signature of one verifier key; return whether that could be done."""
    return verify_signature("manifest", statement(manifest), [read_signature(manifest["signature"])], key)


def log_of(folder: Path) -> tuple[list[dict[str, Any]], str, list[str]]:
    """The manifests of a table, the SHA-256 of the newest one, and the names of the columns.

    Only the manifests are signed, and readers believe all of a log: it has to be what exports write of these manifests.
    """
    manifests, digest, columns = list[dict[str, Any]](), "", list[str]()
    # A killed writer leaves such a name, which readers ignore.
    names = sorted(each.name for each in (folder / LOG).iterdir() if not re.fullmatch(r"\d{20}\.json#\d+", each.name))
    check(names, "the table has no commit")
    for number, name in enumerate(names, 1):
        check(name == f"{number - 1:020}.json", f"the log of the table has {name} instead of commit {number - 1}")
        lines = [*json_rows(folder / LOG / name)]
        check(all(len(line) == 1 for line in lines), f"a line of {name} is not one action")
        (first, info), *others = [each for line in lines for each in line.items()]
        actions = [
            (kind, {name: value for name, value in action.items() if value is not None}) for kind, action in others
        ]
        # Readers would obey an action of another kind, whatever else it has.
        check(first == "commitInfo" and MANIFEST in info, f"{name} does not begin with a manifest")
        manifest = json.loads(info[MANIFEST], object_pairs_hook=unambiguous)
        place = (1, number, digest, manifests[-1]["last"] + 1 if manifests else 1)
        follows = place == tuple(manifest[each] for each in ("version", "number", "previous", "first"))
        check(follows, f"the manifest in {name} does not follow the one before it")
        expected = [("add", added(file)) for file in sorted(manifest["files"], key=lambda file: file["path"])]
        tables = [action for kind, action in actions if kind == "metaData"]
        check(len(tables) in ({1} if number == 1 else {0, 1}), f"{name} declares the table twice, or not at all")
        for table in tables:
            before, columns = columns, [field["name"] for field in json.loads(table["schemaString"])["fields"]]
            check(columns[: len(before)] == before, f"{name} declares fewer columns than there were")
            expected.append(("metaData", table_of(columns) | {name: table[name] for name in ("id", "createdTime")}))
        expected += [("protocol", {"minReaderVersion": 1, "minWriterVersion": 2})] if number == 1 else []
        actions.sort(key=lambda each: (each[0], each[1].get("path", "")))
        check(
            json.dumps(actions, sort_keys=True) == json.dumps(expected, sort_keys=True),
            f"{name} is not what an export writes of its manifest",
        )
        manifests.append(manifest)
        digest = sha256(info[MANIFEST].encode()).hex()
    return manifests, digest, columns


def added(file: dict[str, Any]) -> dict[str, Any]:
    """The action that adds a file. Readers use its statistics instead of the file."""
    place = {"path": file["path"], "size": file["bytes"], "partitionValues": {"day": file["path"][4:14]}}
    return place | {"stats": json.dumps({"numRecords": file["rows"]}), "modificationTime": 0, "dataChange": True}


def table_of(columns: Sequence[str]) -> dict[str, Any]:
    """The action that declares a table with these columns."""
    types = {"position": "long", "version": "long", "day": "date"}
    fields = [{"name": name, "type": types.get(name, "string"), "nullable": True, "metadata": {}} for name in columns]
    schema = json.dumps({"type": "struct", "fields": fields}, separators=(",", ":"))
    table = {"format": {"provider": "parquet", "options": {}}, "schemaString": schema, "partitionColumns": ["day"]}
    return table | {"configuration": {"delta.enableExpiredLogCleanup": "false"}}


def verify_table(folder: Path, key: str | None, seen: Sequence[Root]) -> Generator[str, None, bool]:
    """Check an audit table; returns whether the signature was checked."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - may be missing

    check(unquote(folder.resolve().as_posix()) == folder.resolve().as_posix(), "readers take %XX in the path otherwise")
    manifests, _, columns = log_of(folder)
    roots, newest = [*seen], manifests[-1]
    for number, manifest in enumerate(manifests, 1):
        text, origin, size, root, signatures = read_checkpoint(manifest["checkpoint"].encode())
        same = (manifest["origin"], manifest["origin"], manifest["last"]) == (origin, newest["origin"], size)
        check(same, f"manifest {number} differs from its checkpoint, or from the newest manifest")
        roots.append((size, root, f"the entries are not those of the checkpoint in manifest {number}"))
    used = signing_key(key, [line.split() for line in newest["keys"]])
    check(used.partition("+")[0] == origin, f"the table is of {origin}, and the key is another log's")
    verify_signature("checkpoint", text, signatures, used)
    signed = verify_manifest(newest, used)
    files, names = [file for manifest in manifests for file in manifest["files"]], {"day"}
    for file in files:
        with (folder / file["path"]).open("rb") as data:
            digest = hashlib.file_digest(data, "sha256").hexdigest()
        check(digest == file["sha256"], f"{file['path']} is not the file that its manifest names")
        names.update(pq.read_schema(folder / file["path"]).names)
    check(sorted(columns) == sorted(names), "the table declares other columns than its files have")
    count, last = check_all(rows_of(folder, files), roots)
    named = (count, last.hex()) == (newest["last"], newest["hash"])
    check(named, f"the last of {count} entries is not the one that the newest manifest names")
    yield f"{count} entries in {len(files)} files are the log {origin}, as its checkpoint says."
    return signed


def rows_of(folder: Path, files: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The entries of a table in the order of their positions; only files that overlap are open at once."""
    together: list[dict[str, Any]] = []
    for file in [*sorted(files, key=lambda each: each["first"]), None]:
        if file is None or (together and file["first"] > max(each["last"] for each in together)):
            rows = [rows_in(folder, each["path"]) for each in together]
            yield from merge(*rows, key=lambda row: row["position"])
            together = []
        together += [file] if file else []


def rows_in(folder: Path, path: str) -> Iterator[dict[str, Any]]:
    """The entries in one file."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - may be missing

    with pq.ParquetFile(folder / path) as file:
        for row in chain.from_iterable(batch.to_pylist() for batch in file.iter_batches(ROWS_PER_READ)):
            check(f"day={row['recorded_at'][:10]}" == path.partition("/")[0], f"{path} has an entry of another day")
            yield row


def main(arguments: Sequence[str] | None = None) -> int:
    """Verify the export that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--key", help="the verifier key of the log, from a place that you trust")
    parser.add_argument("--seen", type=Path, action="append", default=[], help="a checkpoint that was seen earlier")
    options = parser.parse_args(arguments)
    try:
        for sentence in verify(options.folder, options.key, options.seen):
            sys.stdout.write(f"{sentence}\n")
    except Finding as ex:
        sys.stdout.write(f"NOT VERIFIED: {ex}.\n")
        return 1
    except UNREADABLE as ex:
        sys.stdout.write(f"NOT VERIFIED: the export can't be read: {ex}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
