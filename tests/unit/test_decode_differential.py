"""The core's instruction decoders against capstone, over the code of real files.

Along capstone's instruction boundaries every length must agree. For every distinct instruction so must
the flow of control, the target, and which of sp, fp, lr and rbx are written. What capstone gets wrong, and
what we leave out on purpose, is listed below. Whole files are swept with

    python -m tests.unit.test_decode_differential FILE...
"""

import ctypes
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import capstone
import numpy as np
import pytest

from tests.system_files import system_file
from unspool import Binary

CORE = Path(__file__).resolve().parents[2] / "core"
DECODERS = ("x86_64_decode.c", "x86_64_opcodes.c", "x86_64_effects.c", "aarch64_decode.c")
SLICE = 1_000_000  # bytes of code that a test looks at in one file

# instruction.h's enums
NEXT, CALL, RETURN, JUMP, BRANCH, INDIRECT_JUMP, STOP, INVALID = range(8)
SP, FP, LR, BX = range(4)
STORE = 2


class Effect(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_uint8),
        ("to", ctypes.c_uint8),
        ("source", ctypes.c_uint8),
        ("size", ctypes.c_uint32),
        ("offset", ctypes.c_int64),
    )


class Instruction(ctypes.Structure):
    _fields_ = (
        ("length", ctypes.c_uint32),
        ("flow", ctypes.c_uint8),
        ("effect_count", ctypes.c_uint8),
        ("has_target", ctypes.c_uint8),
        ("popped", ctypes.c_uint32),
        ("target", ctypes.c_uint64),
        ("effects", Effect * 4),
    )

    def writes(self) -> set[int]:
        return {effect.to for effect in self.effects[: self.effect_count] if effect.kind != STORE}


def build_decoders(folder: Path) -> ctypes.CDLL:
    library = folder / "libdecode.so"
    command = [os.environ.get("CC", "cc"), "-std=c17", "-O2", "-fPIC", "-shared"]
    sources = [Path(__file__).with_name("decode_many.c"), *(CORE / "src" / name for name in DECODERS)]
    includes = [f"-I{CORE / 'include'}", f"-I{CORE / 'src'}"]
    subprocess.run([*command, *includes, *sources, "-o", library], check=True)
    return ctypes.CDLL(str(library))


def make_capstone(arch: str, detail: bool = False) -> capstone.Cs:
    if arch == "x86_64":
        disassembler = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    else:
        disassembler = capstone.Cs(capstone.CS_ARCH_ARM64, capstone.CS_MODE_LITTLE_ENDIAN)
    disassembler.skipdata = True
    disassembler.detail = detail
    return disassembler


# ------------------------------------------------------------------ what capstone says

STACK_REGISTERS = {
    "x86_64": {
        "rsp": SP,
        "esp": SP,
        "sp": SP,
        "spl": SP,
        "rbp": FP,
        "ebp": FP,
        "bp": FP,
        "bpl": FP,
        "rbx": BX,
        "ebx": BX,
        "bx": BX,
        "bl": BX,
        "bh": BX,
    },
    "aarch64": {"sp": SP, "wsp": SP, "x29": FP, "w29": FP, "fp": FP, "x30": LR, "w30": LR, "lr": LR},
}
STOPS = {"ud0", "ud1", "ud2", "ud2b", "hlt", "int3", "int1", "brk", "udf"}


def expected_x86_64_flow(name: str, immediate: int | None) -> int:
    if name == "int":
        return NEXT if immediate == 0x80 else STOP
    if name == "call":
        return CALL
    if name == "jmp":
        return INDIRECT_JUMP if immediate is None else JUMP
    if name == "ret":
        return RETURN
    return BRANCH if name.startswith(("j", "loop")) or name == "xbegin" else NEXT


def expected_aarch64_flow(name: str, operands: str) -> int:
    if name in ("bl", "blr", "blraa", "blrab", "blraaz", "blrabz"):
        return CALL
    if name == "b":
        return JUMP
    if name in ("ret", "br", "retaa", "retab"):
        is_return = operands in ("x30", "lr") or (name != "br" and not operands)
        return RETURN if is_return else INDIRECT_JUMP
    if name in ("braa", "brab", "braaz", "brabz"):
        return INDIRECT_JUMP
    return BRANCH if name.startswith(("b.", "cbz", "cbnz", "tbz", "tbnz")) else NEXT


