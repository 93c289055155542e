"""Verifies an export of a log offline: `python verify_export.py FOLDER [--key VERIFIER_KEY] [--seen CHECKPOINT]`.

Needs Python 3.11 or newer and nothing else; signatures are verified if the package `cryptography` is installed. Each
export contains a copy of this file; take it from a place that you trust.

An export has these files:

- `manifest.json`: `format` (1), `origin`, `size` and `root` (hexadecimal) of the log's Merkle tree, whether it is
  `complete`, the number of `entries`, and `files`: the SHA-256 of each file;
- `checkpoint`: size and root as a signed note (C2SP tlog-checkpoint);
- `entries.jsonl`: the entries, a line of JSON each, in the order of their positions, with their `hash` in the hash
  chain; in an export that is not complete also the hash of the entry before (`previous`) and a `proof` of inclusion;
- `log.vkey`: the verifier keys that the log names, in their order, a line each; after a key that follows another one
  stands the signature of the one before, unless that was lost.

An audit table has these instead:

- `_manifest/NNNNNNNNNNNN.json`: a manifest for each export, from 1 on: its number, `first` and `last` position, the
  `hash` of the last entry in the hash chain, a `checkpoint` of that moment, the `keys` as in `log.vkey`, its `files`
  with their SHA-256, the SHA-256 of the manifest before it (`previous`), and the `signature` of the log's key over all
  of this;
- `day=YYYY-MM-DD/`: the files with the entries. Parquet needs the package `pyarrow`; a Delta table needs `deltalake`.

The hash chain proves the fields of the log. The other columns follow from them; the signature asserts that the broker's
software has written them so.

Exit code 0: the export agrees with the checkpoint. 1: it does not. 2: it can't be read.
"""

import argparse
import base64
import hashlib
import json
import sys
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from heapq import merge
from itertools import chain
from pathlib import Path
from typing import Any


FIELDS = ("position", "stream", "version", "topic", "recorded_at", "actor", "client", "flow_id", "command_id", "data")
NUMBERS = ("position", "version")
MEMBERS = {*FIELDS, "hash", "previous", "proof"}
HASH_BYTES = 32
ROWS_PER_READ = 1_000
HASHED_FILES = ("checkpoint", "entries.jsonl", "log.vkey")
MANIFESTS = "_manifest"
"""The folder of an audit table that has its manifests."""


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
    check(all(name in entry for name in FIELDS), "an entry lacks a field")
    check(all(type(entry[name]) is (int if name in NUMBERS else str) for name in FIELDS), "a field has another type")
    return [str(entry[name]).encode() for name in FIELDS]


def prefixed(parts: Sequence[bytes]) -> bytes:
    """Each part after its length."""
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def chain_hash(previous: bytes, parts: Sequence[bytes]) -> bytes:
    """The hash of an entry in the hash chain."""
    return sha256(previous, prefixed(parts))


def leaf_hash(parts: Sequence[bytes]) -> bytes:
    """The hash of an entry in the Merkle tree, which has the digest of its data."""
    return sha256(b"\0", prefixed([*parts[:-1], sha256(parts[-1])]))


class Tree:
    """The Merkle tree over the leaves so far (RFC 9162, section 2.1.1): of each complete subtree its hash."""

    def __init__(self) -> None:
        self.size = 0
        self._subtrees: list[bytes] = []

    def add(self, leaf: bytes) -> None:
        """Append the hash of a leaf."""
        index, node = self.size, leaf
        while index & 1:
            node = sha256(b"\1", self._subtrees.pop(), node)
            index >>= 1
        self._subtrees.append(node)
        self.size += 1

    def root(self) -> bytes:
        """The root over all leaves."""
        return reduce(lambda node, left: sha256(b"\1", left, node), self._subtrees[::-1] or [sha256()])


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
    text += "\n"
    lines = text.split("\n")
    check(separator and lines[3:] and lines[1].isdigit(), "the checkpoint can't be read")
    found = [read_signature(line) for line in signatures.splitlines()]
    return text, lines[0], int(lines[1]), base64.b64decode(lines[2], validate=True), found


