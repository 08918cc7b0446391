"""Merkle trees, against the vectors of Certificate Transparency and against the RFC's own recursion."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.audit.merkle import EMPTY, Edge, Tree, extends, includes, leaf_hash, node_hash

LEAVES = [
    bytes.fromhex(text)
    for text in ("", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f")
]
"""The leaves of the tests of Certificate Transparency (RFC 6962), with its published roots and proofs below."""

ROOTS = [
    bytes.fromhex(text)
    for text in (
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
        "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
        "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
        "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
        "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
        "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
        "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
    )
]

INCLUSIONS = {
    (0, 8): (
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ),
    (5, 8): (
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ),
    (2, 3): ("fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",),
}

CONSISTENCIES = {
    (1, 8): (
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ),
    (6, 8): (
        "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ),
    (2, 5): (
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
    ),
}

HASHES = [leaf_hash(content) for content in LEAVES]


def naive_root(leaves: Sequence[bytes]) -> bytes:
    """The definition of section 2.1, word by word."""
    if not leaves:
        return EMPTY
    if len(leaves) == 1:
        return leaves[0]
    split = 1
    while split * 2 < len(leaves):
        split *= 2
    return node_hash(naive_root(leaves[:split]), naive_root(leaves[split:]))


def some(count: int) -> list[bytes]:
    return [leaf_hash(str(n).encode()) for n in range(count)]


def test_the_published_roots() -> None:
    edge = Edge()
    assert edge.root() == EMPTY
    for hash_, root in zip(HASHES, ROOTS, strict=True):
        edge.add(hash_)
        assert edge.root() == root
        assert Tree(HASHES).root(edge.size) == root


@pytest.mark.parametrize("place", INCLUSIONS)
def test_the_published_proofs_that_a_leaf_is_in(place: tuple[int, int]) -> None:
    number, size = place
    proof = [bytes.fromhex(text) for text in INCLUSIONS[place]]
    assert Tree(HASHES).inclusion(number, size) == proof
    assert includes(HASHES[number], number, size, proof, ROOTS[size - 1])


@pytest.mark.parametrize("sizes", CONSISTENCIES)
def test_the_published_proofs_that_nothing_left(sizes: tuple[int, int]) -> None:
    before, size = sizes
    proof = [bytes.fromhex(text) for text in CONSISTENCIES[sizes]]
    assert Tree(HASHES).consistency(before, size) == proof
    assert extends(before, ROOTS[before - 1], size, ROOTS[size - 1], proof)


def test_every_proof_of_every_small_tree_holds_and_shows_nothing_else() -> None:
    leaves = some(33)
    tree = Tree(leaves)
    for size in range(1, 34):
        root = tree.root(size)
        assert root == naive_root(leaves[:size])
        for number in range(size):
            proof = tree.inclusion(number, size)
            assert includes(leaves[number], number, size, proof, root)
            assert not includes(leaves[(number + 1) % 33], number, size, proof, root)
            assert not includes(leaves[number], number, size, [*proof, root], root)
            assert size == 1 or not includes(leaves[number], number, size, proof[:-1], root)
        for before in range(size + 1):
            proof = tree.consistency(before, size)
            assert extends(before, tree.root(before), size, root, proof)
            if before not in (0, size):
                assert not extends(before, tree.root(before), size, root, proof[:-1])
                assert not extends(before, leaf_hash(b"other"), size, root, proof)
                assert not extends(before, tree.root(before), size, leaf_hash(b"other"), proof)


@given(st.integers(0, 300), st.integers(0, 300))
def test_an_edge_that_grows_in_two_goes_comes_to_the_same(first: int, second: int) -> None:
    leaves = some(first + second)
    edge = Edge()
    for leaf in leaves[:first]:
        edge.add(leaf)
    before = edge.copy()
    for leaf in leaves[first:]:
        edge.add(leaf)
    assert (edge.size, edge.root()) == (first + second, naive_root(leaves))
    assert before.root() == naive_root(leaves[:first]), "a copy does not grow with its original"


def test_a_proof_of_another_tree_shows_nothing() -> None:
    tree, root = Tree(some(8)), Tree(some(8)).root(8)
    assert not includes(tree.root(1), 8, 8, [], root)
    assert not includes(leaf_hash(b"0"), -1, 8, tree.inclusion(0, 8), root)
    assert not extends(9, root, 8, root, [])
    assert not extends(3, tree.root(3), 8, root, [])
