"""The proof of the unwind table: `python -m tests.proof.readelf_proof [FILE...]`, `make proof`.

At every row start of the corpus (corpus.py), CFA, return address and fp of our table equal what
`readelf --debug-dump=frames-interp` prints and what the slow evaluator computes; where they do not, it
prints who says what, with llvm-dwarfdump as the third opinion, and exits with 1.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.proof import corpus
from tests.proof.comparison import Comparison, compare

SYSTEM_FILES_NEEDED = 25
AARCH64_WHEEL_FILES_NEEDED = 15
HEADINGS = ("file", "arch", "FDEs", "rows", "compared", "exact", "root", "overlaps", "skipped", "differences")
WIDTHS = (44, 8, 8, 9, 9, 6, 5, 9, 8, 12)


def lines_of(comparison: Comparison) -> Iterator[str]:
    name = comparison.path.name
    counts = (
        comparison.fdes,
        comparison.rows,
        comparison.compared,
        comparison.exact,
        comparison.root,
        comparison.overlaps,
        comparison.outside,
        len(comparison.differences),
    )
    cells = (name if len(name) <= WIDTHS[0] else f"{name[: WIDTHS[0] - 1]}~", comparison.arch, *counts)
    yield aligned(cells)
    for problem in comparison.slow_problems:
        yield f"    the slow evaluator can't read: {problem}"
    if comparison.problems:
        yield f"    the table leaves out {comparison.problems} entries"
    if comparison.needlessly_exact:
        yield f"    {comparison.needlessly_exact} exact rows that a rule could hold"
    for difference in comparison.differences:
        yield f"    {difference.address:#x} and {difference.alike - 1} like it:"
        yield f"        in {difference.section}, FDE {difference.fde_offset:#x}"
        yield f"        readelf        {difference.readelf}"
        yield f"        llvm-dwarfdump {difference.llvm}"
        yield f"        table          {difference.table}"
        yield f"        slow evaluator {difference.slow}"


def aligned(cells: Iterable[object]) -> str:
    texts = [
        f"{cell:,}".rjust(width) if isinstance(cell, int) else str(cell).ljust(width)
        for cell, width in zip(cells, WIDTHS, strict=True)
    ]
    return " ".join(texts).rstrip()


def prove(paths: Iterable[Path]) -> list[Comparison]:
    """Compares file after file, printing each one's line."""
    print(
        " ".join(h.ljust(w) if w in WIDTHS[:2] else h.rjust(w) for h, w in zip(HEADINGS, WIDTHS, strict=True))
    )
    compared = []
    for path in paths:
        comparison = compare(path)
        compared.append(comparison)
        print("\n".join(lines_of(comparison)), flush=True)
    return compared


def main(arguments: list[str]) -> int:
    started = time.monotonic()
    if arguments:
        results = prove(Path(argument) for argument in arguments)
    else:
        system, wheels = list(corpus.system_files()), list(corpus.wheel_files())
        if len(system) < SYSTEM_FILES_NEEDED or len(wheels) < AARCH64_WHEEL_FILES_NEEDED:
            print(f"the corpus is too small: {len(system)} system files, {len(wheels)} wheel files")
            return 1
        with tempfile.TemporaryDirectory() as folder:
            results = prove([*system, *corpus.built_files(Path(folder)), *wheels])
    failed = [result for result in results if result.differences or result.problems or result.slow_problems]
    fdes, rows = sum(result.fdes for result in results), sum(result.rows for result in results)
    addresses = sum(result.compared for result in results)
    differences = sum(len(result.differences) for result in results)
    print(f"{len(results)} files, {fdes:,} FDEs, {rows:,} rows, {addresses:,} addresses compared:")
    print(f"{differences} differences, {len(failed)} files with differences or entries that can't be read")
    print(f"{time.monotonic() - started:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
