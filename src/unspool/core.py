"""The only module that calls the C library, libunspool.so (core/include/unspool.h).

It turns Python values into C structs and back, and keeps alive
what C points to. It decides nothing: what values mean is said in unspool.unwind. Every call
releases the GIL, so all that a call reads or writes belongs to one Walker, which one thread at a
time may use, or never changes.
"""

import mmap
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from unspool._core_declarations import ffi as _ffi  # type: ignore[import-untyped]
from unspool.core_interface import ARCHITECTURES, NO_MEMORY, OK, SECTION_KINDS

Buffer: TypeAlias = bytes | bytearray | memoryview | NDArray[np.uint8]
CData: TypeAlias = Any  # a cffi object: a C pointer or struct

ffi: Any = _ffi  # typed as Any, since structs have fields that no stub knows


def library_path() -> Path:
    """Where libunspool.so is: beside the package's files, or where an editable install put it."""
    for folder in sys.modules["unspool"].__path__:
        path = Path(folder) / "libunspool.so"
        if path.exists():
            return path
    raise ImportError("libunspool.so is not in the package unspool; install the package with pip")


library: Any = ffi.dlopen(str(library_path()))


def byte_count(data: Buffer) -> int:
    """Bytes of a buffer, whatever its items are."""
    return len(ffi.from_buffer(data))


# ---------------------------------------------------------------- tables


class SectionInput(NamedTuple):
    """One unwind section to compile."""

    kind: str  # a key of SECTION_KINDS
    data: Buffer
    address: int  # virtual address of data[0]
    open_ended: bool  # the size is an upper bound


class Problem(NamedTuple):
    """One thing that could not be compiled."""

    kind: int  # enum unspool_problem_kind
    section: int  # index into the sections that were given
    offset: int  # in the section, of the entry


class Row(NamedTuple):
    """struct unspool_row: what holds for relative addresses start <= a < end."""

    start: int
    end: int
    cfa_offset: int
    ra_offset: int
    fp_offset: int
    cfa_base: int
    ra: int
    fp: int
    flags: int


class ExactRule(NamedTuple):
    """struct unspool_exact_rule: where one register of the caller is."""

    kind: int  # enum unspool_exact_kind
    value: int
    expression: bytes


class ExactRow(NamedTuple):
    """struct unspool_exact_row: what CFI says where no rule can say it."""

    start: int
    end: int
    cfa_register: int
    cfa_offset: int
    cfa_expression: bytes  # empty: register + offset
    return_address_register: int
    rules: tuple[ExactRule, ...]  # by DWARF register


ROW_DTYPE = np.dtype(
    {
        "names": Row._fields,
        "formats": ["u8", "u8", "i4", "i4", "i4", "u1", "u1", "u1", "u1"],
        "offsets": [0, 8, 16, 20, 24, 28, 29, 30, 31],
        "itemsize": ffi.sizeof("struct unspool_row"),
    }
)


_GAPS_AT_FIRST = 4096  # most files have fewer


class CompileInput(NamedTuple):
    """struct unspool_compile_input: the file of a table. code: executable segments, by virtual address."""

    arch: str
    sections: Sequence[SectionInput]
    image_address: int
    text_address: int
    data_address: int
    entry_address: int
    code: Sequence[tuple[int, Buffer]] = ()

    def for_core(self) -> tuple[CData, list[CData]]:
        """The struct, and what it points to."""
        buffers = [ffi.from_buffer("uint8_t[]", section.data) for section in self.sections]
        sections = ffi.new("struct unspool_section[]", len(self.sections))
        for target, section, data in zip(sections, self.sections, buffers, strict=True):
            target.bytes, target.size = data, len(data)
            target.address, target.kind = section.address, SECTION_KINDS[section.kind]
            target.open_ended = section.open_ended
        given = ffi.new("struct unspool_compile_input *")
        given.arch, given.section_count, given.sections = ARCHITECTURES[self.arch], len(buffers), sections
        given.image_address, given.entry_address = self.image_address, self.entry_address
        given.text_address, given.data_address = self.text_address, self.data_address
        code_buffers = [ffi.from_buffer("uint8_t[]", data) for _, data in self.code]
        code = ffi.new("struct unspool_section[]", len(self.code))
        for target, (address, _), data in zip(code, self.code, code_buffers, strict=True):
            target.bytes, target.size, target.address = data, len(data), address
        given.code, given.code_count = code, len(code_buffers)
        return given, [sections, code, *buffers, *code_buffers]


