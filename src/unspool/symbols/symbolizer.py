"""From a binary and an address in it to functions, files, lines and inlined calls.

DWARF answers first (through a symcache), the symbol table where DWARF says nothing. Whatever a file holds,
`lookup` raises nothing: what can't be read is told in `findings`.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from os import PathLike, fspath
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from unspool.binaries import Binary, BinaryError, SymbolTable
from unspool.cache import Cache, Kind, key_of
from unspool.symbols import debuginfod as _debuginfod
from unspool.symbols.debug_files import find_debug_file
from unspool.symbols.debug_packages import install_command
from unspool.symbols.debuginfod import DownloadError, Progress
from unspool.symbols.demangle import demangle, is_mangled
from unspool.symbols.dwarf_image import has_dwarf
from unspool.symbols.plt_stubs import STUB, StubTable, plt_stubs
from unspool.symbols.symcache import Place, Symcache
from unspool.symbols.symcache_build import BuildError, Built, build, cached

_DOWNLOADS = Kind("debuginfod", "1")
_MISSES = Kind("debuginfod-misses", "1")
_MISS_SECONDS = 24 * 3600
_ALIAS = "__GI_"  # glibc's internal name of read is __GI_read
_LOADED_AT_ONCE = 2  # files; for a while each takes several times the memory of its debug information


class Location(NamedTuple):
    """One function at an address.

    function: as the programmer wrote it, raw_name: as the file has it; None: the file does not say.
    file, line: of the code at the address; in a function that has inlined another one, of the call. None:
    unknown. inlined: this function's code was put into the next one's.
    """

    function: str | None
    raw_name: str | None
    file: str | None
    line: int | None
    inlined: bool


class Note(NamedTuple):
    """What is missing, and the command or the step that brings it ('' = nothing known)."""

    what: str
    remedy: str = ""


class Locations(NamedTuple):
    """The answer to many addresses: chains[which[i]] are the locations at the i-th address, innermost
    first; which: int64[n]. No chain occurs twice; an empty one stands for addresses without an answer."""

    chains: tuple[tuple[Location, ...], ...]
    which: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Findings:
    """Where a binary's functions and lines come from. debug_file: path or URL of the file with DWARF; None:
    there is none, only the symbol table. has_lines: files, lines and inlined calls are known. symbol_count:
    of both files' symbol tables."""

    debug_file: str | None
    has_lines: bool
    symbol_count: int
    notes: tuple[Note, ...]


@dataclass(slots=True)
class _Source:
    """What is known about one binary. `symbols`, `symcaches`: in the order in which they are asked; `chains`:
    by place and symbol, as `_find` gives them."""

    image_address: int
    symbols: list[SymbolTable] = field(default_factory=list)
    symcaches: tuple[Symcache, ...] = ()
    debug_file: str | None = None
    notes: list[Note] = field(default_factory=list)
    chains: dict[tuple[int, int], tuple[Location, ...]] = field(default_factory=dict)


