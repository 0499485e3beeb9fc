"""Samples in libraries that were loaded a moment ago, of which nothing is in the cache: every stack is
complete. Where others were unloaded meanwhile it may not be, but then it does not say so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.recording import build, record
from unspool.profile.model import Profile


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def libraries(folder: Path, source: str, count: int, *options: str) -> list[Path]:
    """Libraries of one source, each with a number of its own."""
    built = []
    for number in range(count):
        library = build(folder, source, "-shared", "-fPIC", f"-DNUMBER={number}", *options)
        built.append(library.rename(folder / f"{library.name}{number}.so"))
    return built


def stacks(profile: Profile) -> list[tuple[bool, list[str]]]:
    """Of each sample: whether it is complete, and the functions on its stack, innermost first."""
    found = []
    verdicts = profile.sample_verdicts[0].tolist()
    for node, complete in zip(profile.sample_stack.tolist(), verdicts, strict=True):
        names = []
        while node >= 0:
            frame = profile.stack_frame[node]
            lines = profile.line_function[profile.line_offsets[frame] : profile.line_offsets[frame + 1]]
            names += [profile.functions[function] for function in lines.tolist()]
            node = int(profile.stack_parent[node])
        found.append((complete, names))
    return found


@pytest.mark.parametrize(("rate", "room"), [(2000, 2000), (199, 40000)])
def test_every_stack_in_a_new_library_is_complete(tmp_path: Path, rate: int, room: int) -> None:
    """In its constructor, below the loader; in a function of it with a frame of some size; in a function of
    the program that it calls; in a thread that was not there before."""
    program = build(tmp_path, "newborn.c", "-ldl")
    born = libraries(tmp_path, "born.c", 4, f"-DROOM={room}")
    result = record(tmp_path, [program, *born], "-r", str(rate))
    assert result.status == 0, result.errors
    found = stacks(Profile.open(str(result.path)))
    incomplete = [names for complete, names in found if not complete]
    assert incomplete == []
    for name, callers in (
        ("burn_in_constructor", {"construct", "load", "main"}),
        ("burn_in_library", {"use", "in_thread"}),
        ("burn_below", {"below", "use", "in_thread"}),
    ):
        inside = [names for _, names in found if name in names]
        assert len(inside) > rate / 100, name
        assert all(callers <= set(names) for names in inside), name


def test_no_stack_is_taken_for_one_in_the_library_that_came_after(tmp_path: Path) -> None:
    program = build(tmp_path, "swapped.c", "-ldl")
    result = record(tmp_path, [program, *libraries(tmp_path, "swap.c", 4)], "-r", "2000")
    assert result.status == 0, result.errors
    complete = [names for complete, names in stacks(Profile.open(str(result.path))) if complete]
    inside = [names for names in complete if any(name.startswith(("run_", "burn_")) for name in names)]
    assert len(inside) > 50
    for names in inside:
        numbers = {name.rpartition("_")[2] for name in names if name.startswith(("run_", "burn_", "in_"))}
        assert len(numbers) == 1, names
        assert {f"run_{number}" for number in numbers} <= set(names), names
