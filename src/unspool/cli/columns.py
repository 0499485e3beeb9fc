"""Text in columns: numbers with units, signals by name, names that are cut to fit a terminal."""

import shutil
import signal
import sys
import unicodedata
from collections.abc import Iterator, Sequence

_NARROW = 80
_UNITS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns"))


def width() -> int | None:
    """Columns that a line may take; None: standard output is no terminal, and nothing needs to be cut."""
    return shutil.get_terminal_size((_NARROW, 24)).columns if sys.stdout.isatty() else None


def printable(text: str) -> str:
    """What a process or a file calls itself must not command the terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def cells(text: str) -> int:
    """Columns that a terminal takes for a printable text."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF") for c in text)


def fitted(text: str, columns: int | None) -> str:
    """Printable, and cut with an ellipsis if it is longer; None: as long as it is."""
    text = printable(text)
    if columns is None or cells(text) <= columns:
        return text
    if columns < 1:
        return ""
    kept = 0
    for end, character in enumerate(text):
        kept += cells(character)
        if kept > columns - 1:
            return text[:end] + "…"
    return text


def padded(text: str, columns: int, *, right: bool = False) -> str:
    """With spaces after it, or before it, up to so many columns."""
    space = " " * max(columns - cells(text), 0)
    return space + text if right else text + space


def amount(weight: int, unit: str) -> str:
    """Three digits and a unit: "1.23 s"; counts in full: "1,234"."""
    if unit != "nanoseconds":
        return f"{weight:,}"
    if not weight:
        return "0 s"
    rounded = abs(weight) / 0.9995  # what three digits round up to 1,000 has the next unit
    factor, name = next((found for found in _UNITS if rounded >= found[0]), (1_000_000_000, "s"))
    value = weight / factor
    digits = 0 if abs(value) >= 99.95 or factor == 1 else 1 if abs(value) >= 9.995 else 2
    return f"{value:,.{digits}f} {name}"


def file_size(count: int) -> str:
    """Of so many bytes: "0.2 MB"; small ones in full: "812 bytes"."""
    return f"{count / 1e6:,.1f} MB" if count >= 50_000 else f"{count:,} bytes"


def percent(part: int, whole: int) -> str:
    """ "12.3 %"; "-" of nothing."""
    return f"{100 * part / whole:.1f} %" if whole else "-"


def signal_name(number: int) -> str:
    """ "SIGSEGV"."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def table(
    heading: Sequence[str], rows: Sequence[Sequence[str]], limits: Sequence[int | None], *, numbers: int
) -> Iterator[str]:
    """Lines of a table. The first `numbers` columns are aligned to the right. limits: the columns of a
    terminal that each may take at most; None: no limit."""
    fit = [[fitted(cell, limit) for cell, limit in zip(row, limits, strict=True)] for row in (heading, *rows)]
    widths = [max(map(cells, column)) for column in zip(*fit, strict=True)]
    for row in fit:
        parts = [padded(cell, widths[i], right=i < numbers) for i, cell in enumerate(row)]
        yield "  ".join(parts).rstrip()
