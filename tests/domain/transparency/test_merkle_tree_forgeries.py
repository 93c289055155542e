"""Forged proofs, enumerated for small trees: refused by the product, by the verifier of exports, by the RFC's text."""

from collections.abc import Callable

import pytest

from rioni.domain.transparency.merkle_tree import (
    EMPTY_ROOT,
    InvalidProof,
    leaf_hash,
    node_hash,
    verify_consistency,
    verify_inclusion,
)
from rioni.operations import verify_export
from tests.support import rfc9162
from tests.support.forgeries import ZERO, forged_proofs


SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17)
"""Powers of two and their neighbours."""
LEAVES = [b"%d" % number for number in range(max(SIZES) + 1)]
ROOTS = [rfc9162.mth(LEAVES[:size]) for size in range(len(LEAVES) + 1)]

Inclusion = Callable[[bytes, int, int, list[bytes], bytes], bool]
Consistency = Callable[[int, int, bytes, bytes, list[bytes]], bool]


def of_product(leaf: bytes, index: int, size: int, proof: list[bytes], root: bytes) -> bool:
    try:
        verify_inclusion(leaf_hash(leaf), index, size, proof, root)
    except InvalidProof:
        return False
    return True


def of_export(leaf: bytes, index: int, size: int, proof: list[bytes], root: bytes) -> bool:
    try:
        return verify_export.root_from_proof(leaf_hash(leaf), index, size, proof) == root
    except verify_export.Finding:
        return False


def consistent(first: int, second: int, first_root: bytes, second_root: bytes, proof: list[bytes]) -> bool:
    try:
        verify_consistency(first, second, first_root, second_root, proof)
    except InvalidProof:
        return False
    return True


INCLUSION: list[Inclusion] = [of_product, of_export, rfc9162.shows_inclusion]
CONSISTENCY: list[Consistency] = [consistent, rfc9162.shows_consistency]


@pytest.mark.parametrize("shows", INCLUSION)
@pytest.mark.parametrize("size", SIZES)
def test_forged_proofs_of_inclusion_are_refused(size, shows):
    for index in range(size):
        proof = rfc9162.path(index, LEAVES[:size])
        assert shows(LEAVES[index], index, size, proof, ROOTS[size])
        others = [ROOTS[size], *(leaf_hash(each) for each in LEAVES[:3])]
        for name, forged in forged_proofs(proof, others):
            assert not shows(LEAVES[index], index, size, forged, ROOTS[size]), (index, name)
            # A verifier that took size and root from the proof itself would be shown its own tree.
            assert not shows(b"forged", index, size, forged, ROOTS[size]), (index, name)


@pytest.mark.parametrize("shows", INCLUSION)
@pytest.mark.parametrize("size", SIZES)
def test_a_proof_shows_no_other_leaf_index_or_root(size, shows):
    beyond = [-size, -1, size, size + 1, 2 * size, 2 * size + 1, 2**62, 2**64]
    for index in range(size):
        leaf, proof = LEAVES[index], rfc9162.path(index, LEAVES[:size])
        for at in {*range(size), *beyond, index - size, index + size, index + 2**64} - {index}:
            assert not shows(leaf, at, size, proof, ROOTS[size]), (index, at)
        for at in range(len(LEAVES)):
            assert at == index or not shows(LEAVES[at], index, size, proof, ROOTS[size]), (index, at)
        for other in {EMPTY_ROOT, ZERO, b"", *ROOTS} - {ROOTS[size]}:
            assert not shows(leaf, index, size, proof, other), index
        for none in (0, -1):
            assert not shows(leaf, 0, none, [], EMPTY_ROOT)
            assert not shows(leaf, 0, none, proof, ROOTS[size])


@pytest.mark.parametrize("shows", INCLUSION)
def test_a_node_is_no_leaf_and_the_last_leaf_does_not_count_twice(shows):
    """The second preimage of trees without prefixes, and the trees with a repeated leaf that Bitcoin accepted."""
    parts = [leaf_hash(each) for each in LEAVES[:4]]
    node = parts[0] + parts[1]
    assert not shows(node, 0, 2, [node_hash(*parts[2:])], ROOTS[4])
    assert not shows(node, 0, 4, [node_hash(*parts[2:])], ROOTS[4])
    assert not shows(b"\1" + node, 0, 2, [node_hash(*parts[2:])], ROOTS[4])
    assert not shows(LEAVES[2], 3, 4, rfc9162.path(2, LEAVES[:3]), ROOTS[3])
    assert not shows(LEAVES[2], 3, 4, [parts[2], node_hash(*parts[:2])], ROOTS[3])
    assert rfc9162.mth([*LEAVES[:3], LEAVES[2]]) != ROOTS[3]


@pytest.mark.parametrize("shows", CONSISTENCY)
@pytest.mark.parametrize("second", SIZES)
def test_forged_proofs_of_consistency_are_refused(second, shows):
    for first in range(1, second + 1):
        roots = ROOTS[first], ROOTS[second]
        proof = rfc9162.proof(first, LEAVES[:second])
        assert shows(first, second, *roots, proof)
        for name, forged in forged_proofs(proof, [*roots, *(leaf_hash(each) for each in LEAVES[:2])]):
            assert not shows(first, second, *roots, forged), (first, name)
            assert not shows(first, second, ZERO, ROOTS[second], forged), (first, name)
            assert not shows(first, second, ROOTS[first], ZERO, forged), (first, name)


@pytest.mark.parametrize("shows", CONSISTENCY)
@pytest.mark.parametrize("second", SIZES)
def test_no_proof_of_consistency_shows_another_log(second, shows):
    for first in range(1, second + 1):
        proof = rfc9162.proof(first, LEAVES[:second])
        for changed in range(first):
            fork = [*LEAVES[:changed], b"forked", *LEAVES[changed + 1 : second]]
            forked = rfc9162.proof(first, fork)
            before, after = rfc9162.mth(fork[:first]), rfc9162.mth(fork)
            for hashes in (proof, forked, []):
                assert not shows(first, second, ROOTS[first], after, hashes), (first, changed)
                assert not shows(first, second, before, ROOTS[second], hashes), (first, changed)
        for other in {EMPTY_ROOT, ZERO, b"", *ROOTS} - {ROOTS[first]}:
            assert not shows(first, second, other, ROOTS[second], proof), first
        for other in {EMPTY_ROOT, ZERO, b"", *ROOTS} - {ROOTS[second]}:
            assert not shows(first, second, ROOTS[first], other, proof), first


@pytest.mark.parametrize("shows", CONSISTENCY)
@pytest.mark.parametrize("second", SIZES)
def test_sizes_without_a_proof_are_refused(second, shows):
    root = ROOTS[second]
    whole = [[], [root], [ZERO], [root, root]]
    for hashes in whole:
        for first in (0, -1, second + 1, 2 * second, 2**64):
            assert not shows(first, second, root, root, hashes), (first, hashes)
            assert not shows(first, second, EMPTY_ROOT, root, hashes), (first, hashes)
        assert not shows(0, 0, EMPTY_ROOT, EMPTY_ROOT, hashes)
        assert shows(second, second, root, root, hashes) == (hashes == [])
        assert not shows(second, second, root, ZERO, hashes)
