"""From samples of one process to stacks: walks stack copies, takes the kernel's frames, joins the two.

    kernel frames          from the kernel's call chain
    user frames            walked from registers and stack copy, where the sample has them;
                           else the kernel's chain of frame pointers, which nothing proves

Where a copy was too short for the stack, the kernel's chain goes on from the last frame that both have.
"""

from __future__ import annotations

from functools import partial
from itertools import takewhile
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unspool.capture.perf_attributes import AttributeFlag, EventAttributes, SampleType
from unspool.capture.perf_chains import Frames, Runs, T, merged, split_chains, spread
from unspool.capture.perf_records import MODE_KERNEL
from unspool.capture.perf_registers import ABI_32, ABI_64, RegisterLayout
from unspool.capture.perf_samples import SampleColumns
from unspool.capture.perf_spaces import AddressSpace
from unspool.capture.samples import Flag, SampleBatch
from unspool.core_interface import GUESS
from unspool.unwind import How, LookupAddress, StackBatch, StackBytes, StackEnd
from unspool.unwind.table import Row, RowFlag, Saved

_BY_REGISTERS = RowFlag.EXACT | RowFlag.CODE  # rows that may need more than pc, sp and fp
_BY_FRAME_POINTER = How.FRAME_POINTER | GUESS
_TOO_SHORT = (StackEnd.STACK_BYTES_ENDED, StackEnd.UNREADABLE_MEMORY)
_WORTH_TWO_THREADS = 256  # samples


class _UserFrames(NamedTuple):
    """Of n samples; how: one a frame, as addresses."""

    frames: Frames
    how: NDArray[np.uint8]
    ends: NDArray[np.uint8]
    flags: NDArray[np.uint8]


def walk_samples(
    pid: int,
    event: int,
    attributes: EventAttributes,
    words: NDArray[np.uint64],
    samples: SampleColumns,
    space: AddressSpace,
    threads: int = 2,
    *,
    is_running: bool = False,
) -> SampleBatch:
    """The stacks of samples (at least one) of one process in one address space, all from one buffer.
    is_running: code without a file is read in the process."""
    kernel, chain = split_chains(words, samples)
    user = _from_chains(attributes, samples, kernel, chain, space)
    layout = RegisterLayout(space.arch, attributes.user_registers)
    walkable = samples.abi == ABI_64
    if attributes.sample_type & SampleType.STACK_USER and layout.can_walk and walkable.any():
        index = np.flatnonzero(walkable)
        index = index[np.argsort(samples.stack_at[index], kind="stable")]
        chosen = samples.take(index)
        code_pid = pid if is_running else 0
        batch = _walk(layout, words, chosen, space, threads, code_pid)
        walked = _rewalked(batch, layout, words, chosen, space, code_pid)
        user = _replaced(user, index, _joined(walked, index, chain, attributes, space))
    elif space.arch == "aarch64" and layout.has_lr:
        user = _with_leaf_callers(user, layout, words, samples, space)
    return _batch(pid, event, samples, kernel, user, space)


# ---------------------------------------------------------------- walked


def _walk(
    layout: RegisterLayout,
    words: NDArray[np.uint64],
    samples: SampleColumns,
    space: AddressSpace,
    threads: int,
    code_pid: int,
) -> StackBatch:
    """Between any two stack copies lies something else: every other sample of the batch is that, without
    registers, so that nothing needs to be copied. Samples are in the order of their copies."""
    count = len(samples)
    registers = np.zeros((2 * count, 4), np.uint64)
    registers[::2] = layout.columns(words, samples)
    offsets = np.empty(2 * count + 1, np.uint64)
    offsets[:-1:2] = samples.stack_at * 8
    offsets[1::2] = samples.stack_at * 8 + samples.stack_size
    offsets[-1] = offsets[-2]
    if count < _WORTH_TWO_THREADS:
        threads = 1
    return space.unwinder.walk_many(registers, offsets, words.view(np.uint8), threads, code_pid)


def _rewalked(
    batch: StackBatch,
    layout: RegisterLayout,
    words: NDArray[np.uint64],
    samples: SampleColumns,
    space: AddressSpace,
    code_pid: int,
) -> _UserFrames:
    """The samples of a batch; those that ended where another register is needed are walked with all of
    them."""
    offsets = batch.offsets.astype(np.int64)
    kept = Runs(batch.addresses, offsets)
    counts = kept.counts[::2]
    new_offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=new_offsets[1:])
    source = spread(new_offsets, offsets[:-1:2])
    addresses, how = batch.addresses[source], batch.how[source]
    ends = batch.ends[::2].copy()
    user = _UserFrames(Runs(addresses, new_offsets), how, ends, np.zeros(len(ends), np.uint8))
    again = [
        index
        for index in np.flatnonzero(ends == StackEnd.NO_UNWIND_INFO).tolist()
        if _row_flags(space, int(addresses[new_offsets[index + 1] - 1]), counts[index] > 1) & _BY_REGISTERS
    ]
    if not again:
        return user
    parts_addresses, parts_how = [], []
    for index in again:
        at, size = int(samples.stack_at[index]) * 8, int(samples.stack_size[index])
        registers = layout.all_of(words, int(samples.registers_at[index]))
        memory = StackBytes(registers.sp, words.view(np.uint8)[at : at + size], code_pid)
        stack = space.unwinder.walk(registers, memory)
        parts_addresses.append(np.array(stack.addresses, np.uint64))
        parts_how.append(np.array([f.how | (GUESS if f.guessed else 0) for f in stack], np.uint8))
        ends[index] = stack.end
    lengths = np.array([0, *(len(part) for part in parts_how)]).cumsum()
    replacement = _UserFrames(
        Runs(np.concatenate(parts_addresses), lengths),
        np.concatenate(parts_how),
        ends[again],
        user.flags[again],
    )
    return _replaced(user, np.array(again), replacement)


