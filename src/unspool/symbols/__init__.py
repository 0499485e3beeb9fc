"""Names for addresses: functions, files, lines, inlined calls; and the files that have them."""

from unspool.symbols.debuginfod import Progress
from unspool.symbols.kernel_symbols import KernelSymbols
from unspool.symbols.perf_map import PerfMap
from unspool.symbols.symbolizer import Findings, Location, Locations, Note, Symbolizer

__all__ = [
    "Findings",
    "KernelSymbols",
    "Location",
    "Locations",
    "Note",
    "PerfMap",
    "Progress",
    "Symbolizer",
]
