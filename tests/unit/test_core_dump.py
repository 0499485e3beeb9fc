"""Core files of small processes: which files they had, stacks by those files and by the core's own pages."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.core_writer import (
    EXECUTE,
    READ,
    WRITE,
    FileAt,
    Memory,
    auxiliary,
    core_file,
    core_note,
    mapped_files,
    process,
    thread,
)
from tests.elf_writer import ALLOC, EXEC, EXEC_FILE, Section, Segment, elf_file
from tests.small_library import IMAGE_BASE, Library
from tests.stopped_library import PAGE, STACK, StoppedLibrary, not_dumped, words
from unspool.binaries import BinaryError
from unspool.capture import CaptureError, core_dump
from unspool.capture.core_dump import CoreDump
from unspool.capture.core_image import image_at
from unspool.unwind import Stack, StackEnd

LibraryOf = Callable[[str], Library]
ARCHES = ("x86_64", "aarch64")
PHDR, BASE, ENTRY, EXECFN, SYSINFO_EHDR = 3, 7, 9, 31, 33


@pytest.fixture(params=ARCHES)
def stopped(request: pytest.FixtureRequest, library: LibraryOf) -> StoppedLibrary:
    return StoppedLibrary(library(request.param))


@pytest.fixture
def opened(tmp_path: Path) -> Callable[..., CoreDump]:
    """Writes a core file and opens it, its modules loaded."""

    def write_and_open(
        memory: list[Memory],
        notes: list[bytes],
        arch: str = "x86_64",
        executable: Path | None = None,
        sysroots: tuple[Path, ...] = (),
    ) -> CoreDump:
        path = tmp_path / "the.core"
        path.write_bytes(core_file(memory, notes, arch=arch))
        core = CoreDump.open(path, executable, sysroots)
        core.load_modules()
        return core

    return write_and_open


Opened = Callable[..., CoreDump]


def the_stack(core: CoreDump) -> Stack:
    (thread,) = core.capture()
    stack = core.walk(thread)
    assert stack is not None
    return stack


def test_a_file_is_checked_by_the_build_id_in_the_core(stopped: StoppedLibrary, opened: Opened) -> None:
    memory = [*not_dumped(stopped.pages(), but_first=True), Memory(STACK, stopped.stack())]
    core = opened(memory, [stopped.thread(), stopped.files(), process(5, "it", "it -x")], stopped.arch)
    assert (core.missing, core.unchecked, core.problems) == ({}, [], [])
    stack = the_stack(core)
    assert stack.addresses == stopped.frames and stack.complete
    assert (core.pid, core.command, core.arch) == (5, "it -x", stopped.arch)
    assert core.signal is not None and (core.signal.number, core.signal.tid) == (6, 7)


def test_a_file_that_nothing_checks(stopped: StoppedLibrary, opened: Opened) -> None:
    """It is used, and that is told."""
    memory = [*not_dumped(stopped.pages(), but_first=False), Memory(STACK, stopped.stack())]
    core = opened(memory, [stopped.thread(), stopped.files()], stopped.arch)
    path = stopped.library.binary.path
    assert the_stack(core).addresses == stopped.frames
    assert core.unchecked == [path]
    assert core.problems == [f"{path}: used unchecked, since the core holds no build id of it"]


def test_a_file_with_more_code_than_was_mapped(stopped: StoppedLibrary, opened: Opened) -> None:
    """Nothing but the sizes tells that it is another version."""
    pages = not_dumped(stopped.pages(), but_first=False)
    code = next(page for page in pages if page.flags & EXECUTE)
    code.size = (code.size or 0) + PAGE
    files = stopped.files().replace(
        words(code.start, code.start + code.size - PAGE), words(code.start, code.start + code.size)
    )
    core = opened([*pages, Memory(STACK, stopped.stack())], [stopped.thread(), files], stopped.arch)
    assert the_stack(core).end is StackEnd.NO_UNWIND_INFO
    assert "its code is not what is mapped" in core.missing[stopped.library.binary.path]


def test_a_file_with_another_build_id_is_not_used(stopped: StoppedLibrary, opened: Opened) -> None:
    build_id = stopped.library.binary.build_id
    assert build_id is not None
    pages = not_dumped(stopped.pages(), but_first=True)
    assert build_id in pages[0].data
    other = bytes(byte ^ 0xFF for byte in build_id)
    pages[0].data = pages[0].data.replace(build_id, other)
    core = opened([*pages, Memory(STACK, stopped.stack())], [stopped.thread(), stopped.files()], stopped.arch)
    path = stopped.library.binary.path
    assert core.missing == {
        path: f"its build id is {build_id.hex()}, the core has {other.hex()}; name the folder that holds it "
        f"with --sysroot, or fetch it: debuginfod-find executable {other.hex()}"
    }
    stack = the_stack(core)
    assert stack.addresses[0] == stopped.frames[0] and not stack.complete


def test_without_a_build_id_the_program_headers_tell(opened: Opened, tmp_path: Path) -> None:
    """Two files without build ids: the one whose segments are others is not used."""

    def program(size: int) -> bytes:
        return elf_file(
            [Section(".text", b"\xc3" * size, flags=ALLOC | EXEC, address=0x401000)],
            [Segment(0x400000, offset=0, file_size=64 + 2 * 56), Segment(0x401000, ".text")],
            type=EXEC_FILE,
        )

    path = tmp_path / "program"
    path.write_bytes(program(32))
    header = Memory(0x400000, program(32)[:PAGE].ljust(PAGE, b"\0"), flags=READ | EXECUTE)
    notes = [thread(1, pc=0x400100, sp=STACK), mapped_files(FileAt(0x400000, 0x401000, 0, str(path)))]
    assert opened([header], notes).missing == {}
    path.write_bytes(program(48))
    assert "its program headers differ" in opened([header], notes).missing[str(path)]


def test_a_missing_file_is_walked_by_its_pages_in_the_core(stopped: StoppedLibrary, opened: Opened) -> None:
    memory = [*stopped.pages(), Memory(STACK, stopped.stack())]
    core = opened(memory, [stopped.thread(), stopped.files("/nowhere/lib.so")], stopped.arch)
    stack = the_stack(core)
    assert stack.addresses == stopped.frames and stack.complete
    assert list(core.missing) == ["/nowhere/lib.so"]
    module = stack[0].module
    assert module is not None and module.binary is not None and module.name == "/nowhere/lib.so"
    assert module.binary.build_id == stopped.library.binary.build_id


def test_where_its_pages_are_not_in_the_core_the_stack_is_cut(library: LibraryOf, opened: Opened) -> None:
    """Nothing says how to go on, and nothing is made up."""
    stopped = StoppedLibrary(library("x86_64"))  # for aarch64 all of it lies in the first page
    memory = [*not_dumped(stopped.pages(), but_first=True), Memory(STACK, stopped.stack())]
    core = opened(memory, [stopped.thread(), stopped.files("/nowhere/lib.so (deleted)")], stopped.arch)
    stack = the_stack(core)
    assert stack.addresses == stopped.frames[:1] and stack.end is StackEnd.NO_UNWIND_INFO
    assert list(core.missing) == ["/nowhere/lib.so"]


@pytest.mark.parametrize("place", ["path", "name", "debuginfod"])
def test_where_else_a_file_is_searched(
    place: str, stopped: StoppedLibrary, opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under its path or its name in a sysroot, and where debuginfod-find puts it."""
    build_id = stopped.library.binary.build_id
    assert build_id is not None
    folders = {
        "path": tmp_path / "root/usr/lib/real.so",
        "name": tmp_path / "root/real.so",
        "debuginfod": tmp_path / build_id.hex() / "executable",
    }
    folders[place].parent.mkdir(parents=True, exist_ok=True)
    folders[place].write_bytes(Path(stopped.library.binary.path).read_bytes())
    monkeypatch.setenv("DEBUGINFOD_CACHE_PATH", str(tmp_path))
    memory = [*not_dumped(stopped.pages(), but_first=True), Memory(STACK, stopped.stack())]
    notes = [stopped.thread(), stopped.files("/usr/lib/real.so")]
    core = opened(memory, notes, stopped.arch, sysroots=(tmp_path / "root",))
    assert core.missing == {}
    assert the_stack(core).complete