def expected_flow(insn: capstone.CsInsn, arch: str) -> tuple[int, int | None]:
    """(flow, target or None)."""
    name = insn.mnemonic.split()[-1]
    immediate = next(
        (op.imm % 2**64 for op in reversed(insn.operands) if op.type == capstone.CS_OP_IMM), None
    )
    if name in STOPS:
        return STOP, None
    if arch == "x86_64":
        flow = expected_x86_64_flow(name, immediate)
    else:
        flow = expected_aarch64_flow(name, insn.op_str)
    return flow, immediate if flow in (CALL, JUMP, BRANCH) else None


def expected_writes(insn: capstone.CsInsn, arch: str) -> set[int]:
    names = STACK_REGISTERS[arch]
    written = {insn.reg_name(number) for number in insn.regs_access()[1]}
    return {names[name] for name in written if name in names}


# ------------------------------------------------------------------ what may differ

# Not decoded on purpose: far transfers, the kernel's own instructions, 3DNow.
LEFT_OUT = {"retf", "retfq", "iret", "iretd", "iretq", "lcall", "ljmp", "sysret", "sysretq", "sysexit", "rsm"}
LEFT_OUT |= {"vmread", "vmwrite", "femms"}
NO_MODRM_IN_CAPSTONE = {"ud0", "ud1"}
WRITES_IN_CAPSTONE_ONLY = {"svc", "xpaclri", "cmp", "cmn", "tst"}  # aarch64


def is_left_out(insn: capstone.CsInsn) -> bool:
    name = insn.mnemonic.split()[-1]
    is_far = name in ("call", "jmp") and insn.opcode[0] == 0xFF and insn.modrm >> 3 & 7 in (3, 5)
    flow, _ = expected_flow(insn, "x86_64")
    is_16_bit_branch = 0x66 in insn.prefix and not insn.rex & 8 and flow not in (NEXT, STOP)
    registers = [insn.reg_name(op.reg) for op in insn.operands if op.type == capstone.CS_OP_REG]
    is_control = any(register[:2] in ("cr", "dr") for register in registers)
    is_3dnow = bytes(insn.opcode[:2]) == b"\x0f\x0f"
    return name in LEFT_OUT or is_far or is_16_bit_branch or is_control or is_3dnow


def is_explained(insn: capstone.CsInsn, ours: Instruction, arch: str) -> bool:
    name = insn.mnemonic.split()[-1]
    if arch == "aarch64":
        return name in WRITES_IN_CAPSTONE_ONLY
    if ours.flow == INVALID:
        return is_left_out(insn)
    lists_no_write = name == "enter" or (name in ("push", "pop") and insn.op_str in ("fs", "gs"))
    return lists_no_write or name in NO_MODRM_IN_CAPSTONE


# ------------------------------------------------------------------ the comparison


def difference(ours: Instruction, insn: capstone.CsInsn, arch: str) -> str | None:
    """What differs, or None."""
    if is_explained(insn, ours, arch):
        return None
    if ours.length != insn.size:
        return f"length {ours.length}, not {insn.size}"
    if insn.bytes == b"\xe8\0\0\0\0":  # pushes its own address: no call for us
        return None
    flow, target = expected_flow(insn, arch)
    if ours.flow != flow:
        return f"flow {ours.flow}, not {flow}"
    if target is not None and ours.target != target:
        return f"target {ours.target:#x}, not {target:#x}"
    if flow in (CALL, RETURN, STOP):  # what the call itself does is told by the flow
        return None
    written, expected = ours.writes(), expected_writes(insn, arch)
    if arch == "aarch64" and insn.bytes[3] >> 1 & 15 == 2:
        expected |= written  # SVE: we tell more than may be written, and capstone leaves some out
    return None if written == expected else f"writes {sorted(written)}, not {sorted(expected)}"