class LookupTable:
    """What walks ask of a table. It owns what C reads; whoever passes the pointer on keeps it."""

    __slots__ = ("_kept", "pointer")

    def __init__(self, table: CData, kept: Sequence[CData] = ()) -> None:
        self._kept = table, kept
        self.pointer: CData = ffi.cast("const struct unspool_table *", table)

    def lookup(self, relative_address: int) -> Row | None:
        """The row that holds there, or None."""
        row = ffi.new("struct unspool_row *")
        if library.unspool_table_lookup(self.pointer, relative_address, row) != OK:
            return None
        return Row(*(getattr(row, name) for name in Row._fields))

    def exact(self, relative_address: int) -> ExactRow | None:
        """What CFI says there, or None where the row is not an exact one."""
        row = ffi.new("struct unspool_exact_row *")
        if library.unspool_table_exact(self.pointer, relative_address, row) != OK:
            return None
        return ExactRow(
            row.start,
            row.end,
            row.cfa_register,
            row.cfa_offset,
            _bytes_at(row.cfa_expression, row.cfa_expression_size),
            row.return_address_register,
            tuple(
                ExactRule(rule.kind, rule.value, _bytes_at(rule.expression, rule.expression_size))
                for rule in row.rules
            ),
        )


class TablePool:
    """Room for tables that are compiled function by function, when they are asked: a million functions."""

    def __init__(self) -> None:
        pool = ffi.new("struct unspool_pool **")
        if library.unspool_pool_new(pool) != OK:
            raise MemoryError("making room for unwind tables")
        self._pool = ffi.gc(pool[0], library.unspool_pool_free)

    def begin(self, file: CompileInput, index: tuple[int, Buffer]) -> LookupTable | None:
        """A table of what a file says. index: address and bytes of .eh_frame_hdr. None: that does not serve,
        or there is more than .eh_frame."""
        given, kept = file.for_core()
        header = ffi.new("struct unspool_section *")
        data = ffi.from_buffer("uint8_t[]", index[1])
        header.bytes, header.size, header.address = data, len(data), index[0]
        result = ffi.new("struct unspool_table **")
        status = library.unspool_table_begin(self._pool, given, header, result)
        if status == NO_MEMORY:
            raise MemoryError("beginning an unwind table")
        if status != OK:
            return None
        return LookupTable(ffi.gc(result[0], library.unspool_table_end), [*kept, data, self._pool])