def test_gdb_leaves_code_out_of_the_segments(library: LibraryOf, opened: Opened) -> None:
    """Then only NT_FILE says that there is something, and the file's own headers that it is code. Unwind
    information lies in another segment, which gdb may have dumped."""
    stopped = StoppedLibrary(library("x86_64"))
    pages = [page for page in stopped.pages() if not page.flags & EXECUTE]
    memory = [*pages, Memory(STACK, stopped.stack())]
    assert the_stack(opened(memory, [stopped.thread(), stopped.files()], stopped.arch)).complete
    core = opened(memory, [stopped.thread(), stopped.files("/nowhere/lib.so")], stopped.arch)
    assert the_stack(core).addresses == stopped.frames
    assert list(core.missing) == ["/nowhere/lib.so"]


def test_the_vdso_is_in_the_core_only(stopped: StoppedLibrary, opened: Opened) -> None:
    """Here the library plays its part, from first to last byte in one mapping."""
    data = Path(stopped.library.binary.path).read_bytes()
    code = next(segment for segment in stopped.library.binary.segments if segment.executable)
    assert code.address == code.file_offset, "file offsets are relative addresses"
    memory = [Memory(IMAGE_BASE, data, flags=READ | EXECUTE), Memory(STACK, stopped.stack())]
    core = opened(memory, [stopped.thread(), auxiliary({SYSINFO_EHDR: IMAGE_BASE})], stopped.arch)
    stack = the_stack(core)
    assert stack.addresses == stopped.frames and stack.complete
    assert {frame.module.name for frame in stack if frame.module} == {"[vdso]"}