def ed25519(key: bytes, signature: bytes, text: str) -> bool | None:
    """Whether a signature is valid; None if the package `cryptography` is missing."""
    try:
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - may be missing
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415
    except ImportError:
        return None
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, text.encode())
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
    before = keys.index(trusted)
    for number, line in enumerate(lines[before + 1 :], before + 1):
        statement = f"rioni/key-succession/v1\n{keys[number - 1]}\n{line[0]}\n"
        name, key_id, public = read_key(keys[number - 1])
        signature = base64.b64decode([*line, ""][1], validate=True)
        same_log = signature[:4] == key_id and read_key(line[0])[0] == name
        if not same_log or ed25519(public, signature[4:], statement) is False:
            return keys[number - 1]
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
        check("hash" in entry, "an entry lacks its hash")
        check(entry.keys() <= MEMBERS, "an entry has a member that nothing proves")
        yield entry


def check_all(entries: Iterable[dict[str, Any]], roots: Iterable[tuple[int, bytes, str]]) -> tuple[int, bytes]:
    """Check positions, hash chain, and for some sizes the root, each with a text for the place where it differs.

    Returns the number of entries and the hash of the last one.
    """
    tree, previous = Tree(), bytes(HASH_BYTES)
    due = sorted(roots, reverse=True)
    for number, entry in enumerate(chain([{}], entries)):
        if number:
            check(entry["position"] == number, f"the entry at position {number} is missing")
            parts = encoded(entry)
            previous = chain_hash(previous, parts)
            fits = entry.get("hash", previous.hex()) == previous.hex()
            check(fits, f"the entry at position {number} does not fit the hash chain")
            tree.add(leaf_hash(parts))
        while due and due[-1][0] == number:
            _, root, text = due.pop()
            check(tree.root() == root, text)
    for *_, text in due[-1:]:
        raise Finding(f"{text}: there are {tree.size} entries")
    return tree.size, previous


def roots_of(seen: Sequence[Path]) -> Iterator[tuple[int, bytes, str]]:
    """Sizes and roots of earlier checkpoints."""
    for path in seen:
        _, _, size, root, _ = read_checkpoint(path.read_bytes())
        yield size, root, f"the log does not extend the checkpoint {path}"


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
        fits = chain_hash(previous, parts).hex() == entry.get("hash") and previous.hex() == entry["previous"]
        check(fits, f"the entry at position {position} does not fit the hash chain")
        count, last = count + 1, position
    return count


def verify(folder: Path, key: str | None = None, seen: Sequence[Path] = ()) -> Iterator[str]:
    """Check an export; yields sentences on what was found to be right."""
    kind = verify_table if (folder / MANIFESTS).is_dir() else verify_files
    signed = yield from kind(folder, key and key.strip(), seen)
    if seen:
        yield "The log extends the checkpoints that you gave."
    if not signed:
        yield "The signature was NOT checked: install the package cryptography for that."
    elif key:
        yield "The checkpoint is signed by the key that you gave, or by one that follows it by signatures."
    else:
        yield "The checkpoint is signed by the key in the export; give the one that you trust with --key."


def verify_files(folder: Path, key: str | None, seen: Sequence[Path]) -> Generator[str, None, bool]:
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
        count, _ = check_all(entries_of(folder), [expected, *roots_of(seen)])
        check(count == size, f"there are {count} entries, and the checkpoint is of {size}")
    else:
        count = check_selected(folder, size, root)
    check(count == manifest.get("entries"), "the manifest names another number of entries")
    yield f"{count} entries are in the log {origin} of {size} entries, as its checkpoint says."
    return signed


# --- Audit tables ---


def statement(manifest: Mapping[str, Any]) -> str:
    """The text that the signature of a manifest is over."""
    signed = {name: value for name, value in manifest.items() if name != "signature"}
    digest = sha256(json.dumps(signed, sort_keys=True, separators=(",", ":")).encode())
    return f"rioni/audit-table/v1\n{manifest['origin']}\n{digest.hex()}\n"


