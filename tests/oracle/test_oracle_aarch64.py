"""The aarch64 oracle's own tests, and its quick slice.

Small assembly programs with known instructions say whether the emulator counts rightly and signs addresses.
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("unicorn")

from tests.oracle.aarch64 import OUT, Combination, combinations, doubts
from tests.oracle.emulating import Images, build_emulator, emulate, have_tools
from tests.oracle.tracing import Trace

if not have_tools():
    pytest.skip("no cross compiler for aarch64", allow_module_level=True)

# Twelve calls: six rounds of `middle`, which signs its return address and calls `leaf`.
COUNTED = """
    .arch armv8.3-a
    .globl _start
_start:
    .cfi_startproc
    .cfi_undefined x30
    mov x19, #6
1:  bl middle
    subs x19, x19, #1
    b.ne 1b
    mov x0, #0
    mov x8, #93
    svc #0
    .cfi_endproc
middle:
    .cfi_startproc
    paciasp
    .cfi_negate_ra_state
    stp x29, x30, [sp, #-16]!
    .cfi_def_cfa_offset 16
    .cfi_offset x29, -16
    .cfi_offset x30, -8
    bl leaf
    ldp x29, x30, [sp], #16
    .cfi_restore x29
    .cfi_restore x30
    .cfi_def_cfa_offset 0
    autiasp
    .cfi_negate_ra_state
    ret
    .cfi_endproc
leaf:
    .cfi_startproc
    nop
    ret
    .cfi_endproc
"""
IN_ROUND = 3 + 6 + 2  # instructions of the loop, of middle and of leaf

# As above, but the row of middle's body claims that its frame is twice as large.
FALSIFIED = COUNTED.replace(".cfi_def_cfa_offset 16", ".cfi_def_cfa_offset 32")

# longjmp by hand: out of two frames, and to the frame that called it, whose sp is the same.
LEAPS = """
    .globl _start
_start:
    .cfi_startproc
    .cfi_undefined x30
    bl leaps
    b 9f                        // never comes here
1:  bl leaps_from_here
    b 9f                        // never comes here
2:  mov x0, #0
    mov x8, #93
    svc #0
9:  mov x0, #1
    mov x8, #93
    svc #0
    .cfi_endproc
leaps:
    mov x9, sp
    sub sp, sp, #32
    bl 5f
    nop
5:  sub sp, sp, #16
    bl inner
    nop
inner:
    adr x30, 1b
    mov sp, x9
    br x30
leaps_from_here:
    mov x9, sp
    adr x30, 2b
    mov sp, x9
    br x30
"""


@dataclass
class Bench:
    """The emulator and what it needs."""

    emulator: Path
    images: Images
    folder: Path

    def assemble(self, name: str, text: str) -> Path:
        source, program = self.folder / f"{name}.s", self.folder / name
        source.write_text(text)
        command = ["aarch64-linux-gnu-gcc", "-nostdlib", "-static", "-o", str(program), str(source)]
        subprocess.run(command, check=True)
        return program

    def run(self, program: Path, **options: Any) -> Trace:
        return emulate(self.emulator, [str(program)], self.images, self.folder, **options)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    OUT.mkdir(parents=True, exist_ok=True)
    folder = tmp_path_factory.mktemp("oracle-aarch64")
    return Bench(build_emulator(OUT), Images(folder), folder)


@pytest.mark.parametrize("sign", [False, True])
def test_counts_every_instruction_call_and_return(bench: Bench, sign: bool) -> None:
    results = bench.run(bench.assemble("counted", COUNTED), sign=sign, signals=False).results
    assert results["exit_code"] == 0
    # The last system call does not return: it is looked at, but never done.
    assert results["steps"] == 1 + 6 * IN_ROUND + 2
    assert results["distinct_pcs"] == results["checks"] == 1 + IN_ROUND + 3
    assert results["truth"]["calls"] == results["truth"]["returns_right"] == 12
    assert results["truth"]["deepest"] == 2
    for reader in ("process", "copy"):
        assert results[reader]["exact"] == results["checks"]
    # lr is signed where paciasp has run and bl has not, and again from ldp to autiasp.
    assert results["signed_addresses"] == (6 * 3 if sign else 0)


def test_notices_a_wrong_stack(bench: Bench) -> None:
    results = bench.run(bench.assemble("falsified", FALSIFIED), signals=False).results
    for reader in ("process", "copy"):
        assert results[reader]["exact"] < results["checks"]
        assert results[reader]["cut"] + results[reader]["wrong"] + results[reader]["wrong_complete"] >= 4


def test_signals_interrupt_the_program_and_return(bench: Bench) -> None:
    program = bench.assemble("interrupted", COUNTED.replace("mov x19, #6", "mov x19, #600"))
    results = bench.run(program, sign=True).results
    truth = results["truth"]
    assert results["exit_code"] == 0
    assert truth["signals"] == truth["signal_returns"] > 10
    assert truth["calls"] == 1200
    assert truth["returns_right"] == 1200 + truth["signals"]  # each handler returns, too
    for reader in ("process", "copy"):
        assert results[reader]["exact"] == results["checks"]


def test_follows_registers_that_are_replaced(bench: Bench) -> None:
    results = bench.run(bench.assemble("leaps", LEAPS), signals=False).results
    truth = results["truth"]
    assert results["exit_code"] == 0
    assert truth["calls"] == 4 and truth["returns_right"] == 0
    assert truth["switches"] == 2 and truth["switches_abandoned"] == truth["returns_stray"] == 0
    assert truth["deepest"] == 3


@pytest.mark.parametrize("combination", [c for c in combinations() if c.quick], ids=lambda c: c.name)
def test_no_stack_is_wrong_and_complete(bench: Bench, combination: Combination) -> None:
    program = combination.compile(OUT)
    results = bench.run(program, sign=combination.sign).results
    assert doubts(combination.name, results, combination.sign) == []
