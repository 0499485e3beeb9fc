"""Common Information Entries and Frame Description Entries (DWARF 5, 6.4.1; LSB Core 5.0, 10.6.1).

A section is a sequence of entries, each with its length in front. It may not lose an entry in
silence: what can't be read becomes a Problem, and reading goes on after it as long as its length
says where that is.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from . import pointers
from .cursor import ADDRESS_MASK, CfiError, Cursor
from .pointers import Bases

X86_64, AARCH64 = "x86_64", "aarch64"


@dataclass(frozen=True)
class Section:
    """The bytes of an .eh_frame or a .debug_frame, and what its pointers count from."""

    data: bytes
    is_eh_frame: bool
    address: int = 0  # the virtual address of data[0]; only .eh_frame's pointers need it
    text_address: int | None = None
    data_address: int | None = None

    def bases(self, function: int | None = None) -> Bases:
        return Bases(self.address, self.text_address, self.data_address, function)


@dataclass(frozen=True)
class Cie:
    """What many FDEs have in common."""

    offset: int
    version: int
    augmentation: str
    address_size: int
    code_alignment_factor: int
    data_alignment_factor: int
    return_address_register: int
    pointer_encoding: int  # 'R': of the FDE's addresses
    has_augmentation_data: bool  # 'z'
    is_signal_frame: bool  # 'S'
    uses_b_key: bool  # 'B': return addresses are signed with the B key (aarch64)
    has_tagged_stack: bool  # 'G': MTE (aarch64)
    section: Section
    instructions: tuple[int, int]  # section.data[a:b]


@dataclass(frozen=True)
class Fde:
    """What holds for one range of code: start <= address < end, virtual addresses of the file."""

    offset: int
    cie: Cie
    start: int
    end: int
    instructions: tuple[int, int]


@dataclass(frozen=True)
class Problem:
    """An entry that can't be read."""

    offset: int
    message: str


@dataclass
class Entries:
    """All entries of a section, in its order. terminators: offsets of entries of length 0."""

    cies: dict[int, Cie] = field(default_factory=dict)
    fdes: list[Fde] = field(default_factory=list)
    terminators: list[int] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def read_entries(section: Section) -> Entries:
    """Reads every entry. A length of zero ends .eh_frame for the linker that wrote it there, but
    another object file's entries may follow (crt1.o, crtend.o): reading goes on."""
    entries = Entries()
    cursor = Cursor(section.data)
    while cursor.left > 0:
        offset = cursor.position
        try:
            length, is_64bit = cursor.initial_length()
            if length == 0:
                entries.terminators.append(offset)
                continue
            body = cursor.window(length)
        except CfiError as error:  # nothing says where the next entry is
            entries.problems.append(Problem(offset, error.message))
            break
        try:
            read_entry(section, offset, body, is_64bit, entries)
        except CfiError as error:
            entries.problems.append(Problem(offset, str(error)))
    return entries


def read_entry(section: Section, offset: int, body: Cursor, is_64bit: bool, entries: Entries) -> None:
    """The field after the length tells CIE from FDE. In .debug_frame a CIE has all bits set there,
    in an FDE it is the CIE's offset. In .eh_frame a CIE has 0, in an FDE it is the distance from
    the field back to the CIE, and it has 4 bytes even behind a 64-bit length."""
    field_offset = body.position
    id_size = 8 if is_64bit and not section.is_eh_frame else 4
    identifier = body.unsigned(id_size)
    if identifier == (0 if section.is_eh_frame else (1 << 8 * id_size) - 1):
        entries.cies[offset] = read_cie(section, offset, body)
        return
    cie_offset = field_offset - identifier if section.is_eh_frame else identifier
    entries.fdes.append(read_fde(section, offset, body, find_cie(section, cie_offset, entries)))


def find_cie(section: Section, offset: int, entries: Entries) -> Cie:
    """The CIE at an offset, which in .debug_frame may still lie ahead."""
    if offset in entries.cies:
        return entries.cies[offset]
    if not 0 <= offset < len(section.data):
        raise CfiError("no CIE lies", offset)
    cursor = Cursor(section.data, offset)
    length, is_64bit = cursor.initial_length()
    body = cursor.window(length)
    id_size = 8 if is_64bit and not section.is_eh_frame else 4
    if body.unsigned(id_size) != (0 if section.is_eh_frame else (1 << 8 * id_size) - 1):
        raise CfiError("no CIE lies", offset)
    return read_cie(section, offset, body)


def read_cie(section: Section, offset: int, body: Cursor) -> Cie:
    """DWARF 5, 6.4.1, in the order of the fields there."""
    version = body.unsigned(1)
    if version not in (1, 3, 4):
        raise CfiError(f"CIE version {version} is unknown", body.position - 1)
    augmentation = body.string().decode("latin-1")
    if augmentation.startswith("eh"):  # gcc 2: a pointer that nothing here needs
        augmentation = augmentation[2:]
        body.take(8)
    address_size = 8
    if version == 4:
        address_size = body.unsigned(1)
        segment_selector_size = body.unsigned(1)
        if address_size != 8 or segment_selector_size != 0:
            raise CfiError(
                f"addresses of {address_size} bytes with segments of {segment_selector_size} bytes",
                body.position - 2,
            )
    code_alignment_factor = body.uleb128()
    data_alignment_factor = body.sleb128()
    return_address_register = body.unsigned(1) if version == 1 else body.uleb128()

    encoding = pointers.ABSPTR
    if augmentation.startswith("z"):
        encoding = read_augmentation_data(section, augmentation, body.window(body.uleb128()))
    elif augmentation.strip("SBG"):  # letters that carry no data need no 'z' in front
        raise CfiError(f"augmentation {augmentation!r} is unknown", offset)
    return Cie(
        offset=offset,
        version=version,
        augmentation=augmentation,
        address_size=address_size,
        code_alignment_factor=code_alignment_factor,
        data_alignment_factor=data_alignment_factor,
        return_address_register=return_address_register,
        pointer_encoding=encoding,
        has_augmentation_data=augmentation.startswith("z"),
        is_signal_frame="S" in augmentation,
        uses_b_key="B" in augmentation,
        has_tagged_stack="G" in augmentation,
        section=section,
        instructions=(body.position, body.end),
    )


def read_augmentation_data(section: Section, augmentation: str, data: Cursor) -> int:
    """LSB Core 5.0, 10.6.1.1.1: the letters after 'z' say what the data holds, in their order.
    Returns the FDEs' pointer encoding."""
    encoding = pointers.ABSPTR
    for letter in augmentation[1:]:
        if letter == "R":
            encoding = data.unsigned(1)
        elif letter == "L":  # encoding of the FDE's pointer to language specific data
            data.unsigned(1)
        elif letter == "P":  # encoding of, and pointer to, a personality routine
            pointers.skip_pointer(data, data.unsigned(1), section.address)
        elif letter not in "SBG":
            raise CfiError(f"augmentation {augmentation!r} is unknown", data.position)
    return encoding


def read_fde(section: Section, offset: int, body: Cursor, cie: Cie) -> Fde:
    """DWARF 5, 6.4.1. The range is stored as the initial location is, without its base."""
    start = pointers.read_pointer(body, cie.pointer_encoding, section.bases(), cie.address_size)
    size = pointers.read_value(body, cie.pointer_encoding, cie.address_size)
    if size < 0 or start + size > ADDRESS_MASK + 1:
        raise CfiError(f"{size} bytes from {start:#x} are no range of addresses", offset)
    if cie.has_augmentation_data:
        body.take(body.uleb128())
    return Fde(offset, cie, start, start + size, (body.position, body.end))
