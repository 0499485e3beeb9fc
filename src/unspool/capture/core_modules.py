"""Where code lies in the process that a core file is of, and which file it is from.

The kernel and gdb list the mapped files (NT_FILE). Where nobody does (qemu-user), they are found as the
dynamic loader knows them: program and loader by the auxiliary vector, libraries by its list of what it
loaded; and by the ELF headers in the core.
"""

import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from unspool.binaries import Binary, BinaryError
from unspool.binaries.binary import PAGE_SIZES
from unspool.capture.core_file import CoreFile
from unspool.capture.core_files import CoreFiles
from unspool.capture.core_image import CoreImage, image_at
from unspool.capture.core_map import UNKNOWN_PERMISSIONS
from unspool.capture.core_notes import Auxiliary
from unspool.capture.memory_map import MapEntry, MemoryMap

_VDSO_LIMIT = 1 << 20
_DT_DEBUG = 21
_DYNAMIC_LIMIT = 1 << 16  # bytes
_LINK_MAP_LIMIT = 1 << 14  # libraries
_PATH_LIMIT = 4096
_PAGE = 0x1000
_FILE_HEADER = 64  # bytes


@dataclass(frozen=True, slots=True)
class PlacedFile:
    """A file's code in the process: what lies in [start, end), or all of it (None). in_core: the file is
    missing; binary is what the core has of it."""

    binary: Binary
    image_base: int
    name: str
    in_core: bool
    start: int | None = None
    end: int | None = None


