"""Stacks of real programs, recorded one after another by `unspool record` at 199 Hz.

    python -m tests.proof.program_proof [--seconds N] [--only WORD] [--keep FOLDER] [--write-docs]

Of each program are told: how many samples (and how much of the time) have complete, guessed and cut stacks,
those with JIT code in them apart (V8's built-in functions are JIT code that was made before: no file
describes them); every kind of stack that is not complete, with its number and why; what was lost or not
sampled; and the CPU time that samples stand for beside what the kernel counted for the whole run.

In complete stacks every caller is put to a test: where a direct call is before a return address, it must lead
to the function below, through stubs and tail jumps if need be (call_check.py).

Exits with 1 when such a call leads elsewhere, when a program's CPU time is 2 % off, or when more than 0.5 %
of its samples outside JIT code are not complete for no reason that is known.
"""

from __future__ import annotations

import argparse
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tests.proof.call_check import Calls, check_calls
from tests.proof.program_docs import write_docs
from tests.proof.recorded_programs import Ready, RealProgram, all_programs
from unspool.capture.samples import BinaryKind, Flag
from unspool.core_interface import GUESS
from unspool.profile.model import Profile
from unspool.unwind import How, StackEnd

RATE = 199
LARGEST_UNEXPLAINED = 0.005
LARGEST_ERROR_OF_TIME = 0.02
# The shell says afterwards what the kernel counted for its children. It is recorded, too, and uses 1 ms.
TIMED = ["/bin/sh", "-c", 'trap : INT TERM; "$@"; times >&2', "sh"]
# Kinds of stacks that are not complete, and why.
REASONS = {
    "a library that was just loaded": re.compile("stale_modules|no_table_yet"),
    "an exception on its way": re.compile(r"(_Unwind_\w+|__gxx_personality_v0|__cxa_throw) of "),
    "the stack is longer than the copy of it that the kernel makes": re.compile("stack_bytes_ended|joined"),
    "OpenSSL's code keeps the address of its frame below sp, where the kernel copies nothing": re.compile(
        r"unreadable_memory, (first )?frame sha\d+_block_data_order"
    ),
}
V8_BUILTIN = re.compile("Builtins_")
TIMES = re.compile(r"^(\d+)m([\d.]+)s (\d+)m([\d.]+)s$", re.M)


@dataclass
class Group:
    """Some of a recording's samples: how many, and nanoseconds."""

    samples: int = 0
    time: int = 0


@dataclass
class Figures:
    """kernel: nanoseconds of CPU time that the kernel counted. kinds: of stacks outside JIT code that are not
    complete: what, and in which function."""

    name: str
    verdicts: dict[str, Group] = field(default_factory=dict)
    with_jit: dict[str, Group] = field(default_factory=dict)
    kinds: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    kernel: int = 0
    sampled: int = 0
    not_sampled: int = 0
    calls: Calls = field(default_factory=Calls)

    @property
    def by_reason(self) -> Counter[str]:
        """How many stacks are not complete, and why; "": nobody knows."""
        found: Counter[str] = Counter()
        for kind, count in self.kinds.items():
            found[next((why for why, form in REASONS.items() if form.search(kind)), "")] += count
        return found

    @property
    def samples(self) -> int:
        return sum(group.samples for group in self.verdicts.values())

    def share(self, verdict: str, of: str = "samples") -> float:
        """Outside JIT code."""
        whole = sum(getattr(group, of) for group in self.verdicts.values())
        return getattr(self.verdicts[verdict], of) / whole if whole else 0.0

    @property
    def error_of_time(self) -> float:
        return self.sampled / self.kernel - 1 if self.kernel else 1.0

    @property
    def error_of_total(self) -> float:
        """Of all that the recording tells: what is not sampled, too."""
        return (self.sampled + self.not_sampled) / self.kernel - 1 if self.kernel else 1.0

    @property
    def failures(self) -> list[str]:
        said = []
        unexplained = self.by_reason[""] / max(1, self.samples)
        if unexplained > LARGEST_UNEXPLAINED:
            said.append(f"{unexplained:.2%} of the stacks are not complete, and nobody knows why")
        if abs(self.error_of_time) > LARGEST_ERROR_OF_TIME:
            said.append(f"CPU time {self.error_of_time:+.1%}")
        if abs(self.error_of_total) > LARGEST_ERROR_OF_TIME:
            said.append(f"CPU time with what was not sampled {self.error_of_total:+.1%}")
        if self.calls.elsewhere or not self.calls.checked:
            said.append("calls lead elsewhere" if self.calls.elsewhere else "no call could be checked")
        return said


