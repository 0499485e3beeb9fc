"""How fast tables are built and stacks are walked, on this machine: `make bench`.

Method. Everything is the best of several passes in one process, so caches are as warm as they get for
that amount of data. Tables: files of the system, sections already read; FDEs are counted by
.eh_frame_hdr. Stacks: threads of this process that wait at different depths of Python and C calls; each
sample of walk_many has a copy of its thread's stack of its own, so that reading it is cold, as it is
for a profiler. What it prints are figures of this run, not promises.
"""

import ctypes
import os
import platform
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from unspool import Binary, BinaryError, Registers, StackBytes, Unwinder
from unspool.core import Table
from unspool.unwind.table import compile_sections, section_inputs

LIBRARIES = ("libc.so.6", "libcrypto.so.3", "libstdc++.so.6", "libpython3.11.so.1.0")
SAMPLES = 10_000
THREADS = 24


def best_of(passes: int, work: Callable[[], object]) -> float:
    """Seconds of the fastest pass."""
    best = float("inf")
    for _ in range(passes):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


def measure_table(binary: Binary) -> str | None:
    """Nanoseconds an FDE to compile a file's table, or None where FDEs are not counted."""
    header = binary.section(".eh_frame_hdr")
    if header is None or bytes(header.data[:3]) != b"\x01\x1b\x03":  # version 1, count as udata4
        return None
    count = int.from_bytes(header.data[8:12], "little")
    sections = section_inputs(binary)

    def compile_table() -> Table:
        return compile_sections(binary, sections)[0]

    seconds, table = best_of(7, compile_table), compile_table()
    rows = table.row_count()
    name = Path(binary.path).name
    return f"{name:24} {count:7} FDEs {rows:7} rows  {seconds / count * 1e9:5.0f} ns an FDE"


def mappings() -> list[tuple[int, int, str, int, str]]:
    """This process's mappings: start, end, permissions, file offset, path."""
    found = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, permissions, offset, _, _, *path = line.split(maxsplit=5)
        start, end = (int(part, 16) for part in addresses.split("-"))
        found.append((start, end, permissions, int(offset, 16), path[0] if path else ""))
    return found


def unwinder_of_this_process() -> tuple[Unwinder, list[Binary]]:
    """An unwinder with every mapped file, and those files."""
    unwinder = Unwinder(platform.machine())
    binaries: dict[str, Binary] = {}
    for start, end, permissions, offset, path in mappings():
        if "x" not in permissions or not path.startswith("/"):
            continue
        binary = binaries.setdefault(path, Binary.open(path))
        unwinder.add_module(binary, binary.image_base(start, offset, end), start=start, end=end)
    return unwinder, list(binaries.values())


def waiting_threads(gate: threading.Event) -> list[int]:
    """Thread ids of threads that wait, each below its own number of nested Python and C calls."""

    def descend(levels: int) -> None:
        if levels == 0:
            gate.wait()
        elif levels % 2:
            max([levels], key=lambda _: descend(levels - 1) or 0)
        else:
            descend(levels - 1)

    threads = [threading.Thread(target=descend, args=(n,), daemon=True) for n in range(1, THREADS + 1)]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    return [thread.native_id or 0 for thread in threads]


def stack_of(thread: int) -> tuple[Registers, bytes]:
    """A waiting thread's pc and sp, as the kernel tells them, and a copy of its stack."""
    fields = Path(f"/proc/self/task/{thread}/syscall").read_text().split()
    sp, pc = int(fields[-2], 16), int(fields[-1], 16)
    end = next(end for start, end, *_ in mappings() if start <= sp < end)
    return Registers(pc=pc, sp=sp), ctypes.string_at(sp, min(end - sp, 65528))


def measure_walk(unwinder: Unwinder, stacks: list[tuple[Registers, bytes]]) -> str:
    """Microseconds of one walk from Python, of the stack that is nearest to 30 frames."""
    walks = [(registers, StackBytes(registers.sp, data)) for registers, data in stacks]
    registers, memory = min(walks, key=lambda walk: abs(len(unwinder.walk(*walk)) - 30))
    stack = unwinder.walk(registers, memory)

    def walk_often() -> None:
        for _ in range(1000):
            unwinder.walk(registers, memory)

    return f"walk: {best_of(10, walk_often) * 1e3:.1f} us for {len(stack)} frames, {stack!r}"


def measure_walk_many(unwinder: Unwinder, stacks: list[tuple[Registers, bytes]], threads: int) -> str:
    """Nanoseconds a frame over many samples in random order."""
    order = np.random.default_rng(1).integers(0, len(stacks), SAMPLES)
    chosen = [stacks[i] for i in order]
    rows = [[registers.pc, registers.sp, registers.fp or 0, 0] for registers, _ in chosen]
    offsets = np.cumsum([0] + [len(data) for _, data in chosen]).astype(np.uint64)
    data = np.frombuffer(b"".join(data for _, data in chosen), np.uint8)
    arguments = (np.array(rows, np.uint64), offsets, data, threads)
    seconds, batch = best_of(5, lambda: unwinder.walk_many(*arguments)), unwinder.walk_many(*arguments)
    frames = len(batch.addresses)
    return (
        f"walk_many, {threads} thread(s): {seconds / frames * 1e9:.1f} ns a frame; {len(batch)} samples, "
        f"{frames / len(batch):.1f} frames each, {batch.complete.mean():.2%} complete"
    )


def main() -> None:
    """Print every figure, one a line."""
    print(f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}, Python", end=" ")
    print(platform.python_version())
    unwinder, loaded = unwinder_of_this_process()
    paths = {Path(binary.path).name: binary for binary in loaded}
    folder = Path(paths["libc.so.6"].path).parent
    for name in LIBRARIES:
        try:
            line = measure_table(paths.get(name) or Binary.open(folder / name))
        except BinaryError:
            continue
        print(line or f"{name}: its FDEs are not counted")
    gate = threading.Event()
    stacks = [stack_of(thread) for thread in waiting_threads(gate)]
    print(measure_walk(unwinder, stacks))
    for threads in (1, 2):
        print(measure_walk_many(unwinder, stacks, threads))
    gate.set()


if __name__ == "__main__":
    main()
