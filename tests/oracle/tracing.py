"""Runs the tracer (tracer.c) over one program and gives it what files say: tables of the product, made by
the product's Python package from the files that the traced process has mapped.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, Popen, run
from threading import Timer
from typing import Any

import numpy as np

from unspool import Binary, BinaryError, UnwindTable

HERE = Path(__file__).parent
CORE = HERE.parent.parent / "core"
TIME_LIMIT = 3600  # seconds for one program


class TracerError(Exception):
    """The tracer itself failed."""


@dataclass
class Image:
    """A file, or the vDSO, that was mapped in the traced process: its table and where code of it was."""

    path: str
    binary: Binary
    table: UnwindTable
    table_file: Path


@dataclass
class Mapped:
    """One executable mapping; image is None where code belongs to no file."""

    start: int
    end: int
    image_base: int
    image: Image | None


@dataclass
class Trace:
    """What came out of one traced program: the tracer's JSON, and the mappings its addresses lie in."""

    program: Path
    results: dict[str, Any]
    mapped: list[Mapped]

    def find(self, address: int) -> Mapped | None:
        """The mapping that held an address, the latest first."""
        return next((m for m in reversed(self.mapped) if m.start <= address < m.end), None)


def build_tracer(folder: Path) -> Path:
    """Compile the tracer with the core's own sources. Raises CalledProcessError."""
    tracer = folder / "tracer"
    sources = [*HERE.glob("*.c"), *(CORE / "src").glob("*.c")]
    inputs = [*sources, *HERE.glob("*.h"), *(CORE / "src").glob("*.h"), *(CORE / "include").glob("*.h")]
    newest = max(path.stat().st_mtime for path in inputs)
    if not tracer.exists() or tracer.stat().st_mtime < newest:
        flags = ["-std=c17", "-O2", "-g", "-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Werror"]
        include = ["-I", str(CORE / "include")]
        run(["gcc", *flags, *include, *map(str, sources), "-o", str(tracer)], check=True)
    return tracer


class Tables:
    """Tables as files for the tracer, one for each image. Kept from one program to the next."""

    def __init__(self, folder: Path, replaced: Mapping[str, Path] | None = None) -> None:
        """replaced: for self-tests; the table of a path is made from another file."""
        self._folder = folder
        self._replaced = replaced or {}
        self._images: dict[tuple[str, int], Image | None] = {}

    def image(self, path: str, pid: int, start: int, end: int) -> Image | None:
        """The image that is mapped at [start, end) under that name, or None where it is not a binary."""
        key = (path, 0 if path.startswith("[") else Path(path).stat().st_mtime_ns)
        if key not in self._images:
            try:
                self._images[key] = self._load(path, pid, start, end)
            except BinaryError:
                self._images[key] = None
        return self._images[key]

    def _load(self, path: str, pid: int, start: int, end: int) -> Image:
        if path.startswith("["):
            with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
                memory.seek(start)
                binary = Binary.from_bytes(memory.read(end - start), path)
        else:
            binary = Binary.open(self._replaced.get(path, Path(path)))
        table = UnwindTable.compile(binary)
        file = self._folder / f"{len(self._images)}.table"
        file.write_bytes(table.to_bytes())
        return Image(path, binary, table, file)


def read_maps(pid: int, tables: Tables) -> list[Mapped]:
    """The executable mappings of a process. The kernel's [vsyscall] page can't be read and is left out."""
    mapped = []
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        addresses, permissions, offset, _, _, *name = line.split(maxsplit=5)
        path = name[0].strip() if name else ""
        if "x" not in permissions or path == "[vsyscall]":
            continue
        start, end = (int(text, 16) for text in addresses.split("-"))
        image = tables.image(path, pid, start, end) if path.startswith(("/", "[vdso")) else None
        base = image.binary.image_base(start, int(offset, 16), end) if image else None
        mapped.append(Mapped(start, end, base or 0, image if base is not None else None))
    return mapped


def answer(mapped: list[Mapped]) -> str:
    """What the tracer is told (target.h)."""
    lines = []
    for m in mapped:
        table = str(m.image.table_file) if m.image else "-"
        lines.append(f"module {m.start:x} {m.end:x} {m.image_base:x} {table}")
        address = find_symbol(m.image.binary, "makecontext") if m.image else None
        if address is not None and m.image:
            address += m.image_base - m.image.binary.image_address
            lines.append(f"mark makecontext {address:x}")
    return "\n".join([*lines, "done\n"])


_found: dict[tuple[Binary, str], int | None] = {}


def find_symbol(binary: Binary, name: str) -> int | None:
    """The virtual address of a symbol, or None. Names may share their tails, so each place counts."""
    key = (binary, name)
    if key not in _found:
        symbols = binary.symbols
        starts = [match.start() for match in re.finditer(re.escape(name.encode()) + b"[\\0@]", symbols.names)]
        indices = np.flatnonzero(np.isin(symbols.name_offset, np.array(starts, dtype=np.uint64)))
        _found[key] = int(symbols.address[indices[0]]) if len(indices) else None
    return _found[key]


def trace(
    tracer: Path,
    command: list[str],
    tables: Tables,
    folder: Path,
    *,
    from_entry: bool = True,
    threads: bool = False,
    born: bool = False,
    cpu: int | None = None,
    steps: int | None = None,
    leave: int | None = None,
) -> Trace:
    """Step one program to its end, or through so many steps; or leave it stopped at a step (the process is
    in results["left"]; the caller ends it). cpu: the processor that both run on. Raises TracerError."""
    out = folder / "results.json"
    out.unlink(missing_ok=True)
    options = ["--entry"] * from_entry + ["--threads"] * threads
    options += ["--born"] * born
    pinned = [] if cpu is None else ["taskset", "-c", str(cpu)]
    options += ["--steps", str(steps)] if steps is not None else []
    options += ["--leave", str(leave)] if leave is not None else []
    known: list[Mapped] = []
    with Popen(
        [*pinned, tracer, out, *options, "--", *command], stdin=PIPE, stdout=PIPE, text=True
    ) as process:
        assert process.stdin and process.stdout
        timer = Timer(TIME_LIMIT, process.kill)
        timer.start()
        try:
            for request in process.stdout:
                mapped = read_maps(int(request.split()[1]), tables)
                known = [*(m for m in known if m not in mapped), *mapped]
                process.stdin.write(answer(mapped))
                process.stdin.flush()
            code = process.wait()
        finally:
            timer.cancel()
            process.kill()
    if code or not out.exists():
        raise TracerError(f"the tracer ended with {code} over {' '.join(command)}")
    return Trace(Path(command[0]).resolve(), json.loads(out.read_text()), known)
