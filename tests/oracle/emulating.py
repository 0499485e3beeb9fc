"""Runs the emulator (emulator/emulator.c) over one aarch64 program and gives it what files say: the product's
tables, and where functions are, which the truth needs where registers are replaced.
"""

import json
import shutil
from pathlib import Path
from subprocess import PIPE, Popen, run
from threading import Timer

import numpy as np
import unicorn

from tests.oracle.tracing import CORE, HERE, TIME_LIMIT, Image, Mapped, Trace, TracerError, find_symbol
from unspool import Binary, UnwindTable

UNICORN = Path(unicorn.__file__).parent
ROOT = Path("/usr/aarch64-linux-gnu")  # where the cross compiler's libraries are
SIGNAL_MEAN = 150  # instructions between two interruptions


def build_emulator(folder: Path) -> Path:
    """Compile the emulator with the core's own sources. Raises CalledProcessError."""
    emulator = folder / "emulator"
    shared = [HERE / name for name in ("truth.c", "compare.c", "results.c")]
    sources = [*(HERE / "emulator").glob("*.c"), *shared, *(CORE / "src").glob("*.c")]
    headers = [*HERE.glob("*.h"), *(HERE / "emulator").glob("*.h"), *(CORE / "src").glob("*.h")]
    newest = max(path.stat().st_mtime for path in [*sources, *headers, *(CORE / "include").glob("*.h")])
    if not emulator.exists() or emulator.stat().st_mtime < newest:
        flags = ["-std=c17", "-O2", "-g", "-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Werror"]
        include = ["-I", str(CORE / "include"), "-isystem", str(UNICORN / "include")]
        libraries = [str(UNICORN / "lib" / "libunicorn.so.2"), f"-Wl,-rpath,{UNICORN / 'lib'}"]
        run(["gcc", *flags, *include, *map(str, sources), *libraries, "-o", str(emulator)], check=True)
    return emulator


class Images:
    """Tables and lists of functions as files for the emulator, one for each binary."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._images: dict[tuple[str, int], Image] = {}

    def image(self, path: str) -> Image:
        """Raises BinaryError."""
        key = (path, Path(path).stat().st_mtime_ns)
        if key not in self._images:
            binary = Binary.open(path)
            table = UnwindTable.compile(binary)
            file = self._folder / f"{len(self._images)}.aarch64.table"
            file.write_bytes(table.to_bytes())
            file.with_suffix(".functions").write_bytes(functions(binary).tobytes())
            self._images[key] = Image(path, binary, table, file)
        return self._images[key]


def functions(binary: Binary) -> "np.ndarray[tuple[int, int], np.dtype[np.uint64]]":
    """start, end (relative addresses) and number of each function, ascending: uint64[n, 3]. What a compiler
    split off under the name NAME.cold has the number of NAME."""
    symbols = binary.symbols
    found: dict[int, tuple[int, str]] = {}
    for index in np.flatnonzero(symbols.size > 0):
        start = int(symbols.address[index]) - binary.image_address
        found.setdefault(start, (start + int(symbols.size[index]), symbols.name(index)))
    by_name = {name: start for start, (_, name) in found.items()}
    rows, last = [], 0
    for start, (end, name) in sorted(found.items()):
        if start >= last:
            rows.append((start, end, by_name.get(name.split(".cold")[0], start)))
            last = end
    return np.array(rows, dtype=np.uint64).reshape(-1, 3)


def answer(line: str, images: Images) -> tuple[str, Mapped]:
    """What the emulator is told about a file that was mapped, and the mapping."""
    _, *numbers, path = line.rstrip("\n").split(" ", 4)
    start, end, offset = (int(number, 16) for number in numbers)
    image = images.image(path)
    base = image.binary.image_base(start, offset, end)
    if base is None:
        raise TracerError(f"no image base for {path} at {start:#x}")
    address = find_symbol(image.binary, "makecontext")
    address = address + base - image.binary.image_address if address is not None else 0
    functions_file = image.table_file.with_suffix(".functions")
    return f"image {base:x} {address:x} {image.table_file} {functions_file}\n", Mapped(
        start, end, base, image
    )


def emulate(
    emulator: Path,
    command: list[str],
    images: Images,
    folder: Path,
    *,
    sign: bool = False,
    signals: bool = True,
    steps: int | None = None,
) -> Trace:
    """Run one program to its end, or through so many steps. sign: return addresses are really signed.
    Raises TracerError."""
    out = folder / "emulated.json"
    out.unlink(missing_ok=True)
    options = ["--root", str(ROOT)] + ["--sign"] * sign
    options += ["--signals", str(SIGNAL_MEAN), "7"] if signals else []
    options += ["--steps", str(steps)] if steps is not None else []
    known: list[Mapped] = []
    with Popen([emulator, out, *options, "--", *command], stdin=PIPE, stdout=PIPE, text=True) as process:
        assert process.stdin and process.stdout
        timer = Timer(TIME_LIMIT, process.kill)
        timer.start()
        try:
            for line in process.stdout:
                text, mapped = answer(line, images)
                known.append(mapped)
                process.stdin.write(text)
                process.stdin.flush()
            code = process.wait()
        finally:
            timer.cancel()
            process.kill()
    if code or not out.exists():
        raise TracerError(f"the emulator ended with {code} over {' '.join(command)}")
    return Trace(Path(command[0]).resolve(), json.loads(out.read_text()), known)


def have_tools() -> bool:
    """True when programs for aarch64 can be built here."""
    return ROOT.is_dir() and all(
        shutil.which(tool)
        for tool in ("aarch64-linux-gnu-gcc", "aarch64-linux-gnu-g++", "clang-19", "ld.lld-19")
    )
