"""Has a file's symcache made, by symbolic, in a process with limits (symcache_child.py), and keeps it."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache as once
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from unspool.binaries import Binary, SymbolTable
from unspool.cache import Cache, Kind
from unspool.symbols.dwarf_image import write_image
from unspool.symbols.symcache import VERSION, Symcache, SymcacheError
from unspool.symbols.unlisted_functions import unlisted_functions, write_line_image

# Measured: 4.5 bytes of memory a byte of DWARF, 0.06 s a MiB.
_MEMORY, _MEMORY_PER_BYTE = 1 << 30, 12
_SECONDS, _BYTES_PER_SECOND = 30, 4 << 20
_WAIT = 10  # times the limit: a machine may be busy

_PREPARATION = 1  # to be raised when what symbolic is given changes


class BuildError(Exception):
    """No symcache could be made; says why."""


@dataclass(frozen=True, slots=True)
class Built:
    """symcaches: what symbolic made, to be asked in this order; split: how many of the file's `units`
    compilation units keep their functions in another file, the first of which is `split_file`."""

    symcaches: tuple[Symcache, ...]
    units: int
    split: int
    split_file: str | None


def cached(key: str | None, cache: Cache) -> Built | None:
    """What was built before for the binary with this key."""
    data = None if key is None else cache.read(_kind(), key)
    try:
        return None if data is None else _unpacked(data)
    except (ValueError, TypeError):  # SymcacheError among them
        return None


def build(
    debug_file: Binary, tables: Sequence[SymbolTable], image_address: int, key: str | None, cache: Cache
) -> Built:
    """Reads a file's DWARF. tables: the symbols of the binary and its debug file; image_address: as for
    write_image. Raises BuildError, BinaryError, OSError."""
    image, units = write_image(debug_file, image_address)
    with image:
        parts = [_in_child(image)]
    try:
        functions = unlisted_functions(Symcache(parts[0]), tables, image_address)
        line_image = write_line_image(debug_file, image_address, functions)
        if line_image is not None:
            with line_image:
                parts.append(_in_child(line_image))
        facts = ([len(part) for part in parts], units.count, units.split, units.split_file)
        data = _packed(parts, facts)
        built = _unpacked(data)
    except SymcacheError as error:
        raise BuildError(f"symbolic made {error}") from None
    if key is not None:
        cache.write(_kind(), key, data)
    return built


@once
def _kind() -> Kind:
    """What is built depends on the format, on how files are prepared for symbolic, and on its release, which
    is taken from its folder's name: importlib.metadata would take longer than reading the symcaches."""
    spec = find_spec("symbolic")
    packages = Path(spec.origin or "").parents[1] if spec is not None else Path()
    releases = sorted(folder.name for folder in packages.glob("symbolic-*.dist-info"))
    return Kind("symbols", f"{VERSION}.{_PREPARATION}-{''.join(releases).removesuffix('.dist-info')}")


def _packed(parts: list[bytes], facts: tuple[list[int], int, int, str | None]) -> bytes:
    """Symcaches, the facts as JSON (the symcaches' sizes, and what Built has), and their size as u32."""
    text = json.dumps(facts).encode()
    return b"".join((*parts, text, len(text).to_bytes(4, "little")))


def _unpacked(data: bytes) -> Built:
    """Raises ValueError or TypeError if they are not what _packed made."""
    end = len(data) - 4 - int.from_bytes(data[-4:], "little")
    if end < 0:
        raise ValueError("cut short")
    sizes, *facts = json.loads(data[end:-4])
    ends = list(itertools.accumulate(sizes))
    parts = [memoryview(data)[stop - size : stop] for size, stop in zip(sizes, ends, strict=True)]
    if not parts or ends[-1] != end:
        raise ValueError("of another size than its parts")
    return Built(tuple(Symcache(part) for part in parts), *facts)


def _in_child(image: IO[bytes]) -> bytes:
    descriptor = image.fileno()
    size = os.fstat(descriptor).st_size
    memory, seconds = _MEMORY + size * _MEMORY_PER_BYTE, _SECONDS + size // _BYTES_PER_SECOND
    script = str(Path(__file__).with_name("symcache_child.py"))
    folders = [folder for folder in sys.path if folder]
    command = [sys.executable, "-I", "-S", script, str(descriptor), str(memory), str(seconds), *folders]
    with tempfile.TemporaryFile() as output:
        try:
            result = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.PIPE,
                pass_fds=(descriptor,),
                timeout=seconds * _WAIT,
            )
        except subprocess.TimeoutExpired:
            raise BuildError(f"reading it took more than {seconds * _WAIT} seconds") from None
        if result.returncode:
            text = result.stderr.decode(errors="replace")
            raise BuildError(_reason(result.returncode, text, memory, seconds))
        output.seek(0)
        return output.read()


def _reason(status: int, output: str, memory: int, seconds: int) -> str:
    lines = output.strip().splitlines() or [""]
    if status in (-signal.SIGXCPU, -signal.SIGKILL):
        return f"reading it takes more than {seconds} seconds"
    if "memory allocation" in output:
        return f"reading it takes more than {memory >> 20} MiB of memory"
    if status < 0:
        return f"reading it ended with signal {-status}"
    return lines[-1][:200] or f"reading it ended with status {status}"
