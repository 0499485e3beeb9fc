"""The oracle's own tests, and its quick slice.

A small assembly program with known instructions says whether the tracer counts rightly, and a table made
from falsified call frame information whether it would notice a wrong stack.
"""

import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.oracle.__main__ import READERS, problems
from tests.oracle.combinations import Combination, combinations
from tests.oracle.tracing import Tables, Trace, build_tracer, trace

# Twelve calls: six rounds of `middle`, which calls `leaf` through a frame of 24 bytes.
COUNTED = """
    .globl _start
_start:
    .cfi_startproc
    .cfi_undefined rip
    mov $6, %ebx
1:  call middle
    dec %ebx
    jnz 1b
    mov $60, %eax
    xor %edi, %edi
    syscall
    .cfi_endproc
middle:
    .cfi_startproc
    sub $24, %rsp
    .cfi_def_cfa_offset 32
    lea 2f(%rip), %rax
    mov %rax, 16(%rsp)          # an address that looks like a return address
    call leaf
    add $24, %rsp
    .cfi_def_cfa_offset 8
    ret
    .cfi_endproc
leaf:
    .cfi_startproc
    push %rbx
    .cfi_def_cfa_offset 16
    pop %rbx
    .cfi_def_cfa_offset 8
    ret
    .cfi_endproc
never:
    .cfi_startproc
    .cfi_undefined rip
    call leaf
2:  hlt
    .cfi_endproc
    .section .note.GNU-stack,"",@progbits
"""
IN_ROUND = 3 + 6 + 3  # instructions of the loop, of middle and of leaf

# Control goes by every way that is no plain call and return; the program counts its steps in ebx.
IRREGULAR = """
    .globl _start
_start:
    .cfi_startproc
    .cfi_undefined rip
    call 1f                     # asks for the pc
1:  pop %rax
    call returns_by_jump
    call returns_by_push
    lea 2f(%rip), %rax
    push %rax
    ret                         # a jump
2:  call leaps
    mov $1, %edi                # never comes here
3:  call rewrites
    mov $1, %edi                # never comes here
4:  mov $60, %eax
    xor %edi, %edi
    syscall
    .cfi_endproc

returns_by_jump:
    pop %rcx
    jmp *%rcx
returns_by_push:
    pop %rdi
    nop
    push %rdi
    ret
leaps:                          # longjmp out of two frames
    call 5f
5:  call 6f
6:  lea 24(%rsp), %rsp
    lea 3b(%rip), %rdx
    jmp *%rdx
rewrites:
    lea 4b(%rip), %rax
    mov %rax, (%rsp)
    ret
    .section .note.GNU-stack,"",@progbits
"""


# vfork's way: the return address waits in a register, here while another function is called, too.
POPPED = """
    .globl _start
_start:
    .cfi_startproc
    .cfi_undefined rip
    call keeps
    mov $60, %eax
    xor %edi, %edi
    syscall
    .cfi_endproc
keeps:
    .cfi_startproc
    pop %rbx
    .cfi_def_cfa_offset 0
    .cfi_register rip, rbx
    nop
    call other
    nop
    push %rbx
    .cfi_def_cfa_offset 8
    .cfi_offset rip, -8
    ret
    .cfi_endproc
other:
    .cfi_startproc
    ret
    .cfi_endproc
    .section .note.GNU-stack,"",@progbits
"""


# musl's sigsetjmp and siglongjmp: back to behind a call that was made while a return address was in a buffer.
HELD = """
    .globl _start
_start:
    .cfi_startproc
    .cfi_undefined rip
    lea buffer(%rip), %rbx
    xor %r12d, %r12d
    call sets                   # comes back twice
    test %r12d, %r12d
    jnz 1f
    inc %r12d
    call leaps
1:  mov $60, %eax
    xor %edi, %edi
    syscall
    .cfi_endproc
sets:
    pop 16(%rbx)
    call remembers
    push 16(%rbx)
    ret
remembers:
    lea 8(%rsp), %rax
    mov %rax, (%rbx)
    mov (%rsp), %rax
    mov %rax, 8(%rbx)
    ret
leaps:
    mov (%rbx), %rsp
    jmp *8(%rbx)
    .local buffer
    .comm buffer, 24, 8
    .section .note.GNU-stack,"",@progbits
"""


@dataclass
class Bench:
    """The tracer and what it needs."""

    tracer: Path
    tables: Tables
    folder: Path

    def assemble(self, name: str, text: str) -> Path:
        source, program = self.folder / f"{name}.s", self.folder / name
        source.write_text(text)
        command = ["gcc", "-nostdlib", "-static", "-no-pie", "-o", str(program), str(source)]
        subprocess.run(command, check=True)
        return program

    def run(self, program: Path, **options: Any) -> Trace:
        return trace(self.tracer, [str(program)], options.pop("tables", self.tables), self.folder, **options)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    folder = tmp_path_factory.mktemp("oracle")
    return Bench(build_tracer(folder), Tables(folder), folder)


def falsified(program: Path) -> Path:
    """A copy in which `middle` claims a CFA eight bytes too low once its frame is made."""
    data = program.read_bytes()
    claim = bytes([0x0E, 32])  # DW_CFA_def_cfa_offset 32
    assert data.count(claim) == 1
    other = program.with_suffix(".falsified")
    other.write_bytes(data.replace(claim, bytes([0x0E, 24])))
    return other


