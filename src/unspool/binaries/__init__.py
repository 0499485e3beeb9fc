"""What a file says: segments, sections, unwind sections, symbols. Imports nothing else of unspool."""

from unspool.binaries.binary import Binary, BinaryError, Section, Segment, UnwindSection
from unspool.binaries.symbol_table import SymbolTable

__all__ = ["Binary", "BinaryError", "Section", "Segment", "SymbolTable", "UnwindSection"]
