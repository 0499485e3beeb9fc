"""The command that perf recorded, as the recording tells it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from unspool.capture.perf_records import Named, OtherRecord
from unspool.capture.samples import Happening, ProcessStarted, SampleBatch

_NAME_BYTES = 15  # of a program's name that the kernel keeps
_TAKE_A_FILE = ("-o", "--output")
_ALL_CPUS = ("--all-cpus", "--cpu")


@dataclass
class RecordedCommand:
    """Is shown all of a recording. executed: name of the first program that a process became meanwhile;
    sampled: of the process with the first sample; "" = none."""

    executed: str = ""
    sampled: str = ""
    _names: dict[int, str] = field(default_factory=dict)  # of processes

    def note_records(self, records: Iterable[OtherRecord]) -> None:
        if not self.executed:
            named = (record.name for record in records if isinstance(record, Named) and record.is_exec)
            self.executed = next(named, "")

    def note(self, happening: Happening) -> None:
        if self.sampled:
            return
        if isinstance(happening, ProcessStarted):
            self._names[happening.pid] = happening.command
        elif isinstance(happening, SampleBatch):
            self.sampled = self._names.get(happening.pid, "")

    def of(self, words: Sequence[str]) -> str:
        """The command with its arguments if perf started it, else its name; "": all processors were recorded,
        or nothing is known. words: how perf was called."""
        start = next((i for i in range(1, len(words)) if self._is_program(words, i)), len(words))
        if any(_is_all_cpus(word) for word in words[1:start]):
            return ""
        return " ".join(words[start:]) or self.sampled or self.executed

    def _is_program(self, words: Sequence[str], index: int) -> bool:
        name = os.fsencode(PurePath(words[index]).name)[:_NAME_BYTES]
        return name == os.fsencode(self.executed) != b"" and words[index - 1] not in _TAKE_A_FILE


def _is_all_cpus(word: str) -> bool:
    """Short options may stand together: -ag."""
    if word.startswith("--"):
        return word.split("=")[0] in _ALL_CPUS
    return word.startswith("-") and word[1:].isalpha() and ("a" in word or "C" in word)