def _joined(
    walked: _UserFrames,
    index: NDArray[np.int64],
    chain: Frames,
    attributes: EventAttributes,
    space: AddressSpace,
) -> _UserFrames:
    """Where the copy ended, goes on with the kernel's chain, if what it has of the stack so far are frames of
    the walk, in the same order, and the last one is among them. index: of each walked sample in the chain."""
    chosen, tails = [], []
    for i in np.flatnonzero(np.isin(walked.ends, _TOO_SHORT)).tolist():
        theirs = chain.values[chain.offsets[index[i]] : chain.offsets[index[i] + 1]].tolist()
        ours = walked.frames.values[walked.frames.offsets[i] : walked.frames.offsets[i + 1]].tolist()
        tail = list(takewhile(partial(_is_code, space), _agreed_tail(ours, theirs)))
        if tail:
            chosen.append(i)
            tails.append(tail)
    if not chosen:
        return walked
    ends, flags = walked.ends.copy(), walked.flags.copy()
    flags[chosen] |= np.uint8(Flag.JOINED)
    for i, tail in zip(chosen, tails, strict=True):
        length = int(chain.counts[index[i]])
        ends[i] = _end_of_chain(space, tail[-1], length >= attributes.frames_at_most)
    counts = np.zeros(len(ends), np.int64)
    counts[chosen] = [len(tail) for tail in tails]
    offsets = np.concatenate([[0], np.cumsum(counts)])
    more = Runs(np.array([address for tail in tails for address in tail], np.uint64), offsets)
    how = merged(
        [
            Runs(walked.how, walked.frames.offsets),
            Runs(np.full(len(more.values), _BY_FRAME_POINTER, np.uint8), offsets),
        ]
    )
    return _UserFrames(merged([walked.frames, more]), how.values, ends, flags)


def _is_code(space: AddressSpace, return_address: int) -> bool:
    """The kernel takes rbp for a frame pointer, whatever it holds, and what it then finds for an address."""
    return space.unwinder.modules.find(LookupAddress(return_address - 1)) is not None


def _agreed_tail(ours: list[int], theirs: list[int]) -> list[int]:
    """What the kernel's chain has beyond our last frame; nothing if the two do not agree."""
    if not ours or ours[-1] not in theirs:
        return []
    common = theirs.index(ours[-1]) + 1
    rest = iter(ours)
    return theirs[common:] if all(address in rest for address in theirs[:common]) else []


# ---------------------------------------------------------------- by the kernel's chain


def _from_chains(
    attributes: EventAttributes,
    samples: SampleColumns,
    kernel: Frames,
    chain: Frames,
    space: AddressSpace,
) -> _UserFrames:
    """What the kernel's chain says of the program, as if there were no stack copies."""
    lengths = chain.counts
    how = np.full(len(chain.values), _BY_FRAME_POINTER, np.uint8)
    how[chain.offsets[:-1][lengths > 0]] = How.INTERRUPTED
    ends = np.full(len(samples), StackEnd.NO_UNWIND_INFO, np.uint8)
    flags = np.zeros(len(samples), np.uint8)
    at_limit = samples.chain_count >= attributes.frames_at_most
    is_32bit = samples.abi == ABI_32
    lasts = chain.values[chain.offsets[1:][lengths > 1] - 1]
    at_root = {
        address
        for address in np.unique(lasts).tolist()
        if _row_flags(space, address, is_return_address=True) & RowFlag.END
    }
    ends[lengths > 1] = np.where(np.isin(lasts, list(at_root)), StackEnd.ROOT, StackEnd.NO_UNWIND_INFO)
    asked = bool(attributes.sample_type & SampleType.CALLCHAIN)
    asked &= not attributes.flags & AttributeFlag.EXCLUDE_CALLCHAIN_USER
    if not asked:
        ends[lengths == 1] = StackEnd.STACK_BYTES_ENDED
    # Nothing of a program: a thread of the kernel, unless nobody asked for what the program does.
    nothing = lengths == 0
    knows = asked | bool(attributes.sample_type & SampleType.REGS_USER)
    ends[nothing] = StackEnd.ROOT if knows else StackEnd.STACK_BYTES_ENDED
    if not knows:
        flags[nothing & (samples.modes == MODE_KERNEL)] |= np.uint8(Flag.KERNEL_CALLER_UNKNOWN)
    ends[at_limit & (ends != StackEnd.ROOT)] = StackEnd.DEPTH_LIMIT
    ends[is_32bit | (nothing & (kernel.counts == 0))] = StackEnd.NO_UNWIND_INFO
    return _UserFrames(chain, how, ends, flags)


