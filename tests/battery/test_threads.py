"""Threads: many, short ones, a main thread that ends first; stacks of all kinds."""

from pathlib import Path

import pytest

from tests.battery.harness import build, compare


def test_main_thread_ends_first(folder: Path) -> None:
    compare([build(folder, "main_ends.c")], status=7, samples=5)


def test_1000_threads_at_a_time(folder: Path) -> None:
    compare([build(folder, "many_threads.c"), "alive"], samples=3)


def test_10000_threads_created_and_ended(folder: Path) -> None:
    compare([build(folder, "many_threads.c"), "churn"], samples=3)


def test_exceptions_in_8_threads(folder: Path) -> None:
    compare([build(folder, "exceptions.cpp")], samples=10)


def test_allocation_in_8_threads(folder: Path) -> None:
    compare([build(folder, "allocation.c")], samples=5)


def test_longjmp(folder: Path) -> None:
    compare([build(folder, "jumps.c")], samples=2)


def test_coroutines_on_stacks_of_16_kilobytes(folder: Path) -> None:
    compare([build(folder, "coroutines.c")], samples=5)


def test_stacks_that_share_a_mapping(folder: Path) -> None:
    compare([build(folder, "shared_mapping.c")], samples=5)


def test_handled_stack_overflow(folder: Path) -> None:
    compare([build(folder, "stack_overflow.c")], samples=10)


@pytest.fixture(scope="module")
def libraries(folder: Path) -> list[Path]:
    options = [
        ["-shared", "-fPIC", f"-DNUMBER={number}", f"-DSIZE={number * number}"] for number in (1, 2, 3, 4)
    ]
    return [
        build(folder, "library.c", *each, name=f"lib{number}.so") for number, each in enumerate(options, 1)
    ]


def test_libraries_come_and_go(folder: Path, libraries: list[Path]) -> None:
    """Different ones, mostly at the same address."""
    compare([build(folder, "libraries.c", "-ldl"), *libraries], samples=10)


def test_mapped_files_are_truncated(folder: Path, libraries: list[Path], tmp_path: Path) -> None:
    program = build(folder, "truncated_file.c", "-ldl")
    copying = ["sh", "-c", 'cp "$1" "$2.$$" && exec "$0" "$2.$$"', program, libraries[0], tmp_path / "cut.so"]
    compare(copying, samples=2)
