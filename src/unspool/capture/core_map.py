"""The memory map of the process that a core file is of: permissions from the core's segments, files from
its list of mapped files (NT_FILE), the kernel's own mappings from the auxiliary vector."""

from bisect import bisect_right
from collections.abc import Iterator

from unspool.capture.core_file import CoreSegment
from unspool.capture.core_notes import Auxiliary, CoreNotes, FileRange
from unspool.capture.memory_map import MapEntry, MemoryMap

UNKNOWN_PERMISSIONS = "????"  # gdb leaves what it does not dump out of the segments

_VSYSCALL = 0xFFFFFFFFFF600000  # x86_64: the same in every process


def core_memory_map(segments: list[CoreSegment], notes: CoreNotes) -> MemoryMap:
    """segments: by address, not overlapping. Entries have neither device nor inode."""
    files = list(_without_overlaps(notes.files))
    starts = [segment.start for segment in segments]
    entries = []
    for file in files:
        index = bisect_right(starts, file.start) - 1
        known = index >= 0 and file.start < segments[index].end
        permissions = segments[index].permissions + "p" if known else UNKNOWN_PERMISSIONS
        entries.append(MapEntry(file.start, file.end, permissions, file.file_offset, "", 0, file.path))
    file_ends = [file.end for file in files]
    for segment in segments:
        start = segment.start
        index = bisect_right(file_ends, start)
        while start < segment.end:
            following = files[index] if index < len(files) else None
            end = min(following.start, segment.end) if following is not None else segment.end
            if start < end:
                name = _kernel_name(start, end, notes.auxiliary)
                entries.append(MapEntry(start, end, segment.permissions + "p", 0, "", 0, name))
            start = following.end if following is not None else segment.end
            index += 1
    return MemoryMap(sorted(entries, key=lambda entry: entry.start))


def _without_overlaps(files: list[FileRange]) -> Iterator[FileRange]:
    reach = 0
    for file in sorted(files, key=lambda file: file.start):
        if file.start >= reach:
            reach = file.end
            yield file


def _kernel_name(start: int, end: int, auxiliary: dict[int, int]) -> str:
    if start == _VSYSCALL:
        return "[vsyscall]"
    if start <= auxiliary.get(Auxiliary.SYSINFO_EHDR, -1) < end:
        return "[vdso]"
    if start <= auxiliary.get(Auxiliary.RANDOM, -1) < end:  # 16 bytes above the first frame
        return "[stack]"
    return ""
