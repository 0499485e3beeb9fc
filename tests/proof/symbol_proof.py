"""The proof of the symbolizer: `python -m tests.proof.symbol_proof [FILE...]`.

At 3,000 random code addresses of each program, the functions' names (mangled), the lines and the depth of
inlined calls equal llvm-symbolizer's. Every address where they do not is printed, with addr2line's answer as
the third opinion; less than 99.9 % of any kind fails.

A code address is one that an FDE covers (what lies between functions is padding), PLTs excepted: there
llvm-symbolizer prints the symbol before. Two names that the symbol table gives to the same bytes count as
equal, and are counted.

One kind of difference is known, about 6 in 100,000 addresses: where gcc gives the first instructions of a
function's cold part no row of their own, llvm-symbolizer, addr2line and gdb print the row before, which is
another function's, often in another file. We print no line.
"""

from __future__ import annotations

import itertools
import random
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tests.proof.symbol_corpus import Subject, subjects
from tests.proof.symbol_reference import Chain, addr2line, claim, llvm, without_symbols
from unspool import Binary
from unspool.binaries.symbol_table import FUNCTION
from unspool.symbols import Symbolizer
from unspool.unwind.table import RowFlag, UnwindTable

ADDRESSES = 3000
NEEDED = 0.999
KINDS = ("name", "file", "line", "depth")
SHF_EXECINSTR = 4


@dataclass(frozen=True)
class Difference:
    address: int  # virtual
    kinds: tuple[str, ...]
    ours: Chain
    llvm: Chain
    addr2line: Chain

    @property
    def verdict(self) -> str:
        """Whom addr2line agrees with, as far as the two differ."""
        sides = [name for name, chain in (("us", self.ours), ("llvm", self.llvm)) if self._agrees(chain)]
        return f"addr2line agrees with {' and '.join(sides) or 'neither'}"

    def _agrees(self, chain: Chain) -> bool:
        return "depth" not in _kinds(chain, self.addr2line) and not {*_kinds(chain, self.addr2line)} & {
            *self.kinds
        }


@dataclass
class Result:
    subject: Subject
    compared: int = 0
    aliases: int = 0  # addresses where both sides name the same bytes differently
    inlined: int = 0  # addresses with at least one inlined call
    equal: dict[str, int] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)

    def share(self, kind: str) -> float:
        return self.equal[kind] / self.compared

    @property
    def proved(self) -> bool:
        return all(self.share(kind) >= NEEDED for kind in KINDS)


def code_addresses(binary: Binary, count: int, seed: int) -> list[int]:
    """Random virtual addresses that FDEs cover, all equally likely, none twice."""
    rows = UnwindTable.compile(binary).rows
    rows = rows[rows["flags"] & RowFlag.NONE == 0]
    starts = rows["start"].astype(np.int64) + binary.image_address
    inside = np.zeros(len(rows), dtype=bool)
    for section in binary.sections:
        if section.flags & SHF_EXECINSTR and not section.name.startswith(".plt"):
            inside |= (starts >= section.address) & (starts < section.address + section.size)
    sizes = (rows["end"] - rows["start"]).astype(np.int64)[inside]
    ends = np.cumsum(sizes)
    chosen = random.Random(seed).sample(range(int(ends[-1])), min(count, int(ends[-1])))
    which = np.searchsorted(ends, chosen, "right")
    return (starts[inside][which] + np.array(chosen) - (ends - sizes)[which]).tolist()


def compare(subject: Subject, folder: Path, count: int = ADDRESSES, seed: int = 1) -> Result:
    with Binary.open(subject.path) as binary:
        addresses = code_addresses(binary, count, seed)
        symbolizer = Symbolizer(cache=False)
        relative = np.array(addresses, dtype=np.uint64) - np.uint64(binary.image_address)
        found = symbolizer.lookup_many(binary, relative)
        aliases = aliases_of(binary)
        findings = symbolizer.findings(binary)
        assert findings.debug_file is not None and not findings.notes, findings
    debug_file = Path(findings.debug_file)
    ours = [
        tuple(claim(place.raw_name, place.file, place.line) for place in found.chains[number])
        for number in found.which
    ]
    with Binary.open(debug_file) as binary:
        aliases |= aliases_of(binary)
    theirs = reference(debug_file, subject.path, folder, addresses)
    result = Result(subject, len(addresses), equal=dict.fromkeys(KINDS, 0))
    unequal: list[int] = []
    for index, (our_chain, their_chain) in enumerate(zip(ours, theirs, strict=True)):
        if our_chain and their_chain and frozenset((our_chain[-1].name, their_chain[-1].name)) in aliases:
            result.aliases += 1
            theirs[index] = their_chain = (
                *their_chain[:-1],
                their_chain[-1]._replace(name=our_chain[-1].name),
            )
        kinds = _kinds(our_chain, their_chain)
        for kind in KINDS:
            result.equal[kind] += kind not in kinds
        result.inlined += len(their_chain) > 1
        if kinds:
            unequal.append(index)
    third = addr2line(debug_file, [addresses[i] for i in unequal]) if unequal else []
    for index, opinion in zip(unequal, third, strict=True):
        kinds = _kinds(ours[index], theirs[index])
        result.differences.append(Difference(addresses[index], kinds, ours[index], theirs[index], opinion))
    return result


