"""Writes the stacks of a batch of samples: each binary, frame and node of the prefix tree once.

Memory is bounded by the constants here, whatever is recorded: what was forgotten is found again in the file.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from random import Random

import numpy as np
from numpy.typing import NDArray

from unspool.capture.samples import BinaryKind, CodeFile, CodeMap, SampleBatch
from unspool.profile.number_table import (
    MAX_FRAMES,
    MAX_NODES,
    NumberTable,
    address_keys,
    below,
    keys_of,
    parts_of,
    steps_of,
)
from unspool.profile.process_book import ProcessRow, text
from unspool.profile.tree import Ints
from unspool.unwind import How

_FRAMES_KEPT = 200_000  # about 50 MB
_NODES_KEPT = 2_000_000  # about 100 MB
_random = Random(1).getrandbits
_MULTIPLIERS = np.array([_random(64) | 1 for _ in range(1 << 13)], np.uint64)


@dataclass(slots=True)
class Stacks:
    """Stacks without samples: n stacks, m frames, innermost first; as in a SampleBatch."""

    offsets: Ints
    addresses: NDArray[np.uint64]
    how: NDArray[np.uint8]
    is_return: NDArray[np.bool_]

    @property
    def lengths(self) -> Ints:
        return np.diff(self.offsets)

    def take(self, which: Ints) -> Stacks:
        """Some of them, in that order."""
        lengths = self.lengths[which]
        frames = _ranges(self.offsets[which], lengths)
        offsets = np.zeros(len(which) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        return Stacks(offsets, self.addresses[frames], self.how[frames], self.is_return[frames])


class StackWriter:
    """Over one connection, whose transactions are its owner's business."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._binaries: dict[CodeFile, int] = {}
        self._frames: dict[tuple[int, int, bool], int] = {}
        self._nodes = NumberTable()
        self._binary_count = self._frame_count = self._node_count = 0
        self._frames_forgotten = self._nodes_forgotten = False
        self._new_nodes: list[tuple[Ints, NDArray[np.uint64]]] = []  # their numbers and keys

    def add(self, process: ProcessRow, batch: SampleBatch, first: int, last: int) -> Ints:
        """The innermost node of each of the samples first .. last - 1; -1 for an empty stack."""
        begin, end = int(batch.offsets[first]), int(batch.offsets[last])
        stacks = Stacks(
            batch.offsets[first : last + 1].astype(np.int64) - begin,
            batch.addresses[begin:end],
            batch.how[begin:end],
            batch.is_return[begin:end],
        )
        nodes = np.full(last - first, -1, np.int64)
        full = np.flatnonzero(stacks.lengths)
        if len(full):
            stacks = stacks if len(full) == len(nodes) else stacks.take(full)
            distinct, which = _distinct(stacks)
            chosen = stacks.take(distinct)
            nodes[full] = self._nodes_of(chosen, self._frames_of(process, batch, chosen))[which]
        return nodes

    def add_empty(self, process: ProcessRow, arch: str, *, kernel: bool) -> int:
        """The node that stands for stacks without frames: one frame at address 0 of no file, or of the
        kernel."""
        kind, how = (BinaryKind.KERNEL, How.KERNEL) if kernel else (BinaryKind.UNKNOWN, How.INTERRUPTED)
        frame = self._frame(self._binary(process, CodeFile.without_file(kind, arch)), 0, False)
        key = keys_of(np.array([-1]), np.array([frame]), np.array([how], np.uint8))
        node = int(self._numbers_of(key)[0])
        self._write_nodes()
        return node

    @property
    def kernel(self) -> int | None:
        """The number of the kernel's binary; None: no frame of it was recorded."""
        kernels = (number for file, number in self._binaries.items() if file.kind is BinaryKind.KERNEL)
        return next(kernels, None)

    # -------------------------------------------------------------- frames

    def _frames_of(self, process: ProcessRow, batch: SampleBatch, stacks: Stacks) -> Ints:
        if process.code_map is not batch.code_map:
            process.code_map, process.binaries, process.frames = batch.code_map, {}, NumberTable()
        keys, usable = address_keys(stacks.addresses, stacks.is_return)
        frames = process.frames.find(keys)
        frames[~usable] = -1
        for is_return in (False, True):
            missing = np.flatnonzero((frames < 0) & (stacks.is_return == is_return))
            if len(missing):
                addresses, first, which = np.unique(
                    stacks.addresses[missing], return_index=True, return_inverse=True
                )
                numbers = self._new_frames(process, batch.code_map, addresses, is_return)
                frames[missing] = numbers[which.reshape(-1)]
                keep = usable[missing[first]]
                if len(process.frames) + len(first) > _FRAMES_KEPT:
                    process.frames.clear()
                process.frames.add(keys[missing[first]][keep], numbers[keep])
        return frames

    def _new_frames(
        self, process: ProcessRow, code_map: CodeMap, addresses: NDArray[np.uint64], is_return: bool
    ) -> Ints:
        """Of distinct addresses."""
        files, relative = code_map.resolve(addresses, np.full(len(addresses), is_return))
        for file in np.unique(files).tolist():
            if file not in process.binaries:
                process.binaries[file] = self._binary(process, code_map.files[file])
        pairs = zip(files.tolist(), relative.view(np.int64).tolist(), strict=True)
        return np.array(
            [self._frame(process.binaries[file], address, is_return) for file, address in pairs], np.int64
        )

    def _frame(self, binary: int, address: int, is_return: bool) -> int:
        key = (binary, address, is_return)
        frame = self._frames.get(key)
        if frame is not None:
            return frame
        if len(self._frames) >= _FRAMES_KEPT:
            self._frames.clear()
            self._frames_forgotten = True
        if self._frames_forgotten:
            sql = "SELECT id FROM frames WHERE binary = ? AND address = ? AND is_return_address = ?"
            row = self._connection.execute(sql, key).fetchone()
            if row is not None:
                self._frames[key] = row[0]
                return int(row[0])
        if self._frame_count >= MAX_FRAMES:
            raise OverflowError(f"more than {MAX_FRAMES} distinct addresses")
        frame = self._frames[key] = self._frame_count
        self._frame_count += 1
        self._connection.execute("INSERT INTO frames VALUES (?, ?, ?, ?)", (frame, *key))
        return frame

    def _binary(self, process: ProcessRow, file: CodeFile) -> int:
        """Code without a file is the process' own."""
        is_private = file.kind in (BinaryKind.JIT, BinaryKind.UNKNOWN)
        number = process.private.get(file.kind) if is_private else self._binaries.get(file)
        if number is not None:
            return number
        number = self._binary_count
        self._binary_count += 1
        if is_private:
            process.private[file.kind] = number
        else:
            self._binaries[file] = number
        name = file.path.rstrip("/").rsplit("/", 1)[-1] or file.path
        image_address = int(np.uint64(file.image_address).astype(np.int64))
        self._connection.execute(
            "INSERT INTO binaries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL, NULL)",
            (
                *(number, str(file.kind), text(file.path), text(name), file.build_id, file.arch),
                *(image_address, file.size, file.mtime, process.id if is_private else None),
            ),
        )
        return number

    # -------------------------------------------------------------- nodes

    def _nodes_of(self, stacks: Stacks, frames: Ints) -> Ints:
        """From the outermost frames inwards, all stacks at once."""
        lengths = stacks.lengths
        order = np.argsort(-lengths, kind="stable")  # those that still have frames come first
        outermost = stacks.offsets[1:][order] - 1
        lengths = lengths[order]
        steps = steps_of(frames, stacks.how)
        node = np.full(len(order), -1, np.int64)
        levels = np.arange(int(lengths.max(initial=0)))
        for level, count in enumerate(np.searchsorted(-lengths, -levels, "left").tolist()):
            node[:count] = self._numbers_of(below(node[:count], steps[outermost[:count] - level]))
        self._write_nodes()
        result = np.empty_like(node)
        result[order] = node
        return result

    def _numbers_of(self, keys: NDArray[np.uint64]) -> Ints:
        numbers = self._nodes.find(keys)
        (missing,) = (numbers < 0).nonzero()
        if len(missing):
            new, which = np.unique(keys[missing], return_inverse=True)
            numbers[missing] = self._add_nodes(new)[which.reshape(-1)]
        return numbers

    def _add_nodes(self, keys: NDArray[np.uint64]) -> Ints:
        if len(self._nodes) + len(keys) > _NODES_KEPT:
            self._forget_nodes()
        numbers = self._find_in_file(keys) if self._nodes_forgotten else np.full(len(keys), -1, np.int64)
        new = np.flatnonzero(numbers < 0)
        if self._node_count + len(new) > MAX_NODES:
            raise OverflowError(f"more than {MAX_NODES} distinct stacks")
        numbers[new] = np.arange(self._node_count, self._node_count + len(new))
        self._node_count += len(new)
        self._nodes.add(keys, numbers)
        self._new_nodes.append((numbers[new], keys[new]))
        return numbers

    def _write_nodes(self) -> None:
        if self._new_nodes:
            numbers, keys = map(np.concatenate, zip(*self._new_nodes, strict=True))
            self._new_nodes.clear()
            rows = np.stack([numbers, *parts_of(keys)], axis=1).tolist()
            self._connection.executemany("INSERT INTO stacks VALUES (?, nullif(?, -1), ?, ?)", rows)

    def _forget_nodes(self) -> None:
        self._write_nodes()
        self._nodes.clear()
        self._nodes_forgotten = True
        self._connection.execute("CREATE INDEX IF NOT EXISTS node_of ON stacks (parent, frame, how)")

    def _find_in_file(self, keys: NDArray[np.uint64]) -> Ints:
        self._write_nodes()
        sql = "SELECT id FROM stacks WHERE parent IS nullif(?, -1) AND frame = ? AND how = ?"
        found = np.full(len(keys), -1, np.int64)
        for i, node in enumerate(zip(*(part.tolist() for part in parts_of(keys)), strict=True)):
            row = self._connection.execute(sql, node).fetchone()
            if row is not None:
                found[i] = row[0]
        return found

    def drop_index(self) -> None:
        """What only this writer needs."""
        self._write_nodes()
        self._connection.execute("DROP INDEX IF EXISTS node_of")


