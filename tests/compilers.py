"""Builds small programs for tests with the machine's compilers; a missing one skips (fails in CI)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

CODE = """
int counter = 3;
static int helper(int n) { return n * counter; }
int twice(int n) { return helper(n) + helper(n + 1); }
__attribute__((weak)) int weak_one(int n) { return twice(n) - 1; }
int main(int argc, char **argv) { return twice(argc) + weak_one(argc) + argv[0][0]; }
"""


def run(*command: str | Path) -> str:
    """Output of a command that must succeed."""
    if shutil.which(str(command[0])) is None:
        pytest.skip(f"{command[0]} is not installed")
    return subprocess.run([*command], check=True, capture_output=True, text=True, errors="replace").stdout


def build(folder: Path, name: str, *command: str, code: str = CODE) -> Path:
    """Compile code with `command -o folder/name`, which names the compiler and its options."""
    source = folder / f"{name}.c"
    source.write_text(code)
    run(command[0], "-o", folder / name, source, *command[1:])
    return folder / name
