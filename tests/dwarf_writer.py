"""An assembler for call frame information: with it a test builds its condition in front of the reader.

    section = eh_frame()
    cie = section.cie(X86_64_CIE)
    section.fde(cie, 0x1000, 0x20, advance_loc(1), def_cfa_offset(16), offset(RBP, 2))
    section.data

Operands are the raw ones of DWARF: what an instruction multiplies with an alignment factor is given
before the multiplication. It writes what it is told, also what is invalid, and checks nothing.
Encodings: DWARF 5, 7.24 (call frame instructions), 7.7.1 (expressions); LSB Core 5.0, 10.5 and 10.6.
"""

from __future__ import annotations

from dataclasses import dataclass, field

# DWARF's numbers of the registers that rules are about.
RAX, RDX, RCX, RBX, RSI, RDI, RBP, RSP, R8, R9, R10, R11, R12, R13, R14, R15, RIP = range(17)
X19, FP, LR, SP, PC = 19, 29, 30, 31, 32

# DW_EH_PE: how a pointer is stored, and what it counts from.
ABSPTR, ULEB128, UDATA2, UDATA4, UDATA8, SLEB128, SDATA2, SDATA4, SDATA8 = 0, 1, 2, 3, 4, 9, 10, 11, 12
PCREL, TEXTREL, DATAREL, FUNCREL, ALIGNED, INDIRECT, OMIT = 0x10, 0x20, 0x30, 0x40, 0x50, 0x80, 0xFF


def u8(value: int) -> bytes:
    return (value & 0xFF).to_bytes(1, "little")


def u16(value: int) -> bytes:
    return (value & 0xFFFF).to_bytes(2, "little")


def u32(value: int) -> bytes:
    return (value & 0xFFFFFFFF).to_bytes(4, "little")


def u64(value: int) -> bytes:
    return (value & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "little")


def uleb(value: int) -> bytes:
    value &= 0xFFFFFFFFFFFFFFFF
    groups = [value & 0x7F]
    while value := value >> 7:
        groups.append(value & 0x7F)
    return bytes(group | 0x80 for group in groups[:-1]) + bytes(groups[-1:])


def sleb(value: int) -> bytes:
    groups: list[int] = []
    while True:
        group, value = value & 0x7F, value >> 7
        if value == (-1 if group & 0x40 else 0):
            return bytes(groups) + u8(group)
        groups.append(group | 0x80)


# ---------------------------------------------------------------- call frame instructions

NOP = b"\x00"
REMEMBER_STATE, RESTORE_STATE = b"\x0a", b"\x0b"
NEGATE_RA_STATE = b"\x2d"  # aarch64; GNU_window_save elsewhere


def advance_loc(delta: int) -> bytes:
    return u8(0x40 | delta)


def advance_loc1(delta: int) -> bytes:
    return b"\x02" + u8(delta)


def advance_loc2(delta: int) -> bytes:
    return b"\x03" + u16(delta)


def advance_loc4(delta: int) -> bytes:
    return b"\x04" + u32(delta)


def set_loc(encoded_address: bytes) -> bytes:
    return b"\x01" + encoded_address


def def_cfa(register: int, offset: int) -> bytes:
    return b"\x0c" + uleb(register) + uleb(offset)


def def_cfa_sf(register: int, factored: int) -> bytes:
    return b"\x12" + uleb(register) + sleb(factored)


def def_cfa_register(register: int) -> bytes:
    return b"\x0d" + uleb(register)


def def_cfa_offset(offset: int) -> bytes:
    return b"\x0e" + uleb(offset)


def def_cfa_offset_sf(factored: int) -> bytes:
    return b"\x13" + sleb(factored)


def def_cfa_expression(code: bytes) -> bytes:
    return b"\x0f" + uleb(len(code)) + code


def undefined(register: int) -> bytes:
    return b"\x07" + uleb(register)


def same_value(register: int) -> bytes:
    return b"\x08" + uleb(register)


def offset(register: int, factored: int) -> bytes:
    return u8(0x80 | register) + uleb(factored)


def offset_extended(register: int, factored: int) -> bytes:
    return b"\x05" + uleb(register) + uleb(factored)


def offset_extended_sf(register: int, factored: int) -> bytes:
    return b"\x11" + uleb(register) + sleb(factored)


