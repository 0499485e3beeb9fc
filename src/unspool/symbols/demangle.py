"""From mangled names to what the programmer wrote: C++ and Rust (both manglings).

LLVM's demangler (pydemumble) is used for what it is safe for: the length of what it writes can grow
exponentially with the references in a name to parts of it ("S1_" in C++, "B5_" in Rust), and it recurses
once for each nested part. Names that could cost too much stay as they are: 7 of 46,000 of clang's and none
of 20,000 of rustc's.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache

import pydemumble  # type: ignore[import-untyped]

_MANGLED = ("_Z", "__Z", "_R")
_REFERENCE = {"R": re.compile(r"B[0-9a-zA-Z]*_"), "Z": re.compile(r"S[0-9A-Z]*_|T[0-9]*_")}
_MAX_LENGTH = 2000  # 512 KiB of stack suffice
_MAX_BITS = 22  # log2 of the longest output
# If every level of nesting refers k times to the level below, r references yield k ** (r / k) copies; k = 3
# is the worst.
_BITS_PER_REFERENCE = math.log2(3) / 3


def is_mangled(name: str) -> bool:
    """Whether a name looks like a mangled one."""
    return name.startswith(_MANGLED)


@lru_cache(maxsize=1 << 16)
def demangle(name: str) -> str:
    """The readable form of a mangled name; any other name is returned as it is."""
    if not is_mangled(name) or len(name) > _MAX_LENGTH:
        return name
    references = _REFERENCE["R" if name[1] == "R" else "Z"].findall(name)
    if math.log2(len(name)) + len(references) * _BITS_PER_REFERENCE > _MAX_BITS:
        return name
    try:
        return pydemumble.demangle(name) or name
    except (TypeError, ValueError):  # not UTF-8, in or out
        return name
