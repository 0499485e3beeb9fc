"""From a file's unwind information to whole stacks."""

from unspool.unwind.addresses import LookupAddress, ReturnAddress, lookup_address
from unspool.unwind.batch import StackBatch, stacks_with_guess
from unspool.unwind.memory import Memory, OwnMemory, ProcessMemory, Snapshot, StackBytes
from unspool.unwind.modules import Module
from unspool.unwind.registers import Registers
from unspool.unwind.stack import ENDS, Frame, How, Stack, StackEnd
from unspool.unwind.table import TableError, UnwindTable
from unspool.unwind.unwinder import Unwinder

__all__ = [
    "ENDS",
    "Frame",
    "How",
    "LookupAddress",
    "Memory",
    "Module",
    "OwnMemory",
    "ProcessMemory",
    "Registers",
    "ReturnAddress",
    "Snapshot",
    "Stack",
    "StackBatch",
    "StackBytes",
    "StackEnd",
    "TableError",
    "UnwindTable",
    "Unwinder",
    "lookup_address",
    "stacks_with_guess",
]
