"""Forged proofs of Merkle trees: what verifiers of transparency logs have accepted at some time, and its neighbours."""

from collections.abc import Iterator


ZERO = bytes(32)


def forged_proofs(proof: list[bytes], others: list[bytes]) -> Iterator[tuple[str, list[bytes]]]:
    """Yield names and proofs, none of which is the given one.

    Args:
        proof: the right one.
        others: hashes that belong to the tree, such as its root and its leaves.
    """
    seen = [proof]
    for name, forged in _candidates(proof, others):
        if forged not in seen:
            seen.append(forged)
            yield name, forged


def _candidates(proof: list[bytes], others: list[bytes]) -> Iterator[tuple[str, list[bytes]]]:
    yield "empty", []
    yield "reversed", proof[::-1]
    yield "twice", proof + proof
    yield "hashes joined", [b"".join(proof)]
    yield "a hundred hashes", [ZERO] * 100
    for size in range(len(proof)):
        yield f"its first {size} hashes", proof[:size]
        yield f"its last {size} hashes", proof[len(proof) - size :]
    for number, more in enumerate([ZERO, b"", *others]):
        yield f"lengthened by {number}", [*proof, more]
        yield f"{number} put before", [more, *proof]
    for at, each in enumerate(proof):
        before, after = proof[:at], proof[at + 1 :]
        yield f"without hash {at}", before + after
        yield f"hash {at} twice", [*before, each, each, *after]
        yield f"hash {at} empty", [*before, b"", *after]
        yield f"hash {at} shortened", [*before, each[:-1], *after]
        yield f"hash {at} lengthened", [*before, each + b"\0", *after]
        yield f"hash {at} in halves", [*before, each[:16], each[16:], *after]
        for bit in range(0, 256, 37):
            changed = bytearray(each)
            changed[bit // 8] ^= 1 << bit % 8
            yield f"hash {at}, bit {bit}", [*before, bytes(changed), *after]
        for number, other in enumerate([ZERO, *others]):
            yield f"hash {at} is {number}", [*before, other, *after]
        if after:
            yield f"hashes {at} and {at + 1} exchanged", [*before, after[0], each, *after[1:]]