def test_names_from_pages_that_the_loader_changed(library: LibraryOf, opened: Opened) -> None:
    """glibc turns the virtual addresses in the dynamic section into addresses."""
    stopped = StoppedLibrary(library("x86_64"))
    section = stopped.library.binary.section(".dynamic")
    assert section is not None
    pages = stopped.pages()
    page = next(p for p in pages if p.start <= IMAGE_BASE + section.address < p.start + len(p.data))
    offset = IMAGE_BASE + section.address - page.start
    changed = bytearray(page.data)
    for place in range(offset, offset + section.size, 16):
        tag, value = struct.unpack_from("<QQ", changed, place)
        if tag in (5, 6, 0x6FFFFEF5):  # DT_STRTAB, DT_SYMTAB, DT_GNU_HASH
            struct.pack_into("<Q", changed, place + 8, value + IMAGE_BASE)
    assert changed != page.data
    page.data = bytes(changed)
    core = opened([*pages, Memory(STACK, stopped.stack())], [stopped.thread(), stopped.files("/nowhere/l")])
    frame = the_stack(core)[0]
    assert frame.module is not None and frame.module.binary is not None
    assert frame.relative_lookup_address is not None
    found = frame.module.binary.symbols.lookup(frame.relative_lookup_address)
    assert found is not None and found[0] in ("inner", "inner_body")


# ---------------------------------------------------------------- without NT_FILE


PROGRAM = 0x5500_0000_0000
LOADER_LIST = 0x5600_0000_0000


class Loaded:
    """A program and a library, as only the dynamic loader knows them."""

    def __init__(self, stopped: StoppedLibrary, folder: Path) -> None:
        self.stopped = stopped
        self.program = folder / "program"
        code = b"\xc3" * 64
        dynamic = words(21, 0, 0, 0)
        text = Section(".text", code, flags=ALLOC | EXEC, address=0x1000)
        data = Section(".dynamic", dynamic, flags=ALLOC, address=0x3000)
        machine = {"x86_64": 62, "aarch64": 183}[stopped.arch]
        segments = [Segment(0x1000, ".text"), Segment(0x3000, ".dynamic", flags=6)]
        self.program.write_bytes(elf_file([text, data], segments, machine=machine, entry=0x1010))
        section = stopped.library.binary.section(".dynamic")
        assert section is not None
        self.dynamic = IMAGE_BASE + section.address
        self.links = [(PROGRAM, b"", PROGRAM + 0x3000), (IMAGE_BASE, b"/lib/lib.so", self.dynamic)]

    def memory(self) -> list[Memory]:
        """struct r_debug, then the list of struct link_map, each with its name behind it."""
        data = bytearray(words(1, LOADER_LIST + 0x100).ljust(0x100, b"\0"))
        for index, (bias, name, dynamic) in enumerate(self.links):
            here = LOADER_LIST + 0x100 * (index + 1)
            following = here + 0x100 if index + 1 < len(self.links) else 0
            data += (words(bias, here + 64, dynamic, following).ljust(64, b"\0") + name).ljust(0x100, b"\0")
        return [
            Memory(PROGRAM + 0x1000, b"", PAGE, READ | EXECUTE),
            Memory(PROGRAM + 0x3000, words(21, LOADER_LIST, 0, 0)),
            Memory(LOADER_LIST, bytes(data)),
            Memory(STACK, self.stopped.stack()),
            *not_dumped(self.stopped.pages(), but_first=False),
        ]

    def notes(self) -> list[bytes]:
        values = {PHDR: PROGRAM + 64, ENTRY: PROGRAM + 0x1010}
        return [self.stopped.thread(), auxiliary(values)]