def test_counts_every_instruction_call_and_return(bench: Bench) -> None:
    results = bench.run(bench.assemble("counted", COUNTED)).results
    assert results["exit_code"] == 0
    # The last system call does not return: it is looked at, but never done.
    assert results["steps"] == 1 + 6 * IN_ROUND + 2
    assert results["distinct_pcs"] == results["checks"] == 1 + IN_ROUND + 3
    assert results["truth"]["calls"] == results["truth"]["returns_right"] == 12
    assert results["truth"]["deepest"] == 2
    for reader in READERS:
        assert results[reader]["exact"] == results["checks"]
    assert results["kinds"] == []


def test_notices_a_wrong_stack(bench: Bench, tmp_path: Path) -> None:
    program = bench.assemble("noticed", COUNTED)
    tables = Tables(tmp_path, {str(program): falsified(program)})
    results = bench.run(program, tables=tables).results
    for reader in READERS:
        # In middle behind its first instruction, and in leaf: at first there is no address in the wrong slot.
        assert results[reader]["cut"] == 2
        assert results[reader]["wrong_complete"] == 2 + 3
        assert results[reader]["exact"] == results["checks"] - 2 - 2 - 3
    assert len(problems("noticed", results)) == len(READERS)
    wrong = [kind for kind in results["kinds"] if kind["verdict"] == "wrong_complete"]
    assert sum(kind["count"] for kind in wrong) == len(READERS) * (2 + 3)
    for kind in wrong:
        assert kind["truth"][: kind["failed"]] == kind["walked"][: kind["failed"]]
        assert kind["truth"][kind["failed"]] != kind["walked"][kind["failed"]]


def test_follows_every_way_control_can_go(bench: Bench) -> None:
    results = bench.run(bench.assemble("irregular", IRREGULAR)).results
    truth = results["truth"]
    assert results["exit_code"] == 0
    # leaps: its frame and the two that it pretends to call were never returned from
    assert truth["calls"] == 7
    assert truth["returns_right"] == 1  # of returns_by_push
    assert truth["returns_stray"] == 1  # the jump by push and ret
    assert truth["returns_rewritten"] == 1
    assert truth["switches"] == 3 and truth["switches_abandoned"] == 0


def test_a_popped_return_address_is_still_the_true_one(bench: Bench) -> None:
    results = bench.run(bench.assemble("popped", POPPED)).results
    truth = results["truth"]
    assert results["exit_code"] == 0
    assert truth["calls"] == truth["returns_right"] == 2
    assert truth["switches"] == 2 and truth["switches_abandoned"] == 0
    assert results["checks"] == 11
    for reader in ("process", "copy"):
        assert results[reader]["exact"] == results["checks"]
    # rbx is missing: five instructions of keeps, and other
    assert results["batch"]["cut"] == 5


def test_a_jump_back_finds_the_return_address_that_was_popped(bench: Bench) -> None:
    results = bench.run(bench.assemble("held", HELD)).results
    truth = results["truth"]
    assert results["exit_code"] == 0
    assert truth["calls"] == 3
    assert truth["returns_right"] == 3  # sets returns twice; leaps never
    assert truth["returns_stray"] == truth["returns_rewritten"] == truth["switches_abandoned"] == 0
    assert problems("held", results) == []


def gdb_frames(pid: int) -> list[int]:
    """The physical frames that gdb sees, up to _start."""
    script = Path(__file__).parent / "gdb_frames.py"
    command = ["gdb", "-nx", "-batch", "-p", str(pid), "-x", str(script)]
    out = subprocess.run(command, capture_output=True, text=True, timeout=120).stdout
    return [int(line.split()[1], 16) for line in out.splitlines() if line.startswith("frame ")]


# Steps at which gdb can see the stack too: not in a PLT or where libc's own CFI is wrong.
SEEN_BY_GDB = [
    ("calls-O3", 2000),
    ("calls-O3", 7000),
    ("print-O2", 15000),
    ("print-O2", 40000),
    ("sort-O0-omit", 30000),
    ("sort-O0-omit", 60000),
    ("signals-O2", 3000),
    ("signals-O2", 4000),
    ("stack_shapes-O2", 20000),
]


@pytest.mark.parametrize(("name", "step"), SEEN_BY_GDB)
def test_truth_agrees_with_gdb(bench: Bench, name: str, step: int) -> None:
    program = next(c for c in combinations() if c.name == name).compile(bench.folder)
    left = bench.run(program, leave=step).results["left"]
    assert left["pid"] > 0
    try:
        assert gdb_frames(left["pid"]) == left["truth"]
    finally:
        os.kill(left["pid"], signal.SIGKILL)


@pytest.mark.parametrize("combination", [c for c in combinations() if c.quick], ids=lambda c: c.name)
def test_no_stack_is_wrong_and_complete(bench: Bench, combination: Combination) -> None:
    program = combination.compile(bench.folder)
    options = {"from_entry": combination.from_entry, "threads": combination.threads}
    assert problems(combination.name, bench.run(program, **options).results) == []
