import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rioni.domain.errors import Invalid
from rioni.domain.transparency.merkle_tree import (
    EMPTY_ROOT,
    Frontier,
    InvalidProof,
    consistency_proof,
    inclusion_proof,
    leaf_hash,
    root,
    subtree_hash,
    verify_consistency,
    verify_inclusion,
)
from tests.support import rfc9162


LEAVES_MAX = 130
LEAVES = [b"%d" % number for number in range(LEAVES_MAX)]
SIZES = st.integers(1, LEAVES_MAX)


def node(level: int, index: int) -> bytes:
    return subtree_hash([leaf_hash(leaf) for leaf in LEAVES[index << level : (index + 1) << level]])


# From RFC 6962's example of a log with seven entries, and what implementations of it agree on.
KNOWN = [
    (b"", "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"),
    (bytes(1), "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7"),
]


@pytest.mark.parametrize(("leaf", "hexadecimal"), KNOWN)
def test_leaves_are_hashed_as_known_answers_say(leaf, hexadecimal):
    assert leaf_hash(leaf).hex() == hexadecimal


def test_the_empty_tree_has_the_hash_of_nothing():
    assert root(0, node) == EMPTY_ROOT == rfc9162.mth([])


@given(size=SIZES)
def test_roots_are_those_of_the_rfc(size):
    frontier = Frontier()
    assert frontier.root() == EMPTY_ROOT
    for leaf in LEAVES[:size]:
        frontier.append(leaf_hash(leaf))
    assert frontier.size == size
    assert frontier.root() == root(size, node) == rfc9162.mth(LEAVES[:size])


@given(data=st.data(), size=SIZES)
def test_proofs_of_inclusion_are_those_of_the_rfc_and_show_their_leaf_alone(data, size):
    index = data.draw(st.integers(0, size - 1))
    expected = rfc9162.mth(LEAVES[:size])
    proof = inclusion_proof(index, size, node)
    assert proof == rfc9162.path(index, LEAVES[:size])
    assert rfc9162.root_from_path(LEAVES[index], index, size, proof) == expected
    verify_inclusion(leaf_hash(LEAVES[index]), index, size, proof, expected)
    other = data.draw(st.integers(0, LEAVES_MAX - 1).filter(lambda each: each != index))
    with pytest.raises(InvalidProof):
        verify_inclusion(leaf_hash(LEAVES[other]), index, size, proof, expected)
    if other < size:
        with pytest.raises(InvalidProof):
            verify_inclusion(leaf_hash(LEAVES[index]), other, size, proof, expected)


@given(data=st.data(), second=SIZES)
def test_proofs_of_consistency_are_those_of_the_rfc(data, second):
    first = data.draw(st.integers(1, second))
    proof = consistency_proof(first, second, node)
    assert proof == rfc9162.proof(first, LEAVES[:second])
    roots = rfc9162.mth(LEAVES[:first]), rfc9162.mth(LEAVES[:second])
    verify_consistency(first, second, *roots, proof)


def forged(draw, proof: list[bytes]) -> list[bytes]:
    """A proof that differs from a good one."""
    at = draw(st.integers(0, max(0, len(proof) - 1)))
    before, hit, after = proof[:at], proof[at : at + 1], proof[at + 1 :]
    return draw(
        st.sampled_from(
            [
                proof[:-1],
                proof[1:],
                [],
                proof[::-1],
                [*proof, bytes(32)],
                [*before, *hit, *hit, *after],
                [*before, *(bytes([each[0] ^ 1]) + each[1:] for each in hit), *after],
                [*before, *(each[:-1] for each in hit), *after],
            ]
        )
    )


@given(data=st.data(), second=SIZES)
def test_forged_proofs_are_refused(data, second):
    first = data.draw(st.integers(1, second))
    expected = rfc9162.mth(LEAVES[:second])
    proof = inclusion_proof(first - 1, second, node)
    wrong = forged(data.draw, proof)
    assume(wrong != proof)
    with pytest.raises(InvalidProof):
        verify_inclusion(leaf_hash(LEAVES[first - 1]), first - 1, second, wrong, expected)


@given(data=st.data(), second=SIZES)
def test_forged_proofs_of_consistency_and_forked_logs_are_refused(data, second):
    first = data.draw(st.integers(1, second))
    roots = rfc9162.mth(LEAVES[:first]), rfc9162.mth(LEAVES[:second])
    proof = consistency_proof(first, second, node)
    fork = rfc9162.mth([*LEAVES[: first - 1], b"other"])
    with pytest.raises(InvalidProof):
        verify_consistency(first, second, fork, roots[1], proof)
    with pytest.raises(InvalidProof):
        verify_consistency(first, second, roots[0], fork, proof)
    wrong = forged(data.draw, proof)
    assume(wrong != proof)
    with pytest.raises(InvalidProof):
        verify_consistency(first, second, *roots, wrong)


@given(data=st.data(), second=SIZES)
def test_proofs_for_other_sizes_are_refused(data, second):
    first = data.draw(st.integers(1, second))
    roots = rfc9162.mth(LEAVES[:first]), rfc9162.mth(LEAVES[:second])
    proof = consistency_proof(first, second, node)
    other = data.draw(st.integers(-1, LEAVES_MAX + 1).filter(lambda each: each != first))
    # A tree that is a subtree of another one has the same proof as that; its root tells them apart.
    claimed = rfc9162.mth(LEAVES[: max(0, other)])
    assume(claimed != roots[0])
    with pytest.raises(InvalidProof):
        verify_consistency(other, second, claimed, roots[1], [*proof, bytes(32)])
    with pytest.raises(InvalidProof):
        verify_inclusion(leaf_hash(LEAVES[first - 1]), first - 1, 0, [], EMPTY_ROOT)


@pytest.mark.parametrize(("first", "second"), [(0, 5), (6, 5), (-1, 5), (1, 0)])
def test_there_is_no_proof_of_consistency_with_the_empty_or_a_larger_tree(first, second):
    with pytest.raises(Invalid, match="no proof"):
        consistency_proof(first, second, node)
    with pytest.raises(InvalidProof, match="no proof"):
        verify_consistency(first, second, EMPTY_ROOT, EMPTY_ROOT, [])


@pytest.mark.parametrize(("index", "size"), [(5, 5), (-1, 5), (0, 0)])
def test_there_is_no_proof_of_a_leaf_that_is_not_there(index, size):
    with pytest.raises(Invalid, match="no leaf"):
        inclusion_proof(index, size, node)