def test_libraries_by_the_loaders_list(stopped: StoppedLibrary, opened: Opened, tmp_path: Path) -> None:
    loaded = Loaded(stopped, tmp_path)
    folder = Path(stopped.library.binary.path).parent
    core = opened(loaded.memory(), loaded.notes(), stopped.arch, loaded.program, (folder,))
    stack = the_stack(core)
    assert stack.addresses == stopped.frames and stack.complete
    assert core.missing == {}
    assert set(core.unchecked) == {str(loaded.program), stopped.library.binary.path}


@pytest.mark.parametrize("damage", ["loop", "cut", "moved", "shifted", "nothing"])
def test_damaged_lists_of_the_loader(
    damage: str, stopped: StoppedLibrary, opened: Opened, tmp_path: Path
) -> None:
    """A list that goes in circles or ends nowhere; a library whose dynamic section or code is elsewhere: it
    is another file."""
    loaded = Loaded(stopped, tmp_path)
    memory = loaded.memory()
    if damage == "loop":
        memory[2].data = memory[2].data.replace(
            words(loaded.dynamic, 0), words(loaded.dynamic, LOADER_LIST + 0x100)
        )
    elif damage == "cut":
        memory[2].data = memory[2].data[:0x210]
    elif damage == "moved":
        loaded.links[1] = (IMAGE_BASE, b"/lib/lib.so", loaded.dynamic + 16)
        memory = loaded.memory()
    elif damage == "shifted":
        loaded.links[1] = (IMAGE_BASE + 0x100000, b"/lib/lib.so", loaded.dynamic + 0x100000)
        memory = loaded.memory()
    else:
        memory[1].data = words(21, 0xBAD0_0000, 0, 0)
    folder = Path(stopped.library.binary.path).parent
    core = opened(memory, loaded.notes(), stopped.arch, loaded.program, (folder,))
    stack = the_stack(core)
    assert stack.complete == (damage == "loop")
    assert ("/lib/lib.so" in core.missing) == (damage in ("moved", "shifted"))


def test_a_program_that_was_not_moved_by_whole_pages(
    stopped: StoppedLibrary, opened: Opened, tmp_path: Path
) -> None:
    """Its entry point is elsewhere: another program than the one that is named."""
    loaded = Loaded(stopped, tmp_path)
    notes = [stopped.thread(), auxiliary({PHDR: PROGRAM + 64, ENTRY: PROGRAM + 0x1014})]
    core = opened(loaded.memory(), notes, stopped.arch, loaded.program)
    assert "not the program of this core" in core.missing[str(loaded.program)]


def test_files_by_their_headers_in_the_core(stopped: StoppedLibrary, opened: Opened) -> None:
    """Nobody lists anything, but pages that begin as ELF files do are some."""
    memory = [*stopped.pages(), Memory(STACK, stopped.stack())]
    core = opened(memory, [stopped.thread()], stopped.arch)
    stack = the_stack(core)
    assert stack.addresses == stopped.frames and stack.complete
    assert list(core.missing) == [f"[file at {IMAGE_BASE:#x}]"]


# ---------------------------------------------------------------- threads


def test_an_executable_stack(stopped: StoppedLibrary, opened: Opened) -> None:
    """Its bytes are stack and code without a file at once."""
    stack = Memory(STACK - PAGE, bytes(PAGE) + stopped.stack(), flags=READ | WRITE | EXECUTE)
    memory = [*stopped.pages(), stack]
    core = opened(memory, [stopped.thread(), stopped.files()], stopped.arch)
    (captured,) = core.capture()
    assert captured.memory is not None
    (below, code), (start, copied) = captured.memory.regions
    assert below == stack.start and start + len(copied) == STACK + len(stopped.stack())
    assert below + len(code) == start <= STACK
    assert the_stack(core).complete


