"""The readable reference: a slow evaluator of all call frame information, in DWARF's own order.

Read pointers.py (DW_EH_PE), entries.py (CIEs and FDEs), program.py (their instructions, row by
row), expression.py (DWARF expressions), evaluate.py (the caller's registers). Tests compare the C
core with it. It favours clearness over speed and shares no code with the core.
"""

from .cursor import CfiError, Cursor
from .entries import AARCH64, X86_64, Cie, Entries, Fde, Problem, Section, read_entries
from .evaluate import ABIS, Caller, Frame
from .expression import EvaluationError, Machine, UnreadableMemory
from .program import (
    CfaExpression,
    CfaRegister,
    Expression,
    InRegister,
    Offset,
    Row,
    Rows,
    Rule,
    SameValue,
    Undefined,
    ValExpression,
    ValOffset,
    read_rows,
)

__all__ = [
    "AARCH64",
    "ABIS",
    "X86_64",
    "Caller",
    "CfaExpression",
    "CfaRegister",
    "CfiError",
    "Cie",
    "Cursor",
    "Entries",
    "EvaluationError",
    "Expression",
    "Fde",
    "Frame",
    "InRegister",
    "Machine",
    "Offset",
    "Problem",
    "Row",
    "Rows",
    "Rule",
    "SameValue",
    "Section",
    "Undefined",
    "UnreadableMemory",
    "ValExpression",
    "ValOffset",
    "read_entries",
    "read_rows",
]
