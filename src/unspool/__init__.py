"""unspool shows what a running program is doing, and how certain that answer is.

unwinder = unspool.Unwinder("aarch64")
unwinder.add_module(unspool.Binary.open("libc.so.6"), image_base=0x7F0000000000)
stack = unwinder.walk(unspool.Registers(pc=..., sp=...), unspool.StackBytes(address, data))
stack.end, stack.complete, stack.guessed, [(f.address, f.how, f.module) for f in stack]
unspool.Symbolizer().lookup(binary, relative_address)  # innermost first: function, file, line, inlined

with unspool.profile(rate=199) as p:
    work()
p.save("out.html")
"""

import sys
from types import ModuleType

from unspool.binaries import Binary, BinaryError
from unspool.own_process import OwnProfile, ProfilingError, profile, start, stop
from unspool.symbols import Location, Symbolizer
from unspool.unwind import (
    Frame,
    How,
    LookupAddress,
    Memory,
    Module,
    OwnMemory,
    ProcessMemory,
    Registers,
    ReturnAddress,
    Snapshot,
    Stack,
    StackBatch,
    StackBytes,
    StackEnd,
    TableError,
    Unwinder,
    UnwindTable,
)

__all__ = [
    "Binary",
    "BinaryError",
    "Frame",
    "How",
    "Location",
    "LookupAddress",
    "Memory",
    "Module",
    "OwnMemory",
    "OwnProfile",
    "ProcessMemory",
    "ProfilingError",
    "Registers",
    "ReturnAddress",
    "Snapshot",
    "Stack",
    "StackBatch",
    "StackBytes",
    "StackEnd",
    "Symbolizer",
    "TableError",
    "UnwindTable",
    "Unwinder",
    "profile",
    "start",
    "stop",
]


class _Package(ModuleType):
    """unspool.profile is the function, also once the package of that name was imported."""

    def __setattr__(self, name: str, value: object) -> None:
        if name != "profile" or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
