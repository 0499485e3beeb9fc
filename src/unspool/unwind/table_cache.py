"""Unwind tables kept on disk between runs, by build id, together with what could not be compiled.

Tables follow from the file and from the compiler of tables, so that another libunspool.so has a directory of
its own. A table from the disk is checked as any untrusted table is, and compiled anew if it is not sound.
"""

import json
from contextlib import suppress
from functools import cache as once
from hashlib import blake2b

from unspool.binaries import Binary
from unspool.cache import Cache, Kind, key_of
from unspool.core import TablePool, library_path
from unspool.unwind.table import Problem, ProblemKind, TableError, UnwindTable, WalkTable


def cached_table(binary: Binary, cache: Cache | None = None) -> UnwindTable:
    """The file's table, from the user's cache if it is there. Raises BinaryError."""
    cache = Cache.of_user() if cache is None else cache
    table = table_in_cache(binary, cache)
    if table is None:
        table = UnwindTable.compile(binary)
        key = key_of(binary)
        if key is not None:
            cache.write(_kind(), key, _packed(table))
    return table


def walk_table(binary: Binary, pool: TablePool) -> WalkTable:
    """What is enough for walks: nothing is compiled that they do not ask for, nor kept on disk, where
    .eh_frame_hdr serves for that. Raises BinaryError."""
    return WalkTable.begin(binary, pool) or cached_table(binary)


def table_in_cache(binary: Binary, cache: Cache) -> UnwindTable | None:
    """The file's table if an earlier run has kept it. Raises BinaryError: the file can't be read."""
    key = key_of(binary)
    data = None if key is None else cache.read(_kind(), key)
    if data is not None:
        with suppress(TableError, ValueError, TypeError):
            return _unpacked(data)
    return None


@once
def _kind() -> Kind:
    return Kind("unwind", blake2b(library_path().read_bytes(), digest_size=8).hexdigest())


def _packed(table: UnwindTable) -> bytes:
    """The table, its problems as JSON, and their size as u32."""
    problems = json.dumps([table.problem_count, table.problems]).encode()
    return b"".join((table.to_bytes(), problems, len(problems).to_bytes(4, "little")))


def _unpacked(data: bytes) -> UnwindTable:
    """Raises ValueError, TableError or TypeError if they are not what _packed made."""
    end = len(data) - 4 - int.from_bytes(data[-4:], "little")
    if end < 0:
        raise TableError("cut short")
    count, first = json.loads(data[end:-4])
    problems = tuple(Problem(ProblemKind(kind), section, offset) for kind, section, offset in first)
    return UnwindTable(UnwindTable.from_bytes(memoryview(data)[:end]).core_table, count, problems)
