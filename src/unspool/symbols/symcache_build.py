"""Has a file's symcache made, by symbolic, in a process with limits (symcache_child.py), and keeps it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from unspool.binaries import Binary
from unspool.cache import Cache, Kind
from unspool.symbols.dwarf_image import write_image
from unspool.symbols.symcache import VERSION, Symcache, SymcacheError

# Measured: 4.5 bytes of memory a byte of DWARF, 0.06 s a MiB.
_MEMORY, _MEMORY_PER_BYTE = 1 << 30, 12
_SECONDS, _BYTES_PER_SECOND = 30, 4 << 20
_WAIT = 10  # times the limit: a machine may be busy
_MAX_MESSAGE = 1 << 16  # bytes

KIND = Kind("symbols", f"{VERSION}.1")  # .1: how the file is prepared for symbolic


class BuildError(Exception):
    """No symcache could be made; says why."""


@dataclass(frozen=True, slots=True)
class Built:
    """symcache: what symbolic made; split: how many of the file's `units` compilation units keep their
    functions in another file, the first of which is `split_file`."""

    symcache: Symcache
    units: int
    split: int
    split_file: str | None


def cached(key: str | None, cache: Cache) -> Built | None:
    """What was built before for the binary with this key."""
    data = None if key is None else cache.read(KIND, key)
    try:
        return None if data is None else _unpacked(data)
    except ValueError:  # SymcacheError among them
        return None


def build(debug_file: Binary, image_address: int, key: str | None, cache: Cache) -> Built:
    """Reads a file's DWARF; image_address: as for write_image. Raises BuildError, BinaryError, OSError."""
    image, units = write_image(debug_file, image_address)
    with image:
        symcache = _in_child(image)
    facts = json.dumps([units.count, units.split, units.split_file]).encode()
    data = b"".join((symcache, facts, len(facts).to_bytes(4, "little")))
    try:
        built = _unpacked(data)
    except SymcacheError as error:
        raise BuildError(f"symbolic made {error}") from None
    if key is not None:
        cache.write(KIND, key, data)
    return built


def _unpacked(data: bytes) -> Built:
    """A symcache, the facts as JSON, and their size as u32."""
    end = len(data) - 4 - int.from_bytes(data[-4:], "little")
    if end < 0:
        raise ValueError("cut short")
    return Built(Symcache(memoryview(data)[:end]), *json.loads(data[end:-4]))


def _in_child(image: IO[bytes]) -> bytes:
    descriptor = image.fileno()
    size = os.fstat(descriptor).st_size
    memory, seconds = _MEMORY + size * _MEMORY_PER_BYTE, _SECONDS + size // _BYTES_PER_SECOND
    script = str(Path(__file__).with_name("symcache_child.py"))
    command = [sys.executable, "-P", script, str(descriptor), str(memory), str(seconds)]
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        try:
            status = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                pass_fds=(descriptor,),
                timeout=seconds * _WAIT,
            ).returncode
        except subprocess.TimeoutExpired:
            status = -signal.SIGXCPU
        if status:
            errors.seek(0)
            text = errors.read(_MAX_MESSAGE).decode(errors="replace")
            raise BuildError(_reason(status, text, memory, seconds))
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