def gnu_negative_offset_extended(register: int, factored: int) -> bytes:
    return b"\x2f" + uleb(register) + uleb(factored)


def val_offset(register: int, factored: int) -> bytes:
    return b"\x14" + uleb(register) + uleb(factored)


def val_offset_sf(register: int, factored: int) -> bytes:
    return b"\x15" + uleb(register) + sleb(factored)


def in_register(register: int, other: int) -> bytes:
    """DW_CFA_register."""
    return b"\x09" + uleb(register) + uleb(other)


def expression(register: int, code: bytes) -> bytes:
    return b"\x10" + uleb(register) + uleb(len(code)) + code


def val_expression(register: int, code: bytes) -> bytes:
    return b"\x16" + uleb(register) + uleb(len(code)) + code


def restore(register: int) -> bytes:
    return u8(0xC0 | register)


def restore_extended(register: int) -> bytes:
    return b"\x06" + uleb(register)


def gnu_args_size(size: int) -> bytes:
    return b"\x2e" + uleb(size)


# ---------------------------------------------------------------- expressions

OP_DEREF, OP_DUP, OP_DROP, OP_OVER, OP_SWAP, OP_ROT = b"\x06", b"\x12", b"\x13", b"\x14", b"\x16", b"\x17"
OP_ABS, OP_AND, OP_DIV, OP_MINUS, OP_MOD, OP_MUL = b"\x19", b"\x1a", b"\x1b", b"\x1c", b"\x1d", b"\x1e"
OP_NEG, OP_NOT, OP_OR, OP_PLUS, OP_SHL, OP_SHR = b"\x1f", b"\x20", b"\x21", b"\x22", b"\x24", b"\x25"
OP_SHRA, OP_XOR, OP_EQ, OP_GE, OP_GT, OP_LE = b"\x26", b"\x27", b"\x29", b"\x2a", b"\x2b", b"\x2c"
OP_LT, OP_NE, OP_NOP = b"\x2d", b"\x2e", b"\x96"


def op_lit(value: int) -> bytes:
    return u8(0x30 + value)


def op_addr(address: int) -> bytes:
    return b"\x03" + u64(address)


def op_const(size: int, is_signed: bool, value: int) -> bytes:
    """DW_OP_const1u .. DW_OP_const8s."""
    return u8({1: 0x08, 2: 0x0A, 4: 0x0C, 8: 0x0E}[size] + is_signed) + u64(value)[:size]


def op_constu(value: int) -> bytes:
    return b"\x10" + uleb(value)


def op_consts(value: int) -> bytes:
    return b"\x11" + sleb(value)


def op_breg(register: int, added: int) -> bytes:
    return u8(0x70 + register) + sleb(added)


def op_bregx(register: int, added: int) -> bytes:
    return b"\x92" + uleb(register) + sleb(added)


def op_plus_uconst(value: int) -> bytes:
    return b"\x23" + uleb(value)


def op_pick(index: int) -> bytes:
    return b"\x15" + u8(index)


def op_deref_size(size: int) -> bytes:
    return b"\x94" + u8(size)


def op_bra(distance: int) -> bytes:
    return b"\x28" + u16(distance)


def op_skip(distance: int) -> bytes:
    return b"\x2f" + u16(distance)


# ---------------------------------------------------------------- entries


@dataclass(frozen=True)
class CieSpec:
    """What a CIE says. personality: the bytes that 'P' stands for (encoding and pointer)."""

    instructions: bytes
    version: int = 1
    augmentation: str = "zR"
    code_alignment: int = 1
    data_alignment: int = -8
    return_address_register: int = RIP
    pointer_encoding: int = PCREL | SDATA4
    language_data_encoding: int = PCREL | SDATA4
    personality: bytes = u8(UDATA4) + u32(0)
    address_size: int = 8
    segment_selector_size: int = 0
    augmentation_data: bytes | None = None  # instead of what the letters ask for


X86_64_CIE = CieSpec(def_cfa(RSP, 8) + offset(RIP, 1))
AARCH64_CIE = CieSpec(def_cfa(SP, 0), code_alignment=4, return_address_register=LR)
X86_64_DEBUG_CIE = CieSpec(def_cfa(RSP, 8) + offset(RIP, 1), augmentation="", pointer_encoding=ABSPTR)
AARCH64_DEBUG_CIE = CieSpec(
    def_cfa(SP, 0), augmentation="", pointer_encoding=ABSPTR, code_alignment=4, return_address_register=LR
)


