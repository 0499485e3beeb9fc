"""Numbers by keys, against a dict."""

import numpy as np
import pytest

from unspool.core_interface import GUESS
from unspool.profile.number_table import MAX_FRAMES, MAX_NODES, NumberTable, address_keys, keys_of, parts_of


@pytest.mark.parametrize("seed", range(5))
def test_it_finds_what_a_dict_finds(seed: int) -> None:
    """Also keys that fall into one slot, and over several growths."""
    rng = np.random.default_rng(seed)
    table = NumberTable()
    known: dict[int, int] = {}
    for size in (1, 3, 60, 500, 5000):
        keys = np.unique(rng.integers(0, 1 << rng.integers(14, 63), size).astype(np.uint64))
        found = table.find(keys)
        assert found.tolist() == [known.get(key, -1) for key in keys.tolist()]
        new = keys[found < 0]
        numbers = np.arange(len(known), len(known) + len(new))
        table.add(new, numbers)
        known |= dict(zip(new.tolist(), numbers.tolist(), strict=True))
        everything = np.array([*known, *known], np.uint64)
        assert table.find(everything).tolist() == [*known.values(), *known.values()]
        assert len(table) == len(known)
    table.clear()
    assert set(table.find(everything).tolist()) == {-1}


def test_nothing_is_found_in_nothing() -> None:
    assert NumberTable().find(np.zeros(0, np.uint64)).tolist() == []


def test_keys_of_nodes_are_all_different() -> None:
    """At the ends of what parents, frames and how can be; and the parts come back."""
    parents, frames = [-1, 0, 1, MAX_NODES], [0, 1, MAX_FRAMES - 1]
    hows = [0, 1, 8, GUESS, GUESS | 7]
    nodes = [(parent, frame, how) for parent in parents for frame in frames for how in hows]
    parent, frame, how = (np.array(column, np.int64) for column in zip(*nodes, strict=True))
    keys = keys_of(parent, frame, how.astype(np.uint8))
    assert len(set(keys.tolist())) == len(nodes)
    assert (1 << 64) - 1 not in keys.tolist()  # that is the empty slot
    assert list(zip(*(part.tolist() for part in parts_of(keys)), strict=True)) == nodes


def test_keys_of_addresses_are_all_different() -> None:
    """Where one would not be, it is not used."""
    addresses = [0, 1, (1 << 62) - 1, 1 << 62, (1 << 63) - 1, 1 << 63, 3 << 62, (1 << 64) - 2, (1 << 64) - 1]
    pairs = [(address, is_return) for address in addresses for is_return in (False, True)]
    keys, usable = address_keys(
        np.array([address for address, _ in pairs], np.uint64),
        np.array([is_return for _, is_return in pairs]),
    )
    used = keys[usable].tolist()
    assert len(set(used)) == len(used) == 11
    assert (1 << 64) - 1 not in used