class Symbolizer:
    """Answers for any number of binaries; thread-safe.

    debug_dirs: searched for debug files before /usr/lib/debug. debuginfod: may download them from the servers
    in $DEBUGINFOD_URLS; progress is told of every piece. cache: keeps what was read under
    $XDG_CACHE_HOME/unspool.
    """

    def __init__(
        self,
        debug_dirs: Iterable[str | PathLike[str]] = (),
        debuginfod: bool = False,
        cache: bool = True,
        progress: Callable[[Progress], None] | None = None,
    ) -> None:
        self._debug_dirs = [fspath(directory) for directory in debug_dirs]
        self._debuginfod = debuginfod
        self._cache = Cache.of_user() if cache else Cache.none()
        self._progress = progress
        self._sources: WeakKeyDictionary[Binary, _Source] = WeakKeyDictionary()
        self._lock = threading.RLock()
        self._loading: dict[Binary, Future[_Source]] = {}

    def lookup(self, binary: Binary, relative_address: int) -> tuple[Location, ...]:
        """The functions at a relative lookup address (never a return address), innermost first; () where
        the file says nothing. The last one is the physical function, the others were inlined."""
        if not 0 <= relative_address < 1 << 64:
            return ()
        found = self.lookup_many(binary, np.array([relative_address], dtype=np.uint64))
        return found.chains[found.which[0]]

    def lookup_many(self, binary: Binary, relative_addresses: NDArray[np.uint64]) -> Locations:
        """The same for uint64[n] relative lookup addresses."""
        with self._lock:
            source = self._source(binary)
            addresses, inverse = np.unique(np.asarray(relative_addresses, np.uint64), return_inverse=True)
            numbers: dict[tuple[Location, ...], int] = {}
            of_key: dict[tuple[int, int], int] = {}
            which = np.empty(len(addresses), dtype=np.int64)
            for index, key in enumerate(zip(*_find(source, addresses), strict=True)):
                if key not in of_key:
                    of_key[key] = numbers.setdefault(_chain(source, *key), len(numbers))
                which[index] = of_key[key]
            return Locations(tuple(numbers), which[inverse.reshape(-1)])

    @contextmanager
    def loading(self, binaries: Iterable[Binary]) -> Iterator[None]:
        """What lookups in these will need is read meanwhile, of two files at once: debug information that is
        not in the cache takes long."""
        pool = ThreadPoolExecutor(1 if self._debuginfod else _LOADED_AT_ONCE)
        with self._lock:
            new = [binary for binary in binaries if binary not in self._sources]
            self._loading = {binary: pool.submit(self._load, binary) for binary in new}
        try:
            yield
        finally:
            self._loading = {}
            pool.shutdown(cancel_futures=True)

    def findings(self, binary: Binary, *, ask_packages: bool = True) -> Findings:
        """Where the binary's functions and lines come from, and what is missing. ask_packages: say which
        package has the debug information, which takes the package database a second or two; without it,
        has_lines alone says that there is none."""
        with self._lock:
            source = self._source(binary)
            notes = list(source.notes)
            if not source.symcaches and ask_packages:
                what = f"{binary.path}: no debug information, hence no files, lines and inlined calls"
                notes.append(Note(what, install_command(binary.path)))
            count = sum(len(table) for table in source.symbols if not isinstance(table, StubTable))
            if not count and not source.symcaches:
                notes.append(Note(f"{binary.path}: no symbols were found"))
            return Findings(source.debug_file, bool(source.symcaches), count, tuple(notes))

    def _source(self, binary: Binary) -> _Source:
        source = self._sources.get(binary)
        if source is None:
            loading = self._loading.get(binary)
            source = self._load(binary) if loading is None else loading.result()
            self._sources[binary] = source
        return source

    def _load(self, binary: Binary) -> _Source:
        source = _Source(binary.image_address)
        key = key_of(binary)
        built = cached(key, self._cache)
        search = find_debug_file(binary, self._debug_dirs)
        source.notes.extend(Note(reason) for reason in search.rejected)
        debug_file = search.found
        if debug_file is None and self._debuginfod:
            debug_file = self._download(binary, source, may_ask=built is None)
        for file in dict.fromkeys(file for file in (debug_file, binary) if file is not None):
            try:
                source.symbols.append(file.symbols)
            except BinaryError as error:
                source.notes.append(Note(str(error)))
        if debug_file is not None:
            source.debug_file = debug_file.path
            if built is None:
                built = self._build(debug_file, binary, key, source)
            _note_limits(debug_file, source)
            if debug_file is not binary:
                debug_file.close()
        if built is not None:
            source.symcaches = built.symcaches
            if built.split:
                source.notes.append(_split_note(built, source.debug_file or binary.path))
        with suppress(BinaryError):  # which was told above
            stubs = plt_stubs(binary)
            if stubs is not None:
                source.symbols.append(stubs)
        return source

    def _build(self, debug_file: Binary, binary: Binary, key: str | None, source: _Source) -> Built | None:
        try:
            if binary.type == "rel" or not has_dwarf(debug_file):
                return None
            return build(debug_file, source.symbols, binary.image_address, key, self._cache)
        except (BuildError, BinaryError, OSError, MemoryError) as problem:
            reason = str(problem) or type(problem).__name__
            source.notes.append(Note(f"{debug_file.path}: its debug information can't be used: {reason}"))
            return None

    def _download(self, binary: Binary, source: _Source, may_ask: bool) -> Binary | None:
        """The debug file that was fetched before, or, if servers may be asked, from one of them."""
        if binary.build_id is None:
            source.notes.append(Note(f"{binary.path}: no build id, hence nothing from debuginfod"))
            return None
        key = binary.build_id[:64].hex()
        known = self._cache.file(_DOWNLOADS, key)
        try:
            if known is not None:
                return Binary.open(known)
            if not may_ask:
                return None
            if self._cache.read(_MISSES, key, _MISS_SECONDS) is not None:
                raise DownloadError("no server had it less than a day ago")
            with self._cache.temporary_file(_DOWNLOADS) as file:
                url = _debuginfod.fetch(binary.build_id, file, self._progress)
                downloaded = Binary.open(file.name)
                downloaded.path = url
                if downloaded.build_id != binary.build_id:
                    downloaded.close()
                    raise DownloadError(f"{url}: the file has another build id")
                self._cache.keep(_DOWNLOADS, key, file)
                return downloaded
        except DownloadError as error:
            if error.missing:
                self._cache.write(_MISSES, key, b"")
            source.notes.append(Note(f"{binary.path}: no debug file from debuginfod: {error}"))
        except (BinaryError, OSError) as error:
            source.notes.append(Note(f"{binary.path}: no debug file from debuginfod: {error}"))
        return None