def aliases_of(binary: Binary) -> set[frozenset[str]]:
    """All pairs of names that the symbol table gives to the same bytes of code."""
    symbols = binary.symbols
    names: dict[tuple[int, int], set[str]] = {}
    for index in np.flatnonzero((symbols.type == FUNCTION) & (symbols.size > 0)).tolist():
        place = (int(symbols.address[index]), int(symbols.size[index]))
        names.setdefault(place, set()).add(symbols.name(index))
    return {frozenset(pair) for group in names.values() for pair in itertools.combinations(group, 2)}


def reference(debug_file: Path, path: Path, folder: Path, addresses: Sequence[int]) -> list[Chain]:
    """DWARF's answer as llvm-symbolizer reads it, and a symbol's where DWARF names no function."""
    hidden = without_symbols(debug_file, folder / "hidden")
    chains = llvm(hidden, addresses)
    nameless = [i for i, chain in enumerate(chains) if not chain or not chain[-1].name]
    for source in dict.fromkeys((debug_file, path)):
        if not nameless:
            break
        for index, chain in zip(nameless, llvm(source, [addresses[i] for i in nameless]), strict=True):
            if chain and chain[-1].name:
                chains[index] = chain
        nameless = [i for i in nameless if not chains[i] or not chains[i][-1].name]
    hidden.unlink()
    return chains


def _kinds(one: Chain, other: Chain) -> tuple[str, ...]:
    """In what two answers differ. Where the depth does, names and lines are those of the frames that both
    have, from the outermost on."""
    kinds = {"depth"} if len(one) != len(other) else set()
    for a, b in zip(reversed(one), reversed(other), strict=False):
        kinds |= {kind for kind, x, y in zip(KINDS, a, b, strict=False) if x != y}
    if len(one) != len(other) and not (one and other):
        kinds |= {"name", "line"}
    return tuple(kind for kind in KINDS if kind in kinds)


def lines_of(result: Result) -> Iterator[str]:
    shares = "".join(f"{result.share(kind):10.2%}" for kind in KINDS)
    counts = f"{result.compared:10,}{result.inlined:9,}{result.aliases:9,}"
    yield f"{result.subject.name:24}{counts}{shares}  {'' if result.proved else 'NOT PROVED'}".rstrip()
    for difference in result.differences:
        yield f"    {difference.address:#x}: {', '.join(difference.kinds)}: {difference.verdict}"
        for name, chain in (
            ("ours", difference.ours),
            ("llvm-symbolizer", difference.llvm),
            ("addr2line", difference.addr2line),
        ):
            text = " <- ".join(f"{c.name or '?'} {c.file or '?'}:{c.line}" for c in chain)
            yield f"        {name:16}{text or 'nothing'}"


def prove(chosen: Iterable[Subject]) -> list[Result]:
    print(f"{'program':24}{'addresses':>10}{'inlined':>9}{'aliases':>9}" + "".join(f"{k:>10}" for k in KINDS))
    results = []
    for subject in chosen:
        with tempfile.TemporaryDirectory() as folder:
            results.append(compare(subject, Path(folder)))
        print("\n".join(lines_of(results[-1])), flush=True)
    return results


def main(arguments: list[str]) -> int:
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        chosen = [Subject(Path(a).name, Path(a)) for a in arguments] or subjects(Path(folder))
        results = prove(chosen)
    failed = [result.subject.name for result in results if not result.proved]
    print(f"{len(results)} programs, {len(failed)} not proved, {time.monotonic() - started:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