def _ranges(starts: Ints, lengths: Ints) -> Ints:
    """The numbers of start .. start + length - 1 of each range, one after the other."""
    before = np.cumsum(lengths) - lengths
    numbers: Ints = np.arange(int(lengths.sum())) + np.repeat(starts - before, lengths)
    return numbers


def _distinct(stacks: Stacks) -> tuple[Ints, Ints]:
    """Stacks that stand for all, and for each stack which of these is the same. By a hash of 64 bits, and
    then compared: two stacks are never taken for one."""
    lengths = stacks.lengths
    position = _ranges(np.zeros(len(lengths), np.int64), lengths)
    mixed = stacks.addresses + stacks.how * np.uint64(0x9E37_79B9_7F4A_7C15)
    mixed ^= mixed >> np.uint64(29)
    mixed *= _MULTIPLIERS[position % len(_MULTIPLIERS)]
    hashes = np.add.reduceat(mixed, stacks.offsets[:-1])
    _, first, which = np.unique(hashes, return_index=True, return_inverse=True)
    which = which.reshape(-1)
    twin = first[which]
    equal = lengths == lengths[twin]
    candidates = np.flatnonzero(equal & (twin != np.arange(len(twin))))
    own, other = stacks.take(candidates), stacks.take(twin[candidates])
    same = (own.addresses == other.addresses) & (own.how == other.how)
    if len(candidates):
        equal[candidates] = np.logical_and.reduceat(same, own.offsets[:-1])
    different = np.flatnonzero(~equal)
    which[different] = len(first) + np.arange(len(different))
    return np.concatenate([first, different]), which