def _find(source: _Source, addresses: NDArray[np.uint64]) -> tuple[list[int], list[int]]:
    """For each address its place (the symcache's number << 32 | source location), and, where that is missing
    or names no function in full, its symbol, counted through all tables; -1 = none."""
    places = np.full(len(addresses), -1, dtype=np.int64)
    for number, symcache in enumerate(source.symcaches):
        missing = np.flatnonzero(places < 0)
        found = symcache.find(addresses[missing])
        places[missing] = np.where(found >= 0, found | number << 32, -1)
    of_address = places.tolist()
    wanted = np.array(
        [place < 0 or not _is_full(_chain(source, place, -1)[-1]) for place in of_address], bool
    )
    symbols = np.full(len(addresses), -1, dtype=np.int64)
    virtual = addresses + np.uint64(source.image_address)  # wraps
    base = 0
    for table in source.symbols:
        asked = np.flatnonzero(wanted & (symbols < 0) & (virtual >= addresses))
        found = table.find(virtual[asked])
        symbols[asked] = np.where(found >= 0, found + base, -1)
        base += len(table)
    return of_address, symbols.tolist()


def _places(source: _Source, place: int) -> list[Place]:
    return source.symcaches[place >> 32].places(place & 0xFFFFFFFF) if place >= 0 else []


def _chain(source: _Source, place: int, symbol: int) -> tuple[Location, ...]:
    """The locations for what `_find` found."""
    chain = source.chains.get((place, symbol))
    if chain is None:
        chain = source.chains[place, symbol] = tuple(_make_chain(source, place, symbol))
    return chain


def _make_chain(source: _Source, place: int, symbol: int) -> Iterator[Location]:
    name = _symbol_name(source, symbol)
    places = _places(source, place)
    for depth, (raw_name, file, line) in enumerate(places):
        is_last = depth == len(places) - 1
        raw = _full_name(raw_name, name) if is_last else raw_name or None
        function = demangle(raw).removeprefix(_ALIAS) if raw else None
        yield Location(function, raw, file, line or None, not is_last)
    if not places and name:
        plain = name.removesuffix(STUB)
        yield Location(demangle(plain) + name[len(plain) :], name, None, None, False)


def _is_full(location: Location) -> bool:
    return location.raw_name is not None and is_mangled(location.raw_name)


def _full_name(name: str, symbol: str | None) -> str | None:
    """DWARF has no mangled name for C++ functions that other files can't call (static, or in a namespace
    without a name), only the last part of theirs: the symbol has all of it. It counts only if it ends in that
    part: other code may bear the name of what it was split off or merged with. glibc's functions have names
    there by which glibc itself calls them; others know them by the symbol's."""
    if not name or symbol is None:
        return name or symbol
    if name.startswith(_ALIAS) and "." not in symbol:
        return symbol
    mangled = symbol.split(".")[0]  # without ".cold", ".part.0", ...
    is_same = is_mangled(mangled) and re.search(rf"(?:^|::| ){re.escape(name)}(?:\(|$)", demangle(mangled))
    return mangled if is_same else name


def _symbol_name(source: _Source, symbol: int) -> str | None:
    for table in source.symbols:
        if 0 <= symbol < len(table):
            return table.name(symbol) or None
        symbol -= len(table)
    return None


def _note_limits(debug_file: Binary, source: _Source) -> None:
    """What symbolic can't read of a debug file."""
    try:
        link = debug_file.debug_alt_link
    except BinaryError as error:
        source.notes.append(Note(str(error)))
        return
    if link is not None:
        what = f"{debug_file.path}: names of inlined functions that dwz moved to {link[0]} can't be read"
        source.notes.append(Note(what, "nothing is to be done; files and lines are right"))


def _split_note(built: Built, path: str) -> Note:
    first = f" (the first: {built.split_file})" if built.split_file else ""
    what = (
        f"{path}: {built.split} of {built.units} compilation units have their functions in .dwo files{first}"
    )
    rest = "which unspool can't read: their inlined calls, and some files and lines, are missing"
    return Note(f"{what}, {rest}", "build with -gno-split-dwarf")
