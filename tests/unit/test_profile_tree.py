"""Sums over the tree of stacks, against the slow way: node by node."""

import random

import numpy as np
import pytest

from unspool.profile import tree as tree_module
from unspool.profile.tree import Tree, TreeError


def random_parents(seed: int, count: int) -> list[int]:
    """Deep trees, flat ones, and several in one."""
    rng = random.Random(seed)
    reach = rng.choice([1, 3, 50])
    return [rng.choice([-1, *range(max(0, i - reach), i)]) if i else -1 for i in range(count)]


def callers(parents: list[int], node: int) -> list[int]:
    found = []
    while (node := parents[node]) >= 0:
        found.append(node)
    return found


@pytest.mark.parametrize("count", [0, 1, 2, 10, 200])
@pytest.mark.parametrize("seed", range(8))
def test_sums_are_those_of_the_slow_way(seed: int, count: int) -> None:
    parents = random_parents(seed, count)
    rng = random.Random(seed)
    values = [rng.randrange(1000) for _ in parents]
    above = [[node, *callers(parents, node)] for node in range(count)]
    tree = Tree(np.array(parents, np.int32))
    weights = np.array(values, np.int64)
    assert tree.depth.tolist() == [len(way) - 1 for way in above]
    assert tree.outermost.tolist() == [way[-1] for way in above]
    assert tree.sums_above(weights).tolist() == [sum(values[i] for i in way) for way in above]
    below = [sum(values[i] for i in range(count) if node in above[i]) for node in range(count)]
    assert tree.sums_below(weights).tolist() == below


@pytest.mark.parametrize("seed", range(20))
def test_the_outermost_use_of_a_key_has_no_caller_with_it(seed: int) -> None:
    """Nodes may have several keys, or none."""
    parents = random_parents(seed, 60)
    rng = random.Random(seed)
    pairs = [(node, key) for node in range(60) for key in range(4) if rng.random() < 0.4]
    rng.shuffle(pairs)
    expected = [not any((caller, key) in pairs for caller in callers(parents, node)) for node, key in pairs]
    nodes, keys = (np.array(column, np.int64) for column in zip(*pairs, strict=True))
    assert Tree(np.array(parents, np.int32)).outermost_uses(nodes, keys).tolist() == expected


@pytest.mark.parametrize("parents", [[0], [-1, 1], [1, -1], [-2], [-1, 0, 5]])
def test_what_is_no_tree_is_refused(parents: list[int]) -> None:
    """Cycles, callers that come later or do not exist."""
    with pytest.raises(TreeError):
        Tree(np.array(parents, np.int32))


def test_depth_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_module, "MAX_DEPTH", 10)
    Tree(np.arange(-1, 9, dtype=np.int32))
    with pytest.raises(TreeError, match="more than 10 frames"):
        Tree(np.arange(-1, 10, dtype=np.int32))
