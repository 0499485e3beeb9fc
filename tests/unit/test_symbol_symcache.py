"""Our reader of symcaches against symbolic's own, and with damaged bytes."""

from __future__ import annotations

import posixpath
import random
import struct
from pathlib import Path

import numpy as np
import pytest
from symbolic.symcache import SymCache as SymbolicSymcache

from tests.compilers import build
from unspool import Binary
from unspool.cache import Cache
from unspool.symbols.symcache import NONE, Symcache, SymcacheError
from unspool.symbols.symcache_build import build as build_symcache

CODE = """
#include <stdio.h>
#include <stdlib.h>
static int add(int a, int b) { return a + b; }
static inline int twice(int n) { int sum = 0; for (int i = 0; i < n; i++) sum = add(sum, 2); return sum; }
static inline int thrice(int n) { return twice(n) + add(n, n * rand()); }
int work(int n) { if (n < 0) { puts("negative"); abort(); } return thrice(n) + twice(n - 1); }
int main(int argc, char **argv) { return work(argc) + argv[0][0]; }
"""


def symcache_bytes(path: Path) -> bytes:
    with Binary.open(path) as binary:
        (symcache,) = build_symcache(binary, [], binary.image_address, None, Cache.none()).symcaches
        return bytes(symcache._data)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return symcache_bytes(
        build(tmp_path_factory.mktemp("symcache"), "program", "gcc", "-g", "-O2", code=CODE)
    )


def test_every_address_is_as_symbolic_says(data: bytes) -> None:
    ours, theirs = Symcache(data), SymbolicSymcache.from_bytes(data)
    addresses = range(int(ours._ranges[-1]) + 50)
    found = ours.find(np.array(addresses, dtype=np.uint64))
    depths = set()
    for address, location in zip(addresses, found.tolist(), strict=True):
        places = ours.places(location) if location >= 0 else []
        expected = [(p.symbol, p.full_path, p.line) for p in theirs.lookup(address)]
        assert [(p.name, p.file, p.line) for p in places] == expected, hex(address)
        depths.add(len(places))
    assert {0, 1, 2, 3} <= depths


def test_addresses_beyond_32_bits_are_unknown(data: bytes) -> None:
    addresses = np.array([0, NONE - 1, NONE, 1 << 32, (1 << 32) + 0x1100, (1 << 64) - 1], dtype=np.uint64)
    assert Symcache(data).find(addresses).tolist() == [-1] * 6


@pytest.mark.parametrize(
    ("base", "directory", "name", "path"),
    [
        ("/build/x", "", "a.c", "/build/x/a.c"),
        ("/build/x", "src", "a.c", "/build/x/src/a.c"),
        ("/build/x", "../src", "a.c", "/build/src/a.c"),
        ("/build/x", "/usr/include", "a.h", "/usr/include/a.h"),
        ("/build/x", "src", "/absolute/a.c", "/absolute/a.c"),
        ("./string", "./string", "a.c", "string/a.c"),  # Debian maps the build directory to "."
        ("./string", "../sysdeps", "a.S", "sysdeps/a.S"),
        ("", "src", "a.c", "src/a.c"),
        ("", "", "a.c", "a.c"),
    ],
)
def test_paths_are_joined_once(base: str, directory: str, name: str, path: str) -> None:
    assert one_file(base, directory, name).places(0)[0].file == path


def one_file(base: str, directory: str, name: str, into: int = NONE) -> Symcache:
    """One range at 0 with one function."""
    strings, offsets = b"", []
    for text in (base, directory, name, "f"):
        offsets.append(len(strings))
        strings += bytes([len(text)]) + text.encode()
    parts = [
        struct.pack("<6I", *offsets[:3], NONE, NONE, NONE),
        struct.pack("<4I", offsets[3], NONE, 0, 0),
        struct.pack("<4I", 0, 7, 0, into),
        struct.pack("<I", 0),
    ]
    data = (
        b"SYMC"
        + struct.pack("<I", 9)
        + bytes(32)
        + struct.pack("<6I", 0, 1, 1, 1, 1, len(strings))
        + bytes(16)
    )
    for part in (*parts, strings):
        data += bytes(-len(data) % 8) + part
    return Symcache(data)


def test_a_call_that_is_inlined_into_itself_ends() -> None:
    assert 0 < len(one_file("", "", "a.c", into=0).places(0)) <= 1000


@pytest.mark.parametrize("version", [0, 8, 10, 0xFFFFFFFF])
def test_another_version_is_an_error(data: bytes, version: int) -> None:
    with pytest.raises(SymcacheError, match=f"version {version}"):
        Symcache(data[:4] + version.to_bytes(4, "little") + data[8:])


def test_every_size_but_the_right_one_is_an_error(data: bytes) -> None:
    for size in [*range(200), *range(200, len(data), 97), len(data) - 1]:
        with pytest.raises(SymcacheError):
            Symcache(data[:size])
    with pytest.raises(SymcacheError):
        Symcache(data + bytes(8))


def test_damaged_content_is_an_error_or_an_answer(data: bytes) -> None:
    choice = random.Random(5)
    addresses = np.array(range(0, 0x2000, 7), dtype=np.uint64)
    for _ in range(500):
        damaged = bytearray(data)
        for _ in range(choice.randrange(1, 40)):
            damaged[choice.randrange(len(damaged))] = choice.choice((0, 0xFF, 0x80, choice.randrange(256)))
        try:
            symcache = Symcache(bytes(damaged))
        except SymcacheError:
            continue
        for location in set(symcache.find(addresses).tolist()):
            for place in symcache.places(location):
                assert isinstance(place.name, str) and place.line >= 0
                assert place.file is None or posixpath.normpath(place.file) == place.file
