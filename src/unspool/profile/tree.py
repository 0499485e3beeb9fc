"""Sums over the prefix tree of stacks: below a node, along the way to the root, each function once.

The nodes are numbered in preorder: what lies below a node is then a range, and every sum a difference of
running sums. All weights are int64.
"""

from __future__ import annotations

from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]
MAX_DEPTH = 10_000  # frames in a stack; capture stops at 4,096 of the program and the kernel's


class TreeError(ValueError):
    """The stacks are no tree of stacks."""


class Tree:
    """parent: int32[n], -1 for an outermost frame; parents come before their children. TreeError."""

    def __init__(self, parent: NDArray[np.int32]) -> None:
        index = np.arange(len(parent))
        if (parent < -1).any() or (parent >= index).any():
            raise TreeError("a frame of a stack does not come after its caller")
        self.parent = parent
        self.depth = _depths(parent)
        if len(parent) and int(self.depth.max()) >= MAX_DEPTH:
            raise TreeError(f"a stack has more than {MAX_DEPTH} frames")

    def __len__(self) -> int:
        return len(self.parent)

    @cached_property
    def _ranges(self) -> tuple[Ints, Ints]:
        """Each node's number in preorder, and the number after the last node below it."""
        order = np.argsort(self.depth, kind="stable")
        levels = np.split(order, np.searchsorted(self.depth[order], np.arange(1, self._height)))
        size = np.ones(len(self), np.int64)
        for level in reversed(levels[1:]):
            np.add.at(size, self.parent[level], size[level])
        first = np.zeros(len(self), np.int64)
        for level in levels:
            parent = self.parent[level]
            siblings = np.argsort(parent, kind="stable")
            nodes, parent = level[siblings], parent[siblings]
            before = np.cumsum(size[nodes]) - size[nodes]  # of all nodes of the level before this one
            is_first = np.r_[True, parent[1:] != parent[:-1]] if len(nodes) else np.zeros(0, np.bool_)
            of_family = before[is_first][np.cumsum(is_first) - 1]
            first[nodes] = before - of_family + np.where(parent >= 0, first[parent] + 1, 0)
        return first, first + size

    @property
    def _height(self) -> int:
        return int(self.depth.max()) + 1 if len(self) else 1

    def sums_below(self, of_node: Ints) -> Ints:
        """For each node the sum over it and all nodes below it."""
        first, last = self._ranges
        running = np.zeros(len(self) + 1, np.int64)
        in_order = np.zeros(len(self), np.int64)
        in_order[first] = of_node
        np.cumsum(in_order, out=running[1:])
        sums: Ints = running[last] - running[first]
        return sums

    def sums_above(self, of_node: Ints) -> Ints:
        """For each node the sum over it and all its callers."""
        first, last = self._ranges
        changes = np.zeros(len(self) + 1, np.int64)
        changes[first] += of_node
        np.subtract.at(changes, last, of_node)
        sums: Ints = np.cumsum(changes)[first]
        return sums

    @cached_property
    def outermost(self) -> Ints:
        """For each node the outermost frame of its stack."""
        roots = np.flatnonzero(self.parent < 0)
        first, _ = self._ranges
        roots = roots[np.argsort(first[roots])]
        found: Ints = roots[np.searchsorted(first[roots], first, "right") - 1]
        return found

    def outermost_uses(self, node: Ints, key: Ints) -> NDArray[np.bool_]:
        """Pairs (node[i], key[i]), each once; bool[i]: no caller of the node has the same key."""
        first, last = self._ranges
        # Each key gets numbers of its own, so that one sort and one running maximum serve all.
        offset = key * np.int64(len(self) + 1)
        order = np.argsort(first[node] + offset)
        keys, begins, ends = key[order], (first[node] + offset)[order], (last[node] + offset)[order]
        # Ranges of one key lie in each other or apart: one that begins before the farthest end so far lies
        # inside.
        farthest = np.maximum.accumulate(ends) if len(keys) else ends
        inside = np.zeros(len(keys), np.bool_)
        inside[1:] = (keys[1:] == keys[:-1]) & (begins[1:] < farthest[:-1])
        result = np.empty(len(keys), np.bool_)
        result[order] = ~inside
        return result


def _depths(parent: NDArray[np.int32]) -> NDArray[np.int32]:
    """Callers above each node, by doubling the steps."""
    depth = (parent >= 0).astype(np.int32)
    ancestor = parent.copy()
    active = np.flatnonzero(ancestor >= 0)
    while len(active):
        above = ancestor[active]
        depth[active] += depth[above]
        ancestor[active] = ancestor[above]
        active = active[ancestor[active] >= 0]
    return depth