def test_threads_in_the_order_of_the_core(opened: Opened) -> None:
    """The first is the one that died. Only the process has a name."""
    core = opened(
        [Memory(STACK, bytes(64))], [thread(9, sp=STACK), process(4, "it", ""), thread(4), thread(9)]
    )
    assert [(one.tid, one.name, one.state) for one in core.capture()] == [(9, "", ""), (4, "it", "")]
    assert [one.tid for one in core.capture([4])] == [4]
    assert core.thread_ids() == [4, 9]
    assert [(one.tid, one.memory) for one, _ in core.stacks()] == [(9, None), (4, None)]


def test_a_thread_whose_registers_are_cut_off(opened: Opened) -> None:
    """As those of a 32-bit thread are too few."""
    core = opened([], [core_note(1, thread(1)[20 : 20 + 200]), thread(2)])
    first, second = core.capture()
    assert first.registers is None and first.problem == "its registers are not a 64-bit thread's"
    assert core.walk(first) is None and second.registers is not None


def test_stacks_that_are_too_much(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """20,000 threads that claim the same 64 MiB: some are walked, the others can be named."""
    monkeypatch.setattr(core_dump, "_COPY_LIMIT", 100)
    core = opened([Memory(STACK, bytes(64))], [thread(tid, sp=STACK) for tid in range(1, 6)])
    result = core.stacks()
    assert [stack is not None for _, stack in result] == [True, True, False, False, False]
    assert "name it with --thread" in (result[-1][0].problem or "")
    assert core.stacks([5])[0][1] is not None


def test_a_core_without_threads(opened: Opened) -> None:
    with pytest.raises(CaptureError, match="has no threads"):
        opened([Memory(STACK, bytes(64))], [process(4, "it", "")])


def test_what_is_cut_off_is_told(stopped: StoppedLibrary, tmp_path: Path) -> None:
    path = tmp_path / "the.core"
    data = core_file([Memory(STACK, b"s" * PAGE)], [stopped.thread()], arch=stopped.arch)
    path.write_bytes(data[: data.index(b"s" * PAGE) + 1000])
    with CoreDump.open(path) as core:
        assert core.problems == [
            f"{path} is cut short: 3096 bytes of memory are missing, from {STACK + 1000:#x} on"
        ]


# ---------------------------------------------------------------- damage


def test_damage_ends_in_one_of_two_errors(stopped: StoppedLibrary, tmp_path: Path) -> None:
    """300 damaged cores, with all that a core has in them: no other exception, no end without a reason."""
    loaded = Loaded(stopped, tmp_path)
    memory = [*stopped.pages(), *loaded.memory()[:4]]
    files = stopped.files("/nowhere/lib.so")
    notes = [*loaded.notes(), process(7, "it", "it"), files]
    numbers = random.Random(11)
    path = tmp_path / "the.core"
    special = [0, 1, 0xFFFF, 1 << 31, (1 << 64) - 1, 1 << 63, PAGE, IMAGE_BASE, STACK, (1 << 64) - PAGE]
    walked = 0
    for number in range(300):
        data = bytearray(core_file(memory, notes if number % 2 else notes[:-1], arch=stopped.arch))
        headers = 64 + 56 * (len(memory) + 1) + 2000
        for _ in range(numbers.choice((1, 2, 8))):
            place = numbers.randrange(0, headers if numbers.random() < 0.8 else len(data) - 8, 4)
            struct.pack_into("<Q", data, place, numbers.choice(special))
        if number % 5 == 0:
            data = data[: numbers.randrange(len(data))]
        path.write_bytes(data)
        try:
            with CoreDump.open(path, loaded.program) as core:
                for _, stack in core.stacks():
                    walked += stack is not None and len(stack) > 1
        except (BinaryError, CaptureError):
            pass
    assert walked > 30


def test_an_image_with_headers_that_claim_anything(stopped: StoppedLibrary, opened: Opened) -> None:
    """The program headers in the core's pages, damaged: a file or none, never an exception."""
    numbers = random.Random(3)
    pages = stopped.pages()
    good = pages[0].data
    read = 0
    for _ in range(150):
        damaged = bytearray(good)
        struct.pack_into(
            "<Q", damaged, numbers.randrange(16, 500, 2), numbers.getrandbits(64) >> numbers.randrange(64)
        )
        pages[0].data = bytes(damaged)
        core = opened([*pages, Memory(STACK, stopped.stack())], [stopped.thread()], stopped.arch)
        image = image_at(core._core, IMAGE_BASE, "x")
        read += image is not None
        the_stack(core)
    assert read > 30
