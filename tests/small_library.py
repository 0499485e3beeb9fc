"""A small shared library whose unwind information every reader of a test can work out by hand."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from unspool import Binary

# root calls outer calls middle calls inner, which is interrupted at inner_body.
X86_64 = """
    .text
    .globl root, root_return, outer, outer_return, middle, middle_return, inner, inner_body
    .type root, @function; .type outer, @function; .type middle, @function; .type inner, @function
root:                               # the outermost frame: CFI says that nobody called
    .cfi_startproc
    .cfi_undefined rip
    call outer
root_return:
    hlt
    .cfi_endproc
outer:                              # keeps a frame pointer: CFA = fp+16
    .cfi_startproc
    push %rbp
    .cfi_def_cfa_offset 16
    .cfi_offset rbp, -16
    mov %rsp, %rbp
    .cfi_def_cfa_register rbp
    call middle
outer_return:
    pop %rbp
    .cfi_def_cfa rsp, 8
    ret
    .cfi_endproc
middle:                             # CFA = sp+32 after the prologue
    .cfi_startproc
    sub $24, %rsp
    .cfi_def_cfa_offset 32
    call inner
middle_return:
    add $24, %rsp
    .cfi_def_cfa_offset 8
    ret
    .cfi_endproc
inner:                              # saves rbx at CFA-16
    .cfi_startproc
    push %rbx
    .cfi_def_cfa_offset 16
    .cfi_offset rbx, -16
inner_body:
    nop
    pop %rbx
    .cfi_def_cfa_offset 8
    .cfi_restore rbx
    ret
    .cfi_endproc
    .skip 16, 0xcc
exact:                              # CFA = [rsp+8]: no rule can say this
    .globl exact
    .type exact, @function
    .cfi_startproc
    .cfi_escape 0x0f, 3, 0x77, 8, 0x06
    nop
    .cfi_endproc
    .size exact, . - exact
"""

# The same on aarch64; inner is a leaf that keeps no frame record: its return address is in lr.
AARCH64 = """
    .text
    .globl root, root_return, outer, outer_return, middle, middle_return, inner, inner_body
    .type root, %function; .type outer, %function; .type middle, %function; .type inner, %function
root:
    .cfi_startproc
    .cfi_undefined x30
    bl outer
root_return:
    brk #0
    .cfi_endproc
outer:                              # CFA = fp+16
    .cfi_startproc
    stp x29, x30, [sp, #-16]!
    .cfi_def_cfa_offset 16
    .cfi_offset x29, -16
    .cfi_offset x30, -8
    mov x29, sp
    .cfi_def_cfa_register x29
    bl middle
outer_return:
    ldp x29, x30, [sp], #16
    .cfi_def_cfa sp, 0
    .cfi_restore x29
    .cfi_restore x30
    ret
    .cfi_endproc
middle:                             # CFA = sp+32
    .cfi_startproc
    str x30, [sp, #-32]!
    .cfi_def_cfa_offset 32
    .cfi_offset x30, -32
    bl inner
middle_return:
    ldr x30, [sp], #32
    .cfi_def_cfa_offset 0
    .cfi_restore x30
    ret
    .cfi_endproc
inner:
    .cfi_startproc
    nop
inner_body:
    nop
    ret
    .cfi_endproc
"""

COMPILERS = {"x86_64": "gcc", "aarch64": "aarch64-linux-gnu-gcc"}
SOURCES = {"x86_64": X86_64, "aarch64": AARCH64}
IMAGE_BASE = 0x7F12_3400_0000


@dataclass(frozen=True)
class Library:
    """A library and the relative addresses of its labels."""

    binary: Binary
    labels: dict[str, int]

    def at(self, label: str) -> int:
        """A label's address where the library is mapped at IMAGE_BASE."""
        return IMAGE_BASE + self.labels[label]


def build_library(arch: str, folder: Path) -> Library:
    """Assemble the library of an architecture in a folder."""
    source, path = folder / "lib.S", folder / "lib.so"
    source.write_text(SOURCES[arch])
    subprocess.run([COMPILERS[arch], "-shared", "-nostdlib", source, "-o", path], check=True)
    output = subprocess.run(["nm", path], check=True, capture_output=True, text=True).stdout
    labels = {name: int(address, 16) for address, _, name in (line.split() for line in output.splitlines())}
    return Library(Binary.open(path), labels)
