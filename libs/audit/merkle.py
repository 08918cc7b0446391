"""Merkle trees of RFC 6962, section 2.1: grown at the right edge, with proofs that a leaf is in and that nothing left.

Trees are given by the hashes of their leaves. Sizes and numbers count from 0, as in the RFC.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final

EMPTY: Final = hashlib.sha256().digest()
"""The root of a tree without leaves."""


def leaf_hash(content: bytes) -> bytes:
    """The hash of a leaf. Leaves and nodes hash differently, so that neither can be shown for the other."""
    return hashlib.sha256(b"\x00" + content).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """The hash of a node over its two children."""
    return hashlib.sha256(b"\x01" + left + right).digest()


class Edge:
    """The right edge of a tree: the roots of its full subtrees, from the largest to the smallest.

    All that growing needs: a leaf costs one hash and, on average, one more; the memory is a hash per binary digit.
    """

    def __init__(self) -> None:
        self.size = 0
        self._roots: list[bytes] = []

    def add(self, leaf: bytes) -> None:
        """Append the hash of a leaf."""
        root, full = leaf, self.size
        while full & 1:  # a subtree of the same height stands beside it
            root = node_hash(self._roots.pop(), root)
            full >>= 1
        self._roots.append(root)
        self.size += 1

    def root(self) -> bytes:
        """The root of the tree as it is."""
        if not self._roots:
            return EMPTY
        root = self._roots[-1]
        for left in reversed(self._roots[:-1]):
            root = node_hash(left, root)
        return root

    def copy(self) -> "Edge":
        """An edge that grows by itself."""
        other = Edge()
        other.size, other._roots = self.size, list(self._roots)
        return other


class Tree:
    """A tree with all of its full subtrees, for many proofs: two hashes of memory a leaf."""

    def __init__(self, leaves: Iterable[bytes]) -> None:
        self._levels: list[list[bytes]] = [list(leaves)]
        while len(self._levels[-1]) > 1:
            below = self._levels[-1]
            self._levels.append([node_hash(below[n], below[n + 1]) for n in range(0, len(below) - 1, 2)])

    @property
    def size(self) -> int:
        return len(self._levels[0])

    def root(self, size: int) -> bytes:
        """The root that the tree had at `size`."""
        return self._subtree(0, size) if size else EMPTY

    def inclusion(self, number: int, size: int) -> list[bytes]:
        """The proof that leaf `number` is in the tree of `size`, for `includes`."""
        return self._path(number, 0, size)

    def consistency(self, before: int, size: int) -> list[bytes]:
        """The proof that the tree of `size` begins with the whole tree of size `before`, for `extends`."""
        if before in (0, size):
            return []
        return self._subproof(before, 0, size, whole=True)

    def _path(self, number: int, first: int, end: int) -> list[bytes]:
        if end - first == 1:
            return []
        middle = first + _split(end - first)
        if number < middle:
            return [*self._path(number, first, middle), self._subtree(middle, end)]
        return [*self._path(number, middle, end), self._subtree(first, middle)]

    def _subproof(self, before: int, first: int, end: int, *, whole: bool) -> list[bytes]:
        if before == end:
            return [] if whole else [self._subtree(first, end)]
        middle = first + _split(end - first)
        if before <= middle:
            return [*self._subproof(before, first, middle, whole=whole), self._subtree(middle, end)]
        return [*self._subproof(before, middle, end, whole=False), self._subtree(first, middle)]

    def _subtree(self, first: int, end: int) -> bytes:
        """The root over leaves [first, end), as the RFC's splits ask for it: a full one is kept, others are few."""
        count = end - first
        height = count.bit_length() - 1
        if count == 1 << height and first % count == 0:
            return self._levels[height][first >> height]
        middle = first + _split(count)
        return node_hash(self._subtree(first, middle), self._subtree(middle, end))


def includes(leaf: bytes, number: int, size: int, proof: Sequence[bytes], root: bytes) -> bool:
    """Whether the proof shows that the hash of leaf `number` is in the tree of this size and root."""
    if not 0 <= number < size:
        return False
    node, last, found = number, size - 1, leaf
    for hash_ in proof:
        if last == 0:
            return False
        if node & 1 or node == last:
            found = node_hash(hash_, found)
            while not node & 1 and node:
                node, last = node >> 1, last >> 1
        else:
            found = node_hash(found, hash_)
        node, last = node >> 1, last >> 1
    return last == 0 and found == root


def extends(before: int, old: bytes, size: int, new: bytes, proof: Sequence[bytes]) -> bool:
    """Whether the proof shows that the tree of `size` and root `new` begins with the one of `before` and root `old`."""
    if before == 0:
        return old == EMPTY and not proof
    if before == size:
        return old == new and not proof
    if before > size:
        return False
    path = list(proof)
    if before & (before - 1) == 0:  # a full tree is a subtree of the greater one: its root is not in the proof
        path.insert(0, old)
    if not path:
        return False
    node, last = before - 1, size - 1
    while node & 1:
        node, last = node >> 1, last >> 1
    first = second = path[0]
    for hash_ in path[1:]:
        if last == 0:
            return False
        if node & 1 or node == last:
            first, second = node_hash(hash_, first), node_hash(hash_, second)
            while not node & 1 and node:
                node, last = node >> 1, last >> 1
        else:
            second = node_hash(second, hash_)
        node, last = node >> 1, last >> 1
    return last == 0 and first == old and second == new


def _split(count: int) -> int:
    """The greatest power of two below `count`."""
    return 1 << ((count - 1).bit_length() - 1)
