"""Sorts the inexact stacks of all traced programs into kinds, and shows the evidence for each.

A kind: the function whose caller was not found, the verdict and the end. What is said of it is read from
the file itself (objdump) and from the product's table, next to the true and the walked stack.
"""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from subprocess import run
from typing import Any

from tests.oracle.tracing import Mapped, Trace
from unspool import Binary, How, StackEnd

VERDICTS = [
    "exact",
    "rewritten",
    "destination",
    "guessed_right",
    "cut",
    "guessed_wrong",
    "wrong",
    "wrong_complete",
]
SHOWN_FRAMES = 6
GUESS = 0x80


@dataclass(frozen=True)
class Place:
    """Code in an image: relative address, and the symbol it is in."""

    image: str
    relative_address: int
    symbol: str | None
    offset: int

    def __str__(self) -> str:
        where = f"{self.symbol}+{self.offset:#x}" if self.symbol else f"{self.relative_address:#x}"
        return f"{Path(self.image).name} {where}"


@dataclass
class Kind:
    """Inexact stacks that failed in the same function in the same way."""

    verdict: str
    end: str
    function: str  # image and symbol; where there is none, image and address rounded down
    counts: Counter[str] = field(default_factory=Counter)  # by reader
    places: Counter[Place] = field(default_factory=Counter)
    combinations: Counter[str] = field(default_factory=Counter)
    example: dict[str, Any] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return sum(self.counts.values())

    def as_json(self) -> dict[str, Any]:
        """Everything, for a file."""
        keys = ("verdict", "end", "function", "counts", "combinations", "example")
        places = [{**asdict(where), "count": count} for where, count in self.places.most_common()]
        return {**{key: getattr(self, key) for key in keys}, "places": places}

    @staticmethod
    def from_json(described: dict[str, Any]) -> "Kind":
        places: Counter[Place] = Counter()
        for where in described["places"]:
            fields = {key: value for key, value in where.items() if key != "count"}
            places[Place(**fields)] += where["count"]
        others = {key: Counter(described[key]) for key in ("counts", "combinations")}
        names = (described[key] for key in ("verdict", "end", "function"))
        return Kind(*names, places=places, example=described["example"], **others)

    def add_to(self, kinds: dict[tuple[str, str, str], "Kind"]) -> None:
        """Adds what other combinations showed to what these did."""
        known = kinds.setdefault((self.verdict, self.end, self.function), self)
        if known is not self:
            known.counts.update(self.counts)
            known.places.update(self.places)
            known.combinations.update(self.combinations)


def place(trace: Trace, address: int, lookup: int | None = None) -> Place:
    """Where an address is. lookup: the address that decides which symbol it is in."""
    mapped = trace.find(address)
    if mapped is None or mapped.image is None:
        return Place("[no file]", address, None, 0)
    relative = address - mapped.image_base
    back = address - (address if lookup is None else lookup)
    name, offset = symbol(mapped.image.binary, relative - back + mapped.image.binary.image_address)
    return Place(mapped.image.path, relative, name, offset + back if name else 0)


_debug_files: dict[Binary, Binary] = {}


def symbol(binary: Binary, address: int) -> tuple[str | None, int]:
    """The symbol at a virtual address, from the file's debug file where the system has one."""
    if binary not in _debug_files:
        build_id = (binary.build_id or b"").hex()
        path = Path(f"/usr/lib/debug/.build-id/{build_id[:2]}/{build_id[2:]}.debug")
        _debug_files[binary] = Binary.open(path) if build_id and path.exists() else binary
    return _debug_files[binary].symbols.lookup(address) or (None, 0)


def end_name(end: int) -> str:
    return StackEnd(end).name.lower()


def how_name(how: int) -> str:
    return How(how & ~GUESS).name.lower() + "?" * bool(how & GUESS)


def collect(kinds: dict[tuple[str, str, str], Kind], combination: str, trace: Trace) -> None:
    """Add what one program showed."""
    for entry in trace.results["kinds"]:
        caller = entry["failed"] > 1  # its address is a return address
        where = place(trace, entry["address"], entry["address"] - caller)
        own = where.image == str(trace.program)
        function = where.symbol or f"{where.relative_address & ~0xFF:#x}"
        function = f"{'(program)' if own else Path(where.image).name} {function}"
        key = (entry["verdict"], end_name(entry["end"]), function)
        kind = kinds.setdefault(key, Kind(*key))
        kind.counts[entry["reader"]] += entry["count"]
        kind.places[where] += entry["count"]
        kind.combinations[combination] += entry["count"]
        if not kind.example:
            kind.example = {**entry, "combination": combination, "evidence": list(evidence(trace, entry))}


def evidence(trace: Trace, entry: dict[str, Any]) -> Iterator[str]:
    """Lines that say what stands at the failing frame, and how the two stacks differ there."""
    address, caller = entry["address"], entry["failed"] > 1
    yield f"at     {place(trace, address, address - caller)} ({address:#x}), step {entry['step']}"
    yield f"code   {instruction(trace.find(address), address, caller)}"
    yield f"row    {row(trace.find(address), address - caller)}"
    first = max(entry["failed"] - 2, 0)
    for name in ("truth", "walked"):
        frames = entry[name][first : first + SHOWN_FRAMES]
        texts = [frame_text(trace, entry, name, first + i, a) for i, a in enumerate(frames)]
        texts += ["…"] * (first + SHOWN_FRAMES < len(entry[name]))
        yield f"{name:6} #{first} {' ← '.join(texts) if texts else '(nothing)'}"


def frame_text(trace: Trace, entry: dict[str, Any], name: str, index: int, address: int) -> str:
    if not address:
        return "(not known yet)"
    where = str(place(trace, address, address - (index > 0))).split(" ", 1)[-1]
    return f"{where} [{how_name(entry['how'][index])}]" if name == "walked" else where


def row(mapped: Mapped | None, lookup_address: int) -> str:
    """What the product's table says there."""
    if mapped is None or mapped.image is None:
        return "no table"
    found = mapped.image.table.lookup(lookup_address - mapped.image_base)
    return "none" if found is None else str(found)


def instruction(mapped: Mapped | None, address: int, caller: bool) -> str:
    """The instruction at an address, or the call before a return address, as objdump says it."""
    if mapped is None or mapped.image is None or not mapped.image.path.startswith("/"):
        return "in no file"
    virtual = address - mapped.image_base + mapped.image.binary.image_address
    start, stop = (virtual - 8, virtual) if caller else (virtual, virtual + 16)
    objdump = "objdump" if mapped.image.binary.arch == os.uname().machine else "llvm-objdump-19"
    command = [objdump, "-d", f"--start-address={start}", f"--stop-address={stop}", mapped.image.path]
    out = run(command, capture_output=True, text=True).stdout
    lines = [line.strip() for line in out.splitlines() if "\t" in line]
    if not lines:
        return "none in the file"
    return " ".join(lines[-1 if caller else 0].split())