@dataclass
class Sweep:
    """What was found over a file's code."""

    instructions: int = 0
    skipped_bytes: int = 0  # no instructions for capstone
    seen: set[bytes] = field(default_factory=set)
    differences: list[str] = field(default_factory=list)

    def add(self, decoders: ctypes.CDLL, arch: str, address: int, code: bytes) -> None:
        places = []
        for start, size, mnemonic, _ in make_capstone(arch).disasm_lite(code, address):
            if mnemonic == ".byte":
                self.skipped_bytes += size
            else:
                places.append((start - address, size))
        offsets = (ctypes.c_uint32 * len(places))(*(offset for offset, _ in places))
        decoded = (Instruction * len(places))()
        decoders.decode_many(
            ctypes.c_int(arch == "aarch64"),
            code,
            ctypes.c_size_t(len(code)),
            ctypes.c_uint64(address),
            offsets,
            ctypes.c_size_t(len(places)),
            decoded,
        )
        self.instructions += len(places)
        detailed = make_capstone(arch, detail=True)
        for (offset, size), ours in zip(places, decoded, strict=True):
            raw = code[offset : offset + size]
            if raw in self.seen and ours.length == size:
                continue
            self.seen.add(raw)
            insn = next(detailed.disasm(raw, address + offset))
            what = difference(ours, insn, arch)
            if what is not None:
                text = f"{insn.mnemonic} {insn.op_str}".strip()
                self.differences.append(f"{address + offset:#x}: {raw.hex()} {text}: {what}")


def executable_sections(path: Path) -> Iterator[tuple[str, int, bytes]]:
    """(architecture, address, bytes) of each section with instructions."""
    with Binary.open(path) as binary:
        for section in binary.sections:
            if section.type == 1 and section.flags & 4:
                yield binary.arch, section.address, bytes(section.data)


# ------------------------------------------------------------------ tests


@pytest.fixture(scope="module")
def decoders(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return build_decoders(tmp_path_factory.mktemp("decoders"))


def sweep_slices(decoders: ctypes.CDLL, path: Path, slices: int) -> Sweep:
    """Looks at SLICE bytes of the file's largest section, in so many parts spread over it."""
    arch, address, code = max(executable_sections(path), key=lambda section: len(section[2]))
    result = Sweep()
    part = min(SLICE, len(code)) // slices & ~3
    for i in range(slices):
        start = (len(code) - part) * i // max(slices - 1, 1) & ~3
        result.add(decoders, arch, address + start, code[start : start + part])
    return result


@pytest.mark.parametrize(
    ("arch", "name"), [("x86_64", "libc.so.6"), ("x86_64", "libm.so.6"), ("aarch64", "libc.so.6")]
)
def test_decoders_agree_with_capstone_over_a_system_library(
    decoders: ctypes.CDLL, arch: str, name: str
) -> None:
    result = sweep_slices(decoders, system_file(arch, name), 1)
    assert result.differences == []
    assert result.instructions > 50_000
    assert result.skipped_bytes < 16  # at most an instruction that the slice cuts


def test_decoders_agree_with_capstone_over_openblas(decoders: ctypes.CDLL) -> None:
    """Hand-written kernels and vector code of every kind, up to AVX-512 or SVE."""
    path = next((Path(np.__file__).parents[1] / "numpy.libs").glob("libscipy_openblas*"))
    result = sweep_slices(decoders, path, 10)
    assert result.differences == []
    assert result.instructions > 50_000


def main(paths: list[str]) -> int:
    status = 0
    with tempfile.TemporaryDirectory() as folder:
        decoders = build_decoders(Path(folder))
        for path in paths:
            result = Sweep()
            for arch, address, code in executable_sections(Path(path)):
                result.add(decoders, arch, address, code)
            print(
                f"{path}: {result.instructions} instructions, {len(result.seen)} distinct, "
                f"{result.skipped_bytes} bytes skipped, {len(result.differences)} differences",
                *result.differences[:20],
                sep="\n    ",
                flush=True,
            )
            status |= bool(result.differences)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
