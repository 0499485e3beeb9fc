"""WalkTable: function by function it says what a whole table says; where it can't, there is none."""

from pathlib import Path

import pytest

from tests.system_files import system_file
from unspool import Binary, UnwindTable
from unspool.core import TablePool
from unspool.unwind.table import RowFlag, WalkTable
from unspool.unwind.table_cache import walk_table


@pytest.mark.parametrize("arch", ["x86_64", "aarch64"])
def test_it_says_what_a_whole_table_says(arch: str) -> None:
    """At the first and last address of every seventh row of the C library, from the last to the first."""
    binary = Binary.open(system_file(arch, "libc.so.6"))
    whole, walked = UnwindTable.compile(binary), WalkTable.begin(binary, TablePool())
    assert walked is not None
    asked = 0
    for start, end, *says in reversed(whole.rows[::7].tolist()):
        for address in (start, end - 1):
            row = walked.lookup(address)
            asked += 1
            if row is None or row.flags & says[-1] & RowFlag.NONE:
                assert says[-1] & RowFlag.NONE
                continue
            assert row.start <= address < row.end
            assert list(row[2:]) == says
            assert whole.exact(address) == walked.exact(address)
    assert asked > 5000


def test_two_files_share_a_pool() -> None:
    pool = TablePool()
    binary = Binary.open(system_file("x86_64", "libc.so.6"))
    one, other = WalkTable.begin(binary, pool), WalkTable.begin(binary, pool)
    assert one is not None
    assert other is not None
    middle = int(UnwindTable.compile(binary).rows["start"][1000])
    expected = one.lookup(middle)
    del one  # what it had compiled stays in the pool
    assert expected is not None
    assert other.lookup(middle) == expected


def test_a_file_that_the_index_does_not_serve_has_a_whole_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here one whose index is of a version that nobody knows."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    data = bytearray(Path(system_file("x86_64", "libc.so.6")).read_bytes())
    binary = Binary.open(system_file("x86_64", "libc.so.6"))
    index = binary.section(".eh_frame_hdr")
    assert index is not None
    data[index.offset] = 2
    damaged = Binary.from_bytes(bytes(data), "damaged")
    assert WalkTable.begin(damaged, TablePool()) is None
    assert isinstance(walk_table(damaged, TablePool()), UnwindTable)