@dataclass(slots=True)
class CoreModules:
    core: CoreFile
    memory_map: MemoryMap
    auxiliary: dict[int, int]
    files: CoreFiles

    def placed(self) -> Iterator[PlacedFile]:
        """Every file that was found, or that the core itself holds."""
        listed: dict[str, list[MapEntry]] = {}
        for entry in self.memory_map.entries:
            if entry.path and not entry.path.startswith("["):
                listed.setdefault(entry.path, []).append(entry)
        if listed:
            for path, entries in listed.items():
                yield from self._listed(path, entries)
        else:
            yield from self._loaded()
        yield from self._vdso()

    def _listed(self, path: str, entries: list[MapEntry]) -> Iterator[PlacedFile]:
        """The code of one file of NT_FILE."""
        code = [entry for entry in entries if entry.executable or entry.permissions == UNKNOWN_PERMISSIONS]
        if not code:
            return
        first = next((entry for entry in entries if entry.file_offset == 0), None)
        image = image_at(self.core, first.start, path) if first is not None else None
        program_headers = self.auxiliary.get(Auxiliary.PHDR, -1)
        binary = self.files.find(
            path,
            image.binary if image is not None else None,
            lambda file: self._is_mapped_as(file, code, is_checked=image is not None),
            is_program=any(entry.start <= program_headers < entry.end for entry in entries),
        )
        if binary is None:
            return
        in_core = image is not None and binary is image.binary
        for entry in code:
            base = _base(binary, entry)
            if base is not None:
                yield PlacedFile(binary, base, entry.name, in_core, entry.start, entry.end)

    def _is_mapped_as(self, file: Binary, code: list[MapEntry], *, is_checked: bool) -> bool:
        """Where the core has nothing else to tell the file by, there must be as much code as it has, each
        time that it is mapped."""
        sizes: dict[int | None, int] = {}
        for entry in code:
            base = _base(file, entry)
            sizes[base] = sizes.get(base, 0) + entry.end - entry.start
        if is_checked or not all(entry.executable for entry in code):
            return set(sizes) != {None}
        return any({_code_size(file, page)} == set(sizes.values()) for page in PAGE_SIZES)

    def _vdso(self) -> Iterator[PlacedFile]:
        """It is in no file; the core has all of it, section headers included."""
        for entry in self.memory_map.entries:
            if entry.path == "[vdso]":
                data = self.core.read(entry.start, min(entry.end - entry.start, _VDSO_LIMIT))
                try:
                    binary = Binary.from_bytes(data, "[vdso]")
                except BinaryError as error:
                    self.files.missing["[vdso]"] = f"{error.what}; the core is cut short or damaged"
                    return
                base = _base(binary, entry)
                if base is not None:
                    yield PlacedFile(binary, base, "[vdso]", True, entry.start, entry.end)

    # ------------------------------------------------------------ without NT_FILE

    def _loaded(self) -> Iterator[PlacedFile]:
        """The files of a core that lists none."""
        known: set[int] = set()
        interpreter = None
        auxiliary = self.auxiliary
        # The program headers follow the file header, and the entry point says how far the program was moved.
        headers, entry = auxiliary.get(Auxiliary.PHDR, 0), auxiliary.get(Auxiliary.ENTRY, 0)
        if headers and entry:
            path = self._string(auxiliary.get(Auxiliary.EXECFN, 0)) or "[program]"
            image = image_at(self.core, headers - _FILE_HEADER, path)
            program = self._place(path, image, lambda file: entry - file.entry, is_program=True)
            if program is not None:
                yield program
                known.add(program.image_base)
                interpreter = _interpreter(program.binary)
                for library in self._libraries(self._debug_address(program, image)):
                    yield library
                    known.add(library.image_base)
        loader = auxiliary.get(Auxiliary.BASE, 0)
        if loader and loader not in known:
            name = interpreter or f"[loader at {loader:#x}]"
            placed = self._place(name, image_at(self.core, loader, name), _always(loader))
            if placed is not None:
                yield placed
                known.add(loader)
        yield from self._unnamed(known)

    def _libraries(self, debug: int) -> Iterator[PlacedFile]:
        """What the dynamic loader's list names."""
        for bias, path, dynamic in self._link_map(debug):
            if path and bias != self.auxiliary.get(Auxiliary.SYSINFO_EHDR):
                image = image_at(self.core, bias, path)
                placed = self._place(path, image, _always(bias), dynamic)
                if placed is not None:
                    yield placed

    def _unnamed(self, known: set[int]) -> Iterator[PlacedFile]:
        """Files whose headers the core has, and nothing else about them. known: image bases of others."""
        for entry in self.memory_map.entries:
            if entry.start in known or entry.path == "[vdso]":
                continue
            image = image_at(self.core, entry.start, f"[file at {entry.start:#x}]")
            if image is not None:
                placed = self._place(image.binary.path, image, _always(image.bias))
                if placed is not None:
                    yield placed

    def _place(
        self,
        path: str,
        image: CoreImage | None,
        bias_of: Callable[[Binary], int],
        dynamic: int = 0,
        *,
        is_program: bool = False,
    ) -> PlacedFile | None:
        """dynamic: where its dynamic section lies; 0 = not known."""

        def fits(file: Binary) -> bool:
            virtual = _dynamic_address(file)
            moved = dynamic and virtual is not None and virtual + bias_of(file) != dynamic
            return not moved and self._is_code_of(file, bias_of(file))

        of_core = image.binary if image is not None else None
        if of_core is not None and not self._is_code_of(of_core, bias_of(of_core)):
            of_core = None
        binary = self.files.find(path, of_core, fits, is_program=is_program)
        if binary is None:
            return None
        return PlacedFile(binary, bias_of(binary) + binary.image_address, path, binary is of_core)

    def _is_code_of(self, file: Binary, bias: int) -> bool:
        """Whether there is code wherever the file has some."""
        code = [segment for segment in file.segments if segment.executable and segment.memory_size]
        ends = [end for s in code for end in (s.address + bias, s.address + s.memory_size - 1 + bias)]
        entries = [self.memory_map.find(end) for end in ends]
        return bool(code) and bias % _PAGE == 0 and all(e is not None and e.executable for e in entries)

    def _link_map(self, debug: int) -> Iterator[tuple[int, str, int]]:
        """(bias, path, address of the dynamic section) of each file that is loaded (link.h: struct r_debug,
        struct link_map); the program has no path."""
        address = self._word(debug + 8) if debug else 0
        seen: set[int] = set()
        while address and address not in seen and len(seen) < _LINK_MAP_LIMIT:
            seen.add(address)
            data = self.core.read(address, 32)
            if len(data) < 32:
                return
            bias, name, dynamic, address = struct.unpack("<4Q", data)
            yield bias, self._string(name), dynamic

    def _debug_address(self, program: PlacedFile, image: CoreImage | None) -> int:
        """Where DT_DEBUG of the program, in the memory of the core, says that struct r_debug is; or 0."""
        virtual = image.dynamic if image is not None else _dynamic_address(program.binary)
        if virtual is None:
            return 0
        address = virtual + program.image_base - program.binary.image_address
        data = self.core.read(address, _DYNAMIC_LIMIT)
        for tag, value in struct.iter_unpack("<2Q", data[: len(data) & ~15]):
            if tag == _DT_DEBUG:
                return int(value)
            if tag == 0:
                break
        return 0

    def _word(self, address: int) -> int:
        """0 where there is none."""
        return int.from_bytes(self.core.read(address, 8), "little")

    def _string(self, address: int) -> str:
        return os.fsdecode(self.core.read(address, _PATH_LIMIT).partition(b"\0")[0])


def _base(binary: Binary, entry: MapEntry) -> int | None:
    return binary.image_base(entry.start, entry.file_offset, entry.end)


def _code_size(file: Binary, page: int) -> int:
    """Bytes that its code takes in memory."""
    ranges = [(s.address, s.address + s.memory_size) for s in file.segments if s.executable]
    return sum(-(-end // page) * page - start // page * page for start, end in ranges)


def _interpreter(binary: Binary) -> str | None:
    try:
        return binary.interpreter
    except BinaryError:
        return None


def _dynamic_address(binary: Binary) -> int | None:
    """The virtual address of the dynamic section."""
    try:
        section = binary.section(".dynamic")
    except BinaryError:
        return None
    return section.address if section is not None else None


def _always(bias: int) -> Callable[[Binary], int]:
    return lambda file: bias
