"""Writes the seeds of the C core's fuzz targets to core/fuzz/corpus/: python -m tests.fuzz.core_seeds

Sections come from tiny functions, compiled here, and from an assembler for what compilers rarely write.
The layouts of the inputs are in core/fuzz/*.c.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from tests import dwarf_writer as dwarf
from unspool.binaries import Binary

CORPUS = Path(__file__).parents[2] / "core" / "fuzz" / "corpus"

FUNCTIONS = """
int leaf(int n) { volatile char kept[200]; kept[0] = n; return kept[0]; }
int called(int (*f)(int), int n) { int a = f(n), b = f(a); return f(a + b) + a * b; }
int sized(int (*f)(char *), int n) { char bytes[n]; return f(bytes) + 1; }
void *realigned(int (*f)(void *)) { _Alignas(64) char bytes[64]; f(bytes); return 0; }
"""

COMPILERS = {
    "x86_64": ["gcc", "-O2"],
    "x86_64_frame_pointer": ["gcc", "-O1", "-fno-omit-frame-pointer"],
    "aarch64": ["aarch64-linux-gnu-gcc", "-O2"],
    "aarch64_signed": ["aarch64-linux-gnu-gcc", "-O1", "-mbranch-protection=standard"],
}

CODE_AT, STACK_AT = 0x400000, 0x7FFF0000


def compiled_section(command: list[str], kind: str) -> tuple[int, bytes]:
    """Address and bytes of an unwind section of the functions' shared library."""
    options = ["-g", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"]
    command = [*command, *(options if kind == "debug_frame" else ["-fasynchronous-unwind-tables"])]
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "library.so"
        command += [
            "-shared",
            "-nostdlib",
            "-fPIC",
            "-Wl,--build-id=none",
            "-x",
            "c",
            "-",
            "-o",
            str(library),
        ]
        subprocess.run(command, input=FUNCTIONS.encode(), check=True)
        section = next(s for s in Binary.open(library).unwind_sections() if s.kind == kind)
        return section.address, bytes(section.data)


def compile_seeds() -> dict[str, bytes]:
    """Inputs of fuzz_compile: choices, split, address / 16, entry point, sections."""
    seeds = {}
    for name, command in COMPILERS.items():
        address, data = compiled_section(command, "eh_frame")
        is_aarch64 = int("aarch64" in name)
        padding = address % 16  # addresses are multiples of 16: an empty entry or more before
        data = dwarf.u32(0) * (padding // 4) + data
        head = dwarf.u8(is_aarch64) + b"\xff" + dwarf.u16(address // 16) + dwarf.u32(0)
        seeds[name] = head + data
    for arch, command in (("x86_64", COMPILERS["x86_64"]), ("aarch64", COMPILERS["aarch64"])):
        _, data = compiled_section(command, "debug_frame")
        seeds[f"{arch}_debug_frame"] = dwarf.u8((arch == "aarch64") | 2) + b"\xff" + bytes(6) + data
    both = dwarf.eh_frame(address=0x1000)
    cie = both.cie(dwarf.CieSpec(dwarf.def_cfa(7, 8) + dwarf.offset(16, 1), version=3, augmentation="zPLRS"))
    both.fde(cie, 0x2000, 0x40, dwarf.advance_loc(4), dwarf.def_cfa(10, 0), augmentation_data=b"\0\0\0\0")
    both.terminator()
    both.fde(cie, 0x2010, 0x10, dwarf.def_cfa_expression(dwarf.op_breg(6, -8) + dwarf.OP_DEREF))
    debug = dwarf.debug_frame(is_64bit=True)
    debug_cie = debug.cie(dwarf.CieSpec(dwarf.def_cfa(7, 8), version=4, augmentation="", pointer_encoding=0))
    debug.fde(debug_cie, 0x1FF0, 0x100, dwarf.undefined(16), dwarf.REMEMBER_STATE, dwarf.advance_loc1(9))
    split = 255 * len(both.data) // (len(both.data) + len(debug.data)) + 1
    head = dwarf.u8(4 | 16) + dwarf.u8(split) + dwarf.u16(0x100) + dwarf.u32(0x2004)
    seeds["both_sections"] = head + both.data + debug.data
    return seeds


def stack_word(index: int) -> int:
    """The byte that stands for the address of a word of the stack (core/fuzz/input.h)."""
    return 3 << 5 | index


def code_address(index: int) -> int:
    """The byte that stands for 0x401000 + 64 * index."""
    return 2 << 5 | index


def registers(known: int, values: dict[int, int]) -> bytes:
    return dwarf.u32(known) + bytes(values.get(number, 0) for number in range(33)) + b"\0"


PLT_CFA = b"".join(
    (
        dwarf.op_breg(7, 8),
        dwarf.op_breg(16, 0) + dwarf.op_lit(15) + dwarf.OP_AND,
        dwarf.op_lit(11) + dwarf.OP_GE + dwarf.op_lit(3) + dwarf.OP_SHL + dwarf.OP_PLUS,
    )
)

# What call frame information of x86_64 has that no rule can say, each as one program.
EXACT_PROGRAMS = {
    "realigned": (
        dwarf.def_cfa_expression(dwarf.op_breg(6, -8) + dwarf.OP_DEREF),
        dwarf.expression(6, dwarf.op_breg(6, 0)),
    ),
    "plt": (dwarf.def_cfa_expression(PLT_CFA),),
    "vfork": (dwarf.in_register(16, 5), dwarf.def_cfa_offset(0)),
    "longjmp": (
        dwarf.def_cfa(5, 0),
        dwarf.in_register(7, 8) + dwarf.in_register(6, 9) + dwarf.in_register(16, 1),
    ),
    "setcontext": (
        dwarf.def_cfa(1, 0),
        dwarf.offset_extended_sf(7, -3) + dwarf.offset_extended_sf(16, -4),
    ),
    "loop": (dwarf.val_expression(16, dwarf.op_lit(1) + dwarf.OP_DUP + dwarf.op_bra(-4)),),
    "rows": (
        dwarf.advance_loc(4) + dwarf.REMEMBER_STATE + dwarf.def_cfa(10, 8),
        dwarf.advance_loc(9) + dwarf.RESTORE_STATE + dwarf.val_offset(7, 2),
    ),
}


def exact_seeds() -> dict[str, bytes]:
    """Inputs of fuzz_exact."""
    memory = bytes([stack_word(9), code_address(2), 0x05, stack_word(20)] * 10)
    values = {n: stack_word(2 + n) for n in range(16)} | {16: code_address(0) + 1, 7: stack_word(4)}
    seeds = {}
    for name, parts in EXACT_PROGRAMS.items():
        program = b"".join(parts)
        head = dwarf.u8(8 | 4) + bytes([16, 0, len(program), 16])
        seeds[name] = head + registers(0x1FFFF, values) + program + memory
    program = dwarf.NEGATE_RA_STATE + dwarf.def_cfa(16, 0) + dwarf.offset(30, 1) + dwarf.offset(29, 2)
    head = dwarf.u8(8 | 1) + bytes([30, 0, len(program), 16])
    values = {n: stack_word(n) for n in range(32)}
    seeds["aarch64"] = head + registers(0xFFFFFFFF, values) + program + memory
    return seeds


def walk_section(arch: str, is_doubted: bool = False) -> bytes:
    """Functions at 0x1000 (root), 0x1040 and 0x1080 (by fp), 0x10c0 (exact). is_doubted: the first has one
    row, which its code, if any, does not follow."""
    is_aarch64 = arch == "aarch64"
    fp, saved, ra = (29, 19, 30) if is_aarch64 else (6, 3, 16)
    spec = dwarf.CieSpec(
        dwarf.def_cfa(31, 0) if is_aarch64 else dwarf.def_cfa(7, 8) + dwarf.offset(16, 1),
        augmentation="",
        pointer_encoding=0,
        code_alignment=4 if is_aarch64 else 1,
        return_address_register=ra,
    )
    section = dwarf.eh_frame()
    cie = section.cie(spec)
    section.fde(cie, 0x1000, 0x40, *(() if is_doubted else (dwarf.undefined(ra),)))
    section.fde(cie, 0x1040, 0x40, dwarf.def_cfa_offset(32), dwarf.offset(ra, 1), dwarf.offset(saved, 2))
    section.fde(cie, 0x1080, 0x40, dwarf.def_cfa(fp, 16), dwarf.offset(ra, 1), dwarf.offset(fp, 2))
    section.fde(cie, 0x10C0, 0x40, dwarf.def_cfa(saved, 16), dwarf.offset(ra, 1))
    return section.data


X86_64_CODE = bytes.fromhex("554889e5e8000000005dc3") + bytes(21) + bytes.fromhex("48c7c00f0000000f05")
AARCH64_CODE = (
    bytes.fromhex("fd7bbfa9fd03009100000094fd7bc1a8c0035fd6") + bytes(12) + bytes.fromhex("681180d2010000d4")
)


def walk_seeds() -> dict[str, bytes]:
    """Inputs of fuzz_walk."""
    seeds = {}
    for arch, code in (("x86_64", X86_64_CODE), ("aarch64", AARCH64_CODE)):
        is_aarch64 = int(arch == "aarch64")
        pc, sp, fp, lr = (32, 31, 29, 30) if is_aarch64 else (16, 7, 6, 15)
        values = {pc: code_address(1), sp: stack_word(0), fp: stack_word(10), lr: code_address(3)}
        values |= {3: stack_word(20), 19: stack_word(20)}
        memory = [0] * 64
        memory[3], memory[10], memory[11], memory[21] = (
            code_address(2) + 1,
            1,
            code_address(3) + 1,
            code_address(0),
        )
        cfi = walk_section(arch)
        in_code = {pc: 1 << 5 | 4}  # 0x401004
        for name, choices, table, changes in (
            ("rules", 0, cfi, b""),
            ("two_modules", 16, cfi, b""),
            ("code", 8 | 4, b"", b""),
            ("doubted", 0, walk_section(arch, is_doubted=True), b""),
            ("damaged", 0, cfi, dwarf.u16(0x140) + dwarf.u16(0x0101)),
        ):
            changed = bytes([len(changes) // 4])
            head = (
                bytes([is_aarch64 | choices, 0])
                + dwarf.u16(len(table))
                + dwarf.u16(len(code))
                + changed
                + b"\x06"
            )
            at = values | in_code if name in ("code", "doubted") else values
            body = registers(0xFFFFFFFF, at) + changes + table + code + bytes(memory)
            seeds[f"{arch}_{name}"] = head + body
    return seeds


def main() -> None:
    for target, seeds in (
        ("fuzz_compile", compile_seeds()),
        ("fuzz_exact", exact_seeds()),
        ("fuzz_walk", walk_seeds()),
    ):
        folder = CORPUS / target
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in seeds.items():
            (folder / name).write_bytes(data)
        print(f"{target}: {len(seeds)} seeds, {sum(map(len, seeds.values()))} bytes")


if __name__ == "__main__":
    main()