# ---------------------------------------------------------------- running


def record(program: RealProgram, ready: Ready, path: Path) -> int:
    """Returns the CPU time of the command in nanoseconds, as the kernel counted it."""
    command = [sys.executable, "-m", "unspool", "record", "-r", str(RATE), "--via", program.via]
    errors = path.with_suffix(".errors")
    with errors.open("w") as said:
        process = subprocess.Popen(
            [*command, "-o", str(path), "--", *TIMED, *ready.command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
            cwd=path.parent,
        )
        if ready.load is not None:
            try:
                ready.load()
            except BaseException:
                print(errors.read_text())
                raise
            finally:
                _end(process.pid, ready.end)
        process.wait(300)
    text = errors.read_text()
    times = TIMES.findall(text)
    if not times or not path.exists() or "unspool: no samples: " in text:
        raise RuntimeError(f"{program.name}: nothing was recorded: {text}")
    minutes_and_seconds = [float(number) for number in times[-1]]
    user, system = (60 * minutes_and_seconds[i] + minutes_and_seconds[i + 1] for i in (0, 2))
    return round((user + system) * 1e9)


def _end(recorder: int, with_signal: signal.Signals) -> None:
    """Ends the program, which is the shell's child."""
    for shell in _children(recorder):
        for pid in _children(shell):
            subprocess.run(["kill", f"-{with_signal.name.removeprefix('SIG')}", str(pid)], check=False)
    time.sleep(0.1)


def _children(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(word) for word in (task / "children").read_text().split()]
    return found


# ---------------------------------------------------------------- looking


class Look:
    """What a recording says of its stacks."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self._kinds = np.array([file.kind == BinaryKind.JIT for file in profile.binaries], np.bool_)

    def has_jit(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """bool[n]: a frame of the stack is JIT code."""
        profile = self.profile
        is_builtin = np.array([bool(V8_BUILTIN.match(name)) for name in profile.functions], np.bool_)
        physical = profile.line_function[profile.line_offsets[1:] - 1]
        is_jit = (self._kinds[profile.frame_binary] | is_builtin[physical])[profile.stack_frame]
        above = self.profile.tree.sums_above(is_jit.astype(np.int64))
        has_jit: np.ndarray[tuple[int], np.dtype[np.bool_]] = (above > 0)[self.profile.sample_stack]
        return has_jit

    def name(self, node: int) -> str:
        profile = self.profile
        frame = int(profile.stack_frame[node])
        entry = int(profile.line_offsets[frame + 1]) - 1  # the physical function
        file = Path(profile.binaries[profile.frame_binary[frame]].path).name
        return f"{profile.functions[profile.line_function[entry]]} of {file}"

    def kind(self, sample: int) -> str:
        """Why a stack is not complete, and where."""
        profile = self.profile
        node = int(profile.sample_stack[sample])
        flags = Flag(int(profile.sample_flags[sample]))
        path = [node]
        while profile.stack_parent[path[-1]] >= 0:
            path.append(int(profile.stack_parent[path[-1]]))
        guessed = [i for i, at in enumerate(path) if profile.stack_how[at] >= GUESS]
        end = StackEnd(int(profile.sample_end[sample]))
        words = ", ".join(str(flag.name).lower() for flag in Flag if flag & flags)
        words += ": " if words else ""
        if guessed:
            how = How(int(profile.stack_how[path[guessed[0]]]) & ~GUESS).name.lower()
            return f"{words}caller of {self.name(path[guessed[0] - 1])} guessed by {how}"
        if end != StackEnd.ROOT:
            place = "first frame" if len(path) == 1 else "frame"
            return f"{words}{end.name.lower()}, {place} {self.name(path[-1])}"
        return f"{words}innermost {self.name(node)}"


def look_at(name: str, path: Path, kernel: int) -> Figures:
    profile = Profile.open(str(path))
    look = Look(profile)
    found = Figures(name, kernel=kernel)
    jit = look.has_jit()
    for word, verdict in zip(("complete", "guessed", "cut"), profile.sample_verdicts, strict=True):
        for groups, chosen in ((found.verdicts, verdict & ~jit), (found.with_jit, verdict & jit)):
            groups[word] = Group(int(np.count_nonzero(chosen)), int(profile.sample_weight[chosen].sum()))
        if word != "complete":
            for sample in np.flatnonzero(verdict & ~jit).tolist():
                found.kinds[f"{word}: {look.kind(sample)}"] += 1
    for lost in profile.lost:
        found.lost[lost.reason] += lost.count
    found.problems = [text for _, text in profile.problems]
    found.sampled = int(profile.sample_weight.sum())
    found.not_sampled = sum(rest for rest in profile.not_sampled() if rest is not None)
    found.calls = check_calls(profile)
    return found


def show(found: Figures) -> None:
    shares = ", ".join(
        f"{word} {group.samples:,} ({found.share(word):.2%}, {found.share(word, 'time'):.2%} of the time)"
        for word, group in found.verdicts.items()
    )
    print(f"{found.name}: {found.samples:,} samples outside JIT code: {shares}")
    if any(group.samples for group in found.with_jit.values()):
        print("    with JIT code:", ", ".join(f"{w} {g.samples:,}" for w, g in found.with_jit.items()))
    print(
        f"    CPU time {found.sampled / 1e9:.2f} s of the kernel's {found.kernel / 1e9:.2f} s "
        f"({found.error_of_time:+.1%}); not sampled {found.not_sampled / 1e6:.1f} ms "
        f"({found.error_of_total:+.1%} with it); lost {dict(found.lost)}"
    )
    calls = found.calls
    print(
        f"    calls checked {calls.checked:,}, through stubs {calls.by_stub:,}, on by jumps {calls.by_jump:,}"
    )
    for why, count in found.by_reason.most_common():
        print(f"    {count:,} not complete: {why or 'nobody knows why'}")
    for what, count in [*found.kinds.most_common(25), *calls.elsewhere.most_common(20)]:
        print(f"    {count:,} {what}")
    for problem in found.problems:
        print(f"    problem: {problem}")
    print(f"    failed: {'; '.join(found.failures)}" if found.failures else "    good", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.proof.program_proof", description=__doc__)
    parser.add_argument("--seconds", type=int, default=6, help="of load, about")
    parser.add_argument("--only", default="", metavar="WORD", help="programs whose name has it")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the recordings there")
    parser.add_argument("--write-docs", action="store_true", help="write docs/programs.md")
    given = parser.parse_args()
    results = []
    for number, program in enumerate(all_programs()):
        if given.only not in program.name:
            continue
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            folder.chmod(0o755)
            inner = folder / "data"
            inner.mkdir()
            path = folder / f"{number}.unspool"
            kernel = record(program, program.prepare(inner, given.seconds), path)
            results.append(look_at(program.name, path, kernel))
            show(results[-1])
            if given.keep:
                given.keep.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, given.keep / f"{program.name.replace(' ', '_')}.unspool")
    if given.write_docs:
        write_docs(results, f"{platform.freedesktop_os_release()['PRETTY_NAME']}, {platform.machine()}")
    return int(any(found.failures for found in results))


if __name__ == "__main__":
    sys.exit(main())
