"""Records the workloads with perf, once, and writes what every walker replays: registers, stack copies, and
the memory map with the files' unwind sections and code.

The recording is read by the parser behind `unspool import`. The file that is written is little-endian; all
numbers are u64, a block is its size and its bytes, padded to 8 (walkers/samples.h and framehop/ read it):

    number of modules; of samples
    a module: start, end, image base, image size, image address (virtual), entry, text address, data address;
              block: path; number of sections
    a section: kind, virtual address, whether it is open-ended; block: its bytes
    samples:  [n][4] pc, sp, fp, lr; [n + 1] offsets of the stack copies, which begin at sp; their bytes
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from unspool import Binary
from unspool.capture.perf_attributes import EventAttributes
from unspool.capture.perf_files import RecordedFiles
from unspool.capture.perf_header import read_header
from unspool.capture.perf_records import Mapped, RecordChunk, RecordParser
from unspool.capture.perf_registers import ABI_64, RegisterLayout
from unspool.capture.perf_spaces import AddressSpace, Tables
from unspool.capture.perf_stream import RecordStream
from unspool.unwind import table
from unspool.unwind.modules import Mapping

WORKLOADS = Path(__file__).parent / "workloads"
SECONDS, HERTZ, STACK = 4, 799, 16384
EH_FRAME, DEBUG_FRAME, TEXT, EH_FRAME_HDR, CODE, UNCOVERED_CODE = 1, 2, 3, 4, 5, 6
KINDS = {"eh_frame": EH_FRAME, "debug_frame": DEBUG_FRAME}


@dataclass
class Workload:
    """One recorded program. samples: what is written of it; count: how many."""

    name: str
    perf_data: Path
    samples: Path
    count: int


def build_workloads(out: Path) -> dict[str, list[str]]:
    """The command of each workload, but for how long it works."""
    cpp, rust = out / "mixed_cpp", out / "mixed_rs"
    subprocess.run(["g++", "-O2", "-fomit-frame-pointer", "-o", cpp, WORKLOADS / "mixed.cpp"], check=True)
    subprocess.run(["rustc", "--edition=2021", "-O", "-o", rust, WORKLOADS / "mixed.rs"], check=True)
    return {
        "Python": [sys.executable, str(WORKLOADS / "mixed.py")],
        "C++": [str(cpp.resolve())],
        "Rust": [str(rust.resolve())],
    }


def record_workloads(out: Path) -> list[Workload]:
    """All three, recorded if they are not there yet."""
    workloads = []
    environment = os.environ | {
        "OPENBLAS_NUM_THREADS": "1"
    }  # as in most servers; else half of all samples wait
    for name, command in build_workloads(out).items():
        path = out / f"{name.lower().replace('+', 'p')}.data"
        if not path.exists():
            perf = ["perf", "record", "-q", "-e", "cpu-clock", "-F", str(HERTZ), "-m", "16M"]
            perf += ["--call-graph", f"dwarf,{STACK}", "-o", str(path), "--", *command, str(SECONDS)]
            subprocess.run(perf, check=True, stdout=subprocess.DEVNULL, env=environment)
        samples = path.with_suffix(".samples")
        workloads.append(Workload(name, path, samples, write_samples(path, samples)))
    return workloads


def write_samples(perf_data: Path, path: Path) -> int:
    """The number of samples written: those of the process that has most."""
    with perf_data.open("rb") as file:
        header = read_header(file, str(perf_data), perf_data.stat().st_size)
        parser = RecordParser()
        for event in header.events:
            parser.add_event(event.attributes, event.ids)
        stream = RecordStream(file, header, parser, lambda done, total: None)
        chunks = list(stream.chunks())
    files = RecordedFiles(header.arch, header.build_ids, None, is_local=True)
    pid = Counter(pid for chunk in chunks for _, part in chunk.samples for pid in part.pids.tolist())
    process = pid.most_common(1)[0][0]
    space = AddressSpace(header.arch, Tables({}))
    for chunk in chunks:
        for record in chunk.others:
            if isinstance(record, Mapped) and record.pid == process and not record.is_kernel:
                space, _ = space.with_mapping(record, files.find)
    parts = [part for chunk in chunks for part in stack_copies(chunk, parser.events, process, header.arch)]
    registers = np.concatenate([part[0] for part in parts])
    copies = [copy for part in parts for copy in part[1]]
    offsets = np.cumsum([0, *(len(copy) for copy in copies)]).astype(np.uint64)
    mappings = space.unwinder.modules.mappings
    with path.open("wb") as file:
        file.write(struct.pack("<QQ", len(mappings), len(copies)))
        for mapping in mappings:
            file.writelines(module_parts(mapping))
        file.write(registers.tobytes())
        file.write(offsets.tobytes())
        file.writelines(copies)
    return len(copies)


def stack_copies(
    chunk: RecordChunk, events: list[EventAttributes], process: int, arch: str
) -> Iterator[tuple[NDArray[np.uint64], list[bytes]]]:
    """Registers and stack copies of a process's samples."""
    for number, columns in chunk.samples:
        layout = RegisterLayout(arch, events[number].user_registers)
        chosen = columns.take((columns.pids == process) & (columns.abi == ABI_64))
        data = chunk.words.view(np.uint8)
        places = zip((chosen.stack_at * 8).tolist(), chosen.stack_size.tolist(), strict=True)
        yield layout.columns(chunk.words, chosen), [data[at : at + size].tobytes() for at, size in places]


def module_parts(mapping: Mapping) -> Iterator[bytes]:
    """One mapping of code, in the file's format."""
    module, binary = mapping.module, mapping.module.binary
    numbers = [mapping.start, mapping.end, module.image_base]
    if binary is None:
        yield struct.pack("<8Q", *numbers, 0, 0, 0, 0, 0)
        yield block(b"")
        yield struct.pack("<Q", 0)
        return
    image_size = max(one.address + one.memory_size for one in binary.segments) - binary.image_address
    addresses = [binary.image_address, binary.entry, binary.text_address, binary.data_address]
    yield struct.pack("<8Q", *numbers, image_size, *(address or 0 for address in addresses))
    yield block(binary.path.encode())
    sections = list(sections_of(binary))
    yield struct.pack("<Q", len(sections))
    for kind, address, is_open_ended, data in sections:
        yield struct.pack("<QQQ", kind, address, is_open_ended)
        yield block(data)


def sections_of(binary: Binary) -> Iterator[tuple[int, int, bool, bytes]]:
    """Kind, address, whether it is open-ended, bytes."""
    for section in binary.unwind_sections():
        yield KINDS[section.kind], section.address, section.open_ended, bytes(section.data)
    for kind, name in ((TEXT, ".text"), (EH_FRAME_HDR, ".eh_frame_hdr")):
        found = binary.section(name)
        if found is not None:
            yield kind, found.address, False, bytes(found.data)
    for segment in binary.segments:
        if segment.executable:
            yield CODE, segment.address, False, bytes(binary.code(segment.address, segment.file_size))
    if not table._code(binary):
        yield UNCOVERED_CODE, 0, False, b""
        without_code, _, _ = table.compile_sections(binary, table.section_inputs(binary))
        for address, code in table._uncovered_code(binary, without_code):
            yield UNCOVERED_CODE, address, False, bytes(code)


def block(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + data + bytes(-len(data) % 8)
