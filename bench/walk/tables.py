"""How fast tables are made, and how large they are: of libraries that many programs load."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from unspool import Binary, UnwindTable

LIBRARIES = ("libc.so.6", "libcrypto.so.3", "libstdc++.so.6")
REPETITIONS = 25
KINDS_OF_HEADER = b"\x01\x1b\x03"  # version 1, count as udata4


@dataclass
class TableResult:
    """nanoseconds: of each repetition."""

    name: str
    fdes: int
    rows: int
    size: int
    nanoseconds: list[int]

    def line(self) -> str:
        least, middle = min(self.nanoseconds), median(self.nanoseconds)
        return (
            f"| {self.name} | {self.fdes:,} | {self.rows:,} | {least / 1e6:.1f} | {least / self.fdes:.0f} "
            f"({middle / self.fdes:.0f}) | {least / self.rows:.1f} | {self.size / self.rows:.1f} |"
        )


def files(workload_files: list[Path], out: Path) -> list[Path]:
    folder = Path("/usr/lib/x86_64-linux-gnu")
    found = [folder / name for name in LIBRARIES if (folder / name).exists()]
    return found + workload_files + polars(out)


def polars(out: Path) -> list[Path]:
    """The library of polars, which has more than 100,000 functions; none where it can't be installed."""
    folder = out / "polars"
    if not folder.exists():
        install = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        if subprocess.run([*install, "--target", str(folder), "polars"], check=False).returncode:
            return []
    return sorted(folder.glob("**/*polars*.so"))


def measure(path: Path) -> TableResult | None:
    """None: its FDEs are not counted in the usual way."""
    binary = Binary.open(path)
    header = binary.section(".eh_frame_hdr")
    if header is None or bytes(header.data[:3]) != KINDS_OF_HEADER:
        return None
    fdes = int.from_bytes(header.data[8:12], "little")
    table = UnwindTable.compile(binary)  # what is read of the file is read now
    times = []
    for _ in range(REPETITIONS):
        start = time.perf_counter_ns()
        UnwindTable.compile(binary)
        times.append(time.perf_counter_ns() - start)
    return TableResult(path.name, fdes, len(table), len(table.to_bytes()), times)
