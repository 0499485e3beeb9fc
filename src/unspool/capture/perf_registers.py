"""Registers of samples: which the kernel writes, by its own numbering (perf_regs.h of each architecture)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unspool.capture.perf_samples import SampleColumns
from unspool.unwind import Registers

# By the kernel's number. On x86_64 segment registers and flags have numbers too (9 to 15).
_X86_64 = {
    **dict(enumerate(("rax", "rbx", "rcx", "rdx", "rsi", "rdi", "fp", "sp", "pc"))),
    **{16 + n: f"r{8 + n}" for n in range(8)},
}
_AARCH64 = {**{n: f"x{n}" for n in range(29)}, 29: "fp", 30: "lr", 31: "sp", 32: "pc"}
_NAMES = {"x86_64": _X86_64, "aarch64": _AARCH64}
_WALKED = ("pc", "sp", "fp", "lr")  # the columns of Unwinder.walk_many
ABI_32, ABI_64 = 1, 2

ALL_REGISTERS = {arch: sum(1 << number for number in names) for arch, names in _NAMES.items()}


class RegisterLayout:
    """Where each register lies among those that an event records (a mask: sample_regs_user)."""

    def __init__(self, arch: str, mask: int) -> None:
        self._words = {
            name: (mask & ((1 << number) - 1)).bit_count()
            for number, name in _NAMES[arch].items()
            if mask >> number & 1
        }
        self.can_walk = all(name in self._words for name in _WALKED[:3])

    def columns(self, words: NDArray[np.uint64], samples: SampleColumns) -> NDArray[np.uint64]:
        """uint64[n, 4] for walk_many. Every sample must have registers."""
        result = np.zeros((len(samples), 4), np.uint64)
        for column, name in enumerate(_WALKED):
            if name in self._words:
                result[:, column] = words[samples.registers_at + self._words[name]]
        return result

    @property
    def has_lr(self) -> bool:
        return "lr" in self._words

    def lr(self, words: NDArray[np.uint64], samples: SampleColumns) -> NDArray[np.uint64]:
        """uint64[n]. Every sample must have registers."""
        return words[samples.registers_at + self._words["lr"]]

    def all_of(self, words: NDArray[np.uint64], position: int) -> Registers:
        """Every register of one sample."""
        values = {name: int(words[position + word]) for name, word in self._words.items()}
        pc, sp = values.pop("pc"), values.pop("sp")
        return Registers(pc=pc, sp=sp, fp=values.pop("fp", None), lr=values.pop("lr", None), others=values)