class Table(LookupTable):
    """A compiled table: all rows of a file."""

    __slots__ = ()

    @classmethod
    def compile(cls, file: CompileInput) -> tuple["Table", int, list[Problem]]:
        """The table, how many problems there were, and the first of them."""
        given, _kept = file.for_core()
        result = ffi.new("struct unspool_table **")
        problems = ffi.new("struct unspool_problems *")
        status = library.unspool_table_compile(given, result, problems)
        if status == NO_MEMORY:
            raise MemoryError("compiling an unwind table")
        if status != OK:
            raise ValueError(f"the unwind sections can't be compiled (status {status})")
        kept = min(problems.count, len(problems.first))
        first = [Problem(p.kind, p.section, p.offset) for p in problems.first[0:kept]]
        return cls(ffi.gc(result[0], library.unspool_table_free)), problems.count, first

    @classmethod
    def load(cls, data: Buffer) -> "Table":
        """A copy of an untrusted block. ValueError: it is not a sound table of this version."""
        size = byte_count(data)
        block = ffi.new("uint64_t[]", (size + 7) // 8)
        ffi.memmove(block, data, size)
        if library.unspool_table_check(block, size) != OK:
            raise ValueError("not an unwind table of this version, or a damaged one")
        return cls(block)

    def to_bytes(self) -> bytes:
        """The whole block."""
        size = library.unspool_table_size(self.pointer)
        return bytes(ffi.buffer(ffi.cast("const char *", self.pointer), size))

    @property
    def size(self) -> int:
        """Bytes of the block."""
        return int(library.unspool_table_size(self.pointer))

    def row_count(self) -> int:
        """How many rows there are."""
        return int(library.unspool_table_row_count(self.pointer))

    def rows(self) -> NDArray[np.void]:
        """All rows, sorted, as an array of ROW_DTYPE."""
        rows = np.zeros(self.row_count(), ROW_DTYPE)
        target = ffi.from_buffer("struct unspool_row[]", rows, require_writable=True)
        written = library.unspool_table_rows(self.pointer, 0, target, len(rows))
        return rows[:written]

    def gaps(self, least: int) -> NDArray[np.void]:
        """The rows that say nothing of `least` bytes or more, sorted, as an array of ROW_DTYPE."""
        count = _GAPS_AT_FIRST
        while True:
            gaps = np.zeros(count, ROW_DTYPE)
            target = ffi.from_buffer("struct unspool_row[]", gaps, require_writable=True)
            count = library.unspool_table_gaps(self.pointer, least, target, len(gaps))
            if count <= len(gaps):
                return gaps[:count]


def _bytes_at(pointer: CData, size: int) -> bytes:
    return bytes(ffi.buffer(pointer, size)) if size else b""


# ---------------------------------------------------------------- a process


class ModuleInput(NamedTuple):
    """One executable mapping."""

    start: int
    end: int
    image_base: int
    table: LookupTable | None
    code: Buffer | None  # bytes of [start, start + size of code)


class Modules:
    """The modules of a process as C sees them: sorted, and never changed once made."""

    __slots__ = ("_kept", "count", "pointer")

    def __init__(self, modules: Sequence[ModuleInput]) -> None:
        self.count = len(modules)
        self.pointer: CData = ffi.new("struct unspool_module[]", self.count)
        self._kept: list[object] = []
        for target, module in zip(self.pointer, modules, strict=True):
            target.start, target.end, target.image_base = module.start, module.end, module.image_base
            if module.table is not None:
                target.table = module.table.pointer
                self._kept.append(module.table)
            if module.code is not None:
                code = ffi.from_buffer("uint8_t[]", module.code)
                target.code, target.code_size = code, len(code)
                self._kept.append(code)


class MemoryInput:
    """What a memory reader reads: one stack, then sorted regions, then a process (code_pid: its
    code only)."""

    __slots__ = (
        "_kept",
        "code_pid",
        "pid",
        "region_count",
        "regions",
        "stack",
        "stack_address",
        "stack_size",
    )

    def __init__(
        self,
        stack: tuple[int, Buffer] | None,
        regions: Sequence[tuple[int, Buffer]],
        pid: int,
        code_pid: int = 0,
    ) -> None:
        self.stack_address, self.stack_size, self.stack = 0, 0, ffi.NULL
        if stack is not None:
            self.stack_address = stack[0]
            self.stack = ffi.from_buffer("uint8_t[]", stack[1])
            self.stack_size = len(self.stack)
        self.pid = pid
        self.code_pid = code_pid
        self.region_count = len(regions)
        self.regions: CData = ffi.NULL
        self._kept = [ffi.from_buffer("uint8_t[]", data) for _, data in regions]
        if regions:
            self.regions = ffi.new("struct unspool_region[]", len(regions))
            for target, (address, _), data in zip(self.regions, regions, self._kept, strict=True):
                target.address, target.size, target.bytes = address, len(data), data

    @property
    def reads_code(self) -> bool:
        """Whether all code is read where the walk is: no module needs to bring it. With the copy of a stack,
        only what no module brings is read there: the process has gone on meanwhile, or ended."""
        return bool(self.pid or (self.code_pid and not self.stack))


class RegisterValues(NamedTuple):
    """Registers by DWARF number; the pc has its number too."""

    values: dict[int, int]
    pc_is_return_address: bool


class Walker:
    """The state of one walk at a time: registers, memory reader, results and cache.

    One thread at a time may use it. Using it again reuses its buffers, and the cache as long as
    the modules are the same.
    """

    def __init__(self, arch: str, address_bits: int, depth_limit: int) -> None:
        self._cache = ffi.new("struct unspool_cache *")
        library.unspool_cache_clear(self._cache)
        self._unwinder = ffi.new("struct unspool_unwinder *")
        self._unwinder.arch = ARCHITECTURES[arch]
        self._unwinder.address_bits = address_bits
        self._unwinder.cache = self._cache
        self._modules: Modules | None = None
        self._registers = ffi.new("struct unspool_registers *")
        self._values = self._registers.value
        self._memory = ffi.new("struct unspool_memory *")
        self._stack = ffi.new("struct unspool_stack *")
        self._addresses = ffi.new("uint64_t[]", depth_limit)
        self._how = ffi.new("uint8_t[]", depth_limit)
        self._stack.addresses, self._stack.how = self._addresses, self._how
        self._stack.capacity = depth_limit
        self._result = ffi.new("uint32_t[2]")

    def _use(self, modules: Modules) -> None:
        if modules is not self._modules:
            library.unspool_cache_clear(self._cache)
            self._unwinder.modules, self._unwinder.module_count = modules.pointer, modules.count
            self._modules = modules

    def _load(self, registers: RegisterValues, memory: MemoryInput) -> None:
        known = 0
        values = self._values
        for number, value in registers.values.items():
            values[number] = value
            known |= 1 << number
        self._registers.known = known
        self._registers.pc_is_return_address = registers.pc_is_return_address
        target = self._memory
        stack = target.stack
        stack.address, stack.size, stack.bytes = memory.stack_address, memory.stack_size, memory.stack
        target.regions, target.region_count = memory.regions, memory.region_count
        target.pid, target.code_pid = memory.pid, memory.code_pid
        library.unspool_memory_reset(target)

    def walk(
        self, modules: Modules, registers: RegisterValues, memory: MemoryInput
    ) -> tuple[bytes, bytes, int]:
        """Addresses (uint64 each), how (uint8 each) and the end of one stack."""
        self._use(modules)
        self._load(registers, memory)
        stack = self._stack
        library.unspool_walk(self._unwinder, self._registers, self._memory, stack)
        count = stack.count
        return ffi.buffer(self._addresses, count * 8)[:], ffi.buffer(self._how, count)[:], stack.end

    def step(
        self, modules: Modules, registers: RegisterValues, memory: MemoryInput
    ) -> tuple[RegisterValues, int] | int:
        """The caller's registers and how they were found, or the end."""
        self._use(modules)
        self._load(registers, memory)
        how, end = self._result + 0, self._result + 1
        if not library.unspool_step(self._unwinder, self._registers, self._memory, how, end):
            return int(end[0])
        known = self._registers.known
        values = {n: self._values[n] for n in range(len(self._values)) if known >> n & 1}
        return RegisterValues(values, bool(self._registers.pc_is_return_address)), int(how[0])

    def walk_many(
        self,
        modules: Modules,
        registers: NDArray[np.uint64],
        stack_offsets: NDArray[np.uint64],
        stack_bytes: NDArray[np.uint8],
        code_pid: int,
    ) -> "BatchResult":
        """Walk len(registers) samples; see struct unspool_batch. The arrays are C-contiguous, and
        stack_offsets were checked: sorted, inside stack_bytes."""
        self._use(modules)
        count = len(registers)
        depth_limit = int(self._stack.capacity)
        offsets = np.zeros(count + 1, np.uint64)
        ends = np.zeros(count, np.uint8)
        batch = ffi.new("struct unspool_batch *")
        batch.count, batch.depth_limit, batch.code_pid = count, depth_limit, code_pid
        inputs = [ffi.from_buffer(array) for array in (registers, stack_offsets, stack_bytes)]
        batch.registers = ffi.cast("uint64_t *", inputs[0])
        batch.stack_offsets = ffi.cast("uint64_t *", inputs[1])
        batch.stack_bytes = ffi.cast("uint8_t *", inputs[2])
        batch.offsets = ffi.cast("uint64_t *", ffi.from_buffer(offsets))
        batch.ends = ffi.cast("uint8_t *", ffi.from_buffer(ends))
        addresses, how = np.empty(0, np.uint64), np.empty(0, np.uint8)
        done = 0
        while done < count:
            # Room for the samples that are left, as deep as those before, and for one at its deepest.
            used = int(offsets[done])
            mean = used // done + 1 if done else 32
            addresses = _grown(addresses, used, used + (count - done) * mean + depth_limit)
            how = _grown(how, used, len(addresses))
            batch.addresses = ffi.cast("uint64_t *", ffi.from_buffer(addresses))
            batch.how = ffi.cast("uint8_t *", ffi.from_buffer(how))
            batch.capacity = len(addresses)
            reached = library.unspool_walk_many(self._unwinder, batch, done)
            if reached == done:
                raise RuntimeError(f"sample {done} was not walked although there is room for it")
            done = reached
        used = int(offsets[count])
        return BatchResult(addresses[:used], how[:used], offsets, ends)


class BatchResult(NamedTuple):
    """Frames of sample i are addresses/how[offsets[i] : offsets[i + 1]]."""

    addresses: NDArray[np.uint64]
    how: NDArray[np.uint8]
    offsets: NDArray[np.uint64]
    ends: NDArray[np.uint8]


def _grown(array: NDArray[Any], used: int, size: int) -> NDArray[Any]:
    grown = np.empty(size, array.dtype)
    grown[:used] = array[:used]
    return grown


# ---------------------------------------------------------------- the kernel's rings


class PerfRing:
    """A ring of perf_event_open(2), mapped: a page, then its data, a power of two of bytes. One thread at a
    time may read it. Close it before the mapping is closed."""

    def __init__(self, mapping: mmap.mmap) -> None:
        self.size = len(mapping) - mmap.PAGESIZE
        if self.size <= 0 or self.size & (self.size - 1):
            raise ValueError(f"a ring of {self.size} bytes")
        self._ring = ffi.from_buffer("uint8_t[]", mapping, require_writable=True)

    def read_into(self, buffer: NDArray[np.uint8]) -> int:
        """Take all that is there out of the ring; how many bytes. buffer: uint8[size] or more."""
        if len(buffer) < self.size:
            raise ValueError(f"a ring of {self.size} bytes does not fit into {len(buffer)}")
        target = ffi.from_buffer("uint8_t[]", buffer, require_writable=True)
        return int(library.unspool_perf_ring_read(self._ring, mmap.PAGESIZE, self.size, target))

    def close(self) -> None:
        """Let go of the mapping."""
        ffi.release(self._ring)