def manifests_of(folder: Path) -> list[dict[str, Any]]:
    """The manifests of a table, each of which has to follow the one before it."""
    found: list[dict[str, Any]] = []
    digest = ""
    for number, path in enumerate(sorted((folder / MANIFESTS).glob("[0-9]*.json")), 1):
        data = path.read_bytes()
        manifest = json.loads(data, object_pairs_hook=unambiguous)
        last = found[-1]["last"] if found else 0
        follows = (manifest["number"], manifest["previous"], manifest["first"]) == (number, digest, last + 1)
        check(follows, f"{path.name} does not follow the manifest before it")
        check(manifest["version"] == 1, f"{path.name} is not a manifest of version 1")
        found.append(manifest)
        digest = sha256(data).hex()
    check(found, "the table has no manifest")
    return found


def verify_table(folder: Path, key: str | None, seen: Sequence[Path]) -> Generator[str, None, bool]:
    """Check an audit table; returns whether the signature was checked."""
    manifests = manifests_of(folder)
    roots = []
    for manifest in manifests:
        text, origin, size, root, signatures = read_checkpoint(manifest["checkpoint"].encode())
        named = (manifest["origin"], manifest["last"])
        check((origin, size) == named, f"manifest {manifest['number']} and its checkpoint differ")
        roots.append((size, root, f"the entries are not those of the checkpoint in manifest {manifest['number']}"))
    newest = manifests[-1]
    check({each["origin"] for each in manifests} == {origin}, "manifests name several logs")
    used = signing_key(key, [line.split() for line in newest["keys"]])
    check(used.partition("+")[0] == origin, f"the table is of {origin}, and the key is another log's")
    verify_signature("checkpoint", text, signatures, used)
    signed = verify_signature("manifest", statement(newest), [read_signature(newest["signature"])], used)
    files = [file for manifest in manifests for file in manifest["files"]]
    for file in files:
        with (folder / file["path"]).open("rb") as data:
            digest = hashlib.file_digest(data, "sha256").hexdigest()
        check(digest == file["sha256"], f"{file['path']} is not the file that its manifest names")
    count, last = check_all(rows_of(folder, files), [*roots, *roots_of(seen)])
    check(count == newest["last"], f"there are {count} entries, and the newest manifest is of {newest['last']}")
    check(last.hex() == newest["hash"], "the last entry is not the one that the newest manifest names")
    yield f"{count} entries in {len(files)} files are the log {origin}, as its checkpoint says."
    if newest["format"] == "delta":
        yield delta_log(folder, {file["path"] for file in files})
    return signed


def rows_of(folder: Path, files: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The entries of a table in the order of their positions; only files that overlap are open at once."""
    together: list[dict[str, Any]] = []
    for file in [*sorted(files, key=lambda each: each["first"]), None]:
        if file is None or (together and file["first"] > max(each["last"] for each in together)):
            yield from merge(*(rows_in(folder, each["path"]) for each in together), key=lambda row: row["position"])
            together = []
        together += [file] if file else []


def rows_in(folder: Path, path: str) -> Iterator[dict[str, Any]]:
    """The entries in one file."""
    day = path.partition("/")[0]
    for row in (json_rows if path.endswith(".jsonl") else parquet_rows)(folder / path):
        check(type(row.get("position")) is int, f"{path} has a row that is not an entry")
        check(f"day={row['recorded_at'][:10]}" == day, f"{path} has an entry of another day")
        check("hash" not in row, f"{path} has a column that is none of an audit table")
        yield row


def parquet_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a file in Parquet."""
    try:
        import pyarrow.parquet as pq  # noqa: PLC0415 - may be missing
    except ImportError as ex:
        raise OSError("Parquet needs the package pyarrow") from ex
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(ROWS_PER_READ):
            yield from batch.to_pylist()


def delta_log(folder: Path, paths: set[str]) -> str:
    """A sentence on whether the Delta table has the files of the manifests and no others."""
    try:
        from deltalake import DeltaTable  # noqa: PLC0415 - may be missing
    except ImportError:
        return "The log of the Delta table was NOT checked: install the package deltalake for that."
    actions = DeltaTable(folder).get_add_actions(flatten=True)
    found = set(actions.column("path").to_pylist())
    check(found == paths, "the Delta table has other files than the manifests name")
    return "The Delta table has these files and no others."


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
    except (OSError, ValueError, TypeError, AttributeError) as ex:
        sys.stdout.write(f"NOT VERIFIED: the export can't be read: {ex}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
