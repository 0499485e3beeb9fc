"""The format of pprof, gzip over protobuf: https://github.com/google/pprof/blob/main/proto/README.md.

A sample here is what is alike in a recording: same stack, thread and end. For each event there are two
values, the number of samples and their weight. A location is a frame; its address is the one that is looked
up (within the call, not after it) as the file numbers it. So every mapping spans all addresses from 0, which
pprof takes for "addresses are the file's own". Frames without a name have no line: pprof can name them from
the file. Labels: thread, tid, process, pid, and stack: "complete", "guessed", or where and why it was cut.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from datetime import datetime
from functools import cache
from typing import Any

import numpy as np

from unspool.capture.samples import BinaryKind
from unspool.export.leaves import COMPRESSION, VERDICTS, Leaves, printable
from unspool.export.pprof_messages import Message, new_profile
from unspool.profile import Profile

_LAST_ADDRESS = (1 << 64) - 1
_WITH_FILE = (BinaryKind.FILE, BinaryKind.VDSO)


def pprof(profile: Profile) -> bytes:
    """The whole file."""
    return gzip.compress(_Encoder(profile).encoded(), COMPRESSION, mtime=0)


class _Strings(dict[str, int]):
    """The string table: each string once, "" first."""

    def __init__(self) -> None:
        super().__init__({"": 0})

    def of(self, text: str) -> int:
        return self.setdefault(printable(text), len(self))


class _Encoder:
    """Ids are indices plus 1."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._leaves = Leaves.of(profile)
        self._strings = _Strings()
        self._functions: dict[tuple[int, int], int] = {}  # (function, file) -> id
        self._message = new_profile()

    def encoded(self) -> bytes:
        self._add_values()
        self._add_mappings()
        self._add_locations()
        self._add_functions()
        self._add_samples()
        self._add_facts()
        self._message.string_table.extend(self._strings)
        return bytes(self._message.SerializeToString())

    def _add_values(self) -> None:
        events = self._profile.events
        for event in events:
            counts = "samples" if len(events) == 1 else f"{event.name}_samples"
            self._message.sample_type.add(type=self._strings.of(counts), unit=self._strings.of("count"))
            self._message.sample_type.add(
                type=self._strings.of(event.name), unit=self._strings.of(event.unit)
            )
        if events:
            self._message.default_sample_type = self._strings.of(events[0].name)

    def _add_mappings(self) -> None:
        profile = self._profile
        of_line = np.repeat(profile.frame_binary, np.diff(profile.line_offsets))

        def binaries_where(holds: np.ndarray[Any, np.dtype[np.bool_]]) -> set[int]:
            return set(np.unique(of_line[holds]).tolist())

        named = binaries_where(profile.function_is_named[profile.line_function])
        with_files = binaries_where(profile.line_file >= 0)
        with_lines = binaries_where(profile.line_number > 0)
        binaries = list(enumerate(profile.binaries))
        binaries.sort(key=lambda item: item[1].kind is not BinaryKind.FILE or ".so" in item[1].path)
        for number, binary in binaries:  # the program first
            self._message.mapping.add(
                id=number + 1,
                memory_limit=_LAST_ADDRESS,
                filename=self._strings.of(binary.path),
                build_id=self._strings.of(binary.build_id or ""),
                has_functions=number in named,
                has_filenames=number in with_files,
                has_line_numbers=number in with_lines,
                has_inline_frames=number in with_lines,  # lines come with the inlined calls
            )

    def _add_locations(self) -> None:
        profile = self._profile
        lookup = profile.frame_address - profile.frame_is_return  # wraps, as addresses do
        offsets = profile.line_offsets.tolist()
        lines = list(
            zip(
                profile.line_function.tolist(),
                profile.line_file.tolist(),
                profile.line_number.tolist(),
                strict=True,
            )
        )
        named = profile.function_is_named.tolist()
        for frame, binary in enumerate(profile.frame_binary.tolist()):
            file = profile.binaries[binary]
            base = file.image_address if file.kind in _WITH_FILE else 0
            address = (int(lookup[frame]) + base) & _LAST_ADDRESS
            location = self._message.location.add(id=frame + 1, mapping_id=binary + 1, address=address)
            for function, source, number in lines[offsets[frame] : offsets[frame + 1]]:
                if named[function]:
                    known = self._functions.setdefault((function, source), len(self._functions) + 1)
                    location.line.add(function_id=known, line=number)

    def _add_functions(self) -> None:
        for (function, file), number in self._functions.items():
            name = self._strings.of(self._profile.functions[function])
            path = self._strings.of(self._profile.files[file]) if file >= 0 else 0
            self._message.function.add(id=number, name=name, system_name=name, filename=path)

    def _add_samples(self) -> None:
        leaves = self._leaves
        values = [0] * (2 * len(self._profile.events))
        locations = self._locations()
        of_thread = self._thread_labels()
        of_stack = [self._labels(stack=word)[0] for word in (*VERDICTS, *leaves.marks)]
        columns = (
            leaves.event,
            leaves.thread,
            leaves.stack,
            leaves.weight,
            leaves.samples,
            leaves.verdict,
            leaves.mark,
        )
        for event, thread, node, weight, samples, verdict, mark in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            sample = self._message.sample.add()
            sample.location_id.extend(locations(node))
            values[2 * event : 2 * event + 2] = samples, weight
            sample.value.extend(values)
            values[2 * event : 2 * event + 2] = 0, 0
            sample.label.extend(of_thread[thread])
            sample.label.append(of_stack[verdict if mark < 0 else len(VERDICTS) + mark])

    def _locations(self) -> Callable[[int], tuple[int, ...]]:
        """Of a node. Kept, since threads have stacks in common."""
        ids, parents = (self._profile.stack_frame + 1).tolist(), self._profile.stack_parent.tolist()

        @cache
        def of(node: int) -> tuple[int, ...]:
            found = []
            while node >= 0:
                found.append(ids[node])
                node = parents[node]
            return tuple(found)

        return of

    def _thread_labels(self) -> list[list[Message]]:
        processes = self._profile.processes
        return [
            self._labels(
                thread=thread.name,
                tid=thread.tid,
                process=processes[thread.process].command,
                pid=processes[thread.process].pid,
            )
            for thread in self._profile.threads
        ]

    def _labels(self, **labels: str | int) -> list[Message]:
        found = type(self._message)().sample.add().label
        for key, value in labels.items():
            named = {"str": self._strings.of(value)} if isinstance(value, str) else {"num": value}
            found.add(key=self._strings.of(key), **named)
        return list(found)

    def _add_facts(self) -> None:
        message, meta = self._message, self._profile.meta
        rate, started = meta.get("rate"), meta.get("started")
        if self._profile.time_event is not None and isinstance(rate, int) and rate > 0:
            event = self._profile.events[self._profile.time_event]
            message.period_type.type = self._strings.of(event.name)
            message.period_type.unit = self._strings.of(event.unit)
            message.period = 1_000_000_000 // rate
        if isinstance(started, str):
            message.time_nanos = _nanoseconds(started)
        lost = sum(lost.count for lost in self._profile.lost)
        message.comment.append(self._strings.of(f"lost samples: {lost}"))


def _nanoseconds(moment: str) -> int:
    """Of the Unix epoch; 0: it is no ISO 8601 moment."""
    try:
        return int(datetime.fromisoformat(moment).timestamp() * 1000) * 1_000_000
    except ValueError:
        return 0