def _with_leaf_callers(
    user: _UserFrames,
    layout: RegisterLayout,
    words: NDArray[np.uint64],
    samples: SampleColumns,
    space: AddressSpace,
) -> _UserFrames:
    """On aarch64 frame pointers do not lead to the caller of a function that keeps its return address in lr,
    which perf therefore records with frame pointers (`-g`): that caller comes second, where the file says
    that it is in lr, and it is not there already. Each sample's chain was split; none has a stack copy."""
    counts = user.frames.counts
    first, values = user.frames.offsets[:-1], user.frames.values
    here = np.flatnonzero((samples.abi == ABI_64) & (counts > 0))
    lr = layout.lr(words, samples.take(here)) & np.uint64((1 << space.unwinder.address_bits) - 1)
    is_there = (counts[here] > 1) & (values[np.minimum(first[here] + 1, len(values) - 1)] == lr)
    pcs, which = np.unique(values[first[here]], return_inverse=True)
    is_leaf = np.array([_keeps_lr(space, pc) for pc in pcs.tolist()], np.bool_)[which]
    chosen = is_leaf & ~is_there
    chosen[chosen] = [_is_code(space, address) for address in lr[chosen].tolist()]
    added = np.zeros(len(counts), np.int64)
    added[here[chosen]] = 1
    offsets = np.concatenate([[0], np.cumsum(counts + added)])
    source = np.ones(offsets[-1], np.bool_)
    places = (offsets[:-1] + 1)[here[chosen]]
    source[places] = False
    addresses, how = np.empty(offsets[-1], np.uint64), np.full(offsets[-1], How.CFI, np.uint8)
    addresses[places], addresses[source], how[source] = lr[chosen], values, user.how
    return _UserFrames(Runs(addresses, offsets), how, user.ends, user.flags)


def _keeps_lr(space: AddressSpace, pc: int) -> bool:
    """Whether the file says that the return address is in lr at pc."""
    row = _row(space, pc)
    return row is not None and row.ra == Saved.SAME and not row.flags & (RowFlag.END | RowFlag.EXACT)


def _end_of_chain(space: AddressSpace, last: int, at_limit: bool) -> StackEnd:
    if _row_flags(space, last, is_return_address=True) & RowFlag.END:
        return StackEnd.ROOT
    return StackEnd.DEPTH_LIMIT if at_limit else StackEnd.NO_UNWIND_INFO


def _row_flags(space: AddressSpace, address: int, is_return_address: bool) -> int:
    """What the unwind table says of an address; 0: nothing."""
    row = _row(space, address - 1 if is_return_address else address)
    return 0 if row is None else int(row.flags)


def _row(space: AddressSpace, lookup: int) -> Row | None:
    module = space.unwinder.modules.find(LookupAddress(lookup))
    if module is None or module.table is None:
        return None
    return module.table.lookup(lookup - module.image_base)


# ---------------------------------------------------------------- together


def _replaced(user: _UserFrames, index: NDArray[np.int64], new: _UserFrames) -> _UserFrames:
    """The samples number index have other frames."""
    counts = user.frames.counts
    counts[index] = 0
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    source = spread(offsets, user.frames.offsets[:-1])
    order = np.argsort(index, kind="stable")
    their_counts = np.zeros(len(counts), np.int64)
    their_counts[index] = new.frames.counts
    their_offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(their_counts, out=their_offsets[1:])
    # Runs of `new` in the order of the samples.
    runs = np.zeros(len(index) + 1, np.int64)
    np.cumsum(new.frames.counts[order], out=runs[1:])
    new_source = spread(runs, new.frames.offsets[:-1][order])

    def both(old: NDArray[T], added: NDArray[T]) -> Runs[T]:
        return merged([Runs(old[source], offsets), Runs(added[new_source], their_offsets)])

    addresses, how = both(user.frames.values, new.frames.values), both(user.how, new.how)
    ends, flags = user.ends.copy(), user.flags.copy()
    ends[index], flags[index] = new.ends, new.flags
    return _UserFrames(addresses, how.values, ends, flags)


def _batch(
    pid: int, event: int, samples: SampleColumns, kernel: Frames, user: _UserFrames, space: AddressSpace
) -> SampleBatch:
    frames = merged([kernel, user.frames])
    kernel_how = np.full(len(kernel.values), How.KERNEL, np.uint8)
    how = merged([Runs(kernel_how, kernel.offsets), Runs(user.how, user.frames.offsets)])
    return SampleBatch(
        pid=pid,
        event=event,
        times=samples.times,
        tids=samples.tids,
        weights=samples.weights,
        ends=user.ends,
        flags=user.flags,
        offsets=frames.offsets.astype(np.uint64),
        addresses=frames.values,
        how=how.values,
        code_map=space.code_map,
    )
