"""Walks the stacks of one process: its modules, and walk, step and walk_many over them.

Threads may share an Unwinder. Nothing is guessed here: the core walks, this module only brings values
to it and takes results from it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from unspool.binaries import Binary
from unspool.core import BatchResult, Walker
from unspool.core_interface import ARCHITECTURES, GUESS
from unspool.unwind.batch import StackBatch, joined
from unspool.unwind.memory import Memory
from unspool.unwind.modules import LAST_ADDRESS, Mapping, Module, ModuleMap, executable_mappings
from unspool.unwind.registers import Registers, from_core, to_core
from unspool.unwind.stack import How, Stack, StackEnd
from unspool.unwind.table import WalkTable, table_of

_ADDRESS_LIMIT = 1 << 64
_ADDRESS_BITS = {"x86_64": 47, "aarch64": 48}


class Unwinder:
    """Unwinds stacks of one process on one architecture, "x86_64" or "aarch64".

    address_bits: user addresses are below 1 << address_bits (aarch64: what is above may be a PAC).
    depth_limit: at most so many frames a stack. ValueError: unknown architecture, impossible limits.
    """

    def __init__(self, arch: str, *, address_bits: int | None = None, depth_limit: int = 1024) -> None:
        if arch not in ARCHITECTURES:
            raise ValueError(f"unknown architecture {arch!r}: {' or '.join(ARCHITECTURES)}")
        if depth_limit < 1:
            raise ValueError(f"a depth limit of {depth_limit} allows no frame")
        self.arch = arch
        self.address_bits = _ADDRESS_BITS[arch] if address_bits is None else address_bits
        if not 32 <= self.address_bits <= 64:
            raise ValueError(f"addresses of {self.address_bits} bits")
        self.depth_limit = depth_limit
        self._lock = Lock()  # held while modules change, never while a stack is walked
        self._mappings: list[Mapping] = []  # sorted, not overlapping
        self._map: ModuleMap | None = ModuleMap(())
        self._idle: list[Walker] = []

    # ------------------------------------------------------------ modules

    def add_module(
        self,
        binary: Binary | None,
        image_base: int | None = None,
        *,
        start: int | None = None,
        end: int | None = None,
        table: WalkTable | None = None,
        name: str | None = None,
        replacing: bool = False,
    ) -> Module:
        """Say that a file's code is mapped, with its lowest virtual address at image_base.

        start, end: only there (one mapping of the file); else wherever the file's executable segments
        lie. binary None is code without a file; it needs start and end. table: instead of compiling the
        file's own. replacing: what was mapped there is gone, as after mmap; otherwise an overlap is a
        ValueError. Returns the handle for remove_module. Raises BinaryError too.
        """
        if (start is None) != (end is None):
            raise ValueError("start and end go together")
        if start is not None and end is not None and not 0 <= start < end <= _ADDRESS_LIMIT:
            raise ValueError(f"no addresses lie in [{start:#x}, {end:#x})")
        if binary is None:
            if start is None or end is None:
                raise ValueError("code without a file needs start and end")
            module = Module(None, table, start if image_base is None else image_base, name or "[anonymous]")
            new = [Mapping(start, min(end, LAST_ADDRESS), module)]
        else:
            new = self._file_mappings(binary, image_base, start, end, table, name)
            module = new[0].module
        self._insert(new, replacing)
        return module

    def _file_mappings(
        self,
        binary: Binary,
        image_base: int | None,
        start: int | None,
        end: int | None,
        table: WalkTable | None,
        name: str | None,
    ) -> list[Mapping]:
        if binary.arch != self.arch:
            raise ValueError(f"{binary.path} is for {binary.arch}, not for {self.arch}")
        if image_base is None or not 0 <= image_base < _ADDRESS_LIMIT:
            raise ValueError(f"{binary.path}: a file needs an image base below 2**64")
        module = Module(binary, table_of(binary) if table is None else table, image_base, name or binary.path)
        mappings = executable_mappings(module, binary, start, end)
        if not mappings:
            raise ValueError(f"{binary.path} has no executable segment")
        return mappings

    def _insert(self, new: list[Mapping], replacing: bool) -> None:
        with self._lock:
            for mapping in new if not replacing else ():
                for other in self._mappings[self._overlapping(mapping)]:
                    raise ValueError(
                        f"{mapping.module.name} at [{mapping.start:#x}, {mapping.end:#x}) overlaps "
                        f"{other.module.name} at [{other.start:#x}, {other.end:#x})"
                    )
            for mapping in new:
                taken = self._overlapping(mapping)
                kept = [
                    piece
                    for other in self._mappings[taken]
                    for piece in other.without(mapping.start, mapping.end)
                ]
                self._mappings[taken] = sorted([*kept, mapping], key=lambda piece: piece.start)
            self._map = None

    def _overlapping(self, mapping: Mapping) -> slice:
        """Which of the mappings, sorted as they are, share an address with a new one."""
        first = bisect_right(self._mappings, mapping.start, key=lambda other: other.end)
        return slice(first, bisect_left(self._mappings, mapping.end, first, key=lambda other: other.start))

    def remove_module(self, module: Module) -> None:
        """Say that a module is mapped no more. KeyError: it is not there."""
        with self._lock:
            kept = [mapping for mapping in self._mappings if mapping.module is not module]
            if len(kept) == len(self._mappings):
                raise KeyError(f"{module.name} is no module of this unwinder")
            self._mappings = kept
            self._map = None

    @property
    def modules(self) -> ModuleMap:
        """What is mapped where at this moment."""
        with self._lock:
            if self._map is None:
                self._map = ModuleMap(self._mappings)
            return self._map

    # ------------------------------------------------------------ walking

    def walk(self, registers: Registers, memory: Memory) -> Stack:
        """The whole stack. Whatever registers and memory hold, it ends, and says how."""
        modules = self._map or self.modules
        source = memory.source()
        walker = self._take_walker()
        try:
            addresses, how, end = walker.walk(
                modules.for_core(with_code=not source.reads_code), to_core(registers, self.arch), source
            )
        finally:
            self._idle.append(walker)
        return Stack(addresses, how, end, modules, registers.pc_is_return_address)

    def step(self, registers: Registers, memory: Memory) -> Registers | StackEnd:
        """One step: the caller's registers, as far as they are known, or how the stack ends here."""
        modules = self._map or self.modules
        source = memory.source()
        walker = self._take_walker()
        try:
            result = walker.step(
                modules.for_core(with_code=not source.reads_code), to_core(registers, self.arch), source
            )
        finally:
            self._idle.append(walker)
        if isinstance(result, int):
            return StackEnd(result)
        caller, how = result
        return from_core(caller, self.arch, How(how & ~GUESS), bool(how & GUESS))

    def walk_many(
        self,
        registers: NDArray[np.uint64],
        stack_offsets: NDArray[np.uint64],
        stack_bytes: NDArray[np.uint8],
        threads: int = 1,
        code_pid: int = 0,
    ) -> StackBatch:
        """Walk n samples that share these modules, in so many threads.

        registers: uint64[n, 4] (pc, sp, fp, lr; lr counts on aarch64 only). stack_bytes: uint8[], with
        sample i's stack copy, from sp up, in stack_bytes[stack_offsets[i] : stack_offsets[i + 1]];
        stack_offsets: uint64[n + 1]. code_pid: a process in which code without a file is read (0: there is
        none). ValueError: arrays of other types or shapes, or offsets that
        decrease or lead outside.
        """
        registers, stack_offsets, stack_bytes = _checked(registers, stack_offsets, stack_bytes)
        if threads < 1:
            raise ValueError(f"{threads} threads walk nothing")
        modules = self._map or self.modules
        core_modules = modules.for_core(with_code=True)
        count = len(registers)
        parts = min(threads, count) or 1
        bounds = [count * part // parts for part in range(parts + 1)]

        def walk(part: int) -> BatchResult:
            low, high = bounds[part], bounds[part + 1]
            walker = self._take_walker()
            try:
                return walker.walk_many(
                    core_modules, registers[low:high], stack_offsets[low : high + 1], stack_bytes, code_pid
                )
            finally:
                self._idle.append(walker)

        if parts == 1:
            return joined([walk(0)], modules)
        with ThreadPoolExecutor(parts) as pool:
            return joined(list(pool.map(walk, range(parts))), modules)

    def _take_walker(self) -> Walker:
        """A walker that nobody else uses meanwhile: not another thread, not a signal handler in this
        one. It is given back to _idle."""
        try:
            return self._idle.pop()
        except IndexError:
            return Walker(self.arch, self.address_bits, self.depth_limit)


def _checked(
    registers: NDArray[np.uint64], stack_offsets: NDArray[np.uint64], stack_bytes: NDArray[np.uint8]
) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint8]]:
    expected = (
        ("registers", registers, np.uint64, "uint64[n, 4]", registers.ndim == 2 and registers.shape[1] == 4),
        ("stack_offsets", stack_offsets, np.uint64, "uint64[n + 1]", stack_offsets.ndim == 1),
        ("stack_bytes", stack_bytes, np.uint8, "uint8[]", stack_bytes.ndim == 1),
    )
    for name, array, dtype, words, shape_fits in expected:
        if array.dtype != dtype or not shape_fits:
            raise ValueError(f"{name} must be {words}, not {array.dtype}{list(array.shape)}")
    if len(stack_offsets) != len(registers) + 1:
        raise ValueError(f"{len(registers)} samples need as many stack offsets and one more")
    if np.any(stack_offsets[1:] < stack_offsets[:-1]) or stack_offsets[-1] > len(stack_bytes):
        raise ValueError("stack offsets must not decrease, nor lead outside of stack_bytes")
    return (
        np.ascontiguousarray(registers),
        np.ascontiguousarray(stack_offsets),
        np.ascontiguousarray(stack_bytes),
    )