@dataclass(frozen=True)
class PlacedCie:
    offset: int
    spec: CieSpec


@dataclass
class FrameSection:
    """A section that grows by what is written to it."""

    is_eh_frame: bool
    address: int
    is_64bit: bool = False  # lengths: DWARF 5, 7.4
    text_address: int = 0
    data_address: int = 0
    parts: bytearray = field(default_factory=bytearray)

    @property
    def data(self) -> bytes:
        return bytes(self.parts)

    def raw(self, data: bytes) -> int:
        """Bytes as they are; returns their offset."""
        at = len(self.parts)
        self.parts += data
        return at

    def terminator(self) -> int:
        return self.raw(u32(0))

    def entry(self, body: bytes) -> int:
        """A length and what it counts, filled up with DW_CFA_nop to a multiple of 8 bytes."""
        head = 12 if self.is_64bit else 4
        body += NOP * (-(head + len(body)) % 8)
        return self.raw((u32(0xFFFFFFFF) + u64(len(body)) if self.is_64bit else u32(len(body))) + body)

    def identifier(self, value: int) -> bytes:
        """CIE id or CIE pointer: in .eh_frame 4 bytes also behind a 64-bit length."""
        return u64(value) if self.is_64bit and not self.is_eh_frame else u32(value)

    def cie(self, spec: CieSpec, *more_instructions: bytes) -> PlacedCie:
        body = self.identifier(0 if self.is_eh_frame else -1) + u8(spec.version)
        body += spec.augmentation.encode() + b"\0"
        if spec.augmentation.startswith("eh"):
            body += u64(0)
        if spec.version == 4:
            body += u8(spec.address_size) + u8(spec.segment_selector_size)
        body += uleb(spec.code_alignment) + sleb(spec.data_alignment)
        number = spec.return_address_register
        body += u8(number) if spec.version == 1 else uleb(number)
        if "z" in spec.augmentation:
            data = spec.augmentation_data
            data = self.augmentation_data(spec) if data is None else data
            body += uleb(len(data)) + data
        at = self.entry(body + spec.instructions + b"".join(more_instructions))
        return PlacedCie(at, spec)

    @staticmethod
    def augmentation_data(spec: CieSpec) -> bytes:
        of_letter = {
            "R": u8(spec.pointer_encoding),
            "L": u8(spec.language_data_encoding),
            "P": spec.personality,
        }
        return b"".join(of_letter.get(letter, b"") for letter in spec.augmentation)

    def fde(
        self,
        cie: PlacedCie,
        start: int,
        size: int,
        *instructions: bytes,
        cie_offset: int | None = None,
        augmentation_data: bytes = b"",
    ) -> int:
        """An FDE; returns its offset. cie_offset: to point elsewhere than to the CIE."""
        body_at = len(self.parts) + (12 if self.is_64bit else 4)
        cie_offset = cie.offset if cie_offset is None else cie_offset
        body = self.identifier(body_at - cie_offset if self.is_eh_frame else cie_offset)
        encoding = cie.spec.pointer_encoding
        body += self.pointer(encoding, start, self.address + body_at + len(body))
        body += stored(encoding, size)
        if "z" in cie.spec.augmentation:
            body += uleb(len(augmentation_data)) + augmentation_data
        return self.entry(body + b"".join(instructions))

    def pointer(self, encoding: int, target: int, at: int) -> bytes:
        """An encoded pointer that is written at an address."""
        base = {PCREL: at, TEXTREL: self.text_address, DATAREL: self.data_address}.get(encoding & 0x70, 0)
        return stored(encoding, target - base)


def stored(encoding: int, value: int) -> bytes:
    """A value in the format of a pointer encoding."""
    format_ = encoding & 0x0F
    if format_ == ULEB128:
        return uleb(value)
    if format_ == SLEB128:
        return sleb(value)
    return u64(value)[: {UDATA2: 2, SDATA2: 2, UDATA4: 4, SDATA4: 4}.get(format_, 8)]


def eh_frame(address: int = 0x10000, is_64bit: bool = False) -> FrameSection:
    return FrameSection(True, address, is_64bit)


def debug_frame(is_64bit: bool = False) -> FrameSection:
    return FrameSection(False, 0, is_64bit)
